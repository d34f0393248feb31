// Package schema knows the fields of a Controller's objects: their types, limits and defaults, which of them never change, and since which version
// of the API they exist. It turns the JSON of a request into an object as the Controller stores it, or says what is wrong with it.
package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Type is the JSON type of a field's value.
type Type int

// The types. Any is passed through as it is.
const (
	String Type = iota
	Int
	Bool
	Ref
	Message
	Any
)

// Field describes one field of an object.
type Field struct {
	Name     string
	Type     Type
	Repeated bool
	Default  any       // string, int64, bool; nil: the field is absent until somebody gives it
	Range    *[2]int64 // of an Int
	Special  []int64   // allowed outside Range
	Enum     []string  // of a String
	Required bool
	ReadOnly bool // the Controller's own: what a request says is dropped
	Fixed    bool // never changes after creation
	MaxItems int  // of a Repeated; 0: no limit
	MaxLen   int  // of a String; 0: no limit
	Since    Version
	Until    Version // the first version without the field
	Kind     string  // of a Ref: what it must lead to; empty: anything
	Fields   []Field // of a Message
}

// Kind is a type of object, as it appears in URLs.
type Kind struct {
	Name     string // "virtualservice"
	Type     string // "VirtualService", in error texts
	Resource string // what a role grants access to, "PERMISSION_VIRTUALSERVICE"
	InCloud  bool   // belongs to a cloud, and its name is unique there
	Shared   bool   // the admin tenant's are visible to every tenant
	Open     bool   // modelled in part: unknown fields are kept
	Fields   []Field
}

// Field returns the description of a top-level field; nil if there is none.
func (k *Kind) Field(name string) *Field { return field(k.Fields, name) }

func field(fields []Field, name string) *Field {
	if at := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name }); at >= 0 {
		return &fields[at]
	}
	return nil
}

// Reference is a stored reference to another object.
type Reference struct{ Kind, UUID string }

// Error is what is wrong with a field.
type Error struct {
	Field   string // the top-level field
	Message string
}

func (e *Error) Error() string { return e.Field + ": " + e.Message }

// Reader turns requests into objects.
type Reader struct {
	Version         Version // of the request
	Resolve         func(kind, text string) (Reference, error)
	KeepUnknown     bool // unknown fields are kept instead of refused
	AnyVersion      bool // fields are taken whatever the version of the request
	Partial         bool // top-level fields that are required may be absent
	WithoutDefaults bool // absent fields stay absent, required ones too
}

// Read checks an object of the request and returns it as it is stored. What Resolve returns comes back unchanged, everything else is an *Error.
func (r Reader) Read(k *Kind, in map[string]any) (map[string]any, error) {
	r.KeepUnknown = r.KeepUnknown || k.Open
	out := make(map[string]any, len(k.Fields))
	for i := range k.Fields {
		f := &k.Fields[i]
		if f.ReadOnly {
			continue
		}
		if err := r.field(f, in, out, f.Name, f.Name); err != nil {
			return nil, err
		}
	}
	return out, r.unknown(k.Fields, in, out, "", "")
}

func (r Reader) message(fields []Field, in map[string]any, top, path string) (map[string]any, error) {
	out := make(map[string]any, len(fields))
	for i := range fields {
		f := &fields[i]
		if err := r.field(f, in, out, top, path+"."+f.Name); err != nil {
			return nil, err
		}
	}
	return out, r.unknown(fields, in, out, top, path+".")
}

// unknown refuses or keeps what in has beyond fields.
func (r Reader) unknown(fields []Field, in, out map[string]any, top, prefix string) error {
	var names []string
	for name := range in {
		if field(fields, name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !r.KeepUnknown {
			if top == "" {
				top = name
			}
			return &Error{top, fmt.Sprintf("%s%s: unknown field", prefix, name)}
		}
		out[name] = plain(in[name])
	}
	return nil
}

func (r Reader) field(f *Field, in, out map[string]any, top, path string) error {
	fail := func(format string, args ...any) error {
		return &Error{top, path + ": " + fmt.Sprintf(format, args...)}
	}
	value, given := in[f.Name]
	if !given || value == nil {
		switch {
		case r.WithoutDefaults:
		case f.Required && r.Partial && path == f.Name:
		case f.Required:
			return fail("this field is required")
		case f.Default != nil:
			out[f.Name] = f.Default
		}
		return nil
	}
	if !r.AnyVersion && f.Since.After(r.Version) {
		return fail("field %s was introduced in version %s, the request's version is %s", f.Name, f.Since, r.Version)
	}
	if !r.AnyVersion && !f.Until.Zero() && !f.Until.After(r.Version) {
		return fail("field %s was removed in version %s, the request's version is %s", f.Name, f.Until, r.Version)
	}
	if !f.Repeated {
		v, err := r.value(f, value, top, path)
		if err != nil {
			return err
		}
		out[f.Name] = v
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		return fail("a list is expected")
	}
	if f.MaxItems > 0 && len(list) > f.MaxItems {
		return fail("%d items, a maximum of %d items is allowed", len(list), f.MaxItems)
	}
	items := make([]any, len(list))
	for i, item := range list {
		v, err := r.value(f, item, top, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return err
		}
		items[i] = v
	}
	if len(items) > 0 || r.WithoutDefaults { // an empty list is none
		out[f.Name] = items
	}
	return nil
}

func (r Reader) value(f *Field, value any, top, path string) (any, error) {
	fail := func(format string, args ...any) error {
		return &Error{top, path + ": " + fmt.Sprintf(format, args...)}
	}
	switch f.Type {
	case String:
		s, ok := value.(string)
		switch {
		case !ok:
			return nil, fail("a string is expected, not %s", kindOf(value))
		case f.Enum != nil && !slices.Contains(f.Enum, s):
			return nil, fail("%q is none of %s", s, strings.Join(f.Enum, ", "))
		case f.MaxLen > 0 && len(s) > f.MaxLen:
			return nil, fail("%d characters, a maximum of %d is allowed", len(s), f.MaxLen)
		case f.Required && s == "":
			return nil, fail("must not be empty")
		}
		return s, nil
	case Int:
		n, ok := value.(json.Number)
		i, err := n.Int64()
		switch {
		case !ok || err != nil:
			return nil, fail("an integer is expected, not %s", kindOf(value))
		case f.Range != nil && (i < f.Range[0] || i > f.Range[1]) && !slices.Contains(f.Special, i):
			return nil, fail("%d is outside of %d-%d", i, f.Range[0], f.Range[1])
		}
		return i, nil
	case Bool:
		b, ok := value.(bool)
		if !ok {
			return nil, fail("true or false is expected, not %s", kindOf(value))
		}
		return b, nil
	case Ref:
		s, ok := value.(string)
		if !ok {
			return nil, fail("a reference is expected, not %s", kindOf(value))
		}
		return r.Resolve(f.Kind, s)
	case Message:
		m, ok := value.(map[string]any)
		if !ok {
			return nil, fail("an object is expected, not %s", kindOf(value))
		}
		return r.message(f.Fields, m, top, path)
	case Any:
	}
	return plain(value), nil
}

// plain makes integers of JSON's numbers wherever they are ones.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[name] = plain(item)
		}
		return out
	}
	return value
}

func kindOf(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%.60q", v)
	case json.Number:
		return v.String()
	case bool:
		return fmt.Sprint(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "null"
}
