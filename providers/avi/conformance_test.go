package avi

import (
	"net/http"
	"net/netip"
	"reflect"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// TestConformance judges the provider by the rules of all providers, on a Controller with the strictest rules.
func TestConformance(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness { return harness(t) })
}

// TestConformanceOtherRules does so where what is only inferred of a Controller is the other way round.
func TestConformanceOtherRules(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		return harness(t, func(c *avisim.Config) {
			c.Rules.Duplicates, c.Rules.DeleteByAddress, c.Rules.WrappedRuntime = avisim.MergeDuplicates, true, true
			c.Rules.CSRFOnReads, c.Rules.EmptyPages, c.Rules.SameObject, c.Rules.MissingReference = true, true, true, http.StatusNotFound
			c.URLHost = "controller.example:4443"
		})
	})
}

func harness(t *testing.T, change ...func(*avisim.Config)) providertest.Harness {
	c := newController(t, change...)
	p := c.open()
	return providertest.Harness{
		Provider: p,
		VIPs:     []netip.Addr{netip.MustParseAddr("192.0.2.201"), netip.MustParseAddr("2001:db8::201")},
		Reopen: func(t *testing.T) providers.Provider {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			p = c.open()
			return p
		},
		PlantForeign: c.plantForeign,
		PlantPool:    c.plantPool,
		Enabled: func(k providers.Key) (int, bool) {
			pool := c.Snapshot().Object("pool", p.names.pool(k))
			servers, _ := pool["servers"].([]any)
			n := 0
			for _, s := range servers {
				if s.(map[string]any)["enabled"] == true {
					n++
				}
			}
			return n, pool != nil
		},
		Break: func(*testing.T) func() {
			c.Fail(avisim.Fault{Kind: avisim.Drop, Times: -1})
			return c.Mend
		},
	}
}

// plantForeign makes another lbsync's Service, whose names begin as ours do, and a pool with our labels and another created_by.
func (c *controller) plantForeign(t *testing.T) func(t *testing.T) {
	other := &controller{Server: c.Server, t: t, cfg: c.cfg, owner: c.owner}
	other.owner.Instance = "nplbridge-system/other"
	q := other.open()
	state := web(key(0), "192.0.2.77", member(0))
	other.bring(q, providers.State{}, state)
	names := names{c.cfg.Prefix, c.owner}
	if _, err := c.Create("pool", "", map[string]any{
		"name": names.prefix + "--shop-web-0-TCP-8080", "cloud_ref": "/api/cloud?name=Default-Cloud", "created_by": "somebody",
		"markers": names.markers(marker{markService, []string{"shop/web-0"}}, marker{markPort, []string{"8080/TCP"}}),
	}); err != nil {
		t.Fatal(err)
	}
	look := func() map[string][]map[string]any {
		out := map[string][]map[string]any{}
		for typ, all := range c.Snapshot().Objects {
			for _, o := range all {
				if o["created_by"] == "somebody" || o["created_by"] == q.names.createdBy() {
					out[typ] = append(out[typ], o)
				}
			}
		}
		return out
	}
	before := look()
	if len(before["pool"]) != 2 {
		t.Fatalf("planted %d pools", len(before["pool"]))
	}
	return func(t *testing.T) {
		if now := look(); !reflect.DeepEqual(now, before) {
			t.Errorf("foreign objects were touched:\n%v\nwere\n%v", now, before)
		}
		other.observe(q, state)
	}
}

// plantPool makes a pool as AKO does.
func (c *controller) plantPool(t *testing.T) (string, func(t *testing.T)) {
	const name = "prod--shop-web-TCP-80"
	if _, err := c.Create("pool", "", map[string]any{
		"name": name, "cloud_ref": "/api/cloud?name=Default-Cloud", "created_by": "ako-prod", "lb_algorithm": "LB_ALGORITHM_FASTEST_RESPONSE",
		"servers": []map[string]any{{"ip": map[string]any{"addr": "10.9.9.9", "type": "V4"}, "port": 61009, "external_uuid": "10.9.9.9:61009"}},
	}); err != nil {
		t.Fatal(err)
	}
	return name, func(t *testing.T) {
		now := c.Snapshot().Object("pool", name)
		found := false
		servers, _ := now["servers"].([]any)
		for _, s := range servers {
			s := s.(map[string]any)
			found = found || (s["external_uuid"] == "10.9.9.9:61009" && s["enabled"] == true)
		}
		if !found || now["lb_algorithm"] != "LB_ALGORITHM_FASTEST_RESPONSE" || now["created_by"] != "ako-prod" {
			t.Errorf("the pool was touched: %v", now)
		}
	}
}
