package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Object is an object as the Controller returned it.
type Object struct {
	Type         string
	UUID         string
	Name         string
	LastModified string // of _last_modified; what a PUT carries back
	Full         bool   // Raw has every field
	Raw          json.RawMessage
}

// parseObject reads what every object has.
func parseObject(typ string, raw json.RawMessage) (Object, error) {
	var common struct {
		UUID         string `json:"uuid"`
		Name         string `json:"name"`
		LastModified string `json:"_last_modified"`
	}
	if err := json.Unmarshal(raw, &common); err != nil {
		return Object{}, unreadable(typ, err)
	}
	if common.UUID == "" {
		return Object{}, unreadable(typ, errors.New("an object without uuid"))
	}
	return Object{Type: typ, UUID: common.UUID, Name: common.Name, LastModified: common.LastModified, Full: true, Raw: raw}, nil
}

// Decode reads the fields into v.
func (o Object) Decode(v any) error {
	if err := json.Unmarshal(o.Raw, v); err != nil {
		return unreadable(o.Type+" "+o.Name, err)
	}
	return nil
}

// Ref is how other objects refer to this one.
func (o Object) Ref() string { return "/api/" + o.Type + "/" + o.UUID }

// Is reports whether a reference, as the Controller writes it, leads to this object.
func (o Object) Is(ref string) bool {
	r := ParseRef(ref)
	return r.UUID == o.UUID || (r.UUID == "" && r.Name == o.Name)
}

// overlay returns the object with some fields set anew and everything else as it was. A field set to nil is left out, which takes it
// back to its default.
func (o Object) overlay(fields map[string]any) (map[string]json.RawMessage, error) {
	var out map[string]json.RawMessage
	if err := json.Unmarshal(o.Raw, &out); err != nil {
		return nil, unreadable(o.Type+" "+o.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			delete(out, name)
			continue
		}
		text, err := json.Marshal(fields[name])
		if err != nil {
			return nil, fmt.Errorf("field %s of %s %s: %w", name, o.Type, o.Name, err)
		}
		out[name] = text
	}
	return out, nil
}

// Ref is a reference to an object taken apart. Either UUID or Name may be empty.
type Ref struct {
	Type, UUID, Name string
}

// ParseRef reads a reference in any form that a Controller takes or gives: "https://host/api/pool/pool-1#web", "/api/pool/pool-1",
// "/api/pool/?name=web&cloud=x", "/api/pool?name=web", or a bare uuid.
func ParseRef(text string) Ref {
	text, name, _ := strings.Cut(text, "#")
	path, query, _ := strings.Cut(text, "?")
	_, below, is := strings.Cut(path, "/api/")
	if !is {
		return Ref{UUID: path, Name: name}
	}
	typ, uuid, _ := strings.Cut(strings.TrimLeft(below, "/"), "/")
	r := Ref{Type: typ, UUID: strings.Trim(uuid, "/"), Name: name}
	for pair := range strings.SplitSeq(query, "&") {
		if value, is := strings.CutPrefix(pair, "name="); is && r.Name == "" {
			if plain, err := url.QueryUnescape(value); err == nil {
				r.Name = plain
			}
		}
	}
	return r
}

// RefByName is a reference to an object whose UUID is not known.
func RefByName(typ, name string) string { return "/api/" + typ + "?name=" + url.QueryEscape(name) }
