// Package locks serialises what is done with one object of a load balancer at a time, object by object.
package locks

import (
	"context"
	"slices"
	"sync"

	"github.com/nplbridge/nplbridge/providers"
)

// Named are one lock per name, made when it is needed and forgotten after its last user. The zero value is ready. A Named is safe
// for concurrent use and must not be copied.
type Named struct {
	// Owner begins the errors, for example with "avi".
	Owner string

	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{}
	users int
}

// Lock waits for a name and returns what gives it back. Its error is Unavailable: ctx ended first.
func (n *Named) Lock(ctx context.Context, name string) (unlock func(), err error) {
	n.mu.Lock()
	if n.held == nil {
		n.held = map[string]*lock{}
	}
	one := n.held[name]
	if one == nil {
		one = &lock{turn: make(chan struct{}, 1)}
		n.held[name] = one
	}
	one.users++
	n.mu.Unlock()
	leave := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(n.held, name)
		}
	}
	select {
	case one.turn <- struct{}{}:
		return func() { <-one.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, &providers.Error{Kind: providers.Unavailable, What: n.Owner + ": waiting for " + name, Err: context.Cause(ctx)}
	}
}

// LockAll waits for several names, in their order, so that two callers never wait for each other.
func (n *Named) LockAll(ctx context.Context, names []string) (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, one := range slices.Backward(held) {
			one()
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		one, err := n.Lock(ctx, name)
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, one)
	}
	return unlock, nil
}
