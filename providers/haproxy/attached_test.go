package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// attach is the change that gives a backend of the administrator these members.
func attach(key providers.Key, backend string, old, now []providers.Member) providers.Changes {
	c := change(key, old, now, nil)
	c.Pools[0].Old, c.Pools[0].New.Attached, c.Pools[0].New.Settings = nil, backend, providers.PoolSettings{}
	return c
}

// attached returns what is observed of a backend of the administrator.
func (d desk) attached(key providers.Key, backend string) (providers.Pool, bool) {
	d.t.Helper()
	o, err := d.p.Observe(d.t.Context(), providers.Scope{Attached: map[providers.Key]string{key: backend}})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range o.State.Pools {
		if p.Key == key {
			return p, true
		}
	}
	return providers.Pool{}, false
}

// theirs is a frontend and a backend of the administrator, with a Provider beside.
func theirs(t *testing.T) (*balancer, desk, netip.AddrPort) {
	t.Helper()
	b, p := running(t)
	address := netip.AddrPortFrom(b.vips[0], 90)
	b.backend("theirs", "balance leastconn\nfrontend theirs_f\n    mode tcp\n    timeout client 10s\n    bind "+address.String()+"\n    default_backend theirs")
	d := desk{t, p}
	d.observe()
	return b, d, address
}

// TestAttachedMembersOutliveReloads: the administrator's file does not list our servers, so a reload forgets them. After our own they are
// back before anybody asks, after somebody else's the next observation misses them.
func TestAttachedMembersOutliveReloads(t *testing.T) {
	t.Parallel()
	b, d, address := theirs(t)
	key, one, two, three := testKey("beside"), newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	wanted := append(members(one, two), three.draining())
	d.must(attach(key, "theirs", nil, wanted))
	b.reached(address, one, two)
	name, err := markOf(testOwner).name(two.ID())
	if err != nil {
		t.Fatal(err)
	}
	b.run("set server theirs/" + name + " state drain") // an operator takes one out

	worker := b.worker()
	b.serve(d, testKey("web"), 80, one)
	if b.worker() == worker {
		t.Fatal("a new Service came without a reload")
	}
	b.reached(address, one)
	same := func(when string) {
		t.Helper()
		got, _ := d.attached(key, "theirs")
		for i := range wanted {
			wanted[i].Name = ""
		}
		want := change(key, nil, wanted, nil).Pools[0].New.Members
		if g, w := providertest.Render(got), providertest.Render(providers.Pool{Key: key, Attached: "theirs", Members: want}); g != w {
			t.Errorf("%s\n%swant\n%s", when, g, w)
		}
	}
	same("after our reload")
	o, err := d.p.Observe(t.Context(), providers.Scope{Attached: map[providers.Key]string{key: "theirs"}})
	if err != nil || !o.Members[key][two.ID()].Blocked {
		t.Errorf("the operator's drain is forgotten: %+v, %v", o.Members[key], err)
	}

	if err := (runtime.Master{Path: b.cfg.MasterSocket}).Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.changed()
	if got, there := d.attached(key, "theirs"); !there || len(got.Members) != 0 {
		t.Errorf("after the administrator's reload: %+v, %v", got, there)
	}
	d.must(attach(key, "theirs", nil, wanted))
	b.reached(address, one, two)
	same("added again")
}

// TestAttachedBackendsThatCannotBe: each is refused with what to do, and the others go on.
func TestAttachedBackendsThatCannotBe(t *testing.T) {
	t.Parallel()
	b, d, address := theirs(t)
	b.backend("fixed", "balance source")
	d.observe()
	one := newPod(t, "one")
	b.serve(d, testKey("own"), 80, one)
	var all providers.Changes
	want := map[providers.Key]string{
		testKey("a"): "hash-type consistent", testKey("b"): "no backend", testKey("c"): "not a name", testKey("d"): "lbsync's own",
	}
	backends := map[string]string{"a": "fixed", "b": "missing", "c": "theirs; shutdown", "d": "npl_b_shop_own_80", "e": "theirs"}
	for _, service := range []string{"a", "b", "c", "d", "e"} {
		all.Pools = append(all.Pools, attach(testKey(service), backends[service], nil, members(one)).Pools...)
	}
	for key, err := range d.p.Apply(t.Context(), all) {
		if text := want[key]; (err != nil) != (text != "") || err != nil && (!strings.Contains(err.Error(), text) || providers.KindOf(err) != providers.Rejected) {
			t.Errorf("%s in %q: %v, want %q", key, backends[key.Service], err, text)
		}
	}
	b.reached(address, one)
	if pool, there := d.attached(testKey("b"), "missing"); there {
		t.Errorf("a backend that there is not is observed: %+v", pool)
	}
	if pool, there := d.attached(testKey("d"), "npl_b_shop_own_80"); there {
		t.Errorf("our own backend is observed as somebody else's: %+v", pool)
	}
	if got := fmt.Sprint(b.servers(testKey("own"))); strings.Count(got, "npl_b") != 1 {
		t.Errorf("our own backend has %s", got)
	}
}

// TestOperatorsDrainIsRespected: reported, left through every change of other members, through a reload and a restart of lbsync, and ended by
// who began it. Both commands that an operator has for it, though lbsync itself drains by one of them.
func TestOperatorsDrainIsRespected(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"drain", "maint"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			b, p := running(t)
			d, key := desk{t, p}, testKey("web")
			one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
			address := b.serve(d, key, 80, one, two, three)
			now := []providers.Member{one.Member, two.Member, three.draining()}
			d.must(change(key, members(one, two, three), now, nil))
			b.fileHas(p, " disabled")
			name, err := mark("").name(two.ID())
			if err != nil {
				t.Fatal(err)
			}
			server := "npl_b_shop_web_80/" + name
			b.run("set server " + server + " state " + verb)
			out := func(when string) {
				t.Helper()
				o := d.observe()
				i := slices.IndexFunc(o.State.Pools, func(p providers.Pool) bool { return p.Key == key })
				for _, m := range o.State.Pools[i].Members {
					want := providers.Enabled
					if m.UID == three.UID {
						want = providers.Draining
					}
					if m.State != want {
						t.Errorf("%s: %s is %s, want %s", when, m.Address, m.State, want)
					}
					if blocked := o.Members[key][m.ID()].Blocked; blocked != (m.UID == two.UID) {
						t.Errorf("%s: %s is blocked: %v", when, m.Address, blocked)
					}
				}
				for range 6 {
					if got, err := call(address); err != nil || got != one.name && got != "four" {
						t.Errorf("%s: reached %q, %v", when, got, err)
					}
				}
			}
			out("at once")
			four := newPod(t, "four")
			d.must(change(key, now, append(now, four.Member), nil))
			now = append(now, four.Member)
			out("after another member came")
			b.serve(d, testKey("other"), 81, one)
			out("after a reload")
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			d.p = b.open()
			out("after a restart of lbsync")
			d.must(change(key, now, now, nil))
			out("after everything was wanted anew")
			b.serve(d, testKey("third"), 82, one)
			out("after a restart and a reload")
			b.run("set server " + server + " state ready")
			b.reached(address, one, two, four)
			d.must(change(key, now, members(one, two, three, four), nil))
			b.reached(address, one, two, three, four)
		})
	}
}

// fileHas waits until the file that lbsync writes behind the members says this.
func (b *balancer) fileHas(p *Provider, text string) {
	b.t.Helper()
	b.eventually("the file follows", func() error {
		file, err := p.files.Current()
		if err == nil && !strings.Contains(string(file), text) {
			err = fmt.Errorf("no %q in\n%s", text, file)
		}
		return err
	})
}
