package inventory

import (
	"time"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// The kinds of object in an Index.
const (
	services = iota
	pods
	nodes
	kinds
)

// less counts an object that went, and notes how the last of its kind did. An emptiness that nobody saw come about is what a broken API
// server answers.
func (x *Index) less(kind int, seen bool) {
	if x.counts[kind]--; x.counts[kind] == 0 {
		x.sawGo[kind] = seen
	}
}

// Believable reports whether the cluster as we see it can be all there is. A list that came back empty is not believed,
// because a cluster has Services, Pods and Nodes; one whose last object we saw being deleted is.
func (x *Index) Believable() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for kind, left := range x.counts {
		if left == 0 && !x.sawGo[kind] {
			return false
		}
	}
	return true
}

// Counts returns how many objects of each kind there are.
func (x *Index) Counts() (ofServices, ofPods, ofNodes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.counts[services], x.counts[pods], x.counts[nodes]
}

// memory is how long a loss is remembered.
const memory = time.Hour

// losses are the Pods that were missing from a list, with the time of that. Their deletion may have been missed, or the list was wrong.
type losses struct {
	at   map[string]time.Time // by UID
	next time.Time            // nothing is forgotten before
}

func (l *losses) add(uid string, now time.Time) {
	if len(l.at) == 0 {
		l.next = now.Add(memory)
	}
	l.at[uid] = now
}

// forget drops what was lost too long ago.
func (l *losses) forget(now time.Time) {
	if len(l.at) == 0 || now.Before(l.next) {
		return
	}
	l.next = now.Add(memory)
	for uid, at := range l.at {
		if left := at.Add(memory); !left.After(now) {
			delete(l.at, uid)
		} else if left.Before(l.next) {
			l.next = left
		}
	}
}

// Fate returns what became of a Pod.
func (x *Index) Fate(podUID string) model.Fate {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byUID[podUID] != nil {
		return model.Present
	}
	if _, lost := x.lost.at[podUID]; lost {
		return model.Lost
	}
	return model.Gone
}

// advance takes note that everything of Pods up to version is in here.
func (x *Index) advance(version string) {
	if _, valid := watermark.CompareVersions(version, version); !valid {
		return
	}
	if c, comparable := watermark.CompareVersions(version, x.seen); !comparable || c > 0 {
		x.seen = version
	}
}
