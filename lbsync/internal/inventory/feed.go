package inventory

import (
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Feed tells one reader of an Index which Services have become dirty. The Index's own methods are the reader's, too.
type Feed struct {
	*Index
	dirty  map[model.ServiceKey]time.Time
	wakeUp chan struct{}
	followed
}

// Feed returns a new Feed; every Service that is there already is dirty in it.
func (x *Index) Feed(now time.Time) *Feed {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := &Feed{Index: x, dirty: map[model.ServiceKey]time.Time{}, wakeUp: make(chan struct{}, 1), followed: newFollowed()}
	x.feeds = append(x.feeds, f)
	for key := range x.services {
		f.touch(key, now)
	}
	return f
}

// Close ends the Feed: nothing becomes dirty in it any more.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feeds = slices.DeleteFunc(f.feeds, func(o *Feed) bool { return o == f })
}

// Dirty is signalled when a Service has become dirty.
func (f *Feed) Dirty() <-chan struct{} { return f.wakeUp }

// TakeDirty returns the Services that became dirty since the last call, with the time of the first change to each, and the
// resourceVersion of Pods up to which every change is in what was ever returned; empty before the first whole answer. It goes back only
// when the API server itself was set back to a backup. That it advances while nothing becomes dirty is not signalled.
func (f *Feed) TakeDirty() (dirty map[model.ServiceKey]time.Time, seen string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dirty = f.dirty
	f.dirty = map[model.ServiceKey]time.Time{}
	return dirty, f.seen
}

// touch is called under the Index's lock.
func (f *Feed) touch(key model.ServiceKey, now time.Time) {
	if _, is := f.dirty[key]; !is {
		f.dirty[key] = now
	}
	select {
	case f.wakeUp <- struct{}{}:
	default:
	}
}
