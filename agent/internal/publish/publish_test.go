package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

var pods = schema.GroupResource{Resource: "pods"}

// api answers patches of one Pod.
type api struct {
	*fake.Clientset
	mu      sync.Mutex
	patches []string
	version int
	answer  func() error // nil error = store it
	results []Result
	classes []Class
}

func newAPI(t *testing.T) (*api, *Publisher) {
	a := &api{Clientset: fake.NewClientset(), version: 10, answer: func() error { return nil }}
	a.PrependReactor("patch", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patch := action.(k8stesting.PatchActionImpl)
		a.mu.Lock()
		a.patches = append(a.patches, fmt.Sprintf("%s %s/%s %s %s", patch.PatchType, patch.Name, patch.Subresource, patch.Namespace, patch.Patch))
		answer := a.answer
		a.mu.Unlock()
		if err := answer(); err != nil {
			return true, nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.version++
		var body struct {
			Metadata struct{ Annotations map[string]*string }
		}
		if err := json.Unmarshal(patch.Patch, &body); err != nil {
			return true, nil, err
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: patch.Name, ResourceVersion: strconv.Itoa(a.version)}}
		if v := body.Metadata.Annotations[npl.Annotation]; v != nil {
			pod.Annotations = map[string]string{npl.Annotation: *v}
		}
		return true, pod, nil
	})
	p := New(a, zaptest.NewLogger(t), func(o Outcome) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.results, a.classes = append(a.results, o.Result), append(a.classes, o.Class)
	})
	return a, p
}

// run runs p in a bubble of virtual time until the test ends.
func run(t *testing.T, p *Publisher) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.patches)
}

func mapping(port uint16) []npl.Mapping {
	return []npl.Mapping{{PodPort: 80, NodeIP: netip.MustParseAddr("192.0.2.1"), NodePort: port, Protocol: npl.TCP, Family: npl.IPv4}}
}

func pod(version, annotation string) model.Pod {
	return model.Pod{UID: "uid", Namespace: "default", Name: "p", ResourceVersion: version, Annotation: annotation, Annotated: annotation != ""}
}

func TestPatchForm(t *testing.T) {
	for name, tt := range map[string]struct {
		ms   []npl.Mapping
		want string
	}{
		"set": {mapping(61000), `application/merge-patch+json p/status default {"metadata":{"annotations":{"nodeportlocal.antrea.io":` +
			`"[{\"podPort\":80,\"nodeIP\":\"192.0.2.1\",\"nodePort\":61000,\"protocol\":\"tcp\",\"ipFamily\":\"IPv4\"}]"},"uid":"uid"}}`},
		"delete": {nil, `application/merge-patch+json p/status default {"metadata":{"annotations":{"nodeportlocal.antrea.io":null},"uid":"uid"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newAPI(t)
			if _, err := Patch(t.Context(), a, Desired{Pod: pod("1", ""), Mappings: tt.ms}); err != nil {
				t.Fatal(err)
			}
			if a.patches[0] != tt.want {
				t.Errorf("got  %s\nwant %s", a.patches[0], tt.want)
			}
		})
	}
}

func TestEqualAnnotationIsNeverPatched(t *testing.T) {
	for name, annotation := range map[string]string{
		"canonical":      npl.Encode(mapping(61000)),
		"older form":     `[{"nodePort":61000,"podPort":80,"nodeIP":"192.0.2.1","protocols":["tcp"]}]`,
		"blanks, twice":  `[ {"nodePort":61000,"podPort":80,"nodeIP":"192.0.2.1"}, {"nodePort":61000,"podPort":80,"nodeIP":"192.0.2.1"} ]`,
		"no annotations": "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newAPI(t)
				run(t, p)
				ms := mapping(61000)
				if annotation == "" {
					ms = nil
				}
				p.Set([]Desired{{Pod: pod("1", annotation), Mappings: ms}})
				synctest.Wait()
				if a.count() != 0 {
					t.Errorf("patched: %v", a.patches)
				}
			})
		})
	}
}

func TestUnequalAnnotationIsPatchedOnce(t *testing.T) {
	for name, annotation := range map[string]string{
		"absent": "", "junk": "{", "empty list": "[]", "other port": npl.Encode(mapping(61001)),
		"one entry is junk": strings.TrimSuffix(npl.Encode(mapping(61000)), "]") + ",7]",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newAPI(t)
				run(t, p)
				p.Set([]Desired{{Pod: pod("1", annotation), Mappings: mapping(61000)}})
				synctest.Wait()
				// The cache is slow: it still shows the old annotation, then an unrelated change, then ours.
				p.Set([]Desired{{Pod: pod("1", annotation), Mappings: mapping(61000)}})
				p.Set([]Desired{{Pod: pod("5", annotation), Mappings: mapping(61000)}})
				p.Set([]Desired{{Pod: pod("11", npl.Encode(mapping(61000))), Mappings: mapping(61000)}})
				synctest.Wait()
				if a.count() != 1 {
					t.Errorf("%d patches, want 1: %v", a.count(), a.patches)
				}
				if got, err := p.Published(pod("12", "")); len(got) != 0 || err != nil {
					t.Errorf("a later cache does not win over our patch: %v %v", got, err)
				}
			})
		})
	}
}

func TestEmptyListIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", "[]")}})
		synctest.Wait()
		if a.count() != 1 || !strings.Contains(a.patches[0], ":null") {
			t.Errorf("patches %v", a.patches)
		}
	})
}

func TestGonePodIsDropped(t *testing.T) {
	uidPath := field.NewPath("metadata", "uid")
	for name, answer := range map[string]error{
		"not found":    apierrors.NewNotFound(pods, "p"),
		"wrong UID":    apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", field.ErrorList{field.Invalid(uidPath, "uid", "field is immutable")}),
		"precondition": apierrors.NewConflict(pods, "p", errors.New("Precondition failed: UID in precondition: uid, UID in object meta: other")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newAPI(t)
				a.answer = func() error { return answer }
				run(t, p)
				p.Set([]Desired{{Pod: pod("1", npl.Encode(mapping(61001))), Mappings: mapping(61000)}})
				time.Sleep(time.Hour) // virtual
				p.Set([]Desired{{Pod: pod("1", npl.Encode(mapping(61001)))}})
				synctest.Wait()
				if a.count() != 1 {
					t.Errorf("%d patches, want 1", a.count())
				}
				if ms, err := p.Published(pod("1", npl.Encode(mapping(61001)))); len(ms) != 0 || err != nil {
					t.Errorf("a Pod that is gone is published: %v %v", ms, err)
				}
				if p.Failure("uid") != nil || a.results[0] != Gone {
					t.Errorf("failure %v, results %v", p.Failure("uid"), a.results)
				}
			})
		})
	}
}

func TestFailureIsTriedAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return apierrors.NewForbidden(pods, "p", errors.New("no")) }
		run(t, p)
		d := []Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}}
		p.Set(d)
		synctest.Wait()
		if err := p.Failure("uid"); err == nil || !strings.Contains(err.Error(), "Pod default/p") {
			t.Errorf("failure %v", err)
		}
		for range 100 { // other Pods keep the loop busy: that is no reason to hurry
			p.Set(d)
		}
		synctest.Wait()
		if a.count() != 1 {
			t.Errorf("%d patches without any pause", a.count())
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := a.count(); n < 10 || n > 40 {
			t.Errorf("%d attempts in 10 minutes", n)
		}
		a.mu.Lock()
		a.answer = func() error { return nil }
		a.mu.Unlock()
		time.Sleep(lastRetry)
		synctest.Wait()
		if p.Failure("uid") != nil {
			t.Error("no recovery")
		}
	})
}

func TestChangedWishDoesNotWaitForTheRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return apierrors.NewForbidden(pods, "p", errors.New("no")) }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61001)}})
		synctest.Wait()
		if a.count() != 2 {
			t.Errorf("%d patches, want 2", a.count())
		}
	})
}

// A patch that nobody answered may have been stored: until the next success its mappings count as published.
func TestUnansweredPatchCountsAsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return context.DeadlineExceeded }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		if ms, _ := p.Published(pod("1", "")); !npl.Equal(ms, mapping(61000)) {
			t.Errorf("published %v", ms)
		}
		a.mu.Lock()
		a.answer = func() error { return nil }
		a.mu.Unlock()
		p.Set([]Desired{{Pod: pod("1", "")}}) // nothing is wanted, and the cache shows nothing: but it must be made sure
		synctest.Wait()
		if ms, _ := p.Published(pod("1", "")); len(ms) != 0 || a.count() != 2 || !strings.Contains(a.patches[1], ":null") {
			t.Errorf("published %v after %v", ms, a.patches)
		}
		// A refusal by the API server is an answer: nothing was stored.
		a.answer = func() error { return apierrors.NewForbidden(pods, "p", errors.New("no")) }
		p.Set([]Desired{{Pod: pod("12", ""), Mappings: mapping(61002)}})
		synctest.Wait()
		if ms, _ := p.Published(pod("12", "")); len(ms) != 0 {
			t.Errorf("a refused patch counts as published: %v", ms)
		}
	})
}

// A later patch that was refused says nothing about the one before.
func TestUnansweredPatchCountsAsPublishedAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return context.DeadlineExceeded }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		a.mu.Lock()
		a.answer = func() error { return apierrors.NewForbidden(pods, "p", errors.New("no")) }
		a.mu.Unlock()
		p.Set([]Desired{{Pod: pod("1", "")}})
		synctest.Wait()
		if ms, _ := p.Published(pod("1", "")); a.count() != 2 || !npl.Equal(ms, mapping(61000)) {
			t.Errorf("published %v after %d patches", ms, a.count())
		}
	})
}

func TestPatchOnItsWayCountsAsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		release := make(chan struct{})
		a.answer = func() error { <-release; return nil }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		if ms, _ := p.Published(pod("1", "")); !npl.Equal(ms, mapping(61000)) {
			t.Errorf("published %v", ms)
		}
		p.Set([]Desired{{Pod: pod("1", "")}})
		close(release)
		synctest.Wait()
		if ms, _ := p.Published(pod("1", "")); len(ms) != 0 || a.count() != 2 {
			t.Errorf("published %v after %d patches, want the second to take back the first", ms, a.count())
		}
	})
}

func TestOnePodThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		p.patch = func(ctx context.Context, d Desired) (*corev1.Pod, error) {
			if d.Pod.Name == "stuck" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return Patch(ctx, a, d)
		}
		run(t, p)
		stuck := pod("1", "")
		stuck.UID, stuck.Name = "uid-stuck", "stuck"
		all := []Desired{{Pod: stuck, Mappings: mapping(61000)}}
		for i := range 50 {
			d := pod("1", "")
			d.UID = fmt.Sprintf("uid-%d", i)
			all = append(all, Desired{Pod: d, Mappings: mapping(61001)})
		}
		p.Set(all)
		synctest.Wait()
		if n := a.count(); n != 50 {
			t.Errorf("%d of 50 Pods were patched", n)
		}
		time.Sleep(2 * patchTimeout) // virtual: a hanging patch is given up and tried again
		if p.Failure("uid-stuck") == nil {
			t.Error("the hanging patch was not given up")
		}
	})
}

func TestForgottenPodIsNotPatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return errors.New("down") }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		n := a.count()
		p.Set(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count() != n {
			t.Errorf("%d more patches of a Pod nobody wants any more", a.count()-n)
		}
	})
}

func TestAnnotationThatIsLeftIsNotPatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return errors.New("down") }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		n := a.count()
		p.Set([]Desired{{Pod: pod("2", "junk"), Leave: true}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count() != n || p.Failure("uid") != nil {
			t.Errorf("%d more patches, failure %v", a.count()-n, p.Failure("uid"))
		}
		if got, _ := p.Published(pod("2", "junk")); !npl.Equal(got, mapping(61000)) {
			t.Errorf("published %v: the patch that nobody answered is forgotten", got)
		}
	})
}

// Since tells at which resourceVersion a mapping was withdrawn: that is what a watermark is held against.
func TestSinceIsTheVersionOfTheWriteItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		run(t, p)
		since := func(version, annotation, want string) {
			t.Helper()
			if got := p.Since(pod(version, annotation)); got != want {
				t.Errorf("at %s with %q: since %s, want %s", version, annotation, got, want)
			}
		}
		old := npl.Encode(mapping(61000))
		since("7", old, "7")
		since("9", old, "7") // something else has changed
		p.Set([]Desired{{Pod: pod("9", old)}})
		synctest.Wait() // the answer has version 11
		since("9", old, "11")
		since("20", "", "11")
		since("30", old, "30") // somebody put it back
		since("31", "[]", "31")
		a.answer = func() error { return apierrors.NewNotFound(pods, "p") }
		p.Set([]Desired{{Pod: pod("31", "[]"), Mappings: mapping(61001)}})
		synctest.Wait()
		since("31", "[]", "") // gone, and nobody knows yet since when
	})
}

func TestErrorsByClass(t *testing.T) {
	webhook := errors.New("admission webhook denied the request")
	for name, tt := range map[string]struct {
		answer  error
		class   Class
		message string
	}{
		"forbidden":    {apierrors.NewForbidden(pods, "p", errors.New("ValidatingAdmissionPolicy denied request")), Forbidden, "compare ClusterRole and ValidatingAdmissionPolicies with those of the chart"},
		"unauthorized": {apierrors.NewUnauthorized("no"), Forbidden, "pods/status"},
		"conflict":     {apierrors.NewConflict(pods, "p", errors.New("the object has been modified")), Conflict, "the object has been modified"},
		"throttled":    {apierrors.NewTooManyRequests("slow down", 5), Throttled, "slow down"},
		"invalid":      {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations"), "x", "no")}), Rejected, "metadata.annotations"},
		"server error": {apierrors.NewInternalError(webhook), Unavailable, "webhook"},
		"no answer":    {context.DeadlineExceeded, Unavailable, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newAPI(t)
				a.answer = func() error { return tt.answer }
				run(t, p)
				p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
				synctest.Wait()
				a.mu.Lock()
				if a.results[0] != Failed || a.classes[0] != tt.class {
					t.Errorf("result %s, class %s, want %s", a.results[0], a.classes[0], tt.class)
				}
				a.answer = func() error { return nil }
				a.mu.Unlock()
				if err := p.Failure("uid"); err == nil || !strings.Contains(err.Error(), tt.message) || !errors.Is(err, tt.answer) {
					t.Errorf("failure %v", err)
				}
				time.Sleep(lastRetry) // virtual
				synctest.Wait()
				if p.Failure("uid") != nil || a.count() != 2 {
					t.Errorf("failure %v after %d patches: every class is tried again", p.Failure("uid"), a.count())
				}
			})
		})
	}
}

func TestWaitsAsLongAsTheAPIServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return apierrors.NewTooManyRequests("slow down", 5) }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		time.Sleep(5*time.Second - time.Millisecond)
		synctest.Wait()
		if a.count() != 1 {
			t.Errorf("%d patches within the five seconds", a.count())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if a.count() != 2 {
			t.Errorf("%d patches after them", a.count())
		}
	})
}

func TestRewrittenAnnotationIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		p.patch = func(context.Context, Desired) (*corev1.Pod, error) {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "12", Annotations: map[string]string{npl.Annotation: "[]"}}}, nil
		}
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := p.Failure("uid"); err == nil || !strings.Contains(err.Error(), "admission webhook") || a.classes[0] != Rejected {
			t.Errorf("failure %v, class %s", err, a.classes[0])
		}
	})
}
