package status

import (
	"context"
	"fmt"
	"slices"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// settle frees what the Service had, when every load balancer has given it up.
func (a *addresses) settle(ctx context.Context, key model.ServiceKey, balancers []Balancer) error {
	a.mu.Lock()
	former := a.former[key]
	a.mu.Unlock()
	for _, f := range former {
		err := a.giveBack(ctx, balancers, f.instance, holderOf(f.instance, key).Service, f.group, f.addrs)
		if err != nil {
			return err
		}
	}
	if len(former) > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.former, key)
		a.wakeAll()
	}
	return nil
}

// release frees what the Service has on a load balancer, which has nothing of it any more.
func (a *addresses) release(ctx context.Context, key model.ServiceKey, balancers []Balancer, instance string) error {
	a.mu.Lock()
	at := place{instance, key}
	has, group := a.vips.Of(instance, key.String()), a.groups[at]
	a.mu.Unlock()
	if err := a.giveBack(ctx, balancers, instance, key.String(), group, has); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.groups, at)
	if len(has) > 0 {
		a.wakeAll()
	}
	return nil
}

// giveBack frees the addresses that holder has on a load balancer and tells that, if they are of its own and nobody else's any more.
func (a *addresses) giveBack(ctx context.Context, balancers []Balancer, instance, holder, group string, has addrs) error {
	at := slices.IndexFunc(balancers, func(b Balancer) bool { return b.Name == instance && b.Allocator != nil })
	g := grant{instance, group}
	if at >= 0 && group != "" && len(has) > 0 {
		a.mu.Lock()
		needed := a.needed(holder, g, has)
		if !needed {
			if a.releasing[g] {
				a.mu.Unlock()
				return errBusy
			}
			a.releasing[g] = true
		}
		a.mu.Unlock()
		if !needed {
			err := balancers[at].Allocator.ReleaseVIPs(ctx, group)
			a.mu.Lock()
			delete(a.releasing, g)
			a.mu.Unlock()
			if err != nil {
				return fmt.Errorf("give the addresses of %s back to load balancer %s: %w", group, instance, err)
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vips.Release(instance, holder)
	return nil
}

// needed reports whether anybody beside holder has addresses of the group. It is called under the lock.
func (a *addresses) needed(holder string, g grant, has addrs) bool {
	for _, addr := range has {
		for _, h := range a.vips.Holders(addr) {
			if h.Instance == g.instance && h.Service != holder {
				return true
			}
		}
	}
	for at, group := range a.groups {
		if at.instance == g.instance && group == g.group && at.service.String() != holder && len(a.vips.Of(at.instance, at.service.String())) > 0 {
			return true
		}
	}
	return false
}
