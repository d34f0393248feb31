package avisim

import (
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/query"
	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// resolve finds what a reference of a request leads to. Its spellings are /api/pool?name=x, /api/pool/?name=x&cloud=y, /api/pool/<uuid>, each also with scheme
// and host before and #name behind, and a bare UUID.
func (s *Server) resolve(kind, text, tenant string) (*object, *refusal) {
	spelled, _, _ := strings.Cut(text, "#")
	u, err := url.Parse(spelled)
	if err != nil || spelled == "" {
		return nil, refuse(400, "Malformed reference %.200q", text)
	}
	path := split(u.Path)
	if len(path) == 1 && u.Scheme == "" && !strings.Contains(spelled, "/") {
		path = []string{"api", kind, path[0]} // a bare UUID
	}
	if len(path) < 2 || len(path) > 3 || path[0] != "api" || (kind != "" && path[1] != kind) {
		return nil, refuse(400, "Malformed reference %.200q: /api/%s/<uuid> or /api/%s?name=<name> is expected", text, kind, kind)
	}
	k := s.store.kinds[path[1]]
	if k == nil {
		return nil, refuse(400, "Malformed reference %.200q: no such type", text)
	}
	if len(path) == 3 {
		if o := s.store.objects[schema.Reference{Kind: k.Name, UUID: path[2]}]; o != nil && visible(o, tenant) {
			return o, nil
		}
		return nil, refuse(s.cfg.Rules.MissingReference, "%s object not found!", k.Type)
	}
	values := u.Query()
	var found []*object
	for _, o := range s.store.byKind[k.Name] {
		if o.name() == values.Get("name") && visible(o, tenant) && (!values.Has("cloud") || s.store.nameOf(o.ref("cloud_ref")) == values.Get("cloud")) {
			found = append(found, o)
		}
	}
	// One of the tenant itself hides one of admin; one of Default-Cloud hides those of other clouds.
	for _, better := range []func(*object) bool{
		func(o *object) bool { return o.tenant == tenant },
		func(o *object) bool { return o.ref("cloud_ref").UUID == defaultCloud },
	} {
		if best := slices.DeleteFunc(slices.Clone(found), func(o *object) bool { return !better(o) }); len(best) > 0 {
			found = best
		}
	}
	if len(found) == 0 {
		return nil, refuse(s.cfg.Rules.MissingReference, "%s object not found!", k.Type)
	}
	return found[0], nil
}

// visible reports whether a tenant sees o.
func visible(o *object, tenant string) bool {
	return o.tenant == tenant || o.kind.Shared && o.tenant == adminTenant
}

// renderer shows objects as answers do.
type renderer struct {
	store   *store
	host    string
	version schema.Version
	view    query.View
}

func (d renderer) object(o *object) map[string]any {
	out := d.message(o.kind.Fields, o.body)
	for name := range out {
		f := o.kind.Field(name)
		switch {
		case d.view.Fields != nil && !slices.Contains(d.view.Fields, name) && name != "uuid" && name != "name",
			slices.Contains(d.view.Exclude, name),
			d.view.SkipDefault && f != nil && f.Default != nil && !f.Required && reflect.DeepEqual(out[name], f.Default):
			delete(out, name)
		}
	}
	out["url"] = d.url(o.reference())
	return out
}

// message shows fields that the version of the request has.
func (d renderer) message(fields []schema.Field, in map[string]any) map[string]any {
	out := make(map[string]any, len(in)+1)
	known := 0
	for i := range fields {
		f := &fields[i]
		value, ok := in[f.Name]
		if !ok {
			continue
		}
		known++
		if f.Since.After(d.version) || !f.Until.Zero() && !f.Until.After(d.version) {
			continue
		}
		out[f.Name] = d.value(f, value)
	}
	if known < len(in) { // fields that are kept without being known
		for name, value := range in {
			if !slices.ContainsFunc(fields, func(f schema.Field) bool { return f.Name == name }) {
				out[name] = value
			}
		}
	}
	return out
}

func (d renderer) value(f *schema.Field, value any) any {
	switch v := value.(type) {
	case schema.Reference:
		return d.url(v)
	case []any:
		if f.Type != schema.Message && f.Type != schema.Ref {
			return v
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = d.value(f, v[i])
		}
		return out
	case map[string]any:
		if f.Type == schema.Message {
			return d.message(f.Fields, v)
		}
	}
	return value
}

func (d renderer) url(r schema.Reference) string {
	u := "https://" + d.host + "/api/" + r.Kind + "/" + r.UUID
	if d.view.IncludeName {
		u += "#" + d.store.nameOf(r)
	}
	return u
}

// split returns the parts of a path; doubled slashes and one at the end mean nothing.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" })
}
