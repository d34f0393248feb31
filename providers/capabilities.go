package providers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Capabilities says what a load balancer can do, so that lbsync can refuse with a condition what it cannot.
type Capabilities struct {
	Name      string     // of the kind of load balancer: "haproxy", "avi", "bigip", "memory"
	Protocols []Protocol // protocols of Service ports it can balance
	// Local is true when lbsync runs beside the load balancer and writes it without holding the Lease.
	Local bool
	// MaxMembers is the most members one pool can have; 0 is no limit.
	MaxMembers int
	// Concurrency is how many Apply calls may run at once, each for other Services; 0 stands for 1.
	Concurrency int
	// Late is for how long at most the load balancer may still carry out a request after the caller gave it up, as when the deadline of Apply
	// passed. 0 says nothing, and the caller's own least holds.
	Late time.Duration

	Algorithms     []Algorithm // beside RoundRobin
	Persistence    []PersistenceKind
	Monitors       []MonitorType
	ProxyProtocols []ProxyProtocol // to members
	Features       []Feature
	// Options are what only this provider has; each is the annotation "<Name>.nplbridge.io/<Option.Name>" of a Service.
	Options []Option
}

// Feature is one thing that some load balancers can do.
type Feature string

// The features.
const (
	Weights             Feature = "Weights"             // Member.Weight
	SlowStart           Feature = "SlowStart"           // PoolSettings.SlowStart
	MemberConnections   Feature = "MemberConnections"   // PoolSettings.MemberConnections
	SourceRanges        Feature = "SourceRanges"        // VirtualServerSettings.SourceRanges
	IdleTimeout         Feature = "IdleTimeout"         // VirtualServerSettings.IdleTimeout
	AcceptProxyProtocol Feature = "AcceptProxyProtocol" // VirtualServerSettings.AcceptProxyProtocol
	SharedVIPs          Feature = "SharedVIPs"          // VirtualServer.Shared
	AttachedPools       Feature = "AttachedPools"       // Pool.Attached
	MemberHealth        Feature = "MemberHealth"        // MemberStatus.Health
)

// Has reports whether the load balancer has a feature.
func (c Capabilities) Has(f Feature) bool { return slices.Contains(c.Features, f) }

// Option is a setting that only one provider has.
type Option struct {
	Name    string // in kebab case
	Doc     string // one sentence: what it does, which values
	Example string
	Virtual bool // it is about the virtual server; else about the pool
	// Check returns what a value should be instead, and "" for a good one. It needs no connection.
	Check func(value string) string
}

// CheckPool returns what the load balancer cannot do of what the pool asks for, or nil. It needs no connection.
func (c Capabilities) CheckPool(p Pool) error {
	s := p.Settings
	var errs []error
	cannot := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(c.Name+" cannot "+format, args...))
		}
	}
	cannot(!slices.Contains(c.Protocols, p.Key.Protocol), "balance %s", p.Key.Protocol)
	cannot(p.Attached != "" && !c.Has(AttachedPools), "add members to a pool of somebody else")
	cannot(c.MaxMembers > 0 && len(p.Members) > c.MaxMembers, "have %d members in one pool, the most is %d", len(p.Members), c.MaxMembers)
	cannot(s.Algorithm != "" && s.Algorithm != RoundRobin && !slices.Contains(c.Algorithms, s.Algorithm), "balance by %s", s.Algorithm)
	cannot(s.Persistence.Kind != "" && !slices.Contains(c.Persistence, s.Persistence.Kind), "keep clients by %s", s.Persistence.Kind)
	cannot(s.Monitor.Type != "" && !slices.Contains(c.Monitors, s.Monitor.Type), "monitor members by %s", s.Monitor.Type)
	cannot(s.ProxyProtocol != "" && !slices.Contains(c.ProxyProtocols, s.ProxyProtocol), "send PROXY protocol %s", s.ProxyProtocol)
	cannot(s.SlowStart != 0 && !c.Has(SlowStart), "start members slowly")
	cannot(s.MemberConnections != 0 && !c.Has(MemberConnections), "limit the connections of a member")
	cannot(!c.Has(Weights) && slices.ContainsFunc(p.Members, func(m Member) bool { return m.Weight > 1 }), "weigh members")
	return errors.Join(append(errs, c.checkOptions(s.Options, false)...)...)
}

// CheckVirtualServer returns what the load balancer cannot do of what the virtual server asks for, or nil.
func (c Capabilities) CheckVirtualServer(v VirtualServer) error {
	s := v.Settings
	var errs []error
	for _, f := range []struct {
		asked   bool
		feature Feature
		what    string
	}{
		{v.Shared != "", SharedVIPs, "share an address among Services"},
		{len(s.SourceRanges) > 0, SourceRanges, "restrict clients by their address"},
		{s.IdleTimeout != 0, IdleTimeout, "have an idle timeout per Service"},
		{s.AcceptProxyProtocol, AcceptProxyProtocol, "take the PROXY protocol from clients"},
	} {
		if f.asked && !c.Has(f.feature) {
			errs = append(errs, fmt.Errorf("%s cannot %s", c.Name, f.what))
		}
	}
	return errors.Join(append(errs, c.checkOptions(s.Options, true)...)...)
}

func (c Capabilities) checkOptions(options map[string]string, virtual bool) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		at := slices.IndexFunc(c.Options, func(o Option) bool { return o.Name == name && o.Virtual == virtual })
		if at < 0 {
			errs = append(errs, fmt.Errorf("%s has no option %q", c.Name, name))
		} else if want := c.Options[at].Check(options[name]); want != "" {
			errs = append(errs, fmt.Errorf("option %s %q: %s", name, options[name], want))
		}
	}
	return errs
}
