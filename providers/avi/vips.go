package avi

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// join is the canonical text of sorted addresses.
func join(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}

// lockVIPs takes the locks under which VsVips with any of these addresses come, go, change, and get their first user.
func (p *Provider) lockVIPs(ctx context.Context, addrs ...[]netip.Addr) (unlock func(), err error) {
	var names []string
	for _, a := range slices.Concat(addrs...) {
		names = append(names, "vip "+a.String())
	}
	return p.keyed.LockAll(ctx, names)
}

// ensureVip returns the VsVip with exactly these addresses for a Service. Virtual services with the same addresses share one. An address can
// be in one VsVip only, so one that has some of them gets or loses a family, and where an address itself changes it is made anew. The
// caller holds the locks.
func (p *Provider) ensureVip(ctx context.Context, inv *inventory, f *facts, t target) (address, error) {
	present := inv.virtual(t.service).vsVip
	near := inv.findVips(func(a address) bool {
		return slices.ContainsFunc(a.addrs, func(one netip.Addr) bool { return slices.Contains(t.vips, one) })
	})
	slices.SortStableFunc(near, func(a, b address) int { // the present one first
		return cmp.Compare(b2i(b.UUID == present), b2i(a.UUID == present))
	})
	for _, a := range near {
		if slices.Equal(a.addrs, t.vips) {
			return a, nil
		}
	}
	name := p.names.vip("vip-"+strings.ReplaceAll(join(t.vips), ",", "-"), join(t.vips))
	one := static(t.vips)
	if len(near) == 1 && near[0].group == "" {
		a := near[0]
		if familyChange(a.addrs, t.vips) {
			o, err := p.client.Update(ctx, a.Object, func(client.Object) (map[string]any, error) { return map[string]any{"vip": []vip{one}}, nil })
			if err != nil {
				return address{}, p.classify("change the addresses of VsVip "+a.Name, err)
			}
			return inv.setVip(o), nil
		}
		if a.UUID == present {
			if err := p.removeService(ctx, inv, t.service); err != nil {
				return address{}, err
			}
			if err := p.dropVip(ctx, inv, a.UUID); err != nil {
				return address{}, err
			}
		}
	}
	return p.createVip(ctx, inv, f, name, one)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// static is the entry of a VsVip for given addresses.
func static(addrs []netip.Addr) vip {
	one := vip{ID: "0", Enabled: true}
	for _, a := range addrs {
		if a.Is4() {
			one.IPv4 = ipAddrOf(a)
		} else {
			one.IPv6 = ipAddrOf(a)
		}
	}
	return one
}

// familyChange reports whether one set of addresses has all of the other.
func familyChange(a, b []netip.Addr) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return !slices.ContainsFunc(a, func(one netip.Addr) bool { return !slices.Contains(b, one) })
}

func (p *Provider) createVip(ctx context.Context, inv *inventory, f *facts, name string, one vip, more ...marker) (address, error) {
	body := map[string]any{"name": name, "vip": []vip{one}, "cloud_ref": f.cloud, "markers": p.names.markers(more...)}
	if f.vrf != "" {
		body["vrf_context_ref"] = f.vrf
	}
	o, _, err := p.client.Create(ctx, typeVsVip, name, body, p.names.owns)
	if err != nil {
		return address{}, p.classify("create VsVip "+name, err)
	}
	return inv.setVip(o), nil
}

// dropVip deletes a VsVip that no virtual service leads to any more. One that the Controller allocated is given back by ReleaseVIPs, or when its
// group has come to use another. The caller holds the locks.
func (p *Provider) dropVip(ctx context.Context, inv *inventory, uuid string) error {
	a := locked(inv, func() address { return inv.vips[uuid] })
	if a.UUID == "" || inv.vipUsed(uuid) {
		return nil // somebody else's, or needed
	}
	if a.group != "" {
		others := inv.findVips(func(o address) bool { return o.group == a.group && o.UUID != uuid })
		if !slices.ContainsFunc(others, func(o address) bool { return inv.vipUsed(o.UUID) }) {
			return nil
		}
	}
	return p.deleteVip(ctx, inv, a)
}

func (p *Provider) deleteVip(ctx context.Context, inv *inventory, a address) error {
	err := p.client.Delete(ctx, typeVsVip, a.UUID)
	if client.Says(err, "referred by") {
		return fail(providers.Conflict, "delete VsVip "+a.Name, err)
	}
	if err != nil {
		return p.classify("delete VsVip "+a.Name, err)
	}
	inv.dropVip(a.UUID)
	return nil
}

// AllocateVIPs implements providers.Allocator: the Controller takes the addresses from avi.network, or from what the cloud's IPAM profile offers.
func (p *Provider) AllocateVIPs(ctx context.Context, r providers.VIPRequest) ([]netip.Addr, error) {
	what := "allocate an address for " + r.Group
	families := map[bool]bool{true: r.IPv4, false: r.IPv6}
	for _, a := range r.Wanted {
		if !families[a.Is4()] {
			return nil, fail(providers.Rejected, what, fmt.Errorf("%s is of a family that is not asked for", a))
		}
	}
	if !r.IPv4 && !r.IPv6 {
		return nil, fail(providers.Rejected, what, fmt.Errorf("no address family is asked for"))
	}
	inv, err := p.inventory(ctx)
	if err != nil {
		return nil, err
	}
	f, err := p.place(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := p.keyed.Lock(ctx, "group "+r.Group)
	if err != nil {
		return nil, err
	}
	defer unlock()
	fits := func(a address) bool {
		if a.group != r.Group {
			return false
		}
		for _, w := range r.Wanted {
			if !slices.Contains(a.addrs, w) {
				return false
			}
		}
		return familiesOf(a.addrs) == [2]bool{r.IPv4, r.IPv6}
	}
	if found := inv.findVips(fits); len(found) > 0 {
		return found[0].addrs, nil
	}
	one, kind := p.allocation(f, r)
	// The name says what was asked for, so that the same question finds the same answer when the first one got lost.
	name := p.names.vip(strings.ReplaceAll(r.Group, "/", "-"), "group", r.Group, kind, join(r.Wanted))
	a, err := p.createVip(ctx, inv, f, name, one, marker{markGroup, []string{r.Group}})
	if err != nil {
		return nil, err
	}
	if familiesOf(a.addrs) != [2]bool{r.IPv4, r.IPv6} {
		return nil, fail(providers.Unavailable, what, fmt.Errorf("the Controller has only %v so far", a.addrs))
	}
	return a.addrs, nil
}

func familiesOf(addrs []netip.Addr) (out [2]bool) {
	for _, a := range addrs {
		if a.Is4() {
			out[0] = true
		} else {
			out[1] = true
		}
	}
	return out
}

// allocation is the entry that asks for addresses, and the kind that it asks for.
func (p *Provider) allocation(f *facts, r providers.VIPRequest) (one vip, kind string) {
	kind = map[[2]bool]string{{true, false}: "V4_ONLY", {false, true}: "V6_ONLY", {true, true}: "V4_V6"}[[2]bool{r.IPv4, r.IPv6}]
	one = vip{ID: "0", Enabled: true, Auto: true, AutoType: kind}
	if f.network != "" {
		one.Subnet = &ipamSubnet{Network: f.network}
		for _, s := range p.cfg.Subnets {
			x := &prefix{*ipAddrOf(s.Addr()), s.Bits()}
			if s.Addr().Is4() && r.IPv4 {
				one.Subnet.Subnet = x
			} else if s.Addr().Is6() && r.IPv6 {
				one.Subnet.Subnet6 = x
			}
		}
	}
	for _, a := range r.Wanted {
		if a.Is4() {
			one.IPv4 = ipAddrOf(a)
		} else {
			one.IPv6 = ipAddrOf(a)
		}
	}
	return one, kind
}

// ReleaseVIPs implements providers.Allocator.
func (p *Provider) ReleaseVIPs(ctx context.Context, group string) error {
	inv, err := p.inventory(ctx)
	if err != nil {
		return err
	}
	unlock, err := p.keyed.Lock(ctx, "group "+group)
	if err != nil {
		return err
	}
	defer unlock()
	for _, a := range inv.findVips(func(a address) bool { return group != "" && a.group == group }) {
		if inv.vipUsed(a.UUID) {
			return fail(providers.Conflict, "release the address of "+group, fmt.Errorf("a virtual service still has %s", join(a.addrs)))
		}
		if err := p.deleteVip(ctx, inv, a); err != nil {
			return err
		}
	}
	return nil
}
