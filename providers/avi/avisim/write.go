package avisim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// decode reads a body that must be one JSON object.
func decode(body []byte) (map[string]any, *refusal) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, refuseDetail(http.StatusBadRequest, "JSON parse error - %s", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, refuseDetail(http.StatusBadRequest, "JSON parse error - extra data")
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, refuse(http.StatusBadRequest, "An object is expected")
	}
	return object, nil
}

// by is who writes.
type by struct {
	version schema.Version
	tenant  string
	system  bool // the Controller itself, when it starts
}

// read makes a body to be stored of one that was sent. old is what the object was, if it was.
func (s *Server) read(k *schema.Kind, in map[string]any, who by, old *object) (map[string]any, *refusal) {
	in = withFixed(k, in, old)
	body, err := s.reader(who).Read(k, in)
	if err != nil {
		return nil, asRefusal(err)
	}
	if err := s.complete(k, body, who); err != nil {
		return nil, err
	}
	if old == nil {
		return body, nil
	}
	for _, f := range k.Fields {
		if f.Fixed && old.body[f.Name] != nil && !reflect.DeepEqual(body[f.Name], old.body[f.Name]) {
			return nil, refuse(http.StatusBadRequest, "%s of %s %s cannot be changed after creation", f.Name, k.Type, old.name())
		}
	}
	return body, nil
}

// withFixed adds what never changes from the old object, as references that resolve: a PUT may leave it out.
func withFixed(k *schema.Kind, in map[string]any, old *object) map[string]any {
	if old == nil {
		return in
	}
	in = maps.Clone(in)
	for _, f := range k.Fields {
		if in[f.Name] != nil || !f.Fixed || old.body[f.Name] == nil {
			continue
		}
		switch v := old.body[f.Name].(type) {
		case schema.Reference:
			in[f.Name] = "/api/" + v.Kind + "/" + v.UUID
		default:
			in[f.Name] = v
		}
	}
	return in
}

func (s *Server) reader(who by) schema.Reader {
	return schema.Reader{
		Version: who.version, KeepUnknown: s.cfg.Rules.UnknownFields, AnyVersion: s.cfg.Rules.LaterFields,
		Resolve: func(kind, text string) (schema.Reference, error) {
			o, err := s.resolve(kind, text, who.tenant)
			if err != nil {
				return schema.Reference{}, err
			}
			return o.reference(), nil
		},
	}
}

func asRefusal(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	field, ok := errors.AsType[*schema.Error](err)
	if !ok {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	if strings.Contains(field.Message, "in version") { // told as one sentence
		return refuse(http.StatusBadRequest, "%s", field.Message)
	}
	return &refusal{jsonReply(http.StatusBadRequest, map[string]any{"error": map[string]any{field.Field: []string{field.Message}}})}
}

// create stores a new object. slug, if not empty, is its UUID.
func (s *Server) create(k *schema.Kind, in map[string]any, slug string, who by) (*object, *refusal) {
	body, err := s.read(k, in, who, nil)
	if err != nil {
		return nil, err
	}
	o := &object{kind: k, uuid: k.Name + "-" + newUUID(), tenant: body["tenant_ref"].(schema.Reference).UUID, body: body, system: who.system}
	if slug != "" {
		o.uuid = slug
	}
	if s.store.objects[o.reference()] != nil {
		return nil, refuse(http.StatusConflict, "%s with this UUID already exists.", k.Type)
	}
	return o, s.save(o, nil)
}

// replace stores in in place of old.
func (s *Server) replace(old *object, in map[string]any, who by) (*object, *refusal) {
	if given, ok := in["_last_modified"]; ok && given != old.body["_last_modified"] {
		return nil, refuse(http.StatusPreconditionFailed, "%s %s was changed by another request, reload object data and try again", old.kind.Type, old.name())
	}
	if given, ok := in["uuid"]; ok && given != old.uuid {
		return nil, refuse(http.StatusBadRequest, "uuid of %s %s cannot be changed", old.kind.Type, old.name())
	}
	body, err := s.read(old.kind, in, who, old)
	if err != nil {
		return nil, err
	}
	return s.update(old, body)
}

// update stores a complete body in place of old.
func (s *Server) update(old *object, body map[string]any) (*object, *refusal) {
	o := &object{kind: old.kind, uuid: old.uuid, tenant: old.tenant, body: body, system: old.system}
	if err := s.save(o, old); err != nil {
		return nil, err
	}
	return o, nil
}

// save checks o against the other objects and stores it.
func (s *Server) save(o, old *object) *refusal {
	if err := s.check(o, old); err != nil {
		return err
	}
	if old != nil && s.cfg.Rules.SameObject {
		same := maps.Clone(old.body)
		delete(same, "_last_modified")
		delete(same, "uuid")
		if reflect.DeepEqual(same, o.body) {
			o.body = old.body
			return nil
		}
	}
	now := s.cfg.Now()
	key := o.key()
	if taken, ok := s.store.names[key]; (ok && taken != o.uuid) || (old == nil && now.Before(s.store.reserved[key])) {
		what := "Name and Tenant ref"
		if o.kind.InCloud {
			what = "Name, Tenant ref and Cloud ref"
		}
		return refuse(http.StatusConflict, "%s with this %s already exists.", o.kind.Type, what)
	}
	s.store.put(o, now)
	s.changed()
	return nil
}

// remove deletes an object to which nothing refers.
func (s *Server) remove(o *object) *refusal {
	if o.system {
		return refuse(http.StatusBadRequest, "Cannot delete system default object %s", o.name())
	}
	var referrers []string
	for _, r := range s.store.referrersOf(o.reference()) {
		if r != o.reference() {
			by := s.store.objects[r]
			referrers = append(referrers, "'"+by.kind.Type+" "+by.name()+"'")
		}
	}
	if len(referrers) > 0 {
		return refuse(http.StatusBadRequest, "Cannot delete, object is referred by: [%s]", strings.Join(referrers, ", "))
	}
	delete(s.health, o.uuid)
	s.store.remove(o, s.cfg.Now().Add(s.cfg.Rules.NameReserved))
	s.changed()
	return nil
}
