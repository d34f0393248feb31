package bigipsim

import (
	"net/http"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// tm answers what is below /mgmt/tm.
func (s *Sim) tm(r *request) *reply {
	path := r.path[1:]
	if path[0] == "transaction" {
		answer := s.transaction(r, path[1:])
		if r.Method == http.MethodPatch && answer.status == http.StatusOK {
			s.cluster.wrote(s)
		}
		return answer
	}
	if id := r.Header.Get(coordination); id != "" {
		return s.queue(r, id)
	}
	if answer := s.system(r, path); answer != nil {
		return answer
	}
	target, found := locate(path)
	if !found {
		return s.organizing(r, path)
	}
	if !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}, r.Method) {
		return icrd(http.StatusMethodNotAllowed, mcp.APINotFound, "Method %s is not allowed.", r.Method)
	}
	if r.Method == http.MethodGet {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.read(r, target)
	}
	var body map[string]any
	if r.Method != http.MethodDelete {
		var bad *reply
		if body, bad = r.object(); bad != nil {
			return bad
		}
	}
	answer, err := s.write(r, target, body)
	if err != nil {
		return refusal(err)
	}
	s.cluster.wrote(s)
	return answer
}

// target is what a path below /mgmt/tm leads to.
type target struct {
	kind *mcp.Kind
	// object is the full path as the URL gives it; empty for the collection.
	object string
	// inChildren is true below the sub-collection's name; child is empty for the whole of it.
	inChildren bool
	child      string
	stats      bool
}

// locate finds the kind that a path leads to, and what of it.
func locate(path []string) (target, bool) {
	path = slices.Clone(path)
	var t target
	if len(path) > 1 && path[len(path)-1] == "stats" {
		t.stats = true
		path = path[:len(path)-1]
	}
	for n := min(len(path), 3); n >= 2; n-- {
		if t.kind = mcp.Lookup(strings.Join(path[:n], "/")); t.kind != nil {
			path = path[n:]
			break
		}
	}
	if t.kind == nil || len(path) > 3 {
		return t, false
	}
	if len(path) > 0 {
		t.object = fullPath(t.kind, path[0])
	}
	if len(path) > 1 {
		if t.kind.Child == nil || path[1] != t.kind.Child.Element() {
			return t, false
		}
		t.inChildren = true
	}
	if len(path) > 2 {
		t.child = naming.Unescape(path[2])
	}
	return t, true
}

// fullPath is what an element of a URL names.
func fullPath(k *mcp.Kind, element string) string {
	path := naming.Unescape(element)
	if !strings.HasPrefix(path, "/") && !k.Unfoldered {
		path = "/Common/" + path
	}
	return path
}

// organizing lists the kinds below a path, as /mgmt/tm/ltm/monitor.
func (s *Sim) organizing(r *request, path []string) *reply {
	prefix := strings.Join(path, "/")
	var items []any
	for _, k := range mcp.Kinds {
		if strings.HasPrefix(k.Path, prefix+"/") {
			items = append(items, map[string]any{"reference": map[string]any{"link": s.view(nil).url(k.Path)}})
		}
	}
	if items == nil || r.Method != http.MethodGet {
		return unregistered(r)
	}
	return ok(map[string]any{"kind": "tm:" + strings.Join(path, ":") + ":" + path[len(path)-1] + "collectionstate", "selfLink": s.view(r).self(prefix), "items": items})
}

// read answers a GET. The caller holds the lock.
func (s *Sim) read(r *request, t target) *reply {
	v := s.view(r)
	if t.object == "" {
		if t.stats {
			return ok(v.collectionStats(t.kind))
		}
		return v.collection(t.kind)
	}
	o := s.config.Find(t.kind.Path, t.object)
	if o == nil || !v.visible(o) {
		if k := t.kind; k.Path == "ltm/pool" && t.inChildren {
			return refusal(&mcp.Error{Status: http.StatusNotFound, Message: "01020036:3: The requested Pool (" + t.object + ") was not found.", API: mcp.APIRefused})
		}
		return refusal(mcp.Missing(t.kind, t.object))
	}
	switch {
	case !t.inChildren && t.stats:
		return ok(v.objectStats(o))
	case !t.inChildren:
		return ok(v.selected(v.object(o)))
	case t.child == "" && t.stats:
		return ok(v.childStats(o))
	case t.child == "":
		return v.children(o)
	}
	child := s.findChild(o, t.child)
	switch {
	case child == nil && s.cfg.Rules.MissingMember200:
		return ok(map[string]any{"kind": t.kind.Child.Type() + "state", "name": t.child, "fullPath": t.child, "generation": 0, "selfLink": v.self(t.kind.Path + "/" + naming.Escape(t.object) + "/" + t.kind.Child.Element() + "/" + naming.Escape(t.child))})
	case child == nil:
		return icrd(http.StatusNotFound, mcp.APINotFound, "Object not found - %s", t.child)
	}
	return ok(v.selected(v.child(o, child)))
}

func (s *Sim) findChild(o *mcp.Object, element string) *mcp.Object {
	if o.Kind.Path == "ltm/pool" {
		return s.config.FindMember(o, element)
	}
	return o.Child(element)
}

// write carries out a POST, PUT, PATCH or DELETE.
func (s *Sim) write(r *request, t target, body map[string]any) (*reply, *mcp.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, err := s.apply(r, r.Method, t, body)
	if err == nil {
		s.settle()
		s.changed()
	}
	return answer, err
}

// apply changes the configuration. The caller holds the lock.
func (s *Sim) apply(r *request, method string, t target, body map[string]any) (*reply, *mcp.Error) {
	v := s.view(r)
	unsupported := &mcp.Error{Status: http.StatusBadRequest, Message: "Operation " + method + " is not supported on this resource.", API: mcp.APINotFound}
	if t.stats || (t.inChildren && t.kind.Path != "ltm/pool") {
		return nil, unsupported
	}
	replace := method == http.MethodPut
	switch {
	case t.object == "" && method == http.MethodPost:
		o, err := s.config.Create(t.kind, body, r.user)
		if err != nil {
			return nil, err
		}
		return ok(v.object(o)), nil
	case t.object == "" || (method == http.MethodPost && (!t.inChildren || t.child != "")):
		return nil, unsupported
	case !t.inChildren && method == http.MethodDelete:
		return empty(), s.config.Delete(t.kind, t.object, r.user)
	case !t.inChildren:
		o, err := s.config.Modify(t.kind, t.object, body, replace, r.user)
		if err != nil {
			return nil, err
		}
		return ok(v.object(o)), nil
	case method == http.MethodPost:
		m, err := s.config.CreateMember(t.object, body, r.user)
		if err != nil {
			return nil, err
		}
		return ok(v.child(s.config.Find(t.kind.Path, t.object), m)), nil
	case t.child == "":
		return nil, unsupported
	case method == http.MethodDelete:
		return empty(), s.config.DeleteMember(t.object, t.child, r.user)
	default:
		m, err := s.config.ModifyMember(t.object, t.child, body, replace, r.user)
		if err != nil {
			return nil, err
		}
		return ok(v.child(s.config.Find(t.kind.Path, t.object), m)), nil
	}
}

// empty is the answer to a DELETE.
func empty() *reply {
	return &reply{http.StatusOK, http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, nil}
}
