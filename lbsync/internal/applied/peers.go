package applied

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

// Process is another process beside a load balancer of the same name, or the one before us beside ours.
type Process struct {
	Identity string
	Node     string                 // see Standing
	Pod      *metav1.OwnerReference // that it runs in; nil if in none
	Silent   bool
}

// Peer is what a Process has of one Service.
type Peer struct {
	Process
	CaughtUp bool // it has seen what was asked for
	Named    bool // it says itself that it does not have the Service as it should be
	Pending  bool // it does not have the Service as it follows from what was asked for, or that is not known
	// Unsaid is true while a process that was just heard of has not said what its load balancer has: it is between its two writes, and
	// Served says nothing. One that says nothing for long is believed to have nothing.
	Unsaid bool
	Served onnode.Served
}

// Peers returns what each other process beside load balancers of the provider has of a Service as it follows from what was seen up to
// resourceVersion seen, by identity.
func (g *Group) Peers(provider string, key model.ServiceKey, seen string) (out []Peer) {
	now, name := g.Clock.Now(), key.String()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.thaw(now)
	waits := false
	for _, o := range g.others {
		if o.Provider != provider { // nor is it there without a heartbeat
			continue
		}
		p := Peer{Process: g.about(o, now), CaughtUp: g.caughtUp(o, seen, now), Named: o.More || o.pending[name], Served: o.has(name)}
		p.Pending, p.Unsaid = !p.CaughtUp || p.Named, o.content == nil && !g.long(o.unsaid, now)
		waits = waits || p.Pending && !p.Silent
		out = append(out, p)
	}
	if waits {
		if g.waiting == nil {
			g.waiting = map[model.ServiceKey]bool{}
		}
		g.waiting[key] = true
	}
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.Identity, b.Identity) })
	return out
}

// Behind reports whether those that are pending, see Others, are so only because they have not seen as much yet, or not said so. Whoever has
// just begun has seen more than others have any reason to tell.
func (g *Group) Behind(provider string, key model.ServiceKey, seen string) bool {
	return !slices.ContainsFunc(g.Peers(provider, key, seen), func(p Peer) bool { return p.Named && !p.Silent })
}

// Processes returns every other process beside load balancers of the provider, by identity. known is false until what there is was listed.
func (g *Group) Processes(provider string) (out []Process, known bool) {
	now := g.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.thaw(now)
	for _, o := range g.others {
		if o.Provider == provider {
			out = append(out, g.about(o, now))
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return strings.Compare(a.Identity, b.Identity) })
	return out, g.listed != nil && g.listed()
}

// Before returns what the process that had our identity before us said last of a Service.
func (g *Group) Before(provider string, key model.ServiceKey) onnode.Served {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.before[provider]
	return before.has(key.String())
}

// Held reports whether the host of any other process, of which something is heard, has an address of a Service on an interface.
func (g *Group) Held(provider string, addr netip.Addr) bool {
	now := g.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.thaw(now)
	for _, o := range g.others {
		if o.Provider == provider && !g.away(o, now) && slices.Contains(o.holds(), addr) {
			return true
		}
	}
	return false
}

func (g *Group) about(o other, now time.Time) Process {
	return Process{Identity: o.Identity, Node: o.Node, Pod: o.pod, Silent: g.away(o, now)}
}

// succeed keeps what the process before us said; what comes later is our own. It is called under the lock.
func (g *Group) succeed(key process, o other) {
	if g.own == nil {
		g.own, g.before = map[process]other{}, map[string]other{}
	}
	g.own[key] = o
	if _, known := g.before[key.provider]; !known && o.content != nil && uidOf(o.pod) == uidOf(g.Pod) {
		g.before[key.provider] = o
	}
}

func uidOf(pod *metav1.OwnerReference) types.UID {
	if pod == nil {
		return ""
	}
	return pod.UID
}

// podOf returns the Pod that a publication goes with.
func podOf(m *publication) *metav1.OwnerReference {
	at := slices.IndexFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Pod" })
	if at < 0 {
		return nil
	}
	return &m.OwnerReferences[at]
}
