// Package providers is the contract between lbsync and a load balancer: the provider-neutral model of pools and
// virtual servers, the changes between two states of it, and the interface that Avi, BIG-IP and HAProxy implement.
// It imports the standard library only.
package providers

import "context"

// Provider drives one load balancer. Its methods are called by one goroutine at a time.
type Provider interface {
	// Capabilities says what this load balancer can do. It is constant after New and needs no connection.
	Capabilities() Capabilities

	// Observe reads back everything that carries our mark, and only that. It never returns a partial state: what
	// could not be read is an error. The error is classified (see Kind).
	Observe(ctx context.Context) (Observed, error)

	// Apply makes the changes and answers for each Key it was given; a failure of one Key does not stop the
	// others. A Key with a nil error is acknowledged by the load balancer. Applying a change that is already
	// in force succeeds. After any error for a Key the caller observes again before the next change to it.
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

// Observed is a State with what only the load balancer knows.
type Observed struct {
	State State
	// Connections counts the current connections of members that are Draining; absent means unknown.
	Connections map[Key]map[MemberID]int
	// Restarted is true when the load balancer has been started anew, or its configuration loaded anew by somebody
	// else, since the last successful Observe: what differs then it lost itself.
	Restarted bool
}

// Capabilities says what a load balancer can do, so that lbsync can refuse with a condition what it cannot.
type Capabilities struct {
	Name      string     // "haproxy", "avi", "bigip", "memory"
	Protocols []Protocol // protocols of Service ports it can balance
	// Local is true when lbsync runs beside the load balancer and writes it without holding the Lease.
	Local bool
	// MaxMembers is the most members one pool can have; 0 is no limit.
	MaxMembers int
}
