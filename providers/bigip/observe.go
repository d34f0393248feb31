package bigip

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
)

// driftOption is the name under which settings differ when something was changed on the device.
const driftOption = "changed-on-the-device"

// observe reads the device.
func (d *device) observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	d.keeper.here(scope.Until)
	inv, strays, err := d.read(ctx)
	if err != nil {
		return providers.Observed{}, err
	}
	out := providers.Observed{Members: map[providers.Key]map[providers.MemberID]providers.MemberStatus{}, Foreign: strays}
	var busy []providers.Key // with draining members, whose connections are asked for
	paths := map[providers.Key]string{}
	add := func(p providers.Pool, v view, now poolObject) {
		members, status, foreign := v.members(now.Members.Items)
		slices.SortFunc(members, providers.CompareMembers)
		p.Members = members
		out.State.Pools = append(out.State.Pools, p)
		for _, path := range foreign {
			out.Foreign = append(out.Foreign, fmt.Sprintf("member %s of pool %s", path, now.FullPath))
		}
		if len(members) > 0 {
			out.Members[p.Key] = status
		}
		if slices.ContainsFunc(members, func(m providers.Member) bool { return m.State == providers.Draining }) {
			busy, paths[p.Key] = append(busy, p.Key), now.FullPath
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(inv.pools), providers.Key.Compare) {
		now := inv.pools[k]
		s := d.settingsOf(inv, k, now)
		add(providers.Pool{Key: k, Settings: s}, d.viewOf(k, s), now)
	}
	attached, err := d.readAllAttached(ctx, inv, scope)
	if err != nil {
		return providers.Observed{}, err
	}
	for _, k := range slices.SortedFunc(maps.Keys(attached), providers.Key.Compare) {
		add(providers.Pool{Key: k, Attached: scope.Attached[k]}, view{mark: d.names.memberMark(k), override: d.cfg.OverrideDisabled}, attached[k])
	}
	slices.SortStableFunc(out.State.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	for _, k := range slices.SortedFunc(maps.Keys(inv.virtuals), providers.Key.Compare) {
		out.State.VirtualServers = append(out.State.VirtualServers, d.virtualOf(inv, k))
	}
	if err := d.readConnections(ctx, out, busy, paths); err != nil {
		return providers.Observed{}, err
	}
	slices.Sort(out.Foreign)
	var orphans []providers.Key
	for k := range inv.helpers {
		if inv.pools[k].Name == "" {
			orphans = append(orphans, k)
		}
	}
	slices.SortFunc(orphans, providers.Key.Compare)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orphans = orphans
	return out, nil
}

// readAllAttached reads the pools of others that Services name, each once. One that is not there is left out.
func (d *device) readAllAttached(ctx context.Context, inv *inventory, scope providers.Scope) (map[providers.Key]poolObject, error) {
	byName := map[string]poolObject{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(d.cfg.MaxInFlight)
	for _, name := range slices.Compact(slices.Sorted(maps.Values(scope.Attached))) {
		group.Go(func() error {
			now, err := d.readAttached(ctx, inv, name)
			mu.Lock()
			defer mu.Unlock()
			byName[name] = now
			return d.classify("read pool "+name, err)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := map[providers.Key]poolObject{}
	for k, name := range scope.Attached {
		if now := byName[name]; now.Name != "" {
			inv.mu.Lock()
			inv.attached[now.FullPath] = now
			inv.mu.Unlock()
			out[k] = now
		}
	}
	return out, nil
}

// readConnections asks how many connections the members of pools have.
func (d *device) readConnections(ctx context.Context, out providers.Observed, keys []providers.Key, paths map[providers.Key]string) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(d.cfg.MaxInFlight)
	for _, k := range keys {
		group.Go(func() error {
			stats, err := d.client.MemberStats(ctx, paths[k])
			if client.NotFound(err) {
				return nil // gone since the list was read
			}
			if err != nil {
				return d.classify("connections of pool "+paths[k], err)
			}
			connections := map[netip.AddrPort]int{}
			for _, s := range stats {
				a, ok := parseAddress(s.Text("addr"), d.domain())
				port, ok2 := s.Number("port")
				now, ok3 := s.Number("serverside.curConns")
				if ok && ok2 && ok3 && a.rd == d.domain() && port > 0 && port < 65536 {
					connections[netip.AddrPortFrom(a.addr, uint16(port))] = int(now)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for id, status := range out.Members[k] {
				if n, known := connections[id.Address]; known {
					status.Connections = n
					out.Members[k][id] = status
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// settingsOf returns the settings that were applied to a pool, or settings that differ in what the pool has no more.
func (d *device) settingsOf(inv *inventory, k providers.Key, now poolObject) providers.PoolSettings {
	s, err := decodePool(now.Metadata.get(markSettings))
	what := ""
	switch {
	case err != nil:
		what = "mark"
	default:
		plan, err := d.names.draw(k, s)
		if err != nil {
			what = "mark"
			break
		}
		if fields := sortedKeys(d.poolDiffers(now, k, s, plan, now.weighed())); len(fields) > 0 {
			what = fields[0]
		}
		for _, h := range plan.helpers {
			if o, there := inv.helpers[k][helperKey(h.collection, h.name)]; !there || len(helperDiffers(o, h)) > 0 {
				what = h.name
			}
		}
		if s.MemberConnections > 0 && slices.ContainsFunc(now.Members.Items, func(m memberObject) bool {
			_, ours := d.viewOf(k, s).uid(m)
			return ours && m.Connections != int64(s.MemberConnections)
		}) {
			what = "connectionLimit"
		}
	}
	if what != "" {
		s.Options = map[string]string{driftOption: what}
	}
	return s
}

// virtualOf returns the virtual server that a key's objects are, or one that differs where they are not all as they should be.
func (d *device) virtualOf(inv *inventory, k providers.Key) providers.VirtualServer {
	have := inv.virtuals[k]
	first := have[sortedKeys(have)[0]]
	v, err := decodeVirtual(k, first.Metadata.get(markVirtual))
	what := ""
	if err != nil {
		what = "mark"
	} else {
		plan, _ := d.planOf(k, inv.pools[k]) // without one there is no persistence, and the pool differs by itself
		wishes, err := d.wishes(v, plan.persist)
		if err != nil || len(wishes) != len(have) {
			what = "virtual servers"
		}
		for _, w := range wishes {
			if now, there := have[w.name]; !there {
				what = w.name
			} else if fields := sortedKeys(d.differs(now, w)); len(fields) > 0 {
				what = fields[0]
			}
		}
	}
	if what != "" {
		v.Settings.Options = map[string]string{driftOption: what}
	}
	return v
}
