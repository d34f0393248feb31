package mcp

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// maxText is the longest string that mcpd stores in a property.
const maxText = 65535

// operation is what a request does with an object.
type operation int

const (
	creating operation = iota
	patching
	putting
)

// decoded is the body of a request after it was checked by itself.
type decoded struct {
	properties map[string]any
	// named is what a body says of name, partition and subPath; empty where it says nothing.
	name, partition, folder string
	// children is the list of the sub-collection; given tells none from an empty one.
	children []any
	given    bool
	// nothing is true when the body names no property at all.
	nothing bool
}

// ignored are what a GET shows and a request may send back.
var ignored = []string{"kind", "selfLink", "generation", "fullPath", "creationTime", "lastModifiedTime", "isSubcollection", "apiRawValues"}

// decode checks a body against the properties of a kind. in is the folder that the object is or will be in.
func (c *Configuration) decode(k *Kind, body map[string]any, op operation) (decoded, *Error) {
	d := decoded{properties: map[string]any{}, nothing: true}
	for _, name := range slices.Sorted(maps.Keys(body)) {
		value := body[name]
		if slices.Contains(ignored, name) || strings.HasSuffix(name, "Reference") {
			continue
		}
		switch name {
		case "name", "partition", "subPath":
			s, ok := value.(string)
			if !ok {
				return d, invalidValue(name, value)
			}
			*map[string]*string{"name": &d.name, "partition": &d.partition, "subPath": &d.folder}[name] = s
			continue
		}
		d.nothing = false
		if k.Child != nil && name == k.Child.Element() {
			items, ok := value.([]any)
			if !ok && value != nil {
				return d, invalidValue(name, value)
			}
			d.children, d.given = items, true
			continue
		}
		p, known := k.property(name)
		switch {
		case !known && (k.Loose || c.rules.UnknownProperties):
			d.properties[name] = value
			continue
		case !known:
			return d, invalid(APIInvalid, "%q unknown property", name)
		case p.ReadOnly:
			continue
		case p.CreateOnly && op != creating:
			return d, invalid(APIInvalid, `"%s" may not be specified in the context of the "modify" command. "%s" may be specified using the following commands: create, edit, list`, name, name)
		}
		converted, err := convert(p, value, c.rules)
		if err != nil {
			return d, err
		}
		d.properties[name] = converted
	}
	return d, nil
}

func invalidValue(name string, value any) *Error {
	shown, _ := json.Marshal(value) // it came as JSON
	return invalid(0, `invalid property value "%s":%s`, name, shown)
}

// convert makes the value of a property what is stored; nil is "not set".
func convert(p Property, value any, rules Rules) (any, *Error) {
	if value == nil {
		return nil, nil
	}
	bad := invalidValue(p.Name, value)
	switch p.Type {
	case number:
		n, ok := wholeNumber(value)
		if !ok || n < p.Min || (p.Max > 0 && n > p.Max) {
			return nil, bad
		}
		return n, nil
	case flag:
		if b, ok := value.(bool); ok {
			return b, nil
		}
		return nil, bad
	case list, paths:
		items, ok := value.([]any)
		if !ok {
			return nil, bad
		}
		return items, nil
	case record:
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, bad
		}
		return fields, nil
	case metadata:
		return convertMetadata(p, value)
	default: // the rest is text
	}
	s, ok := scalar(value)
	switch {
	case !ok:
		return nil, bad
	case len(s) > maxText:
		return nil, refuse(tooLong, "The string with more than %d characters cannot be stored in a message.", maxText)
	case p.Type == choice && !slices.Contains(p.Choices, s):
		return nil, bad
	case p.Type == rule:
		if _, err := naming.ParseRule(s, rules.BracesInMonitors); err != nil {
			return nil, invalid(0, "%s: %s", p.Name, err)
		}
	}
	if (s == "" || s == "none") && p.Default == nil && p.Type != choice {
		return nil, nil
	}
	return s, nil
}

// scalar is text; the REST layer takes numbers and flags for it as well.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

func wholeNumber(value any) (int64, bool) {
	s, ok := scalar(value)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// convertMetadata returns the entries with persist filled in, by name.
func convertMetadata(p Property, value any) (any, *Error) {
	items, ok := value.([]any)
	if !ok {
		return nil, invalidValue(p.Name, value)
	}
	var out []any
	seen := map[string]bool{}
	for _, item := range items {
		fields, ok := item.(map[string]any)
		name, named := fields["name"].(string)
		if !ok || !named || name == "" {
			return nil, invalidValue(p.Name, item)
		}
		if seen[name] {
			return nil, refuse(exists, "The requested metadata (%s) already exists.", name)
		}
		seen[name] = true
		entry := map[string]any{"name": name, "persist": "true"}
		for key, v := range fields {
			s, ok := scalar(v)
			if !ok || (key == "persist" && s != "true" && s != "false") || !slices.Contains([]string{"name", "persist", "value", "nameReference"}, key) {
				return nil, invalidValue(p.Name, item)
			}
			if len(s) > maxText {
				return nil, refuse(tooLong, "The string with more than %d characters cannot be stored in a message.", maxText)
			}
			entry[key] = s
		}
		out = append(out, entry)
	}
	if out == nil {
		return nil, nil
	}
	slices.SortFunc(out, func(a, b any) int {
		return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
	})
	return out, nil
}
