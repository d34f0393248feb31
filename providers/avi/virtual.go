package avi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// target is what the virtual service of a Service is to become.
type target struct {
	service service
	entries []entry // sorted by key; none deletes it
	vips    []netip.Addr
	shared  string
}

// aim overlays what a Service has with what changes. Its ports share addresses, so the changed ones decide for all.
func (p *Provider) aim(inv *inventory, s service, changes []providers.VirtualServerChange) (target, error) {
	v := inv.virtual(s)
	entries, shared, _ := p.entries(inv, s, v) // an unreadable marker is written anew
	t := target{service: s, shared: shared}
	if v.vsVip != "" {
		t.vips = p.addressesOf(inv, v.vsVip)
	}
	told := false
	for _, c := range changes {
		entries = slices.DeleteFunc(entries, func(e entry) bool { return e.key == c.Key })
		if c.New == nil {
			continue
		}
		if told && (!slices.Equal(t.vips, c.New.VIPs) || t.shared != c.New.Shared) {
			return target{}, fmt.Errorf("the ports of one Service are one virtual service and cannot have the addresses %v and %v", t.vips, c.New.VIPs)
		}
		t.vips, t.shared, told = c.New.VIPs, c.New.Shared, true
		entries = append(entries, entry{c.Key, c.New.Port, c.New.Settings.Options, inv.pool(c.Key)})
	}
	// A port whose pool is gone cannot stay; its own change says what becomes of it.
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.pool.UUID == "" })
	slices.SortFunc(entries, func(a, b entry) int { return a.key.Compare(b.key) })
	for i, e := range entries {
		if at := slices.IndexFunc(entries[:i], func(o entry) bool { return o.port == e.port && o.key.Protocol == e.key.Protocol }); at >= 0 {
			return target{}, fmt.Errorf("%s and %s both want port %d/%s", entries[at].key, e.key, e.port, e.key.Protocol)
		}
	}
	if len(entries) > 0 && len(t.vips) == 0 {
		return target{}, fmt.Errorf("it has no address")
	}
	t.entries = entries
	return t, nil
}

// writeVirtual brings the virtual service of a Service to its target, in the order in which things may refer to each other.
func (p *Provider) writeVirtual(ctx context.Context, inv *inventory, t target) error {
	before := inv.virtual(t.service)
	if len(t.entries) == 0 {
		return p.deleteVirtual(ctx, inv, t.service)
	}
	f, err := p.place(ctx)
	if err != nil {
		return err
	}
	// Until the virtual service leads to it, nothing but these locks keeps the VsVip.
	unlock, err := p.lockVIPs(ctx, t.vips, p.addressesOf(inv, before.vsVip))
	if err != nil {
		return err
	}
	defer unlock()
	vip, err := p.ensureVip(ctx, inv, f, t)
	if err != nil {
		return err
	}
	if len(t.entries) > 1 {
		if err := p.writePolicies(ctx, inv, t); err != nil {
			return err
		}
	}
	if err := p.writeService(ctx, inv, f, t, vip); err != nil {
		return err
	}
	if len(t.entries) == 1 {
		if err := p.deletePolicies(ctx, inv, t.service); err != nil {
			return err
		}
	}
	return p.dropVip(ctx, inv, before.vsVip)
}

// addressesOf returns the addresses of a VsVip of ours.
func (p *Provider) addressesOf(inv *inventory, uuid string) []netip.Addr {
	return locked(inv, func() []netip.Addr { return inv.vips[uuid].addrs })
}

// writeService creates or changes the virtual service itself.
func (p *Provider) writeService(ctx context.Context, inv *inventory, f *facts, t target, vip address) error {
	name := p.names.service(t.service)
	what := fmt.Sprintf("virtual service %s of %s", name, t.service)
	v := inv.virtual(t.service)
	want := p.shapeFor(t.entries, vip.UUID, v.policies.UUID)
	fields := p.serviceFields(t, want, vip)
	keep := func(o client.Object) { inv.setVirtual(t.service, func(v *virtual) { v.setService(o) }) }
	if v.service.UUID == "" {
		body := withoutNil(fields)
		body["name"], body["cloud_ref"], body["se_group_ref"], body["type"] = name, f.cloud, f.seGroup, "VS_TYPE_NORMAL"
		body["remove_listening_port_on_vs_down"] = true
		if f.vrf != "" {
			body["vrf_context_ref"] = f.vrf
		}
		o, adopted, err := p.client.Create(ctx, typeVirtualService, name, body, p.names.owns)
		if err != nil {
			return p.classify("create "+what, err)
		}
		keep(o)
		if !adopted {
			return nil
		}
		v = inv.virtual(t.service)
		fields = p.serviceFields(t, want, vip)
	}
	same := func(v virtual) bool {
		markers := decoded[virtualService](v.service).Markers
		return want.equal(shapeOf(v)) && marked(markers, markShared) == t.shared && slices.Equal(markedAll(markers, markPorts), encodePorts(t.entries))
	}
	if same(v) {
		return nil
	}
	o, err := p.client.Update(ctx, v.service, func(client.Object) (map[string]any, error) { return fields, nil })
	if client.Status(err) == http.StatusBadRequest && v.vsVip != vip.UUID {
		// This Controller does not move a virtual service to another VsVip: it is made anew, which closes its connections. So does
		// the new address.
		if err := p.removeService(ctx, inv, t.service); err != nil {
			return err
		}
		return p.writeService(ctx, inv, f, t, vip)
	}
	if err != nil {
		return p.classify("change "+what, err)
	}
	keep(o)
	return nil
}

func encodePorts(entries []entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = encodePort(e)
	}
	return out
}

// serviceFields are the fields that we set, nil for those that must not be there.
func (p *Provider) serviceFields(t target, want shape, vip address) map[string]any {
	services := slices.Clone(want.services)
	for i := range services {
		if services[i].Override != "" {
			services[i].Override = client.RefByName(typeNetworkProfile, services[i].Override)
		}
	}
	fields := map[string]any{
		"services": services, "vsvip_ref": vip.Ref(), "pool_ref": nil, "l4_policies": nil,
		"network_profile_ref":     client.RefByName(typeNetworkProfile, want.network),
		"application_profile_ref": client.RefByName("applicationprofile", want.app),
		"created_by":              p.names.createdBy(),
		"markers":                 p.serviceMarkers(t),
	}
	if want.pool != "" {
		fields["pool_ref"] = "/api/pool/" + want.pool
	} else {
		fields["l4_policies"] = []map[string]any{{"index": 11, "l4_policy_set_ref": "/api/l4policyset/" + want.policies}}
	}
	return fields
}

func (p *Provider) serviceMarkers(t target) []marker {
	more := []marker{{markService, []string{t.service.String()}}, {markPorts, encodePorts(t.entries)}}
	if t.shared != "" {
		more = append(more, marker{markShared, []string{t.shared}})
	}
	return p.names.markers(more...)
}

// writePolicies makes the policy set lead each port to its pool.
func (p *Provider) writePolicies(ctx context.Context, inv *inventory, t target) error {
	name := p.names.service(t.service)
	what := fmt.Sprintf("policy set %s of %s", name, t.service)
	o := inv.virtual(t.service).policies
	keep := func(o client.Object) { inv.setVirtual(t.service, func(v *virtual) { v.policies = o }) }
	rules := map[string]any{"rules": rulesFor(t.entries)}
	if o.UUID == "" {
		var err error
		o, _, err = p.client.Create(ctx, typeL4PolicySet, name, map[string]any{
			"name": name, "l4_connection_policy": rules, "created_by": p.names.createdBy(),
			"markers": p.names.markers(marker{markService, []string{t.service.String()}}),
		}, p.names.owns)
		if err != nil {
			return p.classify("create "+what, err)
		}
		keep(o)
	}
	if slices.Equal(rulesOf(o), p.shapeFor(t.entries, "", "").rules) {
		return nil
	}
	o, err := p.client.Update(ctx, o, func(client.Object) (map[string]any, error) { return map[string]any{"l4_connection_policy": rules}, nil })
	if err != nil {
		return p.classify("change "+what, err)
	}
	keep(o)
	return nil
}

func (p *Provider) deletePolicies(ctx context.Context, inv *inventory, s service) error {
	o := inv.virtual(s).policies
	if o.UUID == "" {
		return nil
	}
	if err := p.client.Delete(ctx, typeL4PolicySet, o.UUID); err != nil {
		return p.classify(fmt.Sprintf("delete policy set %s of %s", o.Name, s), err)
	}
	inv.setVirtual(s, func(v *virtual) { v.policies = client.Object{} })
	return nil
}

// removeService deletes a virtual service, which closes its connections.
func (p *Provider) removeService(ctx context.Context, inv *inventory, s service) error {
	o := inv.virtual(s).service
	if o.UUID == "" {
		return nil
	}
	if err := p.client.Delete(ctx, typeVirtualService, o.UUID); err != nil {
		return p.classify(fmt.Sprintf("delete virtual service %s of %s", o.Name, s), err)
	}
	inv.setVirtual(s, func(v *virtual) { v.setService(client.Object{}) })
	return nil
}

// deleteVirtual removes a Service's virtual service, its policy set, and its address if nobody else has it.
func (p *Provider) deleteVirtual(ctx context.Context, inv *inventory, s service) error {
	vsVip := inv.virtual(s).vsVip
	unlock, err := p.lockVIPs(ctx, p.addressesOf(inv, vsVip))
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.removeService(ctx, inv, s); err != nil {
		return err
	}
	if err := p.deletePolicies(ctx, inv, s); err != nil {
		return err
	}
	return p.dropVip(ctx, inv, vsVip)
}
