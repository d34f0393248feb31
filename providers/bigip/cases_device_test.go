package bigip

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// The numbered cases of e2e/cases/bigip.yaml that are about devices, partitions and virtual servers.

// newPair starts two devices that stand in for each other.
func newPair(t testing.TB, change ...func(*bigipsim.Config)) (*bench, *bigipsim.Pair) {
	t.Helper()
	pair, err := bigipsim.NewPair(simConfig(change...))
	if err != nil {
		t.Fatal(err)
	}
	return benchOf(t, pair.A, pair.B), pair
}

func writesOf(s *bigipsim.Sim) (n int) {
	for _, c := range s.Calls() {
		if c.Writes() && c.Path != "/mgmt/tm/cm" && c.Path != "/mgmt/tm/sys/config" {
			n++
		}
	}
	return n
}

func TestBIGIP48OnlyTheActiveDevice(t *testing.T) {
	b, pair := newPair(t, func(c *bigipsim.Config) {
		c.TrafficGroups, c.AutoSync = []string{"traffic-group-2"}, true
		c.Partitions[0].TrafficGroup = "traffic-group-2"
	})
	clock := fakeClock()
	p := b.open(WithClock(clock))
	now := web(key(0), "192.0.2.10", members(0, 2)...)
	b.bring(p, providers.State{}, now)
	if a, z := writesOf(pair.A), writesOf(pair.B); a == 0 || z != 0 {
		t.Fatalf("%d writes to the active device, %d to the other", a, z)
	}
	// Active for another traffic group is not active for ours.
	pair.Failover("traffic-group-1")
	clock.Step(2 * time.Second)
	next := web(key(0), "192.0.2.10", members(0, 3)...)
	b.bring(p, now, next)
	if writesOf(pair.B) != 0 {
		t.Error("the device that is active for another traffic group was written")
	}
	// Ours moves, and something changes while nobody looks.
	pair.Failover("traffic-group-2")
	adminOf(t, pair.B, "DELETE", b.poolPath(key(0))+"/members/~k8s~10.1.0.0:61001", nil)
	clock.Step(2 * time.Second)
	pair.A.ResetCounters()
	pair.B.ResetCounters()
	last := web(key(0), "192.0.2.10", members(0, 4)...)
	err := p.Apply(t.Context(), providertest.Diff(next, last))[key(0)]
	if providers.KindOf(err) != providers.Conflict || !strings.Contains(fmt.Sprint(err), "not the active device") {
		t.Errorf("%v, want it %s", err, providers.Conflict)
	}
	select {
	case <-p.Changed():
	default:
		t.Error("nobody is told to observe again")
	}
	if writesOf(pair.A)+writesOf(pair.B) != 0 {
		t.Errorf("written after the failover:\n%s%s", lines(pair.A.Calls()), lines(pair.B.Calls()))
	}
	got, err := p.Observe(t.Context(), providers.Scope{})
	if err != nil || !got.Restarted || len(got.State.Pools[0].Members) != 2 {
		t.Fatalf("%v, restarted %v, %s", err, got.Restarted, providertest.Render(got.State))
	}
	b.bring(p, got.State, last)
	if writesOf(pair.A) != 0 || writesOf(pair.B) == 0 {
		t.Errorf("%d writes to the old active device, %d to the new", writesOf(pair.A), writesOf(pair.B))
	}
	b.observe(p, last)
	// Told to write without having observed, it reads the active device first.
	q := b.open(WithClock(clock))
	pair.B.ResetCounters()
	b.bring(q, last, now)
	read := false
	for _, c := range pair.B.Calls() {
		read = read || (c.Method == http.MethodGet && c.Path == "/mgmt/tm/ltm/pool")
		if c.Writes() && !read {
			t.Fatalf("written before it was read:\n%s", lines(pair.B.Calls()))
		}
	}
	b.observe(q, now)
	// The other one may be out of reach, and a pair without an active device is not written.
	pair.A.SetMode(bigipsim.Restarting)
	stepping(t, clock, time.Second)
	b.observe(p, now)
	pair.A.SetMode(bigipsim.Up)
	pair.B.SetMode(bigipsim.Restarting)
	if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestBIGIP49ConfigSync(t *testing.T) {
	for name, c := range map[string]struct {
		auto  bool
		delay time.Duration
		want  int
	}{"by us": {false, 5 * time.Second, 1}, "by itself": {true, 5 * time.Second, 0}, "by nobody": {false, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			b, pair := newPair(t, func(cfg *bigipsim.Config) { cfg.AutoSync = c.auto })
			clock := fakeClock()
			core, logged := observer.New(zap.WarnLevel)
			b.cfg.SaveDelay, b.cfg.SyncDelay = 0, c.delay
			p, err := New(b.cfg, b.owner, zap.New(core), WithClock(clock))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			syncs := func() int { return pair.A.Count(http.MethodPost, "/mgmt/tm/cm") }
			now := providers.State{}
			change := func(n int) {
				next := web(key(0), "192.0.2.10", member(n))
				b.bring(p, now, next)
				now = next
			}
			for n := range 10 {
				change(n)
			}
			synced := func() bool {
				status, _ := pair.B.Admin("GET", "/mgmt/tm/"+b.poolPath(key(0)), "")
				return status == http.StatusOK
			}
			if c.delay > 0 {
				b.eventually("somebody waits for the clock", clock.HasWaiters)
			}
			if synced() != c.auto {
				t.Errorf("the other device has it %v at once", synced())
			}
			clock.Step(c.delay + time.Second)
			if c.delay == 0 {
				clock.Step(time.Hour)
				b.observe(p, now)
			} else {
				b.eventually("the other device has it", synced)
			}
			if c.auto {
				if err := p.groups[0].devices[0].syncToGroup(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if n := syncs(); n != c.want {
				t.Fatalf("%d calls, want %d", n, c.want)
			}
			if c.want == 0 {
				return
			}
			// A failure is told, harms nothing else, and is made good.
			pair.Disconnect(true)
			change(10)
			b.eventually("somebody waits for the clock", clock.HasWaiters)
			clock.Step(c.delay + time.Second)
			b.eventually("the failure is told", func() bool { return logged.FilterMessageSnippet("config-sync").Len() > 0 })
			change(11)
			b.observe(p, now)
			pair.Disconnect(false)
			b.eventually("it is made good", func() bool {
				clock.Step(time.Second)
				return membersAt(t, pair.B, b.poolPath(key(0)))["10.1.0.0:61011"] != nil
			})
		})
	}
}

// TestStandbyWithoutATrafficGroup: where the folder does not say which traffic group the partition belongs to, the device is asked anew before a write.
func TestStandbyWithoutATrafficGroup(t *testing.T) {
	b, pair := newPair(t)
	for _, s := range []*bigipsim.Sim{pair.A, pair.B} {
		s.Inject(bigipsim.Fault{Kind: bigipsim.Answer, Path: "/sys/folder/~k8s~Shared", Times: -1, Status: http.StatusNotFound}) // it is not AS3's
		s.Inject(bigipsim.Fault{
			Kind: bigipsim.Answer, Method: http.MethodGet, Path: "/sys/folder/~k8s", Times: -1, Status: http.StatusOK, Body: `{"name": "k8s", "fullPath": "/k8s"}`,
		})
	}
	clock := fakeClock()
	p := b.open(WithClock(clock))
	now, next := web(key(0), "192.0.2.10", member(0)), web(key(0), "192.0.2.10", member(1))
	b.bring(p, providers.State{}, now)
	b.observe(p, now)
	pair.Failover()
	clock.Step(2 * roleAge)
	pair.A.ResetCounters()
	err := p.Apply(t.Context(), providertest.Diff(now, next))[key(0)]
	if providers.KindOf(err) != providers.Conflict || !strings.Contains(fmt.Sprint(err), "not the active device") {
		t.Errorf("%v, want it %s", err, providers.Conflict)
	}
	if n := writesOf(pair.A); n > 1 { // it logs in anew
		t.Errorf("%d writes to the standby:\n%s", n, lines(pair.A.Calls()))
	}
}

// TestKeeperRespectsTheDeadline: what was put off under a deadline that has passed waits for the next call.
func TestKeeperRespectsTheDeadline(t *testing.T) {
	b := newBench(t)
	clock := fakeClock()
	b.cfg.SyncDelay = 0
	p := b.open(WithClock(clock))
	now := web(key(0), "192.0.2.10", member(0))
	b.bring(p, providers.State{}, now)
	p.groups[0].devices[0].keeper.here(time.Now().Add(-time.Second))
	clock.Step(time.Hour)
	saves := func() int { return b.Count(http.MethodPost, "/mgmt/tm/sys/config") }
	d := p.groups[0].devices[0]
	if d.keeper.work(t.Context()); saves() != 0 {
		t.Error("saved after the deadline")
	}
	b.observe(p, now)
	b.eventually("saved with the next call", func() bool { return saves() == 1 })
}

func TestBIGIP50Partitions(t *testing.T) {
	b := newBench(t)
	b.cfg.Partition = "nowhere"
	p := b.open()
	_, err := p.Observe(t.Context(), providers.Scope{})
	if providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), `bigip.partition "nowhere"`) || !strings.Contains(fmt.Sprint(err), "bigip.createPartition") {
		t.Errorf("%v", err)
	}
	now := web(key(0), "192.0.2.10", member(0))
	if err := p.Apply(t.Context(), providertest.Diff(providers.State{}, now))[key(0)]; providers.KindOf(err) != providers.Misconfigured {
		t.Errorf("%v", err)
	}
	b.noWrites()
	b.cfg.CreatePartition = true
	q := b.open()
	b.observe(q, providers.State{})
	b.noWrites()
	b.bring(q, providers.State{}, now)
	b.observe(q, now)
	b.observe(p, now) // the first one finds it without a restart

	b.cfg.Partition = "Common"
	if _, err := New(b.cfg, b.owner, zap.NewNop()); providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "bigip.allowCommon") {
		t.Errorf("Common: %v", err)
	}
	b.cfg.AllowCommon = true
	common := b.open()
	b.observe(common, providers.State{})
	k := key(1)
	b.bring(common, providers.State{}, web(k, "192.0.2.11", member(100)))
	b.observe(common, web(k, "192.0.2.11", member(100)))
	b.bring(common, web(k, "192.0.2.11", member(100)), providers.State{})

	b.cfg.Partition = "tenant"
	as3 := b.open()
	if _, err := as3.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "belongs to AS3") {
		t.Errorf("AS3: %v", err)
	}
	// Nor does a pool there get members.
	b.admin("POST", "ltm/pool", map[string]any{"name": "theirs", "partition": "tenant"})
	b.cfg.Partition = "k8s"
	attached := providers.State{Pools: []providers.Pool{{Key: key(2), Attached: "/tenant/theirs", Members: members(200, 201)}}}
	err = b.open().Apply(t.Context(), providertest.Diff(providers.State{}, attached))[key(2)]
	if providers.KindOf(err) != providers.Rejected || !strings.Contains(fmt.Sprint(err), "AS3") || len(membersAt(t, b.Sim, "ltm/pool/~tenant~theirs")) > 0 {
		t.Errorf("AS3: %v", err)
	}
	// A group without a traffic group has no active device.
	pb, _ := newPair(t, func(c *bigipsim.Config) { c.Partitions[0].TrafficGroup = "none" })
	if _, err := pb.open().Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "no traffic group") {
		t.Errorf("no traffic group: %v", err)
	}
}

func TestBIGIP53VirtualServers(t *testing.T) {
	b := newBench(t)
	p := b.open()
	name := func(k providers.Key, is4 bool) string {
		return "ltm/virtual/~k8s~" + b.names().virtual(k, is4, netip.Prefix{})
	}
	both := func(k providers.Key, v4, v6 string) providers.State {
		s := web(k, v4, member(0))
		s.VirtualServers[0].VIPs = append(s.VirtualServers[0].VIPs, netip.MustParseAddr(v6))
		return s
	}
	k := providers.Key{Namespace: "shop", Service: "two", Port: 80, Protocol: providers.TCP}
	tls := k
	tls.Port = 443
	now := join(both(k, "192.0.2.10", "2001:db8::10"), both(tls, "192.0.2.10", "2001:db8::10"))
	b.bring(p, providers.State{}, now)
	for _, at := range []struct {
		path, destination, mask string
	}{
		{name(k, true), "/k8s/192.0.2.10:80", "255.255.255.255"}, {name(tls, true), "/k8s/192.0.2.10:443", "255.255.255.255"},
		{name(k, false), "/k8s/2001:db8::10.80", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	} {
		v := b.admin("GET", at.path, nil)
		if v["destination"] != at.destination || v["mask"] != at.mask || v["sourceAddressTranslation"].(map[string]any)["type"] != "automap" {
			t.Errorf("%s: %v", at.path, v)
		}
	}
	// Both addresses of a port move in one transaction.
	next := join(both(k, "192.0.2.20", "2001:db8::20"), both(tls, "192.0.2.10", "2001:db8::10"))
	b.ResetCounters()
	b.bring(p, now, next)
	queued := 0
	for _, c := range b.writes() {
		if strings.HasPrefix(c.Path, "/mgmt/tm/ltm/") {
			queued++
			if c.Transaction == "" || c.Method != http.MethodPatch {
				t.Errorf("outside of the transaction: %s", lines([]bigipsim.Call{c}))
			}
		}
	}
	if queued != 2 || b.Count(http.MethodPost, "/mgmt/tm/transaction") != 1 {
		t.Errorf("%d changes in %d transactions", queued, b.Count(http.MethodPost, "/mgmt/tm/transaction"))
	}
	b.observe(p, next)
	// A move that is refused for one address moves none.
	taken := web(key(9), "192.0.2.30", member(9))
	b.bring(p, next, join(next, taken))
	bad := join(both(k, "192.0.2.30", "2001:db8::30"), both(tls, "192.0.2.10", "2001:db8::10"), taken)
	if err := p.Apply(t.Context(), providertest.Diff(join(next, taken), bad))[k]; client.Code(err) != client.CodeVirtualClash || providers.KindOf(err) != providers.Rejected {
		t.Errorf("%v", err)
	}
	b.observe(p, join(next, taken))
	// Two Services, one address and port.
	second := web(key(8), "192.0.2.30", member(8))
	if err := p.Apply(t.Context(), providertest.Diff(providers.State{}, second))[key(8)]; client.Code(err) != client.CodeVirtualClash || !strings.Contains(err.Error(), "illegally shares") {
		t.Errorf("%v", err)
	}
	b.observe(p, join(next, taken))
	for protocol, profile := range map[providers.Protocol]string{providers.UDP: "udp", providers.SCTP: "sctp"} {
		k := providers.Key{Namespace: "shop", Service: "dns", Port: 53, Protocol: protocol}
		b.bring(p, providers.State{}, web(k, "192.0.2.40", member(10)))
		v := b.admin("GET", name(k, true)+"?expandSubcollections=true", nil)
		items := v["profilesReference"].(map[string]any)["items"].([]any)
		if v["ipProtocol"] != profile || len(items) != 1 || items[0].(map[string]any)["name"] != profile {
			t.Errorf("%s: %v %v", protocol, v["ipProtocol"], items)
		}
	}
}

func TestBIGIP54DeletedInOrder(t *testing.T) {
	for name, clean := range map[string]bool{"with nodes": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.cfg.CleanNodes = clean
			p := b.open()
			now := web(key(0), "192.0.2.10", member(0))
			now.Pools[0].Settings = providers.PoolSettings{
				Monitor: providers.Monitor{Type: providers.MonitorHTTP}, Persistence: providers.Persistence{Kind: providers.SourceAddress},
			}
			b.bring(p, providers.State{}, now)
			b.observe(p, now)
			b.ResetCounters()
			b.bring(p, now, providers.State{})
			var got []string
			for _, c := range b.writes() {
				parts := strings.Split(strings.TrimPrefix(c.Path, "/mgmt/tm/ltm/"), "/~")
				got = append(got, c.Method+" "+parts[0])
				if c.Transaction != "" {
					t.Errorf("in a transaction: %s", lines([]bigipsim.Call{c}))
				}
			}
			want := "DELETE virtual, DELETE pool, DELETE persistence/source-addr, DELETE monitor/http"
			if clean {
				want += ", DELETE node"
			}
			if s := strings.Join(got, ", "); s != want {
				t.Errorf("%s\nwant %s", s, want)
			}
			b.observe(p, providers.State{})
			if b.has("ltm/node/~k8s~10.1.0.0") == clean {
				t.Error("the node")
			}
			// A monitor that somebody else uses stays, and stops nothing.
			b.bring(p, providers.State{}, now)
			monitor := "/k8s/" + b.names().of(key(0), "monitor http", "-http")
			b.admin("POST", "ltm/pool", map[string]any{"name": "theirs", "partition": "k8s", "monitor": monitor})
			b.bring(p, now, providers.State{})
			b.observe(p, providers.State{})
			b.admin("DELETE", "ltm/pool/~k8s~theirs", nil)
			b.observe(p, providers.State{})
			other := web(key(1), "192.0.2.11", member(1))
			b.bring(p, providers.State{}, other) // what was left behind goes with the next change
			if b.has("ltm/monitor/http/" + strings.ReplaceAll(monitor, "/", "~")) {
				t.Error("the monitor stays for ever")
			}
		})
	}
}
