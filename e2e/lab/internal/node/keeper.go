package node

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/environ"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/objects"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/tokens"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/volumes"
)

// volumeRetry is how long to wait after a volume could not be made.
const volumeRetry = time.Second

// tokenTimeout bounds one request for a token.
const tokenTimeout = 10 * time.Second

// keeper makes one Pod's volumes and keeps what is in them up to date. It works on a goroutine of its own, so that an
// API server that does not answer holds up nothing but volumes.
type keeper struct {
	node    *Node
	dir     podDir
	tokens  *tokens.Keeper
	changed func() // tells the worker
	wake    chan struct{}

	mu  sync.Mutex
	pod *corev1.Pod
	now volumeState
}

// volumeState is how far the keeper has come.
type volumeState struct {
	// ready says that every volume was made once and every referenced object was looked up.
	ready   bool
	err     error
	objects environ.Objects
}

func newKeeper(n *Node, pod *corev1.Pod, changed func()) *keeper {
	return &keeper{
		node: n, dir: n.podDir(pod), tokens: tokens.NewKeeper(n.client, pod, time.Now), changed: changed,
		wake: make(chan struct{}, 1), pod: pod,
	}
}

// observe hands over the newest version of the Pod, whose labels and annotations may be in a volume.
func (k *keeper) observe(pod *corev1.Pod) {
	k.mu.Lock()
	k.pod = pod
	k.mu.Unlock()
	k.poke()
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) state() volumeState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	for _, ref := range volumes.References(k.pod) {
		release := k.node.objects.Follow(objects.Key{Secret: ref.Secret, Namespace: k.pod.Namespace, Name: ref.Name}, k.poke)
		defer release()
	}
	for ctx.Err() == nil {
		wait := k.round(ctx)
		var due <-chan time.Time
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-due:
		}
	}
}

// round brings everything up to date and returns when to do so again unasked; 0 for never.
func (k *keeper) round(ctx context.Context) time.Duration {
	k.mu.Lock()
	pod, before := k.pod, k.now
	k.mu.Unlock()
	found, known := k.lookUp(pod)
	if !known {
		return 0
	}
	err := k.make(ctx, pod, found)
	k.mu.Lock()
	k.now = volumeState{ready: before.ready || err == nil, err: err, objects: found}
	k.mu.Unlock()
	if err != nil && ctx.Err() == nil && fmt.Sprint(err) != fmt.Sprint(before.err) {
		k.node.log.Info("make volumes", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
	k.changed()
	if err != nil {
		return volumeRetry
	}
	if refresh := k.tokens.Refresh(); !refresh.IsZero() {
		return max(time.Until(refresh), time.Millisecond)
	}
	return 0
}

// lookUp collects what the Pod refers to; known is false as long as something was not looked up yet.
func (k *keeper) lookUp(pod *corev1.Pod) (found environ.Objects, known bool) {
	found = environ.Objects{ConfigMaps: map[string]*corev1.ConfigMap{}, Secrets: map[string]*corev1.Secret{}}
	for _, ref := range volumes.References(pod) {
		object, known := k.node.objects.Get(objects.Key{Secret: ref.Secret, Namespace: pod.Namespace, Name: ref.Name})
		if !known {
			return found, false
		}
		switch o := object.(type) {
		case *corev1.ConfigMap:
			found.ConfigMaps[ref.Name] = o
		case *corev1.Secret:
			found.Secrets[ref.Name] = o
		}
	}
	return found, true
}

// make makes every volume, or updates it.
func (k *keeper) make(ctx context.Context, pod *corev1.Pod, found environ.Objects) error {
	in := volumes.Inputs{
		Pod: pod, Facts: environ.Facts{Allocatable: k.node.capacity()}, Objects: found,
		Token: func(p *corev1.ServiceAccountTokenProjection) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
			defer cancel()
			return k.tokens.Token(ctx, p)
		},
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		payload, ok, err := volumes.Of(v, in)
		switch {
		case err != nil:
			return err
		case ok:
			err = volumes.Write(k.dir.volume(v.Name), payload, group(pod))
		case v.HostPath != nil:
			real, _ := hostPath(k.node.cfg.StateDir, v.HostPath.Path)
			err = makeHostPath(real, v.HostPath)
		case v.EmptyDir != nil:
			err = makeEmptyDir(k.dir.volume(v.Name), group(pod))
		}
		if err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return nil
}

// makeEmptyDir makes a directory that every user may write to, as a kubelet does; with a group, new files are the group's.
func makeEmptyDir(dir string, group int) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o777)
	if group >= 0 {
		if err := os.Chown(dir, -1, group); err != nil {
			return err
		}
		mode |= os.ModeSetgid
	}
	return os.Chmod(dir, mode)
}
