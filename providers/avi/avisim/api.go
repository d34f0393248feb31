package avisim

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/query"
	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// api answers an admitted call.
func (s *Server) api(r *request) (*reply, *refusal) {
	switch r.path[0] {
	case "cluster", "systemconfiguration":
		return s.system(r)
	case "user-token":
		return s.userToken(r)
	}
	k := s.store.kinds[r.path[0]]
	if k == nil {
		return nil, &refusal{htmlReply(http.StatusNotFound, "Not Found")}
	}
	if err := s.permit(r, k); err != nil {
		return nil, err
	}
	switch {
	case len(r.path) == 1:
		return s.collection(r, k)
	case len(r.path) == 2:
		return s.item(r, k)
	}
	return s.runtime(r, k)
}

func (s *Server) collection(r *request, k *schema.Kind) (*reply, *refusal) {
	switch r.Method {
	case http.MethodGet:
		return s.list(r, k)
	case http.MethodPost:
		return s.post(r, k)
	}
	return nil, notAllowed(r.Method, "GET, POST")
}

func (s *Server) list(r *request, k *schema.Kind) (*reply, *refusal) {
	q, err := query.Parse(k, r.query, s.cfg.Rules.PageSize)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var items []query.Item
	for _, o := range s.store.byKind[k.Name] {
		if r.all || visible(o, r.tenant) {
			items = append(items, query.Item{UUID: o.uuid, Body: o.body, References: o.refs, Referrers: s.store.referrersOf(o.reference())})
		}
	}
	selected := q.Select(items, s.store.nameOf)
	page, more := q.Cut(selected)
	if len(page) == 0 && q.Page > 1 && !s.cfg.Rules.EmptyPages {
		return nil, refuseDetail(http.StatusNotFound, "Invalid page.")
	}
	show := renderer{s.store, r.host(s), r.version, q.View}
	results := make([]any, len(page))
	for i, item := range page {
		results[i] = s.shown(show, s.store.byKind[k.Name][item.UUID])
	}
	out := map[string]any{"count": len(selected), "results": results}
	if more {
		values := maps.Clone(r.query)
		values.Set("page", strconv.Itoa(q.Page+1))
		values.Set("page_size", strconv.Itoa(q.PageSize))
		next := url.URL{Scheme: "https", Host: r.host(s), Path: "/api/" + k.Name + "/", RawQuery: values.Encode()}
		out["next"] = next.String()
	}
	return jsonReply(http.StatusOK, out), nil
}

// shown is an object as a GET shows it.
func (s *Server) shown(show renderer, o *object) map[string]any {
	out := show.object(o)
	if show.view.Runtime {
		if runtime := s.runtimeOf(o); runtime != nil {
			out["runtime"] = runtime
		}
	}
	return out
}

func (s *Server) post(r *request, k *schema.Kind) (*reply, *refusal) {
	in, err := r.decode()
	if err != nil {
		return nil, err
	}
	slug := r.Header.Get("Slug")
	if strings.ContainsAny(slug, "/?#") {
		return nil, refuse(http.StatusBadRequest, "Slug %.60q is no UUID", slug)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.create(k, in, slug, by{version: r.version, tenant: r.tenant})
	if err != nil {
		return nil, err
	}
	show := s.named(r)
	return jsonReply(http.StatusCreated, show.object(o)).with("Location", strings.TrimSuffix(show.url(o.reference()), "#"+o.name())), nil
}

// named shows references with names, as the answers to writes do.
func (s *Server) named(r *request) renderer {
	return renderer{s.store, r.host(s), r.version, query.View{IncludeName: true}}
}

func (s *Server) item(r *request, k *schema.Kind) (*reply, *refusal) {
	if r.Method == http.MethodGet {
		s.mu.RLock()
		defer s.mu.RUnlock()
		o, err := s.find(r, k)
		if err != nil {
			return nil, err
		}
		return jsonReply(http.StatusOK, s.shown(renderer{s.store, r.host(s), r.version, query.ParseView(r.query)}, o)), nil
	}
	var in map[string]any
	switch r.Method {
	case http.MethodPut, http.MethodPatch:
		body, err := r.decode()
		if err != nil {
			return nil, err
		}
		in = body
	case http.MethodDelete:
	default:
		return nil, notAllowed(r.Method, "GET, PUT, PATCH, DELETE")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.find(r, k)
	if err != nil {
		return nil, err
	}
	if old.tenant != r.tenant { // an object of admin that others only see
		return nil, refuse(http.StatusForbidden, "%s %s belongs to another tenant", k.Type, old.name())
	}
	who := by{version: r.version, tenant: r.tenant}
	var o *object
	switch r.Method {
	case http.MethodDelete:
		if err := s.remove(old); err != nil {
			return nil, err
		}
		return (&reply{status: http.StatusNoContent, header: http.Header{}}).with("Server-Timing", "total;dur=1"), nil
	case http.MethodPut:
		o, err = s.replace(old, in, who)
	case http.MethodPatch:
		o, err = s.patch(old, in, who)
	}
	if err != nil {
		return nil, err
	}
	return jsonReply(http.StatusOK, s.named(r).object(o)), nil
}

func (s *Server) find(r *request, k *schema.Kind) (*object, *refusal) {
	o := s.store.objects[schema.Reference{Kind: k.Name, UUID: r.path[1]}]
	if o == nil || !(r.all || visible(o, r.tenant)) {
		return nil, refuse(http.StatusNotFound, "%s object not found!", k.Type)
	}
	return o, nil
}

// decode reads the body, which must be said to be JSON.
func (r *request) decode() (map[string]any, *refusal) {
	if contentType := r.Header.Get("Content-Type"); !strings.HasPrefix(contentType, "application/json") {
		return nil, refuseDetail(http.StatusUnsupportedMediaType, "Unsupported media type %.60q in request.", contentType)
	}
	return decode(r.body)
}
