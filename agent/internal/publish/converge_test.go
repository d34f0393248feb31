package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// A wish that is taken back before the retry, and had again later: the retry in between had nothing to do, and nothing stays of the failure.
func TestFailureOfAWishThatWasTakenBack(t *testing.T) {
	for name, before := range map[string]time.Duration{"before the retry": 0, "after the retry": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newAPI(t)
				a.answer = func() error { return apierrors.NewForbidden(pods, "p", errors.New("no")) }
				run(t, p)
				stored := npl.Encode(mapping(61000))
				p.Set([]Desired{{Pod: pod("1", stored), Mappings: mapping(61001)}})
				synctest.Wait()
				p.Set([]Desired{{Pod: pod("1", stored), Mappings: mapping(61000)}})
				if err := p.Failure("uid"); err != nil {
					t.Errorf("nothing is to be written, and still %v", err)
				}
				time.Sleep(before) // virtual
				a.mu.Lock()
				a.answer = func() error { return nil }
				a.mu.Unlock()
				n := a.count()
				p.Set([]Desired{{Pod: pod("5", ""), Mappings: mapping(61000)}}) // somebody takes the annotation off
				synctest.Wait()
				if a.count() != n+1 || p.Failure("uid") != nil {
					t.Errorf("%d patches, want 1; failure %v", a.count()-n, p.Failure("uid"))
				}
			})
		})
	}
}

// Somebody edits the annotation right behind our patch, and the watch tells of that before our patch is answered: what the answer says is the past.
func TestAnswerThatIsOlderThanTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := New(fake.NewClientset(), zap.NewNop(), func(Outcome) {})
		answer := make(chan struct{})
		p.patch = func(ctx context.Context, d Desired) (*corev1.Pod, error) {
			object, err := s.patch(ctx, d)
			<-answer
			return object, err
		}
		run(t, p)
		p.Set([]Desired{{Pod: s.see(0), Mappings: mapping(61000)}})
		synctest.Wait()
		s.edit("[]")
		p.Set([]Desired{{Pod: s.see(9), Mappings: mapping(61000)}})
		close(answer)
		synctest.Wait()
		if got, _ := s.stored(); got.Annotation != npl.Encode(mapping(61000)) {
			t.Errorf("the annotation stays %q", got.Annotation)
		}
	})
}

// The cache can catch up with what was wanted all along, because somebody else wrote it: the retry finds nothing to do.
func TestFailureEndsWhenTheCacheShowsWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newAPI(t)
		a.answer = func() error { return apierrors.NewForbidden(pods, "p", errors.New("no")) }
		run(t, p)
		p.Set([]Desired{{Pod: pod("1", ""), Mappings: mapping(61000)}})
		synctest.Wait()
		if _, err := p.Published(pod("2", npl.Encode(mapping(61000)))); err != nil { // it only looks
			t.Fatal(err)
		}
		time.Sleep(lastRetry)
		synctest.Wait()
		if a.count() != 1 || p.Failure("uid") != nil {
			t.Errorf("%d patches, failure %v", a.count(), p.Failure("uid"))
		}
	})
}

// server is an API server with one Pod, whose cache may lag behind.
type server struct {
	mu      sync.Mutex
	history []model.Pod
	cached  int  // which of history the cache shows
	ours    bool // whether the last write was a patch
	mode    string
}

func newServer() *server {
	return &server{history: []model.Pod{pod("1", "")}, mode: "well"}
}

func (s *server) write(annotation string, present bool) *corev1.Pod {
	now := pod(strconv.Itoa(len(s.history)+1), "")
	now.Annotation, now.Annotated = annotation, present
	s.history = append(s.history, now)
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: now.Name, ResourceVersion: now.ResourceVersion}}
	if present {
		object.Annotations = map[string]string{npl.Annotation: annotation}
	}
	return object
}

// answers are what the API server may say to a patch.
var answers = []string{"well", "unanswered and stored", "unanswered", "403", "404 of a proxy", "409", "422", "429", "500"}

func (s *server) patch(_ context.Context, d Desired) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.mode {
	case "well", "unanswered and stored":
		s.ours = true
		object := s.write(npl.Encode(d.Mappings), true)
		if len(d.Mappings) == 0 {
			s.history = s.history[:len(s.history)-1]
			object = s.write("", false)
		}
		if s.mode != "well" {
			return nil, context.DeadlineExceeded
		}
		return object, nil
	case "unanswered":
		return nil, context.DeadlineExceeded
	case "403":
		return nil, apierrors.NewForbidden(pods, "p", errors.New("no"))
	case "404 of a proxy":
		return nil, apierrors.NewGenericServerResponse(404, "PATCH", pods, "p", "nothing here", 0, true)
	case "409":
		return nil, apierrors.NewConflict(pods, "p", errors.New("the object has been modified"))
	case "422":
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil)
	case "429":
		return nil, apierrors.NewTooManyRequests("slow down", 5)
	default:
		return nil, apierrors.NewInternalError(errors.New("no"))
	}
}

// see returns the Pod as the cache shows it, after as many more changes.
func (s *server) see(more int) model.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached = min(s.cached+more, len(s.history)-1)
	return s.history[s.cached]
}

func (s *server) edit(annotation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours = false
	s.write(annotation, annotation != "")
}

func (s *server) set(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

func (s *server) stored() (p model.Pod, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history[len(s.history)-1], s.ours
}

// Whatever is wanted, whatever becomes of the annotation and whatever the API server answers: once it answers well, the annotation
// becomes what is wanted, and nothing counts as failed. All the time, what our patches stored counts as published.
func TestAnnotationBecomesWhatIsWanted(t *testing.T) {
	other := mapping(61001)
	other[0].PodPort = 81
	wishes := [][]npl.Mapping{nil, mapping(61000), mapping(61001), slices.Concat(mapping(61000), other)}
	annotations := []string{"", "[]", "junk", npl.Encode(mapping(61000)), npl.Encode(mapping(61001)), npl.Encode(mapping(61002))}
	type step struct {
		do     string
		number int
	}
	rapid.Check(t, func(r *rapid.T) {
		script := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
			s := step{do: rapid.SampledFrom([]string{"wish", "edit", "echo", "answer", "settle", "sleep", "leave"}).Draw(r, "do")}
			s.number = rapid.IntRange(0, map[string]int{"wish": len(wishes), "edit": len(annotations), "echo": 3, "answer": len(answers), "settle": 1, "sleep": 40, "leave": 1}[s.do]-1).Draw(r, "number")
			return s
		}), 1, 30).Draw(r, "script")
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			p := New(fake.NewClientset(), zap.NewNop(), func(Outcome) {})
			p.patch = s.patch
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { p.Run(ctx) })
			defer wg.Wait()
			defer cancel()
			var wish []npl.Mapping
			pass := func(more int, leave bool) {
				seen := s.see(more)
				_, _ = p.Published(seen) // as a pass does
				p.Set([]Desired{{Pod: seen, Mappings: wish, Leave: leave}})
			}
			pass(0, false)
			for i, step := range script {
				switch step.do {
				case "wish":
					wish = wishes[step.number]
					pass(0, false)
				case "edit":
					s.edit(annotations[step.number])
				case "echo":
					pass(step.number, false)
				case "answer":
					s.set(answers[step.number])
				case "settle":
					synctest.Wait()
				case "sleep":
					time.Sleep(time.Duration(step.number) * 50 * time.Millisecond)
				case "leave":
					pass(0, true)
				}
				if stored, ours := s.stored(); ours && wrong == "" {
					ms, _ := npl.Decode(stored.Annotation)
					published, _ := p.Published(s.see(0))
					if after, _ := s.stored(); after.ResourceVersion != stored.ResourceVersion {
						continue // a patch came in between
					}
					for _, m := range ms {
						if !slices.Contains(published, m) {
							wrong = fmt.Sprintf("after step %d our patch stored %v, and %v counts as published", i, ms, published)
						}
					}
				}
			}
			s.set("well")
			for _, edit := range []bool{false, true} {
				if edit {
					s.edit("by hand")
				}
				pass(100, false)
				time.Sleep(2 * lastRetry)
				synctest.Wait()
				got, _ := s.stored()
				if err := p.Failure("uid"); wrong == "" && (err != nil || !newValue(got.Annotation, got.Annotated, "").means(wish)) {
					wrong = fmt.Sprintf("in the end (edited again: %v) the annotation is %q (present: %v), want %v; failure %v", edit, got.Annotation, got.Annotated, wish, err)
				}
			}
		})
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}
