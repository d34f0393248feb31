package avi

import (
	"context"
	"fmt"
	"net/url"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// viewAttached reads the members of a key in a pool of somebody else.
func (p *Provider) viewAttached(k providers.Key, now pool) view {
	return view{mark: p.names.memberMark(k), takeOver: p.cfg.TakeOver != "" && now.CreatedBy == p.cfg.TakeOver}
}

// findAttached reads a pool by name; one without UUID is not there. A pool of ours is not for attaching: we would be two masters.
func (p *Provider) findAttached(ctx context.Context, name string) (client.Object, error) {
	found, err := p.client.List(ctx, typePool, url.Values{
		"name": {name}, "cloud_ref.name": {p.cfg.Cloud}, "fields": {poolFields}, "join_subresources": {"runtime"},
	})
	if err != nil {
		return client.Object{}, p.classify(fmt.Sprintf("look up pool %q", name), err)
	}
	for _, o := range found {
		if o.Name == name && !p.names.owns(o) {
			return o, nil
		}
	}
	return client.Object{}, nil
}

// writeAttached makes our members in a pool of somebody else those that are wanted.
func (p *Provider) writeAttached(ctx context.Context, k providers.Key, name string, want []providers.Member) error {
	what := fmt.Sprintf("members of %s in pool %q", k, name)
	// Two Services in one pool take turns, as their edits of one list would undo each other.
	unlock, err := p.keyed.Lock(ctx, "pool "+name)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	o := p.attached[k]
	p.mu.Unlock()
	if o.UUID == "" || o.Name != name {
		if o, err = p.findAttached(ctx, name); err != nil {
			return err
		}
	}
	if o.UUID == "" {
		if len(want) == 0 {
			return nil
		}
		return fail(providers.Rejected, what, fmt.Errorf("there is no such pool in tenant %q and cloud %q; create it or correct the annotation", p.cfg.Tenant, p.cfg.Cloud))
	}
	o, err = p.writeMembers(ctx, o, p.viewAttached(k, decoded[pool](o)), want)
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, old := range p.attached {
		if old.UUID == o.UUID {
			p.attached[other] = o
		}
	}
	p.attached[k] = o
	return p.classify(what, err)
}
