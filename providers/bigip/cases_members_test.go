package bigip

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// The numbered cases of e2e/cases/bigip.yaml that a provider can show: members, nodes and ownership.

func TestBIGIP22OrderIsNoDifference(t *testing.T) {
	b := newBench(t, func(c *bigipsim.Config) { c.Rules.Shuffle = true })
	p := b.open()
	want := web(key(0), "192.0.2.10", append(members(0, 5), drained(member(107)))...)
	b.bring(p, providers.State{}, want)
	b.ResetCounters()
	for range 20 {
		got := b.observe(p, want)
		shuffled := web(key(0), "192.0.2.10", slices.Clone(want.Pools[0].Members)...)
		m := shuffled.Pools[0].Members
		rand.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
		// Told to make what is there already, in another order, it has nothing to do.
		if err := p.Apply(t.Context(), providers.Changes{
			Pools:          []providers.PoolChange{{Key: key(0), Old: &got.State.Pools[0], New: &shuffled.Pools[0]}},
			VirtualServers: []providers.VirtualServerChange{{Key: key(0), Old: &got.State.VirtualServers[0], New: &shuffled.VirtualServers[0]}},
		})[key(0)]; err != nil {
			t.Fatal(err)
		}
	}
	b.noWrites()
}

func TestBIGIP23MonitorEnabledIsEnabled(t *testing.T) {
	b := newBench(t)
	p := b.open()
	want := web(key(0), "192.0.2.10", members(0, 2)...)
	b.bring(p, providers.State{}, want)
	for name := range b.members(key(0)) {
		if err := b.SetHealth("/k8s/"+b.names().pool(key(0)), "/k8s/"+name, bigipsim.Unwell, "no answer"); err != nil {
			t.Fatal(err)
		}
	}
	for name, m := range b.members(key(0)) {
		if m["session"] != "monitor-enabled" || m["state"] != "down" {
			t.Fatalf("%s is %s and %s, so this test shows nothing", name, m["session"], m["state"])
		}
	}
	b.ResetCounters()
	got := b.observe(p, want)
	for id, status := range got.Members[key(0)] {
		if status.Health != providers.HealthDown || status.Blocked {
			t.Errorf("%v: %+v", id, status)
		}
	}
	b.bring(b.open(), providers.State{}, want)
	b.noWrites()
}

func TestBIGIP24SessionAlwaysStateNever(t *testing.T) {
	b := newBench(t)
	p := b.open()
	steps := []providers.State{
		{}, web(key(0), "192.0.2.10", members(0, 3)...), web(key(0), "192.0.2.10", append(members(0, 2), drained(member(2)), member(3))...),
		web(key(0), "192.0.2.10", append(members(4, 9), drained(member(3)))...), web(key(0), "192.0.2.10", append(members(4, 9), member(3))...),
		web(key(0), "192.0.2.10", append(members(5, 9), member(3), drained(member(4)))...), web(key(0), "192.0.2.10"),
	}
	for n := range steps[1:] {
		b.bring(p, steps[n], steps[n+1])
		b.observe(p, steps[n+1])
	}
	lists := 0
	for _, c := range b.writes() {
		if strings.Contains(c.Body, `"state":"user`) {
			t.Errorf("a state was written: %s", c.Body)
		}
		if !strings.Contains(c.Path, "/ltm/pool") || !strings.Contains(c.Body, `"members":[{`) {
			continue
		}
		lists++
		if entries, sessions := strings.Count(c.Body, `"nplbridge-member"`), strings.Count(c.Body, `"session":"user-`); entries != sessions || entries == 0 {
			t.Errorf("%d members and %d sessions: %s", entries, sessions, c.Body)
		}
	}
	if lists < 3 {
		t.Errorf("only %d calls carried all members:\n%s", lists, lines(b.writes()))
	}
}

func TestBIGIP25CallsPerChange(t *testing.T) {
	b := newBench(t)
	p := b.open()
	all := members(0, 500)
	now := web(key(0), "192.0.2.10", all...)
	b.bring(p, providers.State{}, now)
	pool := b.poolPath(key(0))
	for _, step := range []struct {
		what      string
		to        []providers.Member
		want      []string // methods
		maxLength int
	}{
		{"50 of 500 replaced", append(slices.Clone(all[50:]), members(500, 550)...), []string{"PATCH"}, 1 << 20},
		{"1 of 500 replaced", append(slices.Clone(all[51:]), members(500, 551)...), []string{"POST", "DELETE"}, 600},
		{"1 of 500 drains", append(slices.Clone(all[52:]), append(members(500, 551), drained(all[51]))...), []string{"PATCH"}, 600},
		{"1 of 500 leaves", append(slices.Clone(all[52:]), members(500, 551)...), []string{"DELETE"}, 600},
	} {
		b.ResetCounters()
		next := web(key(0), "192.0.2.10", step.to...)
		// A change of one pool, without the steps on members, which are slow to work out for so many.
		if err := p.Apply(t.Context(), providers.Changes{Pools: []providers.PoolChange{{Key: key(0), Old: &now.Pools[0], New: &next.Pools[0]}}})[key(0)]; err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		now = next
		var got []string
		for _, c := range b.writes() {
			if !strings.Contains(c.Path, pool) && strings.Contains(c.Path, "/ltm/node") {
				continue // a new Node, or one that is gone
			}
			got = append(got, c.Method)
			if len(c.Body) > step.maxLength {
				t.Errorf("%s: a body of %d bytes", step.what, len(c.Body))
			}
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
	b.observe(p, now)
}

func TestBIGIP26WhatTheOperatorSetStays(t *testing.T) {
	b := newBench(t)
	p := b.open()
	now := web(key(0), "192.0.2.10", members(0, 5)...)
	b.bring(p, providers.State{}, now)
	theirs := map[string]any{"monitor": "/Common/http", "loadBalancingMode": "least-sessions", "description": "looked after by Ann", "serviceDownAction": "reset"}
	b.admin("PATCH", b.poolPath(key(0)), theirs)
	b.observe(p, now)
	next := web(key(0), "192.0.2.10", append(members(3, 9), drained(member(2)))...)
	b.ResetCounters()
	b.bring(p, now, next)
	if w := b.writes(); len(w) != 1 || w[0].Method != http.MethodPatch || !strings.Contains(w[0].Body, `"members"`) {
		t.Errorf("not one PATCH of all members:\n%s", lines(w))
	}
	pool := b.admin("GET", b.poolPath(key(0)), nil)
	for name, want := range theirs {
		if pool[name] != want {
			t.Errorf("%s is %v, want %v", name, pool[name], want)
		}
	}
	b.observe(p, next)
}

func TestBIGIP27IPv6Members(t *testing.T) {
	b := newBench(t)
	p := b.open()
	six := member(0)
	six.Address = netip.MustParseAddrPort("[2001:DB8:0:0::1]:61000")
	k := key(0)
	want := web(k, "2001:db8::10", six, member(1))
	want.VirtualServers[0].Port = 443
	b.bring(p, providers.State{}, want)
	if m := b.members(k)["2001:db8::1.61000"]; m == nil || m["address"] != "2001:db8::1" {
		t.Errorf("members %v", b.members(k))
	}
	b.observe(p, want)
	b.ResetCounters()
	next := web(k, "2001:db8::10", drained(six), member(1))
	next.VirtualServers[0].Port = 443
	b.bring(p, want, next)
	if w := b.writes(); len(w) != 1 || !strings.HasSuffix(w[0].Path, "/members/~k8s~2001:db8::1.61000") {
		t.Errorf("writes:\n%s", lines(w))
	}
	b.observe(p, next)
	// An operator's spelling of the same address is the same member.
	b.admin("DELETE", b.poolPath(k)+"/members/~k8s~2001:db8::1.61000", nil)
	b.admin("POST", b.poolPath(k)+"/members", map[string]any{
		"name": "2001:0DB8:0::0001.61000", "partition": "k8s", "session": "user-disabled",
		"metadata": []any{
			map[string]any{"name": markMember, "value": b.names().memberMark(k) + six.UID}, map[string]any{"name": markDraining, "value": "true"},
		},
	})
	b.ResetCounters()
	b.observe(p, next)
	b.bring(p, providers.State{}, next)
	b.noWrites()
	v := b.admin("GET", "ltm/virtual/~k8s~"+b.names().virtual(k, false, netip.Prefix{}), nil)
	if v["destination"] != "/k8s/2001:db8::10.443" {
		t.Errorf("destination %v", v["destination"])
	}
}

func TestBIGIP28RouteDomains(t *testing.T) {
	for name, at := range map[string]struct {
		partition string
		domain    int
		shown     string // behind an address
		always    bool   // the device shows a partition's default, too
	}{
		"another than the partition's": {"k8s", 2, "%2", false},
		"the partition's":              {"two", PartitionDomain, "", false},
		"the partition's, shown":       {"two", PartitionDomain, "%2", true},
		"the partition's by number":    {"two", 2, "", false},
		"0 where the partition has 2":  {"two", 0, "%0", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *bigipsim.Config) { c.Rules.ShowDefaultRouteDomain = at.always })
			b.cfg.Partition, b.cfg.RouteDomain = at.partition, at.domain
			p := b.open()
			six := member(7)
			six.Address = netip.MustParseAddrPort("[2001:db8::1]:61007")
			want := web(key(0), "192.0.2.10", member(0), six)
			b.bring(p, providers.State{}, want)
			have := b.members(key(0))
			if have["10.1.0.0"+at.shown+":61000"] == nil || have["2001:db8::1"+at.shown+".61007"] == nil {
				t.Errorf("members %v", have)
			}
			v := b.admin("GET", "ltm/virtual/~"+at.partition+"~"+b.names().virtual(key(0), true, netip.Prefix{}), nil)
			if v["destination"] != "/"+at.partition+"/192.0.2.10"+at.shown+":80" {
				t.Errorf("destination %v", v["destination"])
			}
			b.observe(p, want)
			b.ResetCounters()
			next := web(key(0), "192.0.2.10", drained(member(0)), six)
			b.bring(p, want, next)
			escaped := strings.ReplaceAll(at.shown, "%", "%25")
			if w := b.writes(); len(w) != 1 || !strings.HasSuffix(w[0].Path, "~10.1.0.0"+escaped+":61000") || strings.Contains(w[0].Path, "%2525") {
				t.Errorf("writes:\n%s", lines(w))
			}
			b.observe(b.open(), next)
			b.ResetCounters()
			b.bring(p, providers.State{}, next)
			b.noWrites()
		})
	}
}

func TestBIGIP29NodesOfOthersInCommonAreUsed(t *testing.T) {
	b := newBench(t)
	b.admin("POST", "ltm/node", map[string]any{"name": "worker-1", "partition": "Common", "address": "10.1.0.0"})
	b.admin("POST", "ltm/node", map[string]any{"name": "worker-2", "partition": "Common", "address": "2001:db8::2"})
	p := b.open()
	six := member(2)
	six.Address = netip.MustParseAddrPort("[2001:db8::2]:61002")
	now := web(key(0), "192.0.2.10", member(0))
	b.bring(p, providers.State{}, now)
	want := web(key(0), "192.0.2.10", member(0), member(1), six)
	b.bring(p, now, want) // two by one PATCH
	var got []string
	for _, m := range b.members(key(0)) {
		got = append(got, m["fullPath"].(string))
	}
	slices.Sort(got)
	if want := []string{"/Common/worker-1:61000", "/Common/worker-1:61001", "/Common/worker-2:61002"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	for _, c := range b.Calls() {
		if c.Status >= 400 && c.Writes() {
			t.Errorf("refused: %s", lines([]bigipsim.Call{c}))
		}
	}
	b.observe(p, want)
	// A node that comes between reading and writing is found as well.
	b.admin("POST", "ltm/node", map[string]any{"name": "worker-3", "partition": "Common", "address": "10.1.0.1"})
	next := web(key(0), "192.0.2.10", member(0), member(1), six, member(100))
	b.bring(p, want, next)
	b.observe(p, next)
	b.bring(p, next, providers.State{})
	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		if !b.has("ltm/node/~Common~" + name) {
			t.Errorf("%s was deleted", name)
		}
	}
}

func TestBIGIP30NodesOfOtherPartitions(t *testing.T) {
	b := newBench(t)
	b.admin("POST", "ltm/node", map[string]any{"name": "10.1.0.0", "partition": "other", "address": "10.1.0.0"})
	p := b.open()
	bad, good := web(key(0), "192.0.2.10", member(0)), web(key(1), "192.0.2.11", member(100))
	results := p.Apply(t.Context(), providertest.Diff(providers.State{}, join(bad, good)))
	err := results[key(0)]
	if providers.KindOf(err) != providers.Rejected || err == nil {
		t.Fatalf("%v, want it %s", err, providers.Rejected)
	}
	for _, part := range []string{"10.1.0.0", "partition other", "Common"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if err, done := results[key(1)]; err != nil || !done {
		t.Errorf("the other pool: %v", err)
	}
	b.observe(p, good)
	// Nodes that lbsync makes in Common are everybody's.
	b.cfg.ShareNodes = true
	next := web(key(2), "192.0.2.12", member(200))
	q := b.open()
	b.bring(q, good, join(good, next))
	if !b.has("ltm/node/~Common~10.1.0.2") {
		t.Error("no node in Common")
	}
	b.observe(q, join(good, next))
}

func TestBIGIP31NodesAreCleanedUp(t *testing.T) {
	b := newBench(t)
	p := b.open()
	want := join(web(key(0), "192.0.2.10", member(0), member(100)), web(key(1), "192.0.2.11", member(1)))
	b.admin("POST", "ltm/node", map[string]any{"name": "10.1.0.1", "partition": "k8s", "address": "10.1.0.1", "description": "Ann's"})
	b.bring(p, providers.State{}, want)
	b.bring(p, want, web(key(1), "192.0.2.11", member(1))) // the first pool goes, the second stays on the same Node
	if !b.has("ltm/node/~k8s~10.1.0.0") || !b.has("ltm/node/~k8s~10.1.0.1") {
		t.Error("a node in use, or of somebody else, was deleted")
	}
	// Somebody else's pool uses our node, which we cannot know.
	b.admin("POST", "ltm/pool", map[string]any{"name": "theirs", "partition": "k8s", "members": []any{map[string]any{"name": "10.1.0.0:9", "partition": "k8s"}}})
	b.bring(p, web(key(1), "192.0.2.11", member(1)), providers.State{})
	if !b.has("ltm/node/~k8s~10.1.0.0") {
		t.Error("the node in use was deleted")
	}
	if n := p.groups[0].devices[0].nodesKept.Load(); n != 1 {
		t.Errorf("%d nodes could not be deleted, want 1", n)
	}
	b.admin("DELETE", "ltm/pool/~k8s~theirs", nil)
	b.bring(p, providers.State{}, web(key(1), "192.0.2.11", member(1)))
	b.bring(p, web(key(1), "192.0.2.11", member(1)), providers.State{})
	if b.has("ltm/node/~k8s~10.1.0.0") {
		t.Error("our node stays although nothing uses it")
	}
	if !b.has("ltm/node/~k8s~10.1.0.1") {
		t.Error("the node of somebody else was deleted")
	}
	b.cfg.CleanNodes = false
	q := b.open()
	b.bring(q, providers.State{}, web(key(1), "192.0.2.11", member(1)))
	b.bring(q, web(key(1), "192.0.2.11", member(1)), providers.State{})
	if !b.has("ltm/node/~k8s~10.1.0.0") {
		t.Error("the node was deleted although cleanNodes is off")
	}
}

func TestBIGIP32ForeignPoolsStay(t *testing.T) {
	b := newBench(t)
	p := b.open()
	verify := b.plantForeign(t)
	want := web(providers.Key{Namespace: "shop", Service: "web-0", Port: 8080, Protocol: providers.TCP}, "192.0.2.10", member(100))
	b.bring(p, providers.State{}, want)
	got := b.observe(p, want)
	if !slices.Contains(got.Foreign, "pool /k8s/nplbridge--shop-web-0-TCP-8080") {
		t.Errorf("foreign objects are %q", got.Foreign)
	}
	verify(t)
	// Our very name without our mark is somebody else's, too.
	taken := b.names().pool(key(5))
	b.admin("POST", "ltm/pool", map[string]any{"name": taken, "partition": "k8s", "description": "not yours"})
	err := p.Apply(t.Context(), providertest.Diff(providers.State{}, web(key(5), "192.0.2.15", member(100))))[key(5)]
	if providers.KindOf(err) != providers.Conflict || !strings.Contains(fmt.Sprint(err), "belongs to somebody else") {
		t.Errorf("%v, want it %s", err, providers.Conflict)
	}
	if o := b.admin("GET", "ltm/pool/~k8s~"+taken, nil); o["description"] != "not yours" || o["metadata"] != nil {
		t.Errorf("it was touched: %v", o)
	}
	b.bring(p, want, providers.State{})
	verify(t)
	if !b.has("ltm/pool/~k8s~" + taken) {
		t.Error("it was deleted")
	}
	// Members of others in a pool of ours go, or stay if the settings say so.
	for policy, stays := range map[Foreign]bool{RemoveForeign: false, KeepForeign: true} {
		b.cfg.ForeignMembers = policy
		q := b.open()
		now := web(key(0), "192.0.2.20", member(100), member(101))
		b.bring(q, providers.State{}, now)
		b.admin("POST", b.poolPath(key(0))+"/members", map[string]any{"name": "10.8.8.8:80", "partition": "k8s", "ratio": 9})
		next := web(key(0), "192.0.2.20", members(101, 106)...)
		got, err := q.Observe(t.Context(), providers.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		b.bring(q, got.State, next)
		m := b.members(key(0))["10.8.8.8:80"]
		if (m != nil) != stays || (stays && m["ratio"] != float64(9)) {
			t.Errorf("%s: %v", policy, m)
		}
		b.observe(q, next)
		b.bring(q, next, providers.State{})
	}
}

func TestBIGIP33RemovedByHandComesBack(t *testing.T) {
	b := newBench(t)
	p := b.open()
	want := web(key(0), "192.0.2.10", members(0, 3)...)
	want.Pools[0].Settings = providers.PoolSettings{
		Algorithm: providers.LeastConnections, Monitor: providers.Monitor{Type: providers.MonitorHTTP, Path: "/ok"}, SlowStart: 30_000_000_000,
		Persistence: providers.Persistence{Kind: providers.SourceAddress}, MemberConnections: 9,
	}
	want.VirtualServers[0].Settings = providers.VirtualServerSettings{
		SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24")},
		Options:      map[string]string{optionVLANs: "/Common/external", optionSNAT: "none", optionRules: "/Common/_sys_https_redirect"},
	}
	b.bring(p, providers.State{}, want)
	b.observe(p, want)
	n := b.names()
	pool, first := b.poolPath(key(0)), "ltm/virtual/~k8s~"+n.virtual(key(0), true, netip.MustParsePrefix("198.51.100.0/24"))
	second := "ltm/virtual/~k8s~" + n.virtual(key(0), true, netip.MustParsePrefix("203.0.113.0/24"))
	monitor := "ltm/monitor/http/~k8s~" + n.of(key(0), "monitor http", "-http")
	profile := "ltm/persistence/source-addr/~k8s~" + n.of(key(0), "source-address", "-source-address")
	for name, edit := range map[string]func(){
		"pool and virtual servers": func() {
			b.admin("DELETE", first, nil)
			b.admin("DELETE", second, nil)
			b.admin("DELETE", pool, nil)
		},
		"a virtual server": func() { b.admin("DELETE", second, nil) },
		"monitor": func() {
			b.admin("PATCH", pool, map[string]any{"monitor": "/Common/tcp"})
			b.admin("DELETE", monitor, nil)
		},
		"monitor's interval": func() { b.admin("PATCH", monitor, map[string]any{"interval": 77, "timeout": 300}) },
		"monitor's text":     func() { b.admin("PATCH", monitor, map[string]any{"send": "GET /other"}) },
		"profile":            func() { b.admin("PATCH", profile, map[string]any{"timeout": "7"}) },
		"algorithm":          func() { b.admin("PATCH", pool, map[string]any{"loadBalancingMode": "round-robin"}) },
		"slow start":         func() { b.admin("PATCH", pool, map[string]any{"slowRampTime": 1}) },
		"mark": func() {
			b.admin("PATCH", pool, map[string]any{"metadata": edited(b, pool, markSettings, "algorithm=x")})
		},
		"members":               func() { b.admin("PATCH", pool, map[string]any{"members": []any{}}) },
		"a member":              func() { b.admin("DELETE", pool+"/members/~k8s~10.1.0.0:61001", nil) },
		"a member's limit":      func() { b.admin("PATCH", pool+"/members/~k8s~10.1.0.0:61001", map[string]any{"connectionLimit": 1}) },
		"a member's mark":       func() { b.admin("PATCH", pool+"/members/~k8s~10.1.0.0:61001", map[string]any{"metadata": []any{}}) },
		"destination":           func() { b.admin("PATCH", first, map[string]any{"destination": "/k8s/192.0.2.99:80"}) },
		"port":                  func() { b.admin("PATCH", first, map[string]any{"destination": "/k8s/192.0.2.10:81"}) },
		"virtual server's pool": func() { b.admin("PATCH", first, map[string]any{"pool": ""}) },
		"SNAT": func() {
			b.admin("PATCH", first, map[string]any{"sourceAddressTranslation": map[string]any{"type": "automap"}})
		},
		"source":      func() { b.admin("PATCH", first, map[string]any{"source": "10.0.0.0/8"}) },
		"persistence": func() { b.admin("PATCH", first, map[string]any{"persist": []any{}}) },
		"VLANs":       func() { b.admin("PATCH", first, map[string]any{"vlans": []any{"/Common/internal"}}) },
		"iRules":      func() { b.admin("PATCH", first, map[string]any{"rules": []any{}}) },
		"profiles": func() {
			b.admin("PATCH", first, map[string]any{"profiles": []any{map[string]any{"name": "fastL4", "partition": "Common"}}})
		},
		"virtual server's mark": func() {
			b.admin("PATCH", first, map[string]any{"metadata": edited(b, first, markVirtual, "port=81&vip=192.0.2.10")})
		},
		"another's member there": func() { b.admin("POST", pool+"/members", map[string]any{"name": "10.7.7.7:1", "partition": "k8s"}) },
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			edit()
			b.settle(p, want)
			if m := b.admin("GET", pool, nil)["monitor"]; !strings.HasSuffix(strings.TrimSpace(fmt.Sprint(m)), "-http--"+n.hash("monitor http", key(0).String())) {
				t.Errorf("monitor %v", m)
			}
		})
	}
}

// edited is an object's metadata with another value for one name.
func edited(b *bench, path, name, value string) []any {
	all := b.admin("GET", path, nil)["metadata"].([]any)
	for _, item := range all {
		if m := item.(map[string]any); m["name"] == name {
			m["value"] = value
		}
	}
	return all
}

func TestBIGIP34DisabledByAnOperator(t *testing.T) {
	for name, c := range map[string]struct {
		by       map[string]any
		override bool
		blocked  bool // afterwards
	}{
		"disabled":                 {map[string]any{"session": "user-disabled"}, false, true},
		"forced offline":           {map[string]any{"session": "user-disabled", "state": "user-down"}, false, true},
		"disabled, overridden":     {map[string]any{"session": "user-disabled"}, true, false},
		"forced offline, the same": {map[string]any{"session": "user-disabled", "state": "user-down"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.cfg.OverrideDisabled = c.override
			p := b.open()
			now := web(key(0), "192.0.2.10", members(0, 3)...)
			b.bring(p, providers.State{}, now)
			b.admin("PATCH", b.poolPath(key(0))+"/members/~k8s~10.1.0.0:61000", c.by)
			if c.blocked {
				got := b.observe(p, now)
				for id, s := range got.Members[key(0)] {
					if s.Blocked != (id == member(0).ID()) {
						t.Errorf("%v: %+v", id, s)
					}
				}
				b.ResetCounters()
				b.bring(p, providers.State{}, now)
				b.noWrites()
			} else {
				b.settle(p, now)
			}
			// Changes of others leave it as it is, also when many are written at once.
			next := web(key(0), "192.0.2.10", append(members(0, 1), members(2, 9)...)...)
			b.bring(p, now, next)
			b.observe(p, next)
			m := b.members(key(0))["10.1.0.0:61000"]
			if (m["session"] == "user-disabled") != c.blocked || (m["state"] == "user-down") != (c.by["state"] != nil) {
				t.Errorf("session %v, state %v", m["session"], m["state"])
			}
			// Another Pod at that address is not what the operator disabled.
			other := member(0)
			other.UID = member(99).UID
			last := web(key(0), "192.0.2.10", append(members(2, 9), other)...)
			b.bring(p, next, last)
			if m := b.members(key(0))["10.1.0.0:61000"]; m["session"] == "user-disabled" {
				t.Errorf("the other Pod's session is %v", m["session"])
			}
		})
	}
}

func TestBIGIP35ExistsAlready(t *testing.T) {
	b := newBench(t)
	p, q := b.open(), b.open()
	if _, err := q.Observe(t.Context(), providers.Scope{}); err != nil { // before anything is there
		t.Fatal(err)
	}
	first := web(key(0), "192.0.2.10", members(0, 3)...)
	first.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorHTTP}
	b.bring(p, providers.State{}, first)
	second := web(key(0), "192.0.2.11", members(2, 6)...)
	second.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorHTTP}
	b.ResetCounters()
	b.bring(q, providers.State{}, second) // everything that it would make is there
	conflicts := 0
	for _, c := range b.Calls() {
		if c.Status == http.StatusConflict {
			conflicts++
		}
	}
	if conflicts != 1 || len(b.writes()) > 5 {
		t.Errorf("%d conflicts:\n%s", conflicts, lines(b.writes()))
	}
	b.observe(q, second)
	// A member that somebody else made meanwhile.
	b.admin("POST", b.poolPath(key(0))+"/members", map[string]any{"name": "10.1.0.0:61009", "partition": "k8s"})
	third := web(key(0), "192.0.2.11", append(members(2, 6), member(9))...)
	third.Pools[0].Settings = second.Pools[0].Settings
	b.bring(q, second, third)
	b.observe(q, third)
}

func TestBIGIP36NotThere(t *testing.T) {
	b := newBench(t)
	p := b.open()
	now := web(key(0), "192.0.2.10", members(0, 3)...)
	b.bring(p, providers.State{}, now)
	b.admin("DELETE", b.poolPath(key(0))+"/members/~k8s~10.1.0.0:61002", nil)
	next := web(key(0), "192.0.2.10", members(0, 2)...)
	b.bring(p, now, next) // the member is gone already
	b.observe(p, next)
	b.admin("DELETE", "ltm/virtual/~k8s~"+b.names().virtual(key(0), true, netip.Prefix{}), nil)
	b.admin("DELETE", b.poolPath(key(0)), nil)
	b.bring(p, next, providers.State{})
	b.observe(p, providers.State{})
	// The 404 of a device that starts says nothing about any object.
	b.bring(p, providers.State{}, now)
	b.ResetCounters()
	b.Inject(bigipsim.Fault{Kind: bigipsim.Unregistered, Method: http.MethodDelete, Times: 1})
	b.bring(p, now, providers.State{})
	if b.has(b.poolPath(key(0))) {
		t.Error("the pool is there")
	}
	if n := b.Count(http.MethodDelete, "/mgmt/tm/ltm/virtual"); n != 2 {
		t.Errorf("%d attempts to delete the virtual server, want 2", n)
	}
}
