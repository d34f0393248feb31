package model

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// Whatever the Pods are like: the answer is stable once it is on the load balancer, members are unique and rightful, and
// a pool is not without an enabled member while some selected Pod serves at an address of its own.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.Service.PublishNotReady = rapid.IntRange(0, 4).Draw(t, "publishNotReady") == 0
		ages := rapid.SampledFrom([]time.Duration{0, time.Minute, limit - 1, limit, 2 * limit})
		for n := range rapid.IntRange(0, 6).Draw(t, "pods") {
			w.pod(n, func(p *Pod) {
				p.Ready, p.ReadyChanged = rapid.Bool().Draw(t, "ready"), now.Add(-ages.Draw(t, "ready for"))
				p.Terminating = rapid.Bool().Draw(t, "terminating")
				p.Since = now.Add(-ages.Draw(t, "terminating for"))
				p.Finished = rapid.IntRange(0, 5).Draw(t, "finished") == 0
				p.Mappings[0].NodePort = uint16(rapid.IntRange(61000, 61008).Draw(t, "port"))
				if rapid.IntRange(0, 4).Draw(t, "malformed") == 0 {
					p.Mappings, p.Malformed = nil, malformed
				}
			})
			if rapid.Bool().Draw(t, "is there") {
				w.has(n, rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "as"))
			}
		}
		first := Build(w.Input)
		pool := first.State.Pools[0]

		again := w.Input
		again.Current = map[providers.Key]*providers.Pool{key: &pool}
		if second := Build(again); providertest.Render(second.State) != providertest.Render(first.State) {
			t.Fatalf("not stable: first\n%sthen\n%s", providertest.Render(first.State), providertest.Render(second.State))
		}

		serving, enabled, seen := 0, 0, map[netip.AddrPort]bool{}
		for _, e := range w.Endpoints {
			if p := e.Pod; p.Ready && !p.Finished && p.Malformed == "" && len(w.claims[Claim{addrPort(p.Mappings[0]), npl.TCP}]) == 1 {
				serving++
			}
		}
		for _, m := range pool.Members {
			at := slices.IndexFunc(w.Endpoints, func(e Endpoint) bool { return e.Pod.UID == m.UID })
			if at < 0 || w.Endpoints[at].Pod.Finished || seen[m.Address] {
				t.Fatalf("member %+v has no business in\n%s", m, providertest.Render(pool))
			}
			seen[m.Address] = true
			if m.State == providers.Enabled {
				enabled++
				if p := w.Endpoints[at].Pod; !p.Ready && !w.Service.PublishNotReady {
					t.Fatalf("%s is enabled and not ready", p.ID())
				}
			}
		}
		if serving > 0 && enabled == 0 {
			t.Fatalf("%d Pods serve and the pool has none enabled:\n%s", serving, providertest.Render(pool))
		}
	})
}
