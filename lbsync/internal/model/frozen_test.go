package model

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// freeze makes the structure of the Service unreadable.
func freeze(w *world) { w.Service.Wishes.Kept.Structure = true }

func TestFrozenStructure(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	checkMembers(t, []memberCase{
		{"nothing enters", newWorld().pod(1, nil).pod(2, nil).has(1, enabled).with(freeze), "u1:61001 Enabled", ""},
		{"nothing is made", newWorld().pod(1, nil).with(freeze), "no pool", ""},
		{"whatever the source was", newWorld().pod(1, withIP(1)).hasAddress(1, enabled).hasNode(1, enabled).has(1, enabled).
			with(func(w *world) { w.Service.Ports[0].NodePort = nodePort }).with(freeze), "u1:8080 Enabled, n1:30080 Enabled, u1:61001 Enabled", ""},
		{"the annotation is gone", newWorld().pod(1, func(p *Pod) { p.Mappings = nil }).has(1, enabled).with(freeze), "u1:61001 Enabled", ""},
		{"terminating drains", newWorld().pod(1, terminating(limit)).pod(2, nil).has(1, enabled).has(2, enabled).with(freeze), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"and stays when idle, for it could not come back", newWorld().pod(1, unready(limit)).pod(2, nil).has(1, draining).has(2, enabled).connections(1, 0).with(freeze),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"ready again", newWorld().pod(1, nil).has(1, draining).with(freeze), "u1:61001 Enabled", ""},
		{"all terminating", newWorld().pod(1, terminating(0)).has(1, draining).with(freeze), "u1:61001 Enabled", ""},
		{"finished", newWorld().pod(1, func(p *Pod) { p.Finished = true }).pod(2, nil).has(1, enabled).has(2, enabled).with(freeze), "u2:61002 Enabled", ""},
		{"its Node was deleted", newWorld().pod(1, nil).pod(2, nil).has(1, enabled).has(2, enabled).with(freeze).
			with(func(w *world) { w.Endpoints[0].Node, w.Endpoints[0].NodeGone = nil, true }), "u2:61002 Enabled", ""},
		{"Pods that are gone, lost, not selected", newWorld().pod(1, nil).has(1, enabled).has(2, enabled).has(3, enabled).has(4, draining).with(freeze).
			fate(map[string]Fate{"u3": Lost, "u4": Present}), "u1:61001 Enabled, u3:61003 Enabled, u4:61004 Draining", ""},
		{"claimed by another Pod", newWorld().pod(1, nil).pod(2, nil).has(1, enabled).has(2, enabled).with(freeze).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "next", UID: "x", Mappings: w.Endpoints[0].Pod.Mappings})
		}), "u2:61002 Enabled", ""},
		{"on a load balancer that it may not ask for any more", newWorld().pod(1, nil).has(1, enabled).with(freeze).
			with(func(w *world) { w.Service.On = []string{"other"} }), "u1:61001 Enabled", ""},
		{"but not when it is none of ours", newWorld().pod(1, nil).has(1, enabled).with(freeze).with(func(w *world) { w.Service.On = nil }), "no pool", ""},
		{"nor when it is deleted", newWorld().pod(1, nil).has(1, enabled).with(freeze).with(func(w *world) { w.Service.Deleting = true }), "no pool", ""},
		{"nor when it is another's", newWorld().pod(1, nil).has(1, enabled).with(freeze).with(func(w *world) { w.Service.ManagedByOther = true }), "no pool", ""},
		{"nor when it cannot be served", newWorld().pod(1, nil).has(1, enabled).with(freeze).with(func(w *world) { w.Service.Wishes.Unservable = true }), "no pool", ""},
	})
}

// Settings, addresses, ports and the pool of somebody else stay, too.
func TestFrozenRest(t *testing.T) {
	w := newWorld().pod(1, nil).has(1, providers.Enabled).with(freeze)
	w.Current[key].Attached = "blue"
	old := key
	old.Port = 8443
	w.Current[old] = &providers.Pool{Key: old, Settings: providers.PoolSettings{SlowStart: time.Minute}}
	w.CurrentVS[old] = &providers.VirtualServer{Key: old, VIPs: []netip.Addr{netip.MustParseAddr("198.51.100.9")}, Port: 8443}
	before := providertest.Render(providers.State{
		Pools: []providers.Pool{*w.Current[key], *w.Current[old]}, VirtualServers: []providers.VirtualServer{*w.CurrentVS[old]},
	})
	w.Service.VIPs, w.Service.Families, w.Service.Admitted = nil, []npl.Family{npl.IPv6}, false
	w.Service.Wishes.Pool.Algorithm = providers.SourceHash
	out := Build(w.Input)
	if got := providertest.Render(out.State); got != before {
		t.Errorf("%swant\n%s", got, before)
	}
	if len(out.Ports) != 2 || out.Ports[0] != (Port{Key: key, Attached: "blue"}) || out.Ports[1] != (Port{Key: old}) {
		t.Errorf("ports %+v", out.Ports)
	}
}
