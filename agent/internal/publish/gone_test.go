package publish

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// A Pod is gone only if the API server says so of this Pod. These are answers as they come over the wire.
func TestOnlyTheAPIServersOwnAnswerSaysThatAPodIsGone(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"m"`
	for name, tt := range map[string]struct {
		contentType, body string
		gone              bool
	}{
		"the API server, of this Pod": {"application/json", status + `,"details":{"name":"p","kind":"pods"}}`, true},
		"of another Pod":              {"application/json", status + `,"details":{"name":"q","kind":"pods"}}`, false},
		"of the Namespace":            {"application/json", status + `,"details":{"name":"p","kind":"namespaces"}}`, false},
		"of another group's pods":     {"application/json", status + `,"details":{"name":"p","group":"metrics.k8s.io","kind":"pods"}}`, false},
		"of nothing in particular":    {"application/json", status + `}`, false},
		"a proxy, in HTML":            {"text/html", "<h1>Not Found</h1>", false},
		"a proxy, in plain text":      {"text/plain", "404 page not found", false},
		"a proxy, with nothing":       {"", "", false},
		"a proxy, in JSON":            {"application/json", `{"error":"no such route"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.contentType)
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer s.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			_, err = Patch(t.Context(), client, Desired{Pod: pod("1", ""), Mappings: mapping(61000)})
			if err == nil || IsGone(err, "p") != tt.gone {
				t.Errorf("gone %v, want %v: %v", IsGone(err, "p"), tt.gone, err)
			}
		})
	}
}

// Nobody knows who answered: the annotation stays published as far as anyone can tell, and it is tried again.
func TestNotFoundByAProxyIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error {
			return apierrors.NewGenericServerResponse(404, "PATCH", pods, "p", "nothing here", 0, true)
		}
		run(t, p)
		old := npl.Encode(mapping(61001))
		p.Set([]Desired{{Pod: pod("1", old)}})
		synctest.Wait()
		if ms, _ := p.Published(pod("1", old)); !npl.Equal(ms, mapping(61001)) || p.Failure("uid") == nil || a.results[0] != Failed || a.classes[0] != Unavailable {
			t.Errorf("published %v, failure %v, results %v %v", ms, p.Failure("uid"), a.results, a.classes)
		}
		a.mu.Lock()
		a.answer = func() error { return nil }
		a.mu.Unlock()
		time.Sleep(lastRetry + time.Second) // virtual
		synctest.Wait()
		if ms, _ := p.Published(pod("1", old)); len(ms) != 0 || p.Failure("uid") != nil {
			t.Errorf("published %v, failure %v after the retry", ms, p.Failure("uid"))
		}
	})
}

// The Pod changes after it was said to be gone: so it was not.
func TestPodThatComesToLifeIsPublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p") }
		run(t, p)
		old := npl.Encode(mapping(61001))
		p.Set([]Desired{{Pod: pod("5", old)}})
		synctest.Wait()
		a.mu.Lock()
		a.answer = func() error { return nil }
		a.mu.Unlock()
		for _, version := range []string{"5", "4"} {
			if ms, _ := p.Published(pod(version, old)); len(ms) != 0 {
				t.Errorf("published %v at version %s, which is not newer", ms, version)
			}
		}
		if ms, _ := p.Published(pod("6", old)); !npl.Equal(ms, mapping(61001)) || p.Since(pod("6", old)) == "" {
			t.Errorf("published %v since %q", ms, p.Since(pod("6", old)))
		}
		p.Set([]Desired{{Pod: pod("6", old)}})
		synctest.Wait()
		if a.count() != 2 {
			t.Errorf("%d patches, want another one", a.count())
		}
	})
}

// An API server that answers nobody for days: what was tried is kept once.
func TestWhatWasTriedIsKeptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return http.ErrHandlerTimeout }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		for range 20 {
			time.Sleep(lastRetry + time.Second) // virtual
			synctest.Wait()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.pods["uid"].attempted); n != 1 || a.count() < 20 {
			t.Errorf("%d mappings are kept after %d patches with the same one", n, a.count())
		}
	})
}
