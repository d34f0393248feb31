package bigip

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
)

// work is what changes of one key.
type work struct {
	key     providers.Key
	pool    *providers.PoolChange
	virtual *providers.VirtualServerChange
}

// split groups changes by key, in the order of keys.
func split(c providers.Changes) []work {
	at := map[providers.Key]*work{}
	of := func(k providers.Key) *work {
		if at[k] == nil {
			at[k] = &work{key: k}
		}
		return at[k]
	}
	for n := range c.Pools {
		of(c.Pools[n].Key).pool = &c.Pools[n]
	}
	for n := range c.VirtualServers {
		of(c.VirtualServers[n].Key).virtual = &c.VirtualServers[n]
	}
	out := make([]work, 0, len(at))
	for _, w := range at {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b work) int { return a.key.Compare(b.key) })
	return out
}

// all answers for every key with one error.
func all(c providers.Changes, err error) providers.Results {
	results := providers.Results{}
	for _, w := range split(c) {
		results[w.key] = err
	}
	return results
}

// apply makes the changes key by key. No more keys are worked on at once than requests can be under way: one that has begun gets to its end, where many that
// take turns would all run out of time on a slow device. What is not begun in time is not attempted.
func (d *device) apply(ctx context.Context, caps providers.Capabilities, changes providers.Changes) providers.Results {
	results := providers.Results{}
	if ctx.Err() != nil {
		return results
	}
	d.keeper.here(deadlineOf(ctx))
	inv, err := d.ready(ctx)
	if err != nil {
		return all(changes, err)
	}
	d.sweep(ctx, inv)
	for _, w := range split(changes) {
		select {
		case d.turns <- struct{}{}:
		case <-ctx.Done():
			return results
		}
		if ctx.Err() == nil {
			results[w.key] = d.applyOne(ctx, caps, inv, w)
		}
		<-d.turns
	}
	return results
}

func (d *device) applyOne(ctx context.Context, caps providers.Capabilities, inv *inventory, w work) error {
	what := "pool and virtual server of " + w.key.String()
	if w.pool != nil && w.pool.New != nil {
		if err := caps.CheckPool(*w.pool.New); err != nil {
			return fail(providers.Rejected, what, err)
		}
	}
	if w.virtual != nil && w.virtual.New != nil {
		if err := caps.CheckVirtualServer(*w.virtual.New); err != nil {
			return fail(providers.Rejected, what, err)
		}
	}
	err := d.converge(ctx, inv, w)
	if stale(err) {
		if err2 := d.reread(ctx, inv, w.key); err2 != nil {
			return d.classify(what, err2)
		}
		err = d.converge(ctx, inv, w)
	}
	return d.classify(what, err)
}

// converge brings what a key has to what is wanted: what is made goes from the monitor to the virtual server, what is deleted the other way. A new
// pool and its virtual servers are one transaction, and so are several virtual servers.
func (d *device) converge(ctx context.Context, inv *inventory, w work) error {
	k := w.key
	if attached(w) != "" {
		var members []providers.Member
		if w.pool.New != nil {
			members = w.pool.New.Members
		}
		return d.writeAttached(ctx, inv, k, attached(w), members)
	}
	if w.virtual != nil && w.virtual.New == nil {
		if err := d.deleteVirtuals(ctx, inv, k); err != nil {
			return err
		}
	}
	if w.pool != nil && w.pool.New == nil {
		return d.deletePool(ctx, inv, k)
	}
	var plan blueprint
	var commands []client.Command
	var done []func()
	if w.pool != nil {
		var err error
		if plan, err = d.names.draw(k, w.pool.New.Settings); err != nil {
			return fail(providers.Rejected, "settings", err)
		}
		for _, h := range plan.helpers {
			if err := d.writeHelper(ctx, inv, k, h); err != nil {
				return err
			}
		}
		if inv.pool(k).Name != "" {
			if err := d.changePool(ctx, inv, *w.pool.New, plan); err != nil {
				return err
			}
		} else {
			command, made, err := d.newPool(ctx, inv, *w.pool.New, plan)
			if err != nil {
				return err
			}
			commands, done = append(commands, command), append(done, func() { inv.setPool(k, made) })
		}
	} else {
		plan, _ = d.planOf(k, inv.pool(k)) // an edited mark is seen by Observe, which leads to a change of the pool
	}
	more, after, err := d.virtualCommands(inv, w, plan, len(commands) > 0)
	if err != nil {
		return err
	}
	if err := d.run(ctx, append(commands, more...)...); err != nil {
		return err
	}
	for _, f := range append(done, after...) {
		f()
	}
	if w.pool == nil {
		return nil
	}
	return d.dropHelpers(ctx, inv, k, plan)
}

func attached(w work) string {
	switch {
	case w.pool == nil:
		return ""
	case w.pool.New != nil:
		return w.pool.New.Attached
	case w.pool.Old != nil:
		return w.pool.Old.Attached
	}
	return ""
}

// planOf is what the settings in a pool's mark mean.
func (d *device) planOf(k providers.Key, now poolObject) (blueprint, error) {
	s, err := decodePool(now.Metadata.get(markSettings))
	if err != nil {
		return blueprint{}, err
	}
	return d.names.draw(k, s)
}

// virtualCommands are the requests that make a key's virtual servers as wanted, and what is to be noted once they are carried out. A change of the
// pool alone can concern them as well: persistence is a property of virtual servers.
func (d *device) virtualCommands(inv *inventory, w work, plan blueprint, creating bool) (commands []client.Command, done []func(), err error) {
	have := inv.virtualsOf(w.key)
	var want providers.VirtualServer
	switch {
	case w.virtual != nil && w.virtual.New == nil, w.virtual == nil && len(have) == 0:
		return nil, nil, nil
	case w.virtual != nil:
		want = *w.virtual.New
	default:
		first := have[sortedKeys(have)[0]]
		if want, err = decodeVirtual(w.key, first.Metadata.get(markVirtual)); err != nil {
			return nil, nil, nil //nolint:nilerr // the mark was edited: Observe says so, and a change of the virtual server follows
		}
	}
	if !creating && inv.pool(w.key).Name == "" {
		return nil, nil, fail(providers.Rejected, "virtual server", errors.New("it has no pool"))
	}
	wishes, err := d.wishes(want, plan.persist)
	if err != nil {
		return nil, nil, fail(providers.Rejected, "virtual server", err)
	}
	for _, wish := range wishes {
		now, there := have[wish.name]
		delete(have, wish.name)
		if !there {
			commands = append(commands, d.create(wish))
		} else if fields := d.differs(now, wish); len(fields) > 0 {
			commands = append(commands, client.Command{Method: http.MethodPatch, Path: client.Virtuals.Object(now.FullPath), Body: fields})
		}
		done = append(done, func() { inv.setVirtual(w.key, wish.name, d.made(wish, now)) })
	}
	for _, name := range sortedKeys(have) {
		commands = append(commands, client.Command{Method: http.MethodDelete, Path: client.Virtuals.Object(have[name].FullPath)})
		done = append(done, func() { inv.setVirtual(w.key, name, virtualObject{}) })
	}
	return commands, done, nil
}

func (d *device) deleteVirtuals(ctx context.Context, inv *inventory, k providers.Key) error {
	have := inv.virtualsOf(k)
	for _, name := range sortedKeys(have) {
		if err := d.client.Delete(ctx, client.Virtuals.Object(have[name].FullPath)); err != nil {
			return err
		}
		d.keeper.changed(ctx)
		inv.setVirtual(k, name, virtualObject{})
	}
	return nil
}

// sweep deletes monitors and profiles that an interrupted change left without their pool, as far as the last Observe saw them.
func (d *device) sweep(ctx context.Context, inv *inventory) {
	d.mu.Lock()
	orphans := d.orphans
	d.orphans = nil
	d.mu.Unlock()
	for _, k := range orphans {
		if inv.pool(k).Name != "" {
			continue
		}
		if err := d.dropHelpers(ctx, inv, k, blueprint{}); err != nil {
			d.log.Debug("objects that nothing needs stay for now", zap.Stringer("key", k), zap.Error(err))
		}
	}
}
