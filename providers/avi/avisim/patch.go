package avisim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// patch applies {"add": {...}}, {"replace": {...}}, {"delete": {...}} or {"json_patch": [...]}; the first three may stand together and are applied in that order.
func (s *Server) patch(old *object, in map[string]any, who by) (*object, *refusal) {
	for name := range in {
		if !slices.Contains([]string{"add", "replace", "delete", "json_patch"}, name) {
			return nil, refuse(http.StatusBadRequest, "Invalid patch operation %q: use add, replace, delete or json_patch", name)
		}
	}
	if len(in) == 0 {
		return nil, refuse(http.StatusBadRequest, "Empty patch: use add, replace, delete or json_patch")
	}
	if list, ok := in["json_patch"]; ok {
		if len(in) > 1 {
			return nil, refuse(http.StatusBadRequest, "json_patch cannot stand beside add, replace or delete")
		}
		return s.jsonPatch(old, list, who)
	}
	body := maps.Clone(old.body)
	delete(body, "uuid")
	delete(body, "_last_modified")
	for _, op := range []string{"add", "replace", "delete"} {
		value, ok := in[op]
		if !ok {
			continue
		}
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, refuse(http.StatusBadRequest, "patch %s: an object is expected", op)
		}
		if err := s.patchFields(old, body, op, fields, who); err != nil {
			return nil, err
		}
	}
	return s.update(old, body)
}

// patchFields changes body, one level deep.
func (s *Server) patchFields(old *object, body map[string]any, op string, in map[string]any, who by) *refusal {
	k := old.kind
	reader := s.reader(who)
	reader.Partial = true
	reader.WithoutDefaults = op == "delete" // it is compared with what is there, so nothing is filled in
	part, err := reader.Read(k, in)
	if err != nil {
		return asRefusal(err)
	}
	for name := range in {
		f := k.Field(name)
		if f != nil && f.ReadOnly {
			continue
		}
		if f != nil && f.Fixed && body[name] != nil && (op != "delete" && !reflect.DeepEqual(part[name], body[name])) {
			return refuse(http.StatusBadRequest, "%s of %s %s cannot be changed after creation", name, k.Type, old.name())
		}
		present, _ := body[name].([]any)
		list, _ := part[name].([]any)
		switch {
		case op != "delete" && (f == nil || !f.Repeated || op == "replace"):
			body[name] = part[name]
		case op == "add":
			body[name] = s.append(name, present, list)
		case f != nil && f.Repeated:
			body[name] = slices.DeleteFunc(slices.Clone(present), func(item any) bool {
				return slices.ContainsFunc(list, func(gone any) bool { return s.sameItem(name, item, gone) })
			})
		case f != nil && (f.Required || f.Fixed):
			// part of the object that is sent as read back; it stays
		case f != nil && f.Default != nil:
			body[name] = f.Default
		default:
			delete(body, name)
		}
		if list, ok := body[name].([]any); (ok && len(list) == 0) || body[name] == nil {
			delete(body, name)
		}
		if list, _ := body[name].([]any); f != nil && f.MaxItems > 0 && len(list) > f.MaxItems {
			return asRefusal(&schema.Error{Field: name, Message: fmt.Sprintf("%s: %d items, a maximum of %d items is allowed", name, len(list), f.MaxItems)})
		}
	}
	return s.complete(k, body, who)
}

// append adds the items that are given to those that are there.
func (s *Server) append(field string, present, given []any) []any {
	out := slices.Clone(present)
	for _, item := range given {
		at := -1
		if field == "servers" && s.cfg.Rules.Duplicates == MergeDuplicates {
			at = slices.IndexFunc(out, func(there any) bool { return serverKey(there) == serverKey(item) })
		}
		if field != "servers" {
			at = slices.IndexFunc(out, func(there any) bool { return reflect.DeepEqual(there, item) })
		}
		if at >= 0 {
			out[at] = item
		} else {
			out = append(out, item)
		}
	}
	return out
}

func (s *Server) sameItem(field string, item, gone any) bool {
	if field == "servers" && s.cfg.Rules.DeleteByAddress {
		return serverKey(item) == serverKey(gone)
	}
	return reflect.DeepEqual(item, gone)
}

// jsonPatch applies RFC 6902 to the object as a GET shows it.
func (s *Server) jsonPatch(old *object, list any, who by) (*object, *refusal) {
	bad := func(err error) (*object, *refusal) { return nil, refuse(http.StatusBadRequest, "json_patch: %s", err) }
	ops, err := json.Marshal(list)
	if err != nil {
		return bad(err)
	}
	steps, err := jsonpatch.DecodePatch(ops)
	if err != nil {
		return bad(err)
	}
	shown, err := json.Marshal(renderer{store: s.store, host: "controller", version: who.version}.object(old))
	if err != nil {
		return bad(err)
	}
	shown, err = steps.Apply(shown)
	if err != nil {
		return bad(err)
	}
	in, refused := decode(shown)
	if refused != nil {
		return nil, refused
	}
	delete(in, "_last_modified")
	return s.replace(old, in, who)
}
