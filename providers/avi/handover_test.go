package avi

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// akoPool is what AKO leaves behind: a virtual service with an L4 policy in front of a pool of these members.
func (c *controller) akoPool(members ...providers.Member) string {
	c.t.Helper()
	var servers []map[string]any
	for _, m := range members {
		servers = append(servers, map[string]any{
			"ip": map[string]any{"addr": m.Address.Addr().String(), "type": "V4"}, "port": m.Address.Port(), "external_uuid": m.Address.String(), "enabled": true,
		})
	}
	const name = "prod--shop-web-TCP-80"
	must := func(typ string, body map[string]any) {
		body["cloud_ref"] = "/api/cloud?name=Default-Cloud"
		if _, err := c.Create(typ, "", body); err != nil {
			c.t.Fatal(err)
		}
	}
	must("pool", map[string]any{"name": name, "created_by": "ako-prod", "servers": servers})
	must("vsvip", map[string]any{"name": "prod--shop-web", "vip": []map[string]any{{"vip_id": "0", "ip_address": map[string]any{"addr": "192.0.2.150", "type": "V4"}}}})
	must("virtualservice", map[string]any{
		"name": "prod--shop-web", "created_by": "ako-prod", "services": []map[string]any{{"port": 80}}, "vsvip_ref": "/api/vsvip?name=prod--shop-web",
		"pool_ref": "/api/pool?name=" + name, "network_profile_ref": "/api/networkprofile?name=System-TCP-Proxy",
		"application_profile_ref": "/api/applicationprofile?name=System-L4-Application",
	})
	return name
}

// addresses of a pool's servers that are enabled.
func (c *controller) addresses(pool string) []string {
	var out []string
	servers, _ := c.Snapshot().Object("pool", pool)["servers"].([]any)
	for _, s := range servers {
		s := s.(map[string]any)
		if s["enabled"] == true {
			out = append(out, fmt.Sprintf("%s:%v", s["ip"].(map[string]any)["addr"], s["port"]))
		}
	}
	slices.Sort(out)
	return out
}

// TestHandOverByAttaching follows docs/how-to/move-from-ako.md, first way: at no time has the pool fewer members than Pods.
func TestHandOverByAttaching(t *testing.T) {
	c := newController(t)
	pool := c.akoPool(member(0), member(1), member(2)) // the third Pod is gone, AKO has not noticed
	c.cfg.TakeOver = "ako-prod"
	p := c.open()
	scope := map[providers.Key]string{key(0): pool}
	want := providers.State{Pools: []providers.Pool{{Key: key(0), Attached: pool, Members: []providers.Member{member(0), member(1)}}}}
	got, err := p.Observe(t.Context(), providers.Scope{Attached: scope})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.State.Pools[0].Members); n != 3 {
		t.Fatalf("%d of AKO's members are seen, want 3", n)
	}
	calls := c.since()
	c.bring(p, got.State, want)
	if w := writes(calls()); len(w) != 1 {
		t.Errorf("the take-over was not one write:\n%s", lines(w))
	}
	if got := c.addresses(pool); !slices.Equal(got, []string{member(0).Address.String(), member(1).Address.String()}) {
		t.Errorf("members %v", got)
	}
	c.observe(p, want, scope)
	next := providers.State{Pools: []providers.Pool{{Key: key(0), Attached: pool, Members: []providers.Member{member(1), member(3)}}}}
	c.bring(p, want, next)
	c.observe(p, next, scope)
	if o := c.Snapshot().Object("pool", pool); o["created_by"] != "ako-prod" {
		t.Errorf("the pool is AKO's no more: %v", o)
	}
	if c.Snapshot().Object("virtualservice", "prod--shop-web") == nil {
		t.Error("AKO's virtual service is gone")
	}
}

// TestHandOverSideBySide follows the second way: ours beside AKO's, which stays as it is.
func TestHandOverSideBySide(t *testing.T) {
	c := newController(t)
	c.akoPool(member(0), member(1))
	before := c.Snapshot()
	p := c.open()
	want := web(key(0), "192.0.2.151", member(0), member(1))
	c.bring(p, providers.State{}, want)
	c.observe(p, want)
	c.bring(p, want, providers.State{})
	after := c.Snapshot()
	for _, typ := range []string{"pool", "virtualservice", "vsvip"} {
		if !reflect.DeepEqual(before.Objects[typ], after.Objects[typ]) {
			t.Errorf("%s: AKO's were touched", typ)
		}
	}
}

// TestAttachedLeavesOthers: without takeOver a server of somebody else at a wanted address is left alone, told, and stops no other member.
func TestAttachedLeavesOthers(t *testing.T) {
	c := newController(t)
	pool := c.akoPool(member(0), member(5))
	p := c.open()
	scope := map[providers.Key]string{key(0): pool}
	state := func(members ...providers.Member) providers.State {
		return providers.State{Pools: []providers.Pool{{Key: key(0), Attached: pool, Members: members}}}
	}
	c.observe(p, state(), scope)
	err := p.Apply(t.Context(), providertest.Diff(state(), state(member(0), member(1))))[key(0)]
	if providers.KindOf(err) != providers.Rejected || !strings.Contains(fmt.Sprint(err), member(0).Address.String()) {
		t.Errorf("got %v", err)
	}
	c.observe(p, state(member(1)), scope)
	if got := c.addresses(pool); len(got) != 3 {
		t.Errorf("members %v", got)
	}

	// Two Services in one pool do not see each other's members.
	other := providers.State{Pools: []providers.Pool{{Key: key(1), Attached: pool, Members: []providers.Member{member(7)}}}}
	c.bring(p, providers.State{}, other)
	both := merge(state(member(1)), other)
	c.observe(p, both, map[providers.Key]string{key(0): pool, key(1): pool})
	c.bring(p, both, state(member(1)))
	c.observe(p, state(member(1)), scope)
	c.bring(p, state(member(1)), providers.State{})
	if got := c.addresses(pool); !slices.Equal(got, []string{member(0).Address.String(), member(5).Address.String()}) {
		t.Errorf("what is left: %v", got)
	}

	missing := providers.State{Pools: []providers.Pool{{Key: key(2), Attached: "none", Members: []providers.Member{member(1)}}}}
	err = p.Apply(t.Context(), providertest.Diff(providers.State{}, missing))[key(2)]
	if providers.KindOf(err) != providers.Rejected || !strings.Contains(fmt.Sprint(err), "there is no such pool") {
		t.Errorf("a pool that there is not: %v", err)
	}
}
