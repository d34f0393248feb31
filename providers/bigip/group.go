package bigip

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nplbridge/nplbridge/providers"
)

// group is devices that stand in for each other, or a single one. Its active one is read and written.
type group struct {
	devices []*device
	changed func() // somebody should observe again

	mu      sync.Mutex
	current *device // the one that was observed last; nil before that and after it was found not to be active
	before  *device // the one that was observed last, whatever became of it
}

// elect asks the devices which one is active. Some may be out of reach as long as one says that it is.
func (g *group) elect(ctx context.Context) (*device, error) {
	errs := make([]error, len(g.devices))
	active := make([]bool, len(g.devices))
	var asking errgroup.Group
	for n, d := range g.devices {
		asking.Go(func() error {
			r, err := d.ask(ctx)
			active[n], errs[n] = r.Active, err
			return nil
		})
	}
	_ = asking.Wait() // errs has them
	var found *device
	var standby []string
	for n, d := range g.devices {
		switch {
		case errs[n] != nil:
		case active[n] && found != nil:
			return nil, fail(providers.Unavailable, "which device is active", fmt.Errorf("%s and %s both say that they are; nothing is written", found.url, d.url))
		case active[n]:
			found = d
		default:
			standby = append(standby, d.url)
		}
	}
	if found != nil {
		return found, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, firstOf(errs)
	}
	return nil, fail(providers.Unavailable, "which device is active",
		fmt.Errorf("%s: none is, for the traffic group of the partition; bigip.urls needs every device of the group", strings.Join(standby, ", ")))
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// observe reads the active device.
func (g *group) observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	d, err := g.elect(ctx)
	if err != nil {
		return providers.Observed{}, err
	}
	out, err := d.observe(ctx, scope)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.forget()
		return providers.Observed{}, err
	}
	out.Restarted = g.before != nil && g.before != d
	for _, other := range g.devices {
		if other != d {
			other.known.Store(nil)
		}
	}
	g.current, g.before = d, d
	return out, nil
}

// forget makes the next call begin with a full read. The caller holds the lock.
func (g *group) forget() { g.current = nil }

// apply writes the device that was observed last, if it still is the active one.
func (g *group) apply(ctx context.Context, caps providers.Capabilities, changes providers.Changes) providers.Results {
	g.mu.Lock()
	d := g.current
	g.mu.Unlock()
	if d == nil {
		var err error
		if d, err = g.elect(ctx); err != nil {
			return all(changes, err)
		}
		g.mu.Lock()
		if g.current == nil {
			g.current, g.before = d, d
			d.known.Store(nil)
		}
		d = g.current
		g.mu.Unlock()
	}
	active, err := d.active(ctx)
	if err == nil && !active {
		err = fail(providers.Conflict, d.url, errors.New("it is not the active device any more; the others are asked, and the new one is read before anything is written"))
	}
	if err != nil {
		g.mu.Lock()
		if g.current == d {
			g.forget()
		}
		g.mu.Unlock()
		d.known.Store(nil)
		g.changed()
		return all(changes, d.classify("is it active", err))
	}
	return d.apply(ctx, caps, changes)
}

func (g *group) close() {
	for _, d := range g.devices {
		d.close()
	}
}
