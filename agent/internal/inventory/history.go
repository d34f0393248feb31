package inventory

import (
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// history is what the records of Pods do not keep: when and at which resourceVersion things happened.
type history struct {
	mu      sync.Mutex
	arrived map[string]time.Time
	deleted map[string]string
}

func newHistory() *history {
	return &history{arrived: map[string]time.Time{}, deleted: map[string]string{}}
}

// note takes note that a Pod came, changed or vanished. A watch event carries the resourceVersion of a deletion itself; of a deletion that
// was found by a new list only that list's is known.
func (h *history) note(old, new *model.Pod, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old != nil && (new == nil || new.UID != old.UID) {
		h.deleted[old.UID] = version
		delete(h.arrived, old.UID)
	}
	if new == nil {
		return
	}
	if _, known := h.arrived[new.UID]; !known {
		h.arrived[new.UID] = time.Now()
	}
}

// Arrivals returns when Pods came, or changed in more than their annotation, since the last call, by UID: the first time of each. It
// empties itself.
func (i *Inventory) Arrivals() map[string]time.Time {
	i.history.mu.Lock()
	defer i.history.mu.Unlock()
	out := i.history.arrived
	i.history.arrived = map[string]time.Time{}
	return out
}

// Deletions returns at which resourceVersion Pods were deleted that vanished since the last call, by UID. It empties itself.
func (i *Inventory) Deletions() map[string]string {
	i.history.mu.Lock()
	defer i.history.mu.Unlock()
	out := i.history.deleted
	i.history.deleted = map[string]string{}
	return out
}
