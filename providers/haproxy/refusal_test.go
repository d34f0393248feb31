package haproxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// refuse applies, demands an error of this kind that says all of these words for key, and returns the results.
func refuse(t *testing.T, p *Provider, c providers.Changes, key providers.Key, kind providers.Kind, words ...string) providers.Results {
	t.Helper()
	results := p.Apply(t.Context(), c)
	err := results[key]
	if err == nil || providers.KindOf(err) != kind {
		t.Fatalf("%s: %v, want %s", key, err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	return results
}

// service is a whole Service for providertest.Diff.
func service(key providers.Key, vip netip.Addr, port uint16, pods ...*pod) providers.State {
	return providers.State{
		Pools:          []providers.Pool{{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}, Members: members(pods...)}},
		VirtualServers: []providers.VirtualServer{{Key: key, VIPs: []netip.Addr{vip}, Port: port}},
	}
}

// both joins two Services in the order of their Keys.
func both(a, b providers.State) providers.State {
	return providers.State{Pools: append(a.Pools, b.Pools...), VirtualServers: append(a.VirtualServers, b.VirtualServers...)}
}

func TestBindConflict(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	one := newPod(t, "one")
	running := b.serve(d, testKey("running"), 80, one)
	worker := b.worker()
	busy, err := net.Listen("tcp", netip.AddrPortFrom(b.vips[0], 81).String())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	stop := load(t, running)

	bad, good := testKey("bad"), testKey("good")
	refuse(t, p, providertest.Diff(providers.State{}, service(bad, b.vips[0], 81, one)), bad, providers.Rejected, "in use", ":81")
	if b.worker() != worker {
		t.Error("haproxy was reloaded for a Service that cannot be served")
	}
	again := p.Apply(t.Context(), providertest.Diff(providers.State{}, service(bad, b.vips[0], 81, one)))
	if within := providers.RetryWithin(again[bad]); within <= 0 || within > 30*time.Second {
		t.Errorf("it is to be tried again within %s, want half a minute: nobody tells when the other listener goes", within)
	}
	remote := netip.MustParseAddr("192.0.2.1") // TEST-NET-1: nobody's
	refuse(t, p, providertest.Diff(providers.State{}, service(bad, remote, 81, one)), bad, providers.Rejected, "not an address of this host", "ip_nonlocal_bind")
	refuse(t, p, providertest.Diff(providers.State{}, service(bad, b.vips[0], 80, one)), bad, providers.Rejected, "already belongs to", "shop/running")

	results := refuse(t, p, providertest.Diff(providers.State{}, both(service(bad, b.vips[0], 81, one), service(good, b.vips[0], 82, one))), bad, providers.Rejected)
	if results[good] != nil {
		t.Errorf("the good one: %v", results[good])
	}
	b.reached(netip.AddrPortFrom(b.vips[0], 82), one)
	stop()
}

func TestAddressMovesBetweenServices(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	one, two := newPod(t, "one"), newPod(t, "two")
	address := b.serve(d, testKey("a"), 80, one)
	now := providertest.Diff(d.observe().State, service(testKey("b"), b.vips[0], 80, two))
	d.must(now)
	b.reached(address, two)
}

// A Service whose address another one still has is refused, and served as soon as that one has left: by a reload, and without one.
func TestAddressOfOneThatLeavesLate(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"by a reload": false, "without a reload": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBalancer(t)
			if open {
				b = openBalancer(t, "8000-8099")
			}
			d, _ := opened(t, b)
			worker := b.worker()
			one, two := newPod(t, "one"), newPod(t, "two")
			address := b.serve(d, testKey("late"), 8000, one)
			b.reached(address, one)
			had, key := d.observe().State, testKey("next")
			next := providertest.Diff(providers.State{}, service(key, b.vips[0], 8000, two))
			refuse(t, d.p, next, key, providers.Rejected, "already belongs to", "shop/late")
			b.reached(address, one)
			without := func(s providers.State) (left providers.State) {
				left.Pools = slices.DeleteFunc(slices.Clone(s.Pools), func(p providers.Pool) bool { return p.Key == testKey("late") })
				left.VirtualServers = slices.DeleteFunc(slices.Clone(s.VirtualServers), func(v providers.VirtualServer) bool { return v.Key == testKey("late") })
				return left
			}
			d.must(providertest.Diff(had, without(had)))
			d.observe() // as after every refusal
			d.must(next)
			b.reached(address, two)
			if same := b.worker() == worker; same != open {
				t.Errorf("the same worker serves: %v, want %v", same, open)
			}
		})
	}
}

func TestReloadFailsAndIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	b.cfg.Binary = "" // nobody checks, so haproxy finds out
	p := b.open()
	b.start()
	d := desk{t, p}
	one := newPod(t, "one")
	address := b.serve(d, testKey("web"), 80, one)
	want, worker := providertest.Render(d.observe().State), b.worker()
	admin, err := os.ReadFile(b.cfg.ConfigFiles[0])
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.cfg.ConfigFiles[0], string(admin)+"    no-such-keyword\n")
	key := testKey("late")
	file, err := os.ReadFile(p.files.Path())
	if err != nil {
		t.Fatal(err)
	}
	refuse(t, p, providertest.Diff(providers.State{}, service(key, b.vips[0], 81, one)), key, providers.Rejected, "taken back")
	if now, err := os.ReadFile(p.files.Path()); err != nil || string(now) != string(file) {
		t.Errorf("the file that haproxy could not load is still there: %v\n%s", err, now)
	}
	b.reached(address, one)
	if got := providertest.Render(d.observe().State); got != want || b.worker() != worker {
		t.Errorf("worker %d, was %d; observed\n%s", b.worker(), worker, got)
	}
	b.write(b.cfg.ConfigFiles[0], string(admin))
	d.must(providertest.Diff(providers.State{}, service(key, b.vips[0], 81, one)))
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	one := newPod(t, "one")
	b.serve(d, testKey("web"), 80, one)
	worker := b.worker()
	key, clash := testKey("good"), testKey("foreign") // the administrator has a backend of that name

	results := refuse(t, p, providertest.Diff(providers.State{}, both(service(clash, b.vips[0], 81, one), service(key, b.vips[0], 82, one))),
		clash, providers.Rejected, "npl_b_shop_foreign_80")
	if results[key] != nil {
		t.Errorf("the other Service: %v", results[key])
	}
	if b.worker() == worker {
		t.Error("the other Service was not loaded")
	}
	worker = b.worker()

	admin, err := os.ReadFile(b.cfg.ConfigFiles[0])
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.cfg.ConfigFiles[0], string(admin)+"    no-such-keyword\n")
	late := testKey("late")
	refuse(t, p, providertest.Diff(providers.State{}, service(late, b.vips[0], 83, one)), late, providers.Misconfigured, "no-such-keyword", "haproxy.cfg")
	two := newPod(t, "two")
	d.must(change(testKey("web"), members(one), members(one, two), nil)) // members do not mind
	if b.worker() != worker {
		t.Error("haproxy was reloaded with a file that it refuses")
	}
}

func TestDirectoryNotLoaded(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	elsewhere := b.cfg.Dir + ".elsewhere"
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	b.cfg.Dir = elsewhere
	p = b.open()
	key := testKey("web")
	refuse(t, p, providertest.Diff(providers.State{}, service(key, b.vips[0], 80, newPod(t, "one"))), key, providers.Misconfigured, "-f "+elsewhere)
}

func TestThrottled(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	b.cfg.MinReloadInterval = 10 * time.Minute
	p := b.open()
	b.start()
	d := desk{t, p}
	one, two := newPod(t, "one"), newPod(t, "two")
	address := b.serve(d, testKey("first"), 80, one) // the first does not wait
	key := testKey("second")
	refuse(t, p, providertest.Diff(providers.State{}, service(key, b.vips[0], 81, one)), key, providers.Throttled, "allowed in")
	again := p.Apply(t.Context(), providertest.Diff(providers.State{}, service(key, b.vips[0], 81, one)))
	if wait := providers.RetryAfter(again[key]); wait <= 0 || wait > b.cfg.MinReloadInterval {
		t.Errorf("it says to wait %s of %s", wait, b.cfg.MinReloadInterval)
	}
	d.must(change(testKey("first"), members(one), members(one, two), nil)) // members never wait
	b.reached(address, one, two)
}

func TestUnusableChanges(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	worker := b.worker()
	udp := testKey("dns")
	udp.Protocol = providers.UDP
	odd := testKey("web\n    bind :1")
	crowded := testKey("crowded")
	many := make([]providers.Member, maxMembers+1)
	for i := range many {
		many[i] = providers.Member{UID: fmt.Sprint(i), Address: netip.AddrPortFrom(b.vips[0], uint16(i+1)), State: providers.Enabled}
	}
	nowhere := testKey("nowhere")
	cases := map[string]struct {
		key     providers.Key
		changes providers.Changes
		words   string
	}{
		"UDP":                    {udp, providertest.Diff(providers.State{}, service(udp, b.vips[0], 53)), "only TCP"},
		"name":                   {odd, providertest.Diff(providers.State{}, service(odd, b.vips[0], 80)), "Kubernetes"},
		"too many members":       {crowded, change(crowded, nil, many, nil), "the most is 4095"},
		"no pool":                {nowhere, change(nowhere, nil, nil, &providers.VirtualServer{Key: nowhere, VIPs: b.vips[:1], Port: 80}), "needs the pool"},
		"unspecified":            {nowhere, providertest.Diff(providers.State{}, service(nowhere, netip.IPv4Unspecified(), 80)), "not an address"},
		"member without address": {nowhere, change(nowhere, nil, []providers.Member{{UID: "x"}}, nil), "not an address"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if name == "no pool" {
				c.changes.Pools = nil
			}
			refuse(t, p, c.changes, c.key, providers.Rejected, c.words)
		})
	}
	if b.worker() != worker {
		t.Error("haproxy was reloaded for nothing")
	}
}

func TestNotOurFile(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	p := b.open()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	other := testOwner
	other.Instance = "elsewhere/nplbridge"
	if _, err := New(b.cfg, other, zap.NewNop()); providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "belongs to") {
		t.Errorf("another instance's file: %v", err)
	}
	b.write(p.files.Path(), "frontend mine\n    bind :80\n")
	if _, err := New(b.cfg, testOwner, zap.NewNop()); providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "not a file of nplbridge") {
		t.Errorf("a person's file: %v", err)
	}
	if text, _ := os.ReadFile(p.files.Path()); !strings.HasPrefix(string(text), "frontend mine") {
		t.Error("a person's file was overwritten")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	p := b.open() // haproxy is not started: that is no error of New
	if _, err := p.Observe(t.Context(), providers.Scope{}); err == nil || providers.KindOf(err) != providers.Unavailable {
		t.Errorf("Observe without haproxy: %v", err)
	}
	key := testKey("web")
	refuse(t, p, providertest.Diff(providers.State{}, service(key, b.vips[0], 80)), key, providers.Unavailable, b.cfg.AdminSocket)
	b.start()
	b.cfg.MasterSocket += ".missing"
	p = b.open()
	refuse(t, p, providertest.Diff(providers.State{}, service(key, b.vips[0], 80)), key, providers.Misconfigured, b.cfg.MasterSocket)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Observe(done, providers.Scope{}); err == nil || providers.KindOf(err) != providers.Unavailable {
		t.Errorf("Observe with an ended context: %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		`dir: "npl.d"`:           func(c *Config) { c.Dir = "npl.d" },
		`masterSocket: ""`:       func(c *Config) { c.MasterSocket = "" },
		`adminSocket: "/a b"`:    func(c *Config) { c.AdminSocket = "/a b" },
		`configFiles: "x"`:       func(c *Config) { c.ConfigFiles = []string{"x"} },
		`configFiles: empty`:     func(c *Config) { c.ConfigFiles = nil },
		`stateFile: "/x/y.cfg"`:  func(c *Config) { c.StateFile = "/x/y.cfg" },
		`minReloadInterval: -1s`: func(c *Config) { c.MinReloadInterval = -time.Second },
		`writeDelay: 2m0s`:       func(c *Config) { c.WriteDelay = 2 * time.Minute },
		`checkInterval: 0s`:      func(c *Config) { c.CheckInterval = 0 },
		`connectTimeout: 1ms`:    func(c *Config) { c.ConnectTimeout = time.Millisecond },
		`idleTimeout: 241h0m0s`:  func(c *Config) { c.IdleTimeout = 241 * time.Hour },
	} {
		c := DefaultConfig()
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
