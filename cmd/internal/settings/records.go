package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// FileOnly reports whether the setting has neither a flag nor an environment variable: a list of records has no form there, except
// the short one.
func (s Setting) FileOnly() bool { return s.Kind == Records && s.Short == "" }

// Records returns the records of a Records setting. Each has the getters of Values, for the keys of Setting.Fields. What a record leaves
// out of a section is as outside of the list, if the table has the same section, and else its default.
func (v *Values) Records(key string) []*Values { return get[[]*Values](v, key) }

// Labels returns the value of a Labels setting; nil when there are none.
func (v *Values) Labels(key string) map[string]string { return get[map[string]string](v, key) }

// At returns where a record stands, "providers[1]", and "" of what is no record.
func (v *Values) At() string { return strings.TrimSuffix(v.at, ".") }

// records reads a Records setting from its source: a list of records in the file, or bare texts, which make one record.
func (v *Values) records(s Setting, raw any, source string) ([]*Values, error) {
	if texts, reason := convertList(raw); reason == "" && s.Short != "" {
		if len(texts.([]string)) == 0 {
			return nil, nil
		}
		// Its place is the setting's own: people wrote no record.
		record, err := v.record(s, "", map[string]any{s.Short: raw}, source)
		if err != nil {
			return nil, err
		}
		record.short = true
		return []*Values{record}, nil
	}
	list, isList := raw.([]any)
	if !isList {
		if raw == nil {
			return nil, nil
		}
		return nil, v.wrong(s, fmt.Sprint(raw), source, "want a list of records, each with "+fieldNames(s.Fields))
	}
	var out []*Values
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", s.Key, i)
		fields, isMap := item.(map[string]any)
		if !isMap {
			return nil, &Error{Key: at, Value: fmt.Sprint(item), Source: source, Reason: "want a record with " + fieldNames(s.Fields)}
		}
		record, err := v.record(s, at+".", fields, source)
		if err != nil {
			return nil, err
		}
		out = append(out, record)
	}
	return out, nil
}

// record reads one record; at is what stands before its keys in messages.
func (v *Values) record(s Setting, at string, fields map[string]any, source string) (*Values, error) {
	t := Table{Program: v.table.Program, EnvPrefix: v.table.EnvPrefix, Settings: s.Fields}
	if err := t.known(fields, at, source); err != nil {
		return nil, err
	}
	out := &Values{table: t, file: v.file, at: at, values: map[string]any{}, source: map[string]string{}, given: map[string]string{}}
	for _, f := range s.Fields {
		raw, given := lookup(fields, f.Key)
		switch {
		case given:
			value, reason := convert(f, raw)
			if reason == "" && f.Want != nil {
				reason = f.Want(value)
			}
			if reason != "" {
				return nil, out.wrong(f, fmt.Sprint(raw), source, reason)
			}
			out.values[f.Key], out.source[f.Key], out.given[f.Key] = value, source, fmt.Sprint(raw)
		case strings.Contains(f.Key, ".") && v.Has(f.Key):
			out.values[f.Key], out.source[f.Key], out.given[f.Key] = v.values[f.Key], v.source[f.Key], v.given[f.Key]
		default:
			out.values[f.Key], _ = convert(f, f.Default)
			out.source[f.Key] = sourceDefault
		}
	}
	out.own = fields
	return out, nil
}

// lookup finds a dotted key in a record.
func lookup(fields map[string]any, key string) (any, bool) {
	head, tail, nested := strings.Cut(key, ".")
	value, ok := fields[head]
	if !nested {
		return value, ok && value != nil
	}
	section, _ := value.(map[string]any)
	value, ok = section[tail]
	return value, ok && value != nil
}

// fieldNames lists the keys of a record for people; of a section only its name.
func fieldNames(fields []Setting) string {
	var names []string
	for _, f := range fields {
		if name, _, _ := strings.Cut(f.Key, "."); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// written returns what a Records setting was given as, without secrets: the texts of the short form, or the records.
func (v *Values) written(s Setting) any {
	records, _ := v.values[s.Key].([]*Values)
	out := []any{}
	for _, r := range records {
		if r.short {
			return append([]string{}, r.List(s.Short)...)
		}
		out = append(out, r.redact(r.own))
	}
	return out
}

func (v *Values) redact(fields map[string]any) map[string]any {
	out := maps.Clone(fields)
	for _, f := range v.table.Settings {
		if _, given := lookup(out, f.Key); !f.Secret || !given {
			continue
		}
		head, tail, nested := strings.Cut(f.Key, ".")
		if !nested {
			out[head] = redacted
			continue
		}
		section := maps.Clone(out[head].(map[string]any))
		section[tail] = redacted
		out[head] = section
	}
	return out
}

// convertLabels reads labels: records {key, value} in the file, where keys of a map would lose their case, or texts key=value.
func convertLabels(raw any) (value any, reason string) {
	const want = "want labels: a list of {key, value} in the file, key=value,key=value elsewhere"
	out := map[string]string{}
	add := func(key, value string) string {
		switch _, twice := out[key]; {
		case len(validation.IsQualifiedName(key)) > 0:
			return fmt.Sprintf("%q is not the key of a label", key)
		case len(validation.IsValidLabelValue(value)) > 0:
			return fmt.Sprintf("%q is not the value of a label", value)
		case twice:
			return fmt.Sprintf("label %s stands there twice", key)
		}
		out[key] = value
		return ""
	}
	pairs := func(texts []string) (any, string) {
		for _, text := range texts {
			key, value, ok := strings.Cut(text, "=")
			if !ok {
				return nil, want
			}
			if reason := add(strings.TrimSpace(key), strings.TrimSpace(value)); reason != "" {
				return nil, reason
			}
		}
		return out, ""
	}
	list, isList := raw.([]any)
	if !isList {
		texts, reason := convertList(raw)
		if reason != "" {
			return nil, want
		}
		return pairs(texts.([]string))
	}
	for _, item := range list {
		var reason string
		switch label := item.(type) {
		case string:
			_, reason = pairs([]string{label})
		case map[string]any:
			key, _ := label["key"].(string)
			value, hasValue := label["value"]
			if key == "" || len(label) > 2 || len(label) == 2 && !hasValue {
				return nil, want
			}
			switch value.(type) {
			case []any, map[string]any:
				return nil, want
			case nil:
				value = ""
			}
			reason = add(key, fmt.Sprint(value))
		default:
			reason = want
		}
		if reason != "" {
			return nil, reason
		}
	}
	return out, ""
}

// label is one label as it stands in the file.
type label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func labelRecords(labels map[string]string) []label {
	out := []label{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, label{key, labels[key]})
	}
	return out
}

// labelText is what a flag would take.
func labelText(labels map[string]string) string {
	var out []string
	for _, l := range labelRecords(labels) {
		out = append(out, l.Key+"="+l.Value)
	}
	return strings.Join(out, ",")
}

// recordText is a Records value in one line, for messages and comparison.
func (v *Values) recordText(s Setting) string {
	if texts, ok := v.written(s).([]string); ok {
		return strings.Join(texts, ",")
	}
	text, err := json.Marshal(v.written(s))
	return cmp.Or(string(text), fmt.Sprint(err))
}
