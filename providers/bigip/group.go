package bigip

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

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

// electPatience is how much longer than the active device the others may take to say that they are not.
const electPatience = time.Second

// elect asks the devices which one is active. Some may be out of reach as long as one says that it is; it takes them as long again
// and electPatience to be so.
func (g *group) elect(ctx context.Context) (*device, error) {
	type answer struct {
		n      int
		active bool
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, answers := time.Now(), make(chan answer, len(g.devices))
	errs := make([]error, len(g.devices))
	active := make([]bool, len(g.devices))
	for n, d := range g.devices {
		errs[n] = fail(providers.Unavailable, d.url, errors.New("it has not said whether it is active"))
		go func() {
			r, err := d.ask(ctx)
			answers <- answer{n, r.Active, err}
		}()
	}
	var enough <-chan time.Time
	for waiting := len(g.devices); waiting > 0; waiting-- {
		select {
		case a := <-answers:
			active[a.n], errs[a.n] = a.active, a.err
			if a.active && enough == nil {
				enough = time.After(time.Since(began) + electPatience)
			}
		case <-enough:
			waiting = 0
		}
	}
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
	d, out, err := g.read(ctx, scope)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if d != nil {
			g.forget()
		}
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

// read finds the active device and reads it; without one there is an error and no device. A single one is asked and read at once: mostly it is active.
func (g *group) read(ctx context.Context, scope providers.Scope) (*device, providers.Observed, error) {
	if len(g.devices) > 1 {
		d, err := g.elect(ctx)
		if err != nil {
			return nil, providers.Observed{}, err
		}
		out, err := d.observe(ctx, scope)
		return d, out, err
	}
	d := g.devices[0]
	var out providers.Observed
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { _, errs[0] = g.elect(ctx) })
	both.Go(func() { out, errs[1] = d.observe(ctx, scope) })
	both.Wait()
	if errs[0] != nil {
		return nil, providers.Observed{}, errs[0]
	}
	return d, out, errs[1]
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
