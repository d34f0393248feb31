package avi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// driftOption is the name under which settings differ when something that they do not name was changed on the Controller.
const driftOption = "changed-on-the-controller"

// Observe implements providers.Provider.
func (p *Provider) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	var f *facts
	var inv *inventory
	var strays, foreign []string
	var attached map[providers.Key]client.Object
	var errs [4]error
	var reading sync.WaitGroup // at once, as none needs another; the first error in this order is told
	reading.Go(func() { f, errs[0] = p.learn(ctx) })
	reading.Go(func() { inv, strays, errs[1] = p.load(ctx) })
	reading.Go(func() { attached, errs[2] = p.readAttached(ctx, scope) })
	reading.Go(func() { foreign, errs[3] = p.stillForeign(ctx) })
	reading.Wait()
	errs[1] = p.classify("read what is there", errs[1])
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		p.known.Store(nil)
		return providers.Observed{}, err
	}
	p.facts.Store(f)
	if err := cmp.Or(errs[2], errs[3]); err != nil {
		return providers.Observed{}, err
	}
	out := providers.Observed{Members: map[providers.Key]map[providers.MemberID]providers.MemberStatus{}, Foreign: append(foreign, strays...)}
	slices.Sort(out.Foreign)

	var sick []unwell
	for _, k := range slices.SortedFunc(maps.Keys(inv.pools), providers.Key.Compare) {
		now := decoded[pool](inv.pools[k])
		out.State.Pools = append(out.State.Pools, providers.Pool{Key: k, Settings: p.settingsOf(inv, k, now)})
		p.fill(&out, p.viewOf(k), now, inv.pools[k].UUID, &sick)
	}
	for _, k := range slices.SortedFunc(maps.Keys(attached), providers.Key.Compare) {
		now := decoded[pool](attached[k])
		out.State.Pools = append(out.State.Pools, providers.Pool{Key: k, Attached: scope.Attached[k]})
		p.fill(&out, p.viewAttached(k, now), now, attached[k].UUID, &sick)
	}
	slices.SortStableFunc(out.State.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	out.State.VirtualServers = p.virtualServers(inv)
	if err := p.readHealth(ctx, &out, sick); err != nil {
		return providers.Observed{}, err
	}
	inv.keepWhole(p.known.Load())
	p.known.Store(inv)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached, p.orphans = attached, p.findOrphans(inv)
	return out, nil
}

// keepWhole takes over from an older inventory the pools that have not changed since: those are known with every field, so that the next
// PUT needs no GET.
func (i *inventory) keepWhole(old *inventory) {
	if old == nil {
		return
	}
	for k, o := range i.pools {
		if before := old.pool(k); before.Full && before.UUID == o.UUID && before.LastModified == o.LastModified && before.LastModified != "" {
			i.pools[k] = before
		}
	}
}

// unwell is a pool of which not every member is up, as far as its summary tells.
type unwell struct {
	key     providers.Key
	uuid    string
	members []providers.Member
}

// fill adds the members of the last pool of out.
func (p *Provider) fill(out *providers.Observed, v view, now pool, uuid string, sick *[]unwell) {
	last := &out.State.Pools[len(out.State.Pools)-1]
	members, blocked := v.members(now.Servers)
	slices.SortFunc(members, providers.CompareMembers)
	last.Members = members
	if len(members) == 0 {
		return
	}
	health := providers.HealthUnknown
	if r := now.Runtime; r != nil && r.Servers == len(now.Servers) && r.Up == r.Servers {
		health = providers.HealthUp
	} else {
		*sick = append(*sick, unwell{last.Key, uuid, members})
	}
	out.Members[last.Key] = map[providers.MemberID]providers.MemberStatus{}
	for _, m := range members {
		out.Members[last.Key][m.ID()] = providers.MemberStatus{Connections: -1, Health: health, Blocked: blocked[m.ID()]}
	}
}

// readHealth asks for the members one by one where a pool's summary does not answer for all of them.
func (p *Provider) readHealth(ctx context.Context, out *providers.Observed, sick []unwell) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.cfg.MaxInFlight)
	for _, u := range sick {
		group.Go(func() error {
			raw, err := p.client.GetRaw(ctx, typePool+"/"+u.uuid+"/runtime/server", "pool-runtime")
			switch client.Status(err) {
			case http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest:
				return nil // health stays unknown, which is no reason to know nothing
			}
			if err != nil {
				return p.classify(fmt.Sprintf("health of the pool of %s", u.key), err)
			}
			health := serverHealth(raw)
			mu.Lock()
			defer mu.Unlock()
			for _, m := range u.members {
				status := out.Members[u.key][m.ID()]
				status.Health = health[m.Address.String()]
				out.Members[u.key][m.ID()] = status
			}
			return nil
		})
	}
	return group.Wait()
}

// serverHealth reads /runtime/server, a list or an object with results, into address to health.
func serverHealth(raw json.RawMessage) map[string]providers.Health {
	type runtime struct {
		IP   ipAddr `json:"ip_addr"`
		Port uint16 `json:"port"`
		Oper struct {
			State string `json:"state"`
		} `json:"oper_status"`
	}
	var list []runtime
	if json.Unmarshal(raw, &list) != nil {
		var wrapped struct {
			Results []runtime `json:"results"`
		}
		_ = json.Unmarshal(raw, &wrapped) // anything else is no health
		list = wrapped.Results
	}
	out := map[string]providers.Health{}
	for _, r := range list {
		s := server{IP: r.IP, Port: r.Port}
		switch r.Oper.State {
		case "OPER_UP":
			out[s.address().String()] = providers.HealthUp
		case "OPER_DOWN":
			out[s.address().String()] = providers.HealthDown
		}
	}
	return out
}

// settingsOf returns the settings that were applied to a pool, or settings that differ in what the pool has no more.
func (p *Provider) settingsOf(inv *inventory, k providers.Key, now pool) providers.PoolSettings {
	drifted := func(s providers.PoolSettings, what string) providers.PoolSettings {
		s.Options = map[string]string{driftOption: what}
		return s
	}
	s, err := decodeSettings(markedAll(now.Markers, markSettings))
	if err != nil {
		return drifted(s, "marker")
	}
	plan, err := p.names.draw(k, s)
	if err != nil {
		return drifted(s, "marker")
	}
	for _, h := range plan.helpers {
		if o := inv.helper(k, h.typ, h.name); o.UUID == "" || helperDiffers(o, h) {
			return drifted(s, h.typ)
		}
	}
	if what := p.poolDrift(now, k, s, plan); what != "" {
		return drifted(s, what)
	}
	return s
}

// readAttached reads the pools of others that Services name. One that is not there is left out.
func (p *Provider) readAttached(ctx context.Context, scope providers.Scope) (map[providers.Key]client.Object, error) {
	byName := map[string]client.Object{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.cfg.MaxInFlight)
	for _, name := range slices.Compact(slices.Sorted(maps.Values(scope.Attached))) {
		group.Go(func() error {
			o, err := p.findAttached(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			byName[name] = o
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := map[providers.Key]client.Object{}
	for k, name := range scope.Attached {
		if o := byName[name]; o.UUID != "" {
			out[k] = o
		}
	}
	return out, nil
}

// stillForeign returns the objects that were in the way and still are.
func (p *Provider) stillForeign(ctx context.Context) ([]string, error) {
	p.mu.Lock()
	known := slices.SortedFunc(maps.Values(p.strangers), func(a, b *client.ForeignError) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	p.mu.Unlock()
	var out []string
	for _, s := range known {
		found, err := p.client.ByName(ctx, s.Type, s.Name)
		if err != nil {
			return nil, p.classify("look at "+s.Type+" "+s.Name, err)
		}
		if slices.ContainsFunc(found, func(o client.Object) bool { return !p.names.owns(o) }) {
			out = append(out, s.Type+" "+s.Name)
			continue
		}
		p.mu.Lock()
		delete(p.strangers, s.Type+" "+s.Name)
		p.mu.Unlock()
	}
	return out, nil
}
