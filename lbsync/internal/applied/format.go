// Package applied is how processes beside local load balancers tell the one that holds the Lease what they have applied, so that a Service
// counts as programmed only when every load balancer of a group has it.
//
// Each publishes two ConfigMaps of its own: the content, what its load balancer has of every Service, written when that changes; and the
// heartbeat, a few hundred bytes every Interval and soon after a change, which names the content that it goes with. Whoever leads watches
// them all. The content is written first, so a heartbeat names nothing that could not be read, and the leader counts a heartbeat only
// together with the very content that it names.
//
// The heartbeat is no Lease: besides when, it says how far was seen and what is pending, for which a Lease has no fields, and it would need
// the right to write every Lease of the Namespace, the names being those of Pods. To the API server both cost the same.
package applied

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

const (
	// Label marks the ConfigMaps.
	Label = "nplbridge.io/applied"
	// LabelValue is the version of the format.
	LabelValue = "v2"
	// DataKey is the key of a heartbeat's data.
	DataKey = "applied"
	// ContentKey is the key of a content's binary data.
	ContentKey = "served.json.gz"
	// Interval is how often each process publishes when nothing changes; one that was silent for three of them counts as away.
	Interval = 10 * time.Second
	// most is how many pending Services are named.
	most = 500
	// mostProblems is how many bytes of problems go with them.
	mostProblems = 4 << 10
)

// Standing is what the heartbeat of one process says.
type Standing struct {
	Instance string `json:"instance"` // of the installation, "namespace/name"
	Identity string `json:"identity"` // of the process
	Provider string `json:"provider"` // name of the provider instance
	// Seen is the resourceVersion of Pods up to which everything that follows is on the load balancer, except Pending.
	Seen    string    `json:"seen"`
	Pending []Pending `json:"pending"` // sorted by Service
	// More is true when more are pending than are named: then any may be.
	More bool `json:"more,omitempty"`
	// Node is the Node on whose addresses Services are served that name none; empty where none are.
	Node string `json:"node,omitempty"`
	// Content is the Digest of the Content that this goes with; empty for one with nothing in it.
	Content string `json:"content,omitempty"`
	// Changes are the Services, "namespace/name", of which the load balancer has something else than the Content says.
	Changes map[string]onnode.Served `json:"changes,omitempty"`
	// At is when it was written, to the second. It is for people; who is away is judged by when it was received.
	At time.Time `json:"at"`
}

// Pending is a Service that is not on the load balancer as it should be.
type Pending struct {
	Service string `json:"service"` // "namespace/name"
	Problem string `json:"problem,omitempty"`
}

// Encode returns the one form of a Standing: Pending sorted, at most 500 of them, each Problem shortened and left out where the others take
// the room.
func Encode(s Standing) string {
	s.Pending = slices.SortedFunc(slices.Values(s.Pending), func(a, b Pending) int { return cmp.Compare(a.Service, b.Service) })
	if len(s.Pending) > most {
		s.Pending, s.More = s.Pending[:most], true
	}
	if s.Pending == nil {
		s.Pending = []Pending{}
	}
	room := mostProblems
	for i, p := range s.Pending {
		problem := shorten(p.Problem)
		if len(problem) > room {
			problem = ""
		}
		room -= len(problem)
		s.Pending[i].Problem = problem
	}
	s.Changes = maps.Clone(s.Changes)
	for service, has := range s.Changes {
		s.Changes[service] = brief(has)
	}
	s.At = s.At.UTC().Truncate(time.Second)
	return string(marshal(s))
}

// Decode reads what Encode writes, and unknown fields.
func Decode(text string) (Standing, error) {
	var s Standing
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Standing{}, fmt.Errorf("what a process has applied: %w", err)
	}
	return s, named("what a process has applied", s.Instance, s.Identity, s.Provider)
}

func named(what, instance, identity, provider string) error {
	if instance == "" || identity == "" || provider == "" {
		return fmt.Errorf("%s: instance %q, identity %q and provider %q must not be empty", what, instance, identity, provider)
	}
	return nil
}

// marshal is json.Marshal of what always can be.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // a year beyond 9999 cannot
		panic("applied: " + err.Error())
	}
	return text
}

// brief returns it with short problems.
func brief(has onnode.Served) onnode.Served {
	has.Failed = slices.Clone(has.Failed)
	for i, f := range has.Failed {
		has.Failed[i].Problem = shorten(f.Problem)
	}
	return has
}

// shorten keeps at most 256 bytes.
func shorten(s string) string {
	const limit = 256
	if len(s) <= limit {
		return s
	}
	for end := limit - len("..."); ; end-- {
		if s[end]&0xC0 != 0x80 { // not in the middle of a character
			return s[:end] + "..."
		}
	}
}
