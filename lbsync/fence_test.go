package lbsync

import (
	"testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/status"
)

// Services and Pods are written only while the Lease is held, whatever becomes of the term.
func TestServicesAndPodsAreBehindTheFence(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	s, stop := w.start("one")
	w.served("web")
	w.eventually("gates are looked at", func() bool { return s.gates.Load() != nil })
	fences := map[string]status.Fence{"status": s.controller.Load().Fence, "gate": s.gates.Load().Fence}
	for name, fence := range fences {
		ctx, cancel, err := fence.Enter(t.Context())
		if err != nil {
			t.Errorf("%s: closed for the holder: %v", name, err)
			continue
		}
		if _, limited := ctx.Deadline(); !limited {
			t.Errorf("%s: a write may outlast the Lease", name)
		}
		cancel()
	}
	stop()
	for name, fence := range fences {
		if _, _, err := fence.Enter(t.Context()); !status.IsFenced(err) {
			t.Errorf("%s: open after the Lease was given up: %v", name, err)
		}
	}
}
