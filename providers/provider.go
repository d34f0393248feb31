// Package providers is the contract between lbsync and a load balancer: the provider-neutral model of pools and
// virtual servers, the changes between two states of it, and the interface that Avi, BIG-IP and HAProxy implement.
// It imports the standard library only.
package providers

import (
	"context"
	"net/netip"
	"time"
)

// Provider drives one load balancer.
type Provider interface {
	// Capabilities says what this load balancer can do. It is constant after New and needs no connection.
	Capabilities() Capabilities

	// Observe reads back everything that carries our mark, and only that. It never returns a partial state: what
	// could not be read is an error. The error is classified (see Kind). No Apply runs meanwhile.
	Observe(ctx context.Context, scope Scope) (Observed, error)

	// Apply makes the changes and answers for each Key it was given; a failure of one Key does not stop the
	// others. A Key with a nil error is acknowledged by the load balancer. Applying a change that is already
	// in force succeeds. After any error for a Key the caller observes again before the next change to it. As many
	// calls as Capabilities.Concurrency says may run at once, never two with Keys of the same Service.
	Apply(ctx context.Context, changes Changes) Results

	// Close releases connections. It changes nothing on the load balancer.
	Close() error
}

// Notifier is a Provider that finds out by itself when its load balancer may no longer be as it was last observed or
// applied, for example because it was restarted. It is optional: without it, only the next Observe finds that out.
type Notifier interface {
	// Changed returns a channel that receives when the caller should observe again. It is the same one for the
	// Provider's life, is never closed, and several changes before a receive are one. Safe at any time.
	Changed() <-chan struct{}
}

// Results holds the outcome per Key of the changes; a Key that is absent was not attempted.
type Results map[Key]error

// Scope is what Observe has to look at beside our own objects.
type Scope struct {
	// Attached are the pools of others that Services name, by Key. Each that exists on the load balancer is part of the State, also when
	// none of its members are ours; others of their kind are not looked at.
	Attached map[Key]string
	// Until is when somebody else may become the one who writes. What a Provider does by itself after its calls, such as saving, it does before
	// that, or before the deadline of a later Apply. The zero time is no limit.
	Until time.Time
}

// Observed is a State with what only the load balancer knows.
type Observed struct {
	State State
	// Members tells about members beside their State; one that is absent is not known.
	Members map[Key]map[MemberID]MemberStatus
	// Foreign names objects that stand where ours would, or among ours, without our mark. They are reported and never touched; sorted.
	Foreign []string
	// Restarted is true when the load balancer has been started anew, or its configuration loaded anew by somebody
	// else, since the last successful Observe: what differs then it lost itself.
	Restarted bool
}

// MemberStatus is what a load balancer knows of a member at the moment.
type MemberStatus struct {
	// Connections it has now; negative when that is not known. At least those of Draining members are told.
	Connections int
	Health      Health
	// Blocked is true when an operator disabled the member on the load balancer. That is respected: State stays what lbsync set.
	Blocked bool
}

// Health is what a monitor says of a member.
type Health string

// The states of health.
const (
	HealthUnknown Health = ""
	HealthUp      Health = "Up"
	HealthDown    Health = "Down"
)

// Allocator is a Provider whose load balancer has an address management of its own (IPAM). It is optional: without it VIPs come from
// address pools of lbsync only. Its methods may be called while Apply runs, by the Lease holder only.
type Allocator interface {
	// AllocateVIPs reserves the addresses for a group of virtual servers and returns them, sorted. Called again for the same
	// group it returns the same ones.
	AllocateVIPs(ctx context.Context, request VIPRequest) ([]netip.Addr, error)
	// ReleaseVIPs gives back what AllocateVIPs reserved, once no virtual server uses it; of a group that has nothing it does nothing.
	ReleaseVIPs(ctx context.Context, group string) error
}

// VIPRequest asks for the addresses of one group of virtual servers.
type VIPRequest struct {
	// Group is "namespace/name" of the Service, or VirtualServer.Shared.
	Group      string
	IPv4, IPv6 bool         // the families wanted, at least one
	Wanted     []netip.Addr // certain addresses, at most one per family; empty leaves the choice to the load balancer
	Options    map[string]string
}
