package inventory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer answers lists and watches of core resources as kube-apiserver does, which no fake client does in full: streamed lists,
// pages, bookmarks.
type apiServer struct {
	t       *testing.T
	streams bool           // whether it knows streamed lists
	first   map[string]any // by resource: []runtime.Object at resourceVersion 100
	events  map[string]chan event

	mu       sync.Mutex
	requests []string // of Pods
	stale    []string // resources of which a list was asked for that may be old
}

// event is one of a watch; the type may be one that ends it.
type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func newAPIServer(t *testing.T, streams bool, first map[string]any) (*apiServer, kubernetes.Interface) {
	t.Helper()
	s := &apiServer{t: t, streams: streams, first: first, events: map[string]chan event{}}
	for _, resource := range []string{"pods", "nodes", "services", "namespaces"} {
		s.events[resource] = make(chan event)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, resource := r.URL.Query(), r.URL.Path[len("/api/v1/"):]
	if q.Get("watch") == "" && q.Get("resourceVersion") == "0" {
		s.mu.Lock()
		s.stale = append(s.stale, resource)
		s.mu.Unlock()
	}
	if resource == "pods" {
		s.mu.Lock()
		s.requests = append(s.requests, fmt.Sprintf("watch=%s streamed=%s version=%s limit=%s", q.Get("watch"), q.Get("sendInitialEvents"),
			q.Get("resourceVersion"), q.Get("limit")))
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	objects, _ := s.first[resource].([]runtime.Object)
	if q.Get("watch") == "" {
		s.list(w, resource, objects, q.Get("limit"), q.Get("continue"))
		return
	}
	if q.Get("sendInitialEvents") == "true" {
		if !s.streams {
			w.WriteHeader(http.StatusUnprocessableEntity)
			s.write(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonInvalid,
				Message: "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", Code: http.StatusUnprocessableEntity})
			return
		}
		for _, o := range objects {
			s.write(w, event{"ADDED", o})
		}
		s.write(w, bookmark("100", map[string]string{metav1.InitialEventsAnnotationKey: "true"}, resource))
	}
	for {
		select {
		case e := <-s.events[resource]:
			if e.Type == "close" {
				return
			}
			s.write(w, e)
		case <-r.Context().Done():
			return
		}
	}
}

// list answers a page; the token is the number of the first object.
func (s *apiServer) list(w http.ResponseWriter, resource string, objects []runtime.Object, limit, token string) {
	from, _ := strconv.Atoi(token)
	to := len(objects)
	meta := map[string]any{"resourceVersion": "100"}
	if most, _ := strconv.Atoi(limit); most > 0 && from+most < to {
		to = from + most
		meta["continue"] = strconv.Itoa(to)
	}
	s.write(w, map[string]any{"kind": kindOf[resource] + "List", "apiVersion": "v1", "metadata": meta, "items": slices.Concat([]runtime.Object{}, objects[from:to])})
}

func (s *apiServer) write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Logf("the client went: %v", err)
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// old returns the resources of which a list was asked for that may be old.
func (s *apiServer) old() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stale)
}

// asked returns the requests for Pods.
func (s *apiServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

var kindOf = map[string]string{"pods": "Pod", "nodes": "Node", "services": "Service", "namespaces": "Namespace"}

func bookmark(version string, annotations map[string]string, resource string) event {
	return event{"BOOKMARK", map[string]any{
		"kind": kindOf[resource], "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": version, "annotations": annotations},
	}}
}
