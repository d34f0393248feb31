package avi

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// work is what changes of one Service.
type work struct {
	service service
	pools   []providers.PoolChange
	virtual []providers.VirtualServerChange
}

// split groups changes by Service, in the order of their keys.
func split(c providers.Changes) []*work {
	var out []*work
	at := map[service]*work{}
	of := func(k providers.Key) *work {
		s := serviceOf(k)
		if at[s] == nil {
			at[s] = &work{service: s}
			out = append(out, at[s])
		}
		return at[s]
	}
	for _, p := range c.Pools {
		w := of(p.Key)
		w.pools = append(w.pools, p)
	}
	for _, v := range c.VirtualServers {
		w := of(v.Key)
		w.virtual = append(w.virtual, v)
	}
	return out
}

// Apply implements providers.Provider: Service by Service, pools first, then the virtual service, then pools that nothing needs any more.
func (p *Provider) Apply(ctx context.Context, changes providers.Changes) providers.Results {
	results := providers.Results{}
	inv, err := p.inventory(ctx)
	if err == nil {
		p.sweep(ctx, inv)
	}
	for _, w := range split(changes) {
		p.applyOne(ctx, inv, w, results, err)
	}
	return results
}

// applyOne makes the changes of one Service; failed, if not nil, is why it cannot.
func (p *Provider) applyOne(ctx context.Context, inv *inventory, w *work, results providers.Results, failed error) {
	note := func(k providers.Key, err error) {
		if results[k] == nil {
			results[k] = err
		}
	}
	if failed == nil {
		var unlock func()
		if unlock, failed = p.keyed.Lock(ctx, "service "+w.service.String()); failed == nil {
			defer unlock()
		}
	}
	if failed != nil {
		for _, c := range w.pools {
			note(c.Key, failed)
		}
		for _, c := range w.virtual {
			note(c.Key, failed)
		}
		return
	}
	for _, c := range w.pools {
		if c.New != nil {
			note(c.Key, p.applyPool(ctx, inv, *c.New))
		}
	}
	p.applyVirtual(ctx, inv, w, results, note)
	for _, c := range w.pools {
		if c.New != nil || results[c.Key] != nil {
			continue
		}
		if c.Old != nil && c.Old.Attached != "" {
			note(c.Key, p.writeAttached(ctx, c.Key, c.Old.Attached, nil))
		} else {
			note(c.Key, p.deletePool(ctx, inv, c.Key))
		}
	}
}

func (p *Provider) applyPool(ctx context.Context, inv *inventory, want providers.Pool) error {
	if err := p.Capabilities().CheckPool(want); err != nil {
		return fail(providers.Rejected, "pool of "+want.Key.String(), err)
	}
	if want.Attached != "" {
		return p.writeAttached(ctx, want.Key, want.Attached, want.Members)
	}
	return p.writePool(ctx, inv, want)
}

// applyVirtual writes the virtual service once for all of its ports. A port that is refused by itself does not stop the others.
func (p *Provider) applyVirtual(ctx context.Context, inv *inventory, w *work, results providers.Results, note func(providers.Key, error)) {
	var good []providers.VirtualServerChange
	for _, c := range w.virtual {
		what := "virtual server of " + c.Key.String()
		switch {
		case results[c.Key] != nil:
			continue
		case c.New == nil:
		case inv.pool(c.Key).UUID == "":
			note(c.Key, fail(providers.Rejected, what, errors.New("it has no pool")))
			continue
		default:
			if err := p.Capabilities().CheckVirtualServer(*c.New); err != nil {
				note(c.Key, fail(providers.Rejected, what, err))
				continue
			}
		}
		good = append(good, c)
	}
	if len(good) == 0 {
		return
	}
	t, err := p.aim(inv, w.service, good)
	if err != nil {
		err = fail(providers.Rejected, "virtual service of "+w.service.String(), err)
	} else {
		err = p.writeVirtual(ctx, inv, t)
	}
	for _, c := range good {
		note(c.Key, err)
	}
}

// orphan is an object of ours without what needs it, as an interrupted change leaves it.
type orphan struct {
	object  client.Object
	service service
	key     providers.Key // of a monitor or profile
}

// findOrphans looks for VsVips that no virtual service leads to, policy sets without a virtual service, and monitors and profiles without
// a pool.
func (p *Provider) findOrphans(inv *inventory) []orphan {
	var out []orphan
	for _, a := range inv.findVips(func(a address) bool { return a.group == "" }) {
		if !inv.vipUsed(a.UUID) {
			out = append(out, orphan{object: a.Object})
		}
	}
	for s, v := range inv.services {
		if v.service.UUID == "" {
			out = append(out, orphan{object: v.policies, service: s})
		}
	}
	for k := range inv.helpers {
		if inv.pool(k).UUID == "" {
			for _, o := range inv.helpersOf(k) {
				out = append(out, orphan{o, serviceOf(k), k})
			}
		}
	}
	slices.SortFunc(out, func(a, b orphan) int {
		return cmp.Or(cmp.Compare(a.object.Type, b.object.Type), cmp.Compare(a.object.Name, b.object.Name))
	})
	return out
}

// sweep deletes the orphans that the last Observe found. One that cannot be deleted is in nobody's way.
func (p *Provider) sweep(ctx context.Context, inv *inventory) {
	p.mu.Lock()
	orphans := p.orphans
	p.orphans = nil
	p.mu.Unlock()
	for _, o := range orphans {
		if err := p.sweepOne(ctx, inv, o); err != nil {
			p.log.Debug("an object that nothing needs stays for now", zap.String("object", o.object.Type+" "+o.object.Name), zap.Error(err))
		}
	}
}

// sweepOne deletes an orphan, unless its Service has come to need it.
func (p *Provider) sweepOne(ctx context.Context, inv *inventory, o orphan) error {
	if o.object.Type == typeVsVip {
		unlock, err := p.lockVIPs(ctx, p.addressesOf(inv, o.object.UUID))
		if err != nil {
			return err
		}
		defer unlock()
		return p.dropVip(ctx, inv, o.object.UUID)
	}
	unlock, err := p.keyed.Lock(ctx, "service "+o.service.String())
	if err != nil {
		return err
	}
	defer unlock()
	if o.object.Type == typeL4PolicySet {
		if inv.virtual(o.service).service.UUID != "" {
			return nil
		}
		return p.deletePolicies(ctx, inv, o.service)
	}
	if inv.pool(o.key).UUID != "" {
		return nil
	}
	return p.dropHelpers(ctx, inv, o.key, blueprint{})
}
