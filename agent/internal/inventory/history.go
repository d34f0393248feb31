package inventory

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// history is what the cache of Pods itself does not keep: when and at which resourceVersion things happened.
type history struct {
	mu      sync.Mutex
	arrived map[string]time.Time
	deleted map[string]string
}

func newHistory() *history {
	return &history{arrived: map[string]time.Time{}, deleted: map[string]string{}}
}

// changed takes note that a Pod came or changed.
func (h *history) changed(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.arrived[string(pod.UID)]; !known {
		h.arrived[string(pod.UID)] = time.Now()
	}
}

// gone takes note of a deletion. A watch event carries the resourceVersion of the deletion itself; of a deletion that was found by
// a new list only that list's is known.
func (h *history) gone(obj any, list func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch obj := obj.(type) {
	case *corev1.Pod:
		h.deleted[string(obj.UID)] = obj.ResourceVersion
		delete(h.arrived, string(obj.UID))
	case cache.DeletedFinalStateUnknown:
		if pod, ok := obj.Obj.(*corev1.Pod); ok {
			h.deleted[string(pod.UID)] = list()
			delete(h.arrived, string(pod.UID))
		}
	}
}

// Arrivals returns when Pods came or changed since the last call, by UID: the first time of each. It empties itself.
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

// Version returns the resourceVersion that the cache of Pods stands at: what a later call of Pods returns is at least as new. It is empty
// as long as the cache is.
func (i *Inventory) Version() string { return i.pods.GetStore().LastStoreSyncResourceVersion() }

// ServiceUID returns the UID of a Service, or "" if there is none of that name.
func (i *Inventory) ServiceUID(namespace, name string) types.UID {
	obj, ok, err := i.services.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if !ok || err != nil {
		return ""
	}
	return obj.(*corev1.Service).UID
}
