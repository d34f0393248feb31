package node

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/netns"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/probe"
)

// watchHealth starts the probes of a run: the startup probe first, the others once the container has started.
func (w *worker) watchHealth(ctx context.Context, r *run) {
	ctx, r.probes = context.WithCancel(ctx)
	c := r.container.Spec
	if c.StartupProbe == nil {
		w.watchStarted(ctx, r)
		return
	}
	starting, started := context.WithCancel(ctx)
	w.watch(starting, r, c.StartupProbe, func(a probe.Answer) {
		started()
		if !a.OK {
			w.unhealthy(ctx, r, "Startup", c.StartupProbe, a)
			return
		}
		r.container.Started = true
		r.container.Ready = c.ReadinessProbe == nil
		w.watchStarted(ctx, r)
	})
}

func (w *worker) watchStarted(ctx context.Context, r *run) {
	c := r.container.Spec
	if p := c.ReadinessProbe; p != nil {
		w.watch(ctx, r, p, func(a probe.Answer) {
			if !a.OK {
				w.complain("Unhealthy", fmt.Errorf("Readiness probe failed: %s", a.Message)) //nolint:staticcheck // as kubelets write it
			}
			r.container.Ready = a.OK
		})
	}
	if p := c.LivenessProbe; p != nil {
		w.watch(ctx, r, p, func(a probe.Answer) {
			if !a.OK && !w.deleting() {
				w.unhealthy(ctx, r, "Liveness", p, a)
			}
		})
	}
}

// watch probes until ctx ends; verdict is called by the worker, for as long as the run lasts.
func (w *worker) watch(ctx context.Context, r *run, p *corev1.Probe, verdict func(probe.Answer)) {
	go probe.Watch(ctx, clock.RealClock{}, p, r.target, func(a probe.Answer) {
		w.post(func() {
			if ctx.Err() == nil && w.runs[r.container.Spec.Name] == r {
				verdict(a)
			}
		})
	})
}

// unhealthy ends a run, which is then restarted as after any other end.
func (w *worker) unhealthy(ctx context.Context, r *run, kind string, p *corev1.Probe, a probe.Answer) {
	w.event(corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", kind, a.Message)
	grace := ptr.Deref(p.TerminationGracePeriodSeconds, ptr.Deref(w.pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	killAt := time.Now().Add(time.Duration(max(1, grace)) * time.Second)
	w.stopRun(ctx, r, killAt, "Container %s failed a probe, will be restarted")
	w.wakeBy(killAt)
}

// target is how a run is asked from outside.
func (w *worker) target(r *run) probe.Target {
	t := probe.Target{
		Ports: r.container.Spec.Ports,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return netns.Dial(ctx, w.node.cfg.NetNSPath, network, address)
		},
		Exec: func(ctx context.Context, command []string) (int, []byte, error) {
			spec := r.spec
			spec.Args = command
			return r.process.Exec(ctx, spec)
		},
	}
	if len(w.sandbox.IPs) > 0 {
		t.Host = w.sandbox.IPs[0].String()
	}
	return t
}

// hook carries out a lifecycle hook.
func (w *worker) hook(ctx context.Context, r *run, h *corev1.LifecycleHandler) error {
	if h.Sleep != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.process.Done():
			return nil
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
			return nil
		}
	}
	answer := r.target.Once(ctx, corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket})
	if !answer.OK {
		return fmt.Errorf("%s", answer.Message)
	}
	return nil
}

// postStart runs the hook beside the container; when it fails the container is ended.
func (w *worker) postStart(ctx context.Context, r *run) {
	hook := r.container.Spec.Lifecycle
	if hook == nil || hook.PostStart == nil {
		return
	}
	go func() {
		err := w.hook(ctx, r, hook.PostStart)
		if err == nil || ctx.Err() != nil {
			return
		}
		w.post(func() {
			if w.runs[r.container.Spec.Name] == r {
				w.event(corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: %v", err)
				w.stopRun(ctx, r, time.Now().Add(w.grace()), "Container %s failed its postStart hook")
			}
		})
	}()
}
