package bigip

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// plantCIS makes a virtual server and a pool on two members as CIS does by AS3, its nodes in a partition.
func (b *bench) plantCIS(nodes string) {
	for _, name := range []string{"10.1.0.0", "10.1.0.1"} {
		b.admin("POST", "ltm/node", map[string]any{"name": name, "partition": nodes, "address": name})
	}
	b.admin("POST", "ltm/pool", map[string]any{"name": "web_80_shop", "partition": "tenant", "subPath": "Shared", "members": []any{
		map[string]any{"name": "/" + nodes + "/10.1.0.0:61000"}, map[string]any{"name": "/" + nodes + "/10.1.0.1:61000"},
	}})
	b.admin("POST", "ltm/virtual", map[string]any{"name": "vs_web", "partition": "tenant", "subPath": "Shared", "destination": "/tenant/192.0.2.10:80", "ipProtocol": "tcp", "pool": "/tenant/Shared/web_80_shop"})
}

// TestMoveFromCIS is docs/how-to/move-from-cis.md: side by side once CIS shares its nodes, then CIS goes.
func TestMoveFromCIS(t *testing.T) {
	b := newBench(t)
	b.plantCIS("Common")
	p := b.open()
	ours := web(key(0), "192.0.2.20", member(0), member(100))
	b.bring(p, providers.State{}, ours)
	b.observe(p, ours)
	members := membersAt(t, b.Sim, "ltm/pool/~tenant~Shared~web_80_shop")
	if len(members) != 2 || !b.has("ltm/virtual/~tenant~Shared~vs_web") {
		t.Errorf("what CIS made was touched: %v", members)
	}
	// Its address is free once its virtual server is gone, and the Service keeps working on the way.
	same := web(key(0), "192.0.2.10", member(0), member(100))
	if err := p.Apply(t.Context(), providertest.Diff(ours, same))[key(0)]; providers.KindOf(err) != providers.Rejected {
		t.Errorf("%v, want it %s", err, providers.Rejected)
	}
	b.observe(p, ours)
	b.admin("DELETE", "ltm/virtual/~tenant~Shared~vs_web", nil)
	b.admin("DELETE", "ltm/pool/~tenant~Shared~web_80_shop", nil)
	b.bring(p, ours, same)
	b.observe(p, same)
	for _, name := range []string{"10.1.0.0", "10.1.0.1"} {
		if !b.has("ltm/node/~Common~" + name) {
			t.Errorf("node %s is gone", name)
		}
	}
}

// TestMoveFromCISNodesNotShared: what the how-to warns of.
func TestMoveFromCISNodesNotShared(t *testing.T) {
	for name, user := range map[string]string{"an account that sees it": "", "one that does not": "k8s"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *bigipsim.Config) { c.UserPartition = user })
			b.plantCIS("tenant")
			p := b.open()
			err := p.Apply(t.Context(), providertest.Diff(providers.State{}, web(key(0), "192.0.2.20", member(0))))[key(0)]
			if providers.KindOf(err) != providers.Rejected || !strings.Contains(fmt.Sprint(err), "10.1.0.0") {
				t.Errorf("%v, want it %s", err, providers.Rejected)
			}
			b.observe(p, providers.State{})
		})
	}
}

// TestAccountOfOnePartition: an account that may write one partition only is enough.
func TestAccountOfOnePartition(t *testing.T) {
	b := newBench(t, func(c *bigipsim.Config) { c.UserPartition = "k8s" })
	p := b.open()
	now, next := web(key(0), "192.0.2.10", members(0, 3)...), web(key(0), "192.0.2.11", append(members(1, 8), drained(member(0)))...)
	next.Pools[0].Settings = providers.PoolSettings{Monitor: providers.Monitor{Type: providers.MonitorHTTP}, Persistence: providers.Persistence{Kind: providers.SourceAddress}}
	b.bring(p, providers.State{}, now)
	b.observe(p, now)
	b.bring(p, now, next)
	b.observe(p, next)
	b.bring(p, next, providers.State{})
	b.observe(p, providers.State{})
}
