// Package ledger holds what a chaos run knows and judges what it saw: which Pods each Service selected when, who had which node port
// when, and what came of every request. It is pure: times are arguments.
package ledger

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// Selection remembers which Pods each Service selected when, from the events of a watch. It may be used by several goroutines.
type Selection struct {
	mutex    sync.Mutex
	services map[string]map[string]string // name to selector; a Service that is gone is absent
	pods     map[string]pod               // by UID, those that exist
	names    map[string]string            // UID to name, of all there ever were
	spans    map[pair][]span
}

type pod struct{ labels map[string]string }

type pair struct{ service, uid string }

// span is a time in which a Service selected a Pod; it goes on while until is zero.
type span struct {
	from, until time.Time
	edited      bool // ended by an edit of labels or selector: the Pod went on
}

// NewSelection returns one that knows of nothing.
func NewSelection() *Selection {
	return &Selection{services: map[string]map[string]string{}, pods: map[string]pod{}, names: map[string]string{}, spans: map[pair][]span{}}
}

// Service notes that a Service has this selector from now on; with none it selects nothing, as one that was deleted.
func (s *Selection) Service(at time.Time, name string, selector map[string]string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(selector) == 0 {
		delete(s.services, name)
	} else {
		s.services[name] = maps.Clone(selector)
	}
	for uid := range s.pods {
		s.turn(at, name, uid, true)
	}
}

// Pod notes that a Pod has these labels from now on.
func (s *Selection) Pod(at time.Time, uid, name string, labels map[string]string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.names[uid] = name
	s.pods[uid] = pod{labels: maps.Clone(labels)}
	for service := range s.services {
		s.turn(at, service, uid, true)
	}
}

// Gone notes that a Pod no longer exists.
func (s *Selection) Gone(at time.Time, uid string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.pods, uid)
	for service := range s.services {
		s.turn(at, service, uid, false)
	}
}

// Known returns the UIDs of the Pods that exist.
func (s *Selection) Known() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	out := make([]string, 0, len(s.pods))
	for uid := range s.pods {
		out = append(out, uid)
	}
	return out
}

// turn opens or ends the span of a pair, as what is known now demands.
func (s *Selection) turn(at time.Time, service, uid string, edited bool) {
	of := pair{service, uid}
	spans := s.spans[of]
	open := len(spans) > 0 && spans[len(spans)-1].until.IsZero()
	switch now := s.selects(service, uid); {
	case now && !open:
		s.spans[of] = append(spans, span{from: at})
	case !now && open:
		spans[len(spans)-1].until, spans[len(spans)-1].edited = at, edited
	}
}

func (s *Selection) selects(service, uid string) bool {
	selector, p := s.services[service], s.pods[uid]
	if selector == nil || p.labels == nil {
		return false
	}
	for key, value := range selector {
		if p.labels[key] != value {
			return false
		}
	}
	return true
}

// Verdict says what an answer was.
type Verdict struct {
	// Wrong is an answer of a Pod that the Service did not select at any time between sending and answering.
	Wrong bool
	// Late is an answer of a Pod that an edit of labels or selector had taken out of the Service while it went on running; Behind is
	// how long after that the request's connection was opened, or the negative of how long before.
	Late   bool
	Behind time.Duration
	Why    string // in words, unless the answer was right
}

// Judge says what an answer was that a request to a Service got from a Pod. early is by how much the events may have come late to
// whoever noted them: for that long before a span a Pod counts as selected.
func (s *Selection) Judge(service, uid string, opened, sent, answered time.Time, early time.Duration) Verdict {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := s.names[uid]
	if name == "" {
		return Verdict{Wrong: true, Why: fmt.Sprintf("Service %s was answered by Pod %q, of which no event told", service, uid)}
	}
	var last span
	for _, sp := range s.spans[pair{service, uid}] {
		if !answered.Before(sp.from.Add(-early)) && (sp.until.IsZero() || !sent.After(sp.until)) {
			return Verdict{}
		}
		if !sp.until.IsZero() && !sp.until.After(sent) {
			last = sp
		}
	}
	switch {
	case last.until.IsZero():
		return Verdict{Wrong: true, Why: fmt.Sprintf("Service %s was answered by Pod %s, which it did not select before", service, name)}
	case !last.edited:
		return Verdict{Wrong: true, Why: fmt.Sprintf("Service %s was answered by Pod %s, gone since %v", service, name, sent.Sub(last.until).Round(time.Millisecond))}
	}
	behind := opened.Sub(last.until)
	return Verdict{Late: true, Behind: behind, Why: fmt.Sprintf(
		"Service %s was answered by Pod %s, not selected since %v, on a connection opened %v after that",
		service, name, sent.Sub(last.until).Round(time.Millisecond), behind.Round(time.Millisecond))}
}
