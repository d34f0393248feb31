package node

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/lifecycle"
)

// worker is in charge of one Pod, by UID. Its state belongs to the goroutine of run; what others learn or ask is handed
// to that goroutine by post. Each step looks at how everything is and does what is due.
type worker struct {
	node      *Node
	log       *zap.Logger
	publisher *publisher
	keeper    *keeper
	dir       podDir
	start     time.Time
	// ended says that the Pod came to its end before this worker began: it is not run again, only removed when due.
	ended bool

	inbox sync.Mutex // guards queue
	queue []func()
	mail  chan struct{} // something was queued
	over  chan struct{} // closed when this worker has ended

	pod         *corev1.Pod
	gone        bool // removed from the API server
	containers  []*lifecycle.Container
	runs        map[string]*run // by container name, those that run
	streaks     map[string]int  // short runs in a row
	sandbox     *PodSandbox
	pause       *container.Process // process 1 of a shared PID namespace
	initialized bool
	finished    bool // nothing will run again
	stopping    time.Time
	killAt      time.Time
	dead        chan struct{}     // without power: to be closed when nothing runs
	off         bool              // without power
	wake        time.Time         // the earliest time at which a step is due
	complaints  map[string]string // the last message by reason, so that each is told once

	shared sync.Mutex // guards view
	view   view
}

// view is what others may read of a worker.
type view struct {
	pod     *corev1.Pod
	netNS   string
	running map[string]live
	runs    map[string]int32 // the number of the newest run of containers that ran
}

// live is what others may know of a container that runs.
type live struct {
	process *container.Process
	logged  <-chan struct{} // closed when all of its output is in its log
}

func newWorker(n *Node, pod *corev1.Pod) *worker {
	w := &worker{
		node: n, log: n.log.With(zap.String("pod", pod.Namespace+"/"+pod.Name)), dir: n.podDir(pod),
		publisher: newPublisher(n.client, n.log.With(zap.String("pod", pod.Namespace+"/"+pod.Name)), pod),
		start:     time.Now(), mail: make(chan struct{}, 1), over: make(chan struct{}),
		pod: pod, containers: lifecycle.Containers(pod), runs: map[string]*run{}, streaks: map[string]int{},
		complaints: map[string]string{},
		ended:      pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	if pod.Status.StartTime != nil {
		w.start = pod.Status.StartTime.Time
	}
	w.keeper = newKeeper(n, pod, func() { w.post(func() {}) })
	w.share()
	return w
}

// post has f run by the worker, followed by a step. It never waits: one Pod must not hold up another.
func (w *worker) post(f func()) {
	w.inbox.Lock()
	w.queue = append(w.queue, f)
	w.inbox.Unlock()
	select {
	case w.mail <- struct{}{}:
	default:
	}
}

// take runs all that was posted, so that one step and one status serve it all.
func (w *worker) take() {
	w.inbox.Lock()
	queue := w.queue
	w.queue = nil
	w.inbox.Unlock()
	for _, f := range queue {
		f()
	}
}

// observe hands over a version of the Pod.
func (w *worker) observe(pod *corev1.Pod) {
	w.publisher.observe(pod)
	w.keeper.observe(pod)
	w.post(func() { w.pod = pod })
}

// vanish says that the API server no longer has the Pod.
func (w *worker) vanish() { w.post(func() { w.gone = true }) }

// run works until the Pod is gone or the Node's context ends; either way nothing of the Pod is left running.
func (w *worker) run(node context.Context) {
	ctx, cancel := context.WithCancel(node)
	var helpers sync.WaitGroup
	defer func() {
		cancel()
		helpers.Wait()
		w.cleanUp()
		close(w.over)
	}()
	helpers.Go(func() { w.publisher.run(ctx, node) })
	if !w.ended {
		if err := os.MkdirAll(w.dir.rootfs(), 0o755); err != nil {
			w.log.Error("make the Pod's directory", zap.Error(err))
		}
		helpers.Go(func() { w.keeper.run(ctx) })
	}
	removed := w.publisher.done
	for ctx.Err() == nil {
		w.wake = time.Time{}
		if w.step(ctx) {
			return
		}
		w.share()
		var due <-chan time.Time
		if !w.wake.IsZero() {
			due = time.After(time.Until(w.wake))
		}
		select {
		case <-ctx.Done():
		case <-removed:
			w.gone, removed = true, nil
		case <-w.mail:
			w.take()
		case <-due:
		}
	}
}

// wakeBy asks for a step at that time or before.
func (w *worker) wakeBy(at time.Time) {
	if !at.IsZero() && (w.wake.IsZero() || at.Before(w.wake)) {
		w.wake = at
	}
}

// step does what is due; over says that the worker has nothing more to do.
func (w *worker) step(ctx context.Context) (over bool) {
	switch {
	case w.off:
		w.darken()
		return false
	case w.ended:
		if w.deleting() {
			w.publisher.drop()
		}
		return w.gone
	case w.finished:
	case w.deleting():
		w.finished = w.stop(ctx)
	default:
		w.finished = w.progress(ctx)
	}
	if w.finished {
		w.detach()
	}
	w.publish()
	if w.finished && w.deleting() {
		w.publisher.drop()
	}
	return w.finished && w.gone
}

// progress starts what is to be started; finished says that all has run to its end.
func (w *worker) progress(ctx context.Context) (finished bool) {
	if err := unsupported(w.pod); err != nil {
		w.hold("CreateContainerConfigError", err.Error())
		return false
	}
	if !w.attach() {
		return false
	}
	volumes := w.keeper.state()
	if !volumes.ready {
		if volumes.err != nil {
			w.hold("ContainerCreating", volumes.err.Error())
			w.complain("FailedMount", volumes.err)
		}
		return false
	}
	now := time.Now()
	plan := lifecycle.Next(w.pod.Spec.RestartPolicy, w.containers, w.initialized, now)
	for _, c := range plan.Start {
		if c.Kind == lifecycle.Main {
			w.initialized = true
		}
		w.startContainer(ctx, c, volumes.objects)
		w.wakeBy(c.NotBefore)
	}
	w.wakeBy(plan.Wake)
	w.killOverdue(now)
	if !plan.Finished {
		return false
	}
	return w.stop(ctx) // sidecars
}

// hold gives every container that has not run the reason why not.
func (w *worker) hold(reason, message string) {
	for _, c := range w.containers {
		if c.State.Waiting != nil && c.Last == nil {
			c.Wait(reason, message)
		}
	}
}

// cleanUp ends whatever still runs and forgets the Pod's files.
func (w *worker) cleanUp() {
	for _, r := range w.runs {
		r.process.Kill()
		<-r.process.Done()
	}
	w.detach()
	if err := os.RemoveAll(string(w.dir)); err != nil {
		w.log.Error("remove the Pod's directory", zap.Error(err))
	}
}

// publish reports how the Pod is, unless the Node is to look lost.
func (w *worker) publish() {
	if w.node.paused.Load() {
		return
	}
	facts := lifecycle.Facts{
		HostIPs: w.node.cfg.hostIPs(), StartTime: w.start, Sandbox: w.sandbox != nil, Initialized: w.initialized,
		Stopped: w.finished, ImageID: w.node.imageID,
	}
	if w.sandbox != nil {
		facts.PodIPs = w.sandbox.IPs
	}
	for _, c := range w.containers {
		snapshot := *c
		facts.Containers = append(facts.Containers, &snapshot)
	}
	w.publisher.want(facts)
}

// share shows others how things are.
func (w *worker) share() {
	v := view{pod: w.pod, running: map[string]live{}, runs: map[string]int32{}}
	if w.sandbox != nil {
		v.netNS = w.sandbox.NetNSPath
	}
	for name, r := range w.runs {
		v.running[name] = live{r.process, r.logged}
	}
	for _, c := range w.containers {
		if c.ID != "" {
			v.runs[c.Spec.Name] = c.RestartCount
		}
	}
	w.shared.Lock()
	w.view = v
	w.shared.Unlock()
}

func (w *worker) look() view {
	w.shared.Lock()
	defer w.shared.Unlock()
	return w.view
}

// event tells about the Pod.
func (w *worker) event(kind, reason, format string, args ...any) {
	w.log.Debug("event", zap.String("reason", reason), zap.String("message", fmt.Sprintf(format, args...)))
	w.node.events.Eventf(w.pod, kind, reason, format, args...)
}

// complain warns of something that is tried again and again, once for as long as it stays the same.
func (w *worker) complain(reason string, err error) {
	if message := err.Error(); w.complaints[reason] != message {
		w.complaints[reason] = message
		w.event(corev1.EventTypeWarning, reason, "%s", message)
	}
}
