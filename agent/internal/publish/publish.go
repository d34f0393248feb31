// Package publish writes the annotation of Pods: a JSON merge patch on pods/status that names the Pod's UID, so that a Pod of
// the same name that replaced it is never touched. It patches only where the annotation means something else than it should.
package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

const (
	// workers is how many patches are on their way at once, so the API server itself sets the pace: it has never more than these to
	// answer for a Node, and a slow one is asked less often. The rate only bounds a defect.
	workers      = 8
	patchesPerS  = 1000
	patchBurst   = 1000
	patchTimeout = 10 * time.Second
	firstRetry   = 200 * time.Millisecond
	lastRetry    = 30 * time.Second
)

// Result is how a patch ended; it is a metric label.
type Result string

// The results. Gone means that the Pod no longer exists, or was replaced by another of the same name.
const (
	Success Result = "success"
	Gone    Result = "gone"
	Failed  Result = "error"
)

// Results are all there are.
func Results() []Result { return []Result{Success, Gone, Failed} }

// Desired is what one Pod's annotation should say. No mappings means no annotation.
type Desired struct {
	Pod      model.Pod
	Mappings []npl.Mapping
	Leave    bool // whatever the annotation says, it stays
	// Since is when the Pod became what needs these mappings, zero if it was not the Pod that changed; Complete is whether they are all
	// that it needs. Both are only handed through.
	Since    time.Time
	Complete bool
}

// Outcome is how one patch ended.
type Outcome struct {
	Desired
	Result Result
	Class  Class // of the error; empty unless Result is Failed
}

// Publisher makes annotations what they should be, several at a time and each with its own retry, so that one Pod that cannot
// be patched delays no other. It is safe for concurrent use.
type Publisher struct {
	patch   func(context.Context, Desired) (*corev1.Pod, error)
	log     *zap.Logger
	done    func(Outcome)
	limiter *rate.Limiter
	queue   workqueue.TypedRateLimitingInterface[string] // of Pod UIDs

	mu   sync.Mutex
	pods map[string]*state // by UID
}

type state struct {
	desired Desired
	cached  value
	acked   *value // what our last patch made of it, while the cache is older than that
	gone    bool   // the API server has said so, and the cache shows nothing newer
	failure error  // of the last attempt, while something is to be patched: a retry is queued then, or on its way
	// attempted is what a patch says whose outcome is not known: it is on its way, or was answered by nobody. It may yet be stored.
	attempted []npl.Mapping
	uncertain bool // whether there is such a patch and it is no longer on its way
}

// satisfied reports whether nothing needs to be patched.
func (s *state) satisfied() bool {
	return s.gone || s.desired.Leave || !s.uncertain && s.effective().means(s.desired.Mappings)
}

// value is an annotation at one resourceVersion.
type value struct {
	raw     string
	present bool
	version string
	// since is the first version known to say the same.
	since    string
	mappings []npl.Mapping
	err      error // raw cannot be read, or not all of it
}

func newValue(raw string, present bool, version string) value {
	v := value{raw: raw, present: present, version: version, since: version}
	if present {
		v.mappings, v.err = npl.Decode(raw)
	}
	return v
}

// means reports whether the annotation says exactly ms, in whatever form.
func (v value) means(ms []npl.Mapping) bool {
	if len(ms) == 0 {
		return !v.present
	}
	return v.present && v.err == nil && npl.Equal(v.mappings, ms)
}

// New returns a publisher. After each patch, done is called from its goroutine.
func New(client kubernetes.Interface, log *zap.Logger, done func(Outcome)) *Publisher {
	return &Publisher{
		patch:   func(ctx context.Context, d Desired) (*corev1.Pod, error) { return Patch(ctx, client, d) },
		log:     log,
		done:    done,
		limiter: rate.NewLimiter(patchesPerS, patchBurst),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
		pods: map[string]*state{},
	}
}

// Run patches until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for p.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	wg.Wait()
}

// Set replaces everything that is desired. Pods that it does not name are forgotten.
func (p *Publisher) Set(all []Desired) {
	p.mu.Lock()
	defer p.mu.Unlock()
	named := make(map[string]bool, len(all))
	for _, d := range all {
		uid := d.Pod.UID
		named[uid] = true
		s := p.observe(d.Pod)
		same := npl.Equal(s.desired.Mappings, d.Mappings)
		s.desired = d
		switch {
		case s.satisfied():
			s.failure = nil // the retry finds nothing to do
		case s.failure == nil || !same:
			p.queue.Add(uid)
		}
	}
	for uid := range p.pods {
		if !named[uid] {
			delete(p.pods, uid)
			p.queue.Forget(uid)
		}
	}
}

// Published returns what anyone may read in the annotation of a Pod, as far as this process knows: by the cache, or by a patch
// that the cache does not show yet; and what a patch may make of it whose outcome is not known. The error says what of the
// annotation cannot be read.
func (p *Publisher) Published(pod model.Pod) ([]npl.Mapping, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.observe(pod)
	if s.gone {
		return nil, nil
	}
	v := s.effective()
	return npl.Canonical(slices.Concat(v.mappings, s.attempted)), v.err
}

// Since returns the first resourceVersion at which a Pod's annotation says what Published returns; "" if that is not known: the Pod is
// gone, and its deletion has not been seen yet.
func (p *Publisher) Since(pod model.Pod) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.observe(pod)
	if s.gone {
		return ""
	}
	return s.effective().since
}

// Failure returns why the last attempt to patch a Pod failed, or nil.
func (p *Publisher) Failure(uid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pods[uid]; s != nil {
		return s.failure
	}
	return nil
}

// observe takes note of the Pod as the cache has it.
func (p *Publisher) observe(pod model.Pod) *state {
	s := p.pods[pod.UID]
	if s == nil {
		s = &state{cached: newValue(pod.Annotation, pod.Annotated, pod.ResourceVersion)}
		p.pods[pod.UID] = s
		return s
	}
	if s.cached.raw != pod.Annotation || s.cached.present != pod.Annotated {
		s.cached = newValue(pod.Annotation, pod.Annotated, pod.ResourceVersion)
	}
	if newer(pod.ResourceVersion, s.cached.version) {
		s.gone = false // it lives on: whoever said otherwise was wrong, or it was said before a change that the cache shows only now
	}
	s.cached.version = pod.ResourceVersion
	if s.acked != nil && !newer(s.acked.version, pod.ResourceVersion) {
		if s.acked.raw == s.cached.raw && s.acked.present == s.cached.present { // it is ours, perhaps with a later change of something else
			s.cached.since = s.acked.since
		}
		s.acked = nil
	}
	return s
}

func (s *state) effective() value {
	if s.acked != nil {
		return *s.acked
	}
	return s.cached
}

// newer reports whether resourceVersion a is later than b.
func newer(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c > 0
}

// next does one Pod. It returns false when the queue has been shut down.
func (p *Publisher) next(ctx context.Context) bool {
	uid, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(uid)
	if p.limiter.Wait(ctx) != nil {
		return true // ctx has ended
	}
	desired, needed := p.due(uid)
	if !needed {
		p.queue.Forget(uid)
		return true
	}
	patching, cancel := context.WithTimeout(ctx, patchTimeout)
	got, err := p.patch(patching, desired)
	cancel()
	if ctx.Err() != nil {
		return true
	}
	result, class := p.record(uid, desired, got, err)
	p.done(Outcome{desired, result, class})
	return true
}

func (p *Publisher) due(uid string) (Desired, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	switch {
	case s == nil:
		return Desired{}, false
	case s.satisfied():
		s.failure = nil // no retry follows
		return Desired{}, false
	}
	s.attempted = npl.Canonical(slices.Concat(s.attempted, s.desired.Mappings))
	return s.desired, true
}

// record keeps the outcome of a patch and arranges for what follows from it.
func (p *Publisher) record(uid string, d Desired, got *corev1.Pod, err error) (Result, Class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	if s == nil {
		s = &state{} // forgotten meanwhile: the outcome matters to nobody
	}
	switch {
	case err == nil:
		s.attempted, s.uncertain = nil, false
	case !refused(err):
		s.uncertain = true
	case !s.uncertain: // this one was not stored, and no other is open
		s.attempted = nil
	}
	if err == nil {
		raw, present := got.Annotations[npl.Annotation]
		v := newValue(raw, present, got.ResourceVersion)
		if !newer(s.cached.version, v.version) { // else a later change was seen before this answer
			s.acked = &v
		}
		if !v.means(d.Mappings) {
			err = fmt.Errorf("the API server stored %q instead: %w, annotation %s", raw, errRewritten, npl.Annotation)
		}
	}
	switch {
	case err == nil:
		s.failure = nil
		p.queue.Forget(uid)
		if !s.satisfied() { // it has changed while we patched
			p.queue.Add(uid)
		}
		return Success, ""
	case IsGone(err, d.Pod.Name):
		s.failure, s.gone = nil, true
		p.queue.Forget(uid)
		p.log.Info("Pod no longer exists; its annotation was not written", zap.Stringer("pod", d.Pod), zap.String("uid", uid))
		return Gone, ""
	default:
		class := classOf(err)
		s.failure = fmt.Errorf("patching the annotation of Pod %s: %w%s", d.Pod, err, class.remedy())
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			p.queue.AddAfter(uid, min(time.Duration(seconds)*time.Second, lastRetry))
		} else {
			p.queue.AddRateLimited(uid)
		}
		p.log.Warn("annotation was not written; trying again", zap.Stringer("pod", d.Pod), zap.String("uid", uid), zap.String("class", string(class)), zap.Error(err))
		return Failed, class
	}
}

// Patch writes the annotation of one Pod once: it sets it to d.Mappings, or deletes the key if there are none. If the Pod was
// deleted or replaced, IsGone is true of the error and its name.
func Patch(ctx context.Context, client kubernetes.Interface, d Desired) (*corev1.Pod, error) {
	var annotation *string // null deletes the key
	if len(d.Mappings) > 0 {
		s := npl.Encode(d.Mappings)
		annotation = &s
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         d.Pod.UID,
		"annotations": map[string]*string{npl.Annotation: annotation},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return client.CoreV1().Pods(d.Pod.Namespace).Patch(ctx, d.Pod.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "npl-agent"}, "status")
}
