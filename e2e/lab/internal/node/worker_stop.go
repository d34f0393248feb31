package node

import (
	"context"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/lifecycle"
)

func (w *worker) deleting() bool { return w.gone || w.pod.DeletionTimestamp != nil }

// stop brings all containers to their end within the Pod's grace: first the ordinary ones together, then the sidecars,
// the last one first. It does what is due now; stopped says that nothing runs any more.
func (w *worker) stop(ctx context.Context) (stopped bool) {
	now := time.Now()
	if w.stopping.IsZero() {
		w.stopping = now
	}
	// Each look at the Pod may shorten the grace, never lengthen it.
	if at := w.stopping.Add(w.grace()); w.killAt.IsZero() || at.Before(w.killAt) {
		w.killAt = at
	}
	if len(w.runs) == 0 {
		return true
	}
	for _, r := range w.nextToStop() {
		w.stopRun(ctx, r, w.killAt, "Stopping container %s")
	}
	w.killOverdue(now)
	return false
}

// grace is what the deletion allows; a Pod that ended by itself, or was removed without a word, has what it asked for.
func (w *worker) grace() time.Duration {
	seconds := ptr.Deref(w.pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if w.pod.DeletionGracePeriodSeconds != nil {
		seconds = *w.pod.DeletionGracePeriodSeconds
	}
	return time.Duration(max(1, seconds)) * time.Second
}

// nextToStop are the ordinary and init containers, or once none of them runs the last sidecar.
func (w *worker) nextToStop() []*run {
	var now []*run
	for _, r := range w.runs {
		if r.container.Kind != lifecycle.Sidecar {
			now = append(now, r)
		}
	}
	if len(now) > 0 {
		return now
	}
	for _, c := range slices.Backward(w.containers) {
		if r := w.runs[c.Spec.Name]; r != nil {
			return []*run{r}
		}
	}
	return nil
}

// stopRun asks a container to end, unless it was asked before: preStop, then the signal. Whatever happens, it is killed
// at that time.
func (w *worker) stopRun(ctx context.Context, r *run, killAt time.Time, why string) {
	if r.killAt.IsZero() || killAt.Before(r.killAt) {
		r.killAt = killAt
	}
	if r.stopping {
		return
	}
	r.stopping = true
	w.event(corev1.EventTypeNormal, "Killing", why, r.container.Spec.Name)
	hook := r.container.Spec.Lifecycle
	go func() {
		if hook != nil && hook.PreStop != nil {
			ctx, cancel := context.WithDeadline(ctx, killAt)
			defer cancel()
			if err := w.hook(ctx, r, hook.PreStop); err != nil {
				w.post(func() { w.event(corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err) })
			}
		}
		r.process.Signal(stopSignal(r.container))
	}()
}

// stopSignal is the one the container asks for, by default SIGTERM.
func stopSignal(c *lifecycle.Container) syscall.Signal {
	if l := c.Spec.Lifecycle; l != nil && l.StopSignal != nil {
		if s, ok := signals[*l.StopSignal]; ok {
			return s
		}
	}
	return syscall.SIGTERM
}

// signals are those that programs commonly take as a request to end.
var signals = map[corev1.Signal]syscall.Signal{
	corev1.SIGTERM: syscall.SIGTERM, corev1.SIGINT: syscall.SIGINT, corev1.SIGQUIT: syscall.SIGQUIT, corev1.SIGHUP: syscall.SIGHUP,
	corev1.SIGUSR1: syscall.SIGUSR1, corev1.SIGUSR2: syscall.SIGUSR2, corev1.SIGKILL: syscall.SIGKILL,
}

// killOverdue kills the containers whose time to end by themselves is over.
func (w *worker) killOverdue(now time.Time) {
	for _, r := range w.runs {
		switch {
		case r.killAt.IsZero():
		case now.Before(r.killAt):
			w.wakeBy(r.killAt)
		default:
			r.process.Kill()
		}
	}
}
