package avisim

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// object is what is stored. It is never changed: a write makes another one.
type object struct {
	kind   *schema.Kind
	uuid   string
	tenant string // UUID
	body   map[string]any
	refs   []schema.Reference
	system bool // came with the Controller
}

func (o *object) name() string { n, _ := o.body["name"].(string); return n }
func (o *object) reference() schema.Reference {
	return schema.Reference{Kind: o.kind.Name, UUID: o.uuid}
}

func (o *object) ref(field string) schema.Reference {
	r, _ := o.body[field].(schema.Reference)
	return r
}

// nameKey is what must be unique.
type nameKey struct{ kind, tenant, cloud, name string }

func (o *object) key() nameKey {
	k := nameKey{o.kind.Name, o.tenant, "", o.name()}
	if o.kind.InCloud {
		k.cloud = o.ref("cloud_ref").UUID
	}
	return k
}

// store keeps objects, who refers to whom, and which names are taken. It decides nothing.
type store struct {
	kinds     map[string]*schema.Kind
	objects   map[schema.Reference]*object
	byKind    map[string]map[string]*object
	names     map[nameKey]string
	reserved  map[nameKey]time.Time
	referrers map[schema.Reference]map[schema.Reference]bool
	modified  int64 // the last _last_modified given, so that none is given twice
}

func newStore() *store {
	return &store{
		kinds: schema.Kinds(), objects: map[schema.Reference]*object{}, byKind: map[string]map[string]*object{}, names: map[nameKey]string{},
		reserved: map[nameKey]time.Time{}, referrers: map[schema.Reference]map[schema.Reference]bool{},
	}
}

// put stores o in place of what had its UUID, with another _last_modified.
func (s *store) put(o *object, now time.Time) {
	s.modified = max(now.UnixMicro(), s.modified+1)
	o.body["uuid"], o.body["_last_modified"] = o.uuid, strconv.FormatInt(s.modified, 10)
	s.forget(o.reference())
	o.refs = references(o.body)
	for _, to := range o.refs {
		if s.referrers[to] == nil {
			s.referrers[to] = map[schema.Reference]bool{}
		}
		s.referrers[to][o.reference()] = true
	}
	if s.byKind[o.kind.Name] == nil {
		s.byKind[o.kind.Name] = map[string]*object{}
	}
	s.objects[o.reference()], s.byKind[o.kind.Name][o.uuid], s.names[o.key()] = o, o, o.uuid
}

// remove deletes o; its name stays reserved until the given time.
func (s *store) remove(o *object, reserved time.Time) {
	s.forget(o.reference())
	s.reserved[o.key()] = reserved
}

func (s *store) forget(r schema.Reference) {
	old := s.objects[r]
	if old == nil {
		return
	}
	for _, to := range old.refs {
		delete(s.referrers[to], r)
	}
	delete(s.objects, r)
	delete(s.byKind[r.Kind], r.UUID)
	delete(s.names, old.key())
}

// of returns the objects of a kind, by name and UUID.
func (s *store) of(kind string) []*object {
	return slices.SortedFunc(maps.Values(s.byKind[kind]), func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.uuid, b.uuid))
	})
}

// referrersOf returns what refers to r, by kind and UUID.
func (s *store) referrersOf(r schema.Reference) []schema.Reference {
	return slices.SortedFunc(maps.Keys(s.referrers[r]), func(a, b schema.Reference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.UUID, b.UUID))
	})
}

// nameOf returns the name of what r leads to; empty if it leads nowhere.
func (s *store) nameOf(r schema.Reference) string {
	if o := s.objects[r]; o != nil {
		return o.name()
	}
	return ""
}

func references(value any) []schema.Reference {
	found := map[schema.Reference]bool{}
	collect(value, found)
	return slices.Collect(maps.Keys(found))
}

func collect(value any, into map[schema.Reference]bool) {
	switch v := value.(type) {
	case schema.Reference:
		into[v] = true
	case []any:
		for _, item := range v {
			collect(item, into)
		}
	case map[string]any:
		for _, item := range v {
			collect(item, into)
		}
	}
}

// newUUID is a version 4 UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
