package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Reboot kills everything on the Node, calls wipe when nothing runs any more, and then starts the Pods anew, each with another sandbox.
// Init containers that have done their work are not run again.
func (n *Node) Reboot(ctx context.Context, wipe func() error) error {
	n.mu.Lock()
	workers := slices.Collect(maps.Values(n.workers))
	n.mu.Unlock()
	power := make(chan struct{})
	defer close(power)
	var dead []<-chan struct{}
	for _, w := range workers {
		dead = append(dead, w.powerOff(power))
	}
	for i, w := range workers {
		select {
		case <-dead[i]:
		case <-w.over:
		case <-ctx.Done():
			return fmt.Errorf("reboot %s: %w", n.cfg.Name, ctx.Err())
		}
	}
	return wipe()
}

// powerOff kills what runs of the Pod and lets nothing start until there is power again. The channel is closed when nothing runs.
func (w *worker) powerOff(power <-chan struct{}) <-chan struct{} {
	dead := make(chan struct{})
	w.post(func() {
		w.off, w.dead = true, dead
		for _, r := range w.runs {
			r.process.Kill()
		}
	})
	go func() {
		<-power
		w.post(func() { w.off = false })
	}()
	return dead
}

// darken takes the sandbox away once nothing runs. Nothing is reported: a Node without power says nothing.
func (w *worker) darken() {
	if len(w.runs) > 0 || w.dead == nil {
		return
	}
	w.detach()
	close(w.dead)
	w.dead = nil
}
