// Package applied is how processes beside local load balancers tell the one that holds the Lease what they have applied, so that a Service
// counts as programmed only when every load balancer of a group has it.
//
// Each publishes a ConfigMap of its own, every Interval and soon after a change; whoever leads watches them all.
package applied

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

const (
	// Label marks the ConfigMaps.
	Label = "nplbridge.io/applied"
	// LabelValue is the version of the format.
	LabelValue = "v1"
	// DataKey is the key of the ConfigMap's data.
	DataKey = "applied"
	// Interval is how often each process publishes when nothing changes; one that was silent for three of them counts as away.
	Interval = 10 * time.Second
	// most is how many pending Services are named.
	most = 500
)

// Standing is what one process has applied.
type Standing struct {
	Instance string `json:"instance"` // of the installation, "namespace/name"
	Identity string `json:"identity"` // of the process
	Provider string `json:"provider"` // name of the provider instance
	// Seen is the resourceVersion of Pods up to which everything that follows is on the load balancer, except Pending.
	Seen    string    `json:"seen"`
	Pending []Pending `json:"pending"` // sorted by Service
	// Node is the Node on whose addresses Services are served that name none; empty where none are.
	Node string `json:"node,omitempty"`
	// Serves is what the load balancer has of each Service there, by "namespace/name".
	Serves map[string]onnode.Served `json:"serves,omitempty"`
	// Holds are the addresses of Services that are on an interface of this host, where that is who announces them; sorted.
	Holds []netip.Addr `json:"holds,omitempty"`
	// More is true when more are pending than are named: then any may be.
	More bool `json:"more,omitempty"`
	// At is when it was written, to the second. It is for people; who is away is judged by when it was received.
	At time.Time `json:"at"`
}

// Pending is a Service that is not on the load balancer as it should be.
type Pending struct {
	Service string `json:"service"` // "namespace/name"
	Problem string `json:"problem,omitempty"`
}

// Encode returns the one form of a Standing: Pending sorted, at most 500 of them, each Problem shortened.
func Encode(s Standing) string {
	s.Pending = slices.SortedFunc(slices.Values(s.Pending), func(a, b Pending) int { return cmp.Compare(a.Service, b.Service) })
	if len(s.Pending) > most {
		s.Pending, s.More = s.Pending[:most], true
	}
	if s.Pending == nil {
		s.Pending = []Pending{}
	}
	for i, p := range s.Pending {
		s.Pending[i].Problem = shorten(p.Problem)
	}
	serves := map[string]onnode.Served{}
	for service, has := range s.Serves {
		has.Failed = slices.Clone(has.Failed)
		for i, f := range has.Failed {
			has.Failed[i].Problem = shorten(f.Problem)
		}
		serves[service] = has
	}
	s.Serves = serves
	s.At = s.At.UTC().Truncate(time.Second)
	text, err := json.Marshal(s)
	if err != nil { // its fields always marshal; a year beyond 9999 does not
		panic("applied: " + err.Error())
	}
	return string(text)
}

// Decode reads what Encode writes, and unknown fields.
func Decode(text string) (Standing, error) {
	var s Standing
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Standing{}, fmt.Errorf("what a process has applied: %w", err)
	}
	if s.Instance == "" || s.Identity == "" || s.Provider == "" {
		return Standing{}, fmt.Errorf("what a process has applied: instance %q, identity %q and provider %q must not be empty", s.Instance, s.Identity, s.Provider)
	}
	return s, nil
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
