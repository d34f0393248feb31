package bigip

import (
	"context"
	"sync"

	"github.com/nplbridge/nplbridge/providers"
)

// locks are one lock per name, made when it is needed. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn  chan struct{}
	users int
}

// lock waits for a name and returns what gives it back.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	one := l.held[name]
	if one == nil {
		one = &lock{turn: make(chan struct{}, 1)}
		l.held[name] = one
	}
	one.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, name)
		}
	}
	select {
	case one.turn <- struct{}{}:
		return func() { <-one.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fail(providers.Unavailable, "waiting for "+name, context.Cause(ctx))
	}
}
