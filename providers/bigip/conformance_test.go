package bigip

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// TestConformance judges the provider by the rules of all providers, on a device with the strictest rules.
func TestConformance(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness { return harness(t) })
}

// TestConformanceOtherRules does so where what is only inferred of a device is the other way round.
func TestConformanceOtherRules(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		return harness(t, func(c *bigipsim.Config) {
			c.Rules = bigipsim.Rules{
				TrailingBlank: true, ShowDefaultRouteDomain: true, ReplaceKeepsOmitted: true, TokensSurviveFailover: true, TokenFromStart: true,
				EmptyItems: true, Shuffle: true, HealthyAtOnce: true, SelfDeviceFlag: true,
			}
		})
	})
}

func harness(t *testing.T, change ...func(*bigipsim.Config)) providertest.Harness {
	b := newBench(t, change...)
	return harnessOf(b)
}

func harnessOf(b *bench) providertest.Harness {
	p := b.open()
	return providertest.Harness{
		Provider: p,
		VIPs:     []netip.Addr{netip.MustParseAddr("192.0.2.201"), netip.MustParseAddr("2001:db8::201")},
		Reopen: func(t *testing.T) providers.Provider {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			p = b.open()
			return p
		},
		PlantForeign: b.plantForeign,
		PlantPool:    b.plantPool,
		Enabled: func(k providers.Key) (int, bool) {
			status, body := b.Admin("GET", "/mgmt/tm/"+b.poolPath(k)+"/members", "")
			n := strings.Count(string(body), `"session":"monitor-enabled"`) + strings.Count(string(body), `"session":"user-enabled"`)
			return n, status == 200
		},
		Connect: func(t *testing.T, k providers.Key, m providers.Member) func() {
			set := func(n int) {
				if err := b.SetConnections("/"+b.cfg.Partition+"/"+b.names().pool(k), "/"+b.cfg.Partition+"/"+m.Address.String(), n); err != nil {
					t.Fatal(err)
				}
			}
			set(1)
			return func() { set(0) }
		},
		Break: func(*testing.T) func() {
			b.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Times: -1})
			return b.Mend
		},
	}
}

// plantForeign makes another lbsync's Service in the same partition, and a pool and a node of somebody without marks.
func (b *bench) plantForeign(t *testing.T) func(t *testing.T) {
	other := *b
	other.t, other.owner.Instance = t, "nplbridge-system/other"
	q := other.open()
	state := web(key(0), "192.0.2.77", member(0))
	other.bring(q, providers.State{}, state)
	b.admin("POST", "ltm/pool", map[string]any{"name": "nplbridge--shop-web-0-TCP-8080", "partition": "k8s", "members": []any{map[string]any{"name": "10.9.9.9:80", "partition": "k8s"}}})
	look := func() []any {
		var out []any
		for _, path := range []string{
			"ltm/pool/~k8s~" + other.names().pool(key(0)) + "?expandSubcollections=true", "ltm/virtual/~k8s~" + other.names().virtual(key(0), true, netip.Prefix{}) + "?expandSubcollections=true",
			"ltm/pool/~k8s~nplbridge--shop-web-0-TCP-8080?expandSubcollections=true", "ltm/node/~k8s~10.9.9.9",
		} {
			o := b.admin("GET", path, nil)
			forget(o)
			out = append(out, o)
		}
		return out
	}
	before := look()
	return func(t *testing.T) {
		if now := look(); !reflect.DeepEqual(now, before) {
			a, _ := json.Marshal(before)
			z, _ := json.Marshal(now)
			t.Errorf("foreign objects were touched:\n%s\nwere\n%s", z, a)
		}
		other.observe(q, state)
	}
}

// forget takes out of an object what changes by itself.
func forget(o any) {
	switch o := o.(type) {
	case map[string]any:
		delete(o, "state")
		for _, v := range o {
			forget(v)
		}
	case []any:
		for _, v := range o {
			forget(v)
		}
	}
}

// plantPool makes a pool in another partition.
func (b *bench) plantPool(t *testing.T) (string, func(t *testing.T)) {
	b.admin("POST", "ltm/pool", map[string]any{
		"name": "theirs", "partition": "other", "monitor": "/Common/http", "loadBalancingMode": "least-connections-member", "description": "by hand",
		"members": []any{map[string]any{"name": "10.9.9.9:61009", "partition": "other", "ratio": 7, "session": "user-disabled"}},
	})
	return "/other/theirs", func(t *testing.T) {
		pool := b.admin("GET", "ltm/pool/~other~theirs", nil)
		m := membersAt(t, b.Sim, "ltm/pool/~other~theirs")["10.9.9.9:61009"]
		if m == nil || m["ratio"] != float64(7) || m["session"] != "user-disabled" || strings.TrimSpace(pool["monitor"].(string)) != "/Common/http" || pool["description"] != "by hand" {
			t.Errorf("the pool was touched: %v %v", pool, m)
		}
	}
}
