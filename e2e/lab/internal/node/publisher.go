package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/lifecycle"
)

// publishTimeout bounds one request.
const publishTimeout = 15 * time.Second

// errReplaced says that the name now belongs to another Pod.
var errReplaced = errors.New("the Pod was replaced by another of the same name")

// publisher brings one Pod's status to the API server, and at the end removes the Pod there. It works on a goroutine of
// its own; only the newest status matters to it.
type publisher struct {
	client kubernetes.Interface
	log    *zap.Logger
	wake   chan struct{}
	done   chan struct{} // closed when the Pod is gone from the API server

	mu     sync.Mutex
	known  *corev1.Pod // the newest version that anyone has seen
	facts  *lifecycle.Facts
	remove bool
}

func newPublisher(client kubernetes.Interface, log *zap.Logger, pod *corev1.Pod) *publisher {
	return &publisher{client: client, log: log, wake: make(chan struct{}, 1), done: make(chan struct{}), known: pod}
}

// observe takes note of a version of the Pod, unless a newer one is known.
func (p *publisher) observe(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if newer(pod.ResourceVersion, p.known.ResourceVersion) {
		p.known = pod
	}
}

// newer compares resourceVersions, which are numbers.
func newer(a, b string) bool {
	m, errM := strconv.ParseUint(a, 10, 64)
	n, errN := strconv.ParseUint(b, 10, 64)
	return errM != nil || errN != nil || m >= n
}

// want says how the Pod is now. The containers must not be changed after.
func (p *publisher) want(facts lifecycle.Facts) {
	p.mu.Lock()
	p.facts = &facts
	p.mu.Unlock()
	p.poke()
}

// drop has the Pod removed from the API server once its last status is there.
func (p *publisher) drop() {
	p.mu.Lock()
	p.remove = true
	p.mu.Unlock()
	p.poke()
}

func (p *publisher) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run publishes until the Pod is removed or ctx ends. A request under way then is still finished, unless the requests'
// own context ends, too.
func (p *publisher) run(ctx, requests context.Context) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 50*time.Millisecond, 5*time.Second
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for {
			gone, err := p.round(requests)
			if gone {
				close(p.done)
				return
			}
			if err == nil {
				retry.Reset()
				break
			}
			if ctx.Err() != nil {
				return
			}
			p.log.Info("publish the Pod's status, will retry", zap.Error(err))
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry.NextBackOff()):
			}
		}
	}
}

// round makes one attempt; gone says that the Pod is not, or no longer, at the API server.
func (p *publisher) round(ctx context.Context) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	p.mu.Lock()
	known, facts, remove := p.known, p.facts, p.remove
	p.mu.Unlock()
	if facts != nil {
		err = p.patch(ctx, known, *facts)
	}
	if err == nil && remove {
		err = p.delete(ctx, known)
		if err == nil {
			return true, nil
		}
	}
	if apierrors.IsNotFound(err) || errors.Is(err, errReplaced) {
		return true, nil
	}
	return false, err
}

// patch sends the difference between the status that is known and the one that is true, as kubelets do: a strategic
// merge patch, which leaves alone what others write, bound to this Pod by its UID.
func (p *publisher) patch(ctx context.Context, known *corev1.Pod, facts lifecycle.Facts) error {
	status := lifecycle.Status(known, facts, time.Now())
	if apiequality.Semantic.DeepEqual(known.Status, status) {
		return nil
	}
	patch, err := statusPatch(known, status)
	if err != nil {
		return err
	}
	updated, err := p.client.CoreV1().Pods(known.Namespace).Patch(ctx, known.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		if other, getErr := p.client.CoreV1().Pods(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{}); getErr == nil && other.UID != known.UID {
			return errReplaced
		}
	}
	if err != nil {
		return fmt.Errorf("patch status of Pod %s/%s: %w", known.Namespace, known.Name, err)
	}
	p.observe(updated)
	return nil
}

// statusPatch computes the patch; the UID stands only in what is wanted, so that it is always part of it.
func statusPatch(known *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: known.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: known.UID}, Status: status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// delete removes the Pod for good.
func (p *publisher) delete(ctx context.Context, known *corev1.Pod) error {
	err := p.client.CoreV1().Pods(known.Namespace).Delete(ctx, known.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(known.UID)),
	})
	if apierrors.IsConflict(err) {
		return errReplaced
	}
	if err != nil {
		return fmt.Errorf("remove Pod %s/%s: %w", known.Namespace, known.Name, err)
	}
	return nil
}
