package config

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
)

var settings = Settings{
	StateFile: "/etc/haproxy/npl.d/50-npl.state", CheckInterval: 5 * time.Second,
	ConnectTimeout: 5 * time.Second, IdleTimeout: time.Hour,
}

func example() File {
	return File{
		Owner:      providers.Owner{ClusterUID: "c-1", Instance: "ns/name"},
		Generation: Generation{Number: 7, Hash: "0123456789ab"},
		Services: []Service{{
			Key:  providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP},
			Pool: providers.PoolSettings{Algorithm: providers.LeastConnections},
			VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, Port: 8080,
			Servers: []Server{
				{Name: "192.0.2.11:61000_uid-1", ID: 5, Weight: 1, Address: netip.MustParseAddrPort("192.0.2.11:61000")},
				{Name: "2001:db8::11:61001_uid-2", ID: 6, Weight: 7, Address: netip.MustParseAddrPort("[2001:db8::11]:61001"), Drained: true},
			},
		}},
	}
}

func TestRender(t *testing.T) {
	const want = `
# service {"namespace":"shop","service":"web","port":80,"protocol":"TCP","pool":{"algorithm":"LeastConnections"},"vips":["192.0.2.1","2001:db8::1"],"listen":8080}
frontend npl_f_shop_web_80 from npl-tcp
    bind 192.0.2.1:8080
    bind [2001:db8::1]:8080
    default_backend npl_b_shop_web_80
backend npl_b_shop_web_80 from npl-tcp
    balance leastconn
    server 192.0.2.11:61000_uid-1 192.0.2.11:61000 id 5 weight 1 check inter 5000ms fastinter 1000ms downinter 1000ms rise 2 fall 2 observe layer4 error-limit 2 on-error mark-down pool-max-conn -1 pool-purge-delay 1s
    server 2001:db8::11:61001_uid-2 [2001:db8::11]:61001 id 6 weight 7 check inter 5000ms fastinter 1000ms downinter 1000ms rise 2 fall 2 observe layer4 error-limit 2 on-error mark-down pool-max-conn -1 pool-purge-delay 1s disabled
`
	text := string(Render(example(), settings))
	if !strings.HasSuffix(text, want) {
		t.Errorf("rendered\n%s", text)
	}
	for _, line := range []string{
		`# nplbridge {"layout":1,"clusterUID":"c-1","instance":"ns/name","generation":"7-0123456789ab"}`,
		"    setenv NPL_GENERATION 7-0123456789ab", "    option redispatch 1", "    timeout client 3600000ms",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// genFile draws any file that the provider could write.
var genFile = rapid.Custom(func(r *rapid.T) File {
	f := File{
		Owner:      providers.Owner{ClusterUID: rapid.String().Draw(r, "cluster"), Instance: rapid.String().Draw(r, "instance")},
		Generation: Generation{Number: rapid.Uint64().Draw(r, "number"), Hash: rapid.StringMatching(`[0-9a-f]{12}`).Draw(r, "hash")},
	}
	name := rapid.StringMatching(`[a-z]([-a-z0-9]{0,60}[a-z0-9])?`)
	for range rapid.IntRange(0, 4).Draw(r, "services") {
		s := Service{
			Key:  providers.Key{Namespace: name.Draw(r, "ns"), Service: name.Draw(r, "svc"), Port: rapid.Uint16Min(1).Draw(r, "port"), Protocol: providers.TCP},
			Pool: genPool.Draw(r, "pool"),
		}
		if rapid.Bool().Draw(r, "frontend") {
			s.VIPs, s.Port = []netip.Addr{genAddr.Draw(r, "vip")}, rapid.Uint16Min(1).Draw(r, "listen")
			s.Virtual.IdleTimeout = genSeconds.Draw(r, "idle")
			s.Virtual.AcceptProxyProtocol = rapid.Bool().Draw(r, "accept-proxy")
			if rapid.Bool().Draw(r, "ranges") {
				s.Virtual.SourceRanges = []netip.Prefix{netip.PrefixFrom(genAddr.Draw(r, "range"), 24).Masked()}
			}
		}
		for _, id := range rapid.SliceOfNDistinct(genID, 0, 4, rapid.ID).Draw(r, "members") {
			server, err := ServerName(id)
			if err != nil {
				r.Fatal(err)
			}
			s.Servers = append(s.Servers, Server{
				Name: server, ID: rapid.IntRange(1, 1<<31-1).Draw(r, "id"), Address: id.Address, Weight: rapid.IntRange(1, 256).Draw(r, "weight"), Drained: rapid.Bool().Draw(r, "drained"),
			})
		}
		slices.SortFunc(s.Servers, CompareServers)
		f.Set(s)
	}
	return f
})

var genSeconds = rapid.Map(rapid.IntRange(0, 3600), func(n int) time.Duration { return time.Duration(n) * time.Second })

var genPool = rapid.Custom(func(r *rapid.T) providers.PoolSettings {
	p := providers.PoolSettings{
		Algorithm:     rapid.SampledFrom([]providers.Algorithm{providers.RoundRobin, providers.LeastConnections, providers.SourceHash}).Draw(r, "algorithm"),
		ProxyProtocol: rapid.SampledFrom([]providers.ProxyProtocol{"", providers.ProxyV1, providers.ProxyV2}).Draw(r, "proxy"),
		SlowStart:     genSeconds.Draw(r, "slow"), MemberConnections: rapid.Uint32Max(9).Draw(r, "connections"),
	}
	if rapid.Bool().Draw(r, "persistent") {
		p.Persistence = providers.Persistence{Kind: providers.SourceAddress, Timeout: genSeconds.Draw(r, "timeout")}
	}
	p.Monitor.Type = rapid.SampledFrom([]providers.MonitorType{"", providers.MonitorNone, providers.MonitorTCP, providers.MonitorHTTP, providers.MonitorHTTPS}).Draw(r, "monitor")
	if p.Monitor.Type == providers.MonitorHTTP {
		p.Monitor.Path, p.Monitor.Host = rapid.SampledFrom([]string{"", "/healthz?x=1&y"}).Draw(r, "path"), rapid.SampledFrom([]string{"", "shop.example"}).Draw(r, "host")
		p.Monitor.Interval, p.Monitor.Rise = genSeconds.Draw(r, "interval"), rapid.Uint8Max(9).Draw(r, "rise")
	}
	return p
})

var genAddr = rapid.Custom(func(r *rapid.T) netip.Addr {
	b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "bytes")
	b[0] |= 1 // neither unspecified nor IPv4 in IPv6
	if rapid.Bool().Draw(r, "four") {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b))
})

var genID = rapid.Custom(func(r *rapid.T) providers.MemberID {
	return providers.MemberID{
		UID:     rapid.OneOf(rapid.StringMatching(`[0-9a-f-]{36}`), rapid.StringN(0, 20, maxUID)).Draw(r, "uid"),
		Address: netip.AddrPortFrom(genAddr.Draw(r, "addr"), rapid.Uint16Min(1).Draw(r, "port")),
	}
})

func TestParseReadsWhatRenderWrote(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := genFile.Draw(r, "file")
		got, err := Parse(Render(f, settings))
		if err != nil {
			r.Fatal(err)
		}
		if !reflect.DeepEqual(got, f) {
			r.Fatalf("read\n%+v\nwrote\n%+v", got, f)
		}
	})
}

func TestHashIsOfTheStructureAlone(t *testing.T) {
	f := example()
	hash := Hash(f, settings)
	f.Services[0].Servers = nil
	f.Generation.Number++
	if Hash(f, settings) != hash {
		t.Error("servers and generation must not count")
	}
	for name, edit := range map[string]func(*File, *Settings){
		"port":      func(f *File, _ *Settings) { f.Services[0].Port++ },
		"algorithm": func(f *File, _ *Settings) { f.Services[0].Pool.Algorithm = providers.RoundRobin },
		"address":   func(f *File, _ *Settings) { f.Services[0].VIPs = f.Services[0].VIPs[:1] },
		"timeout":   func(_ *File, s *Settings) { s.IdleTimeout++; s.IdleTimeout += time.Millisecond },
		"owner":     func(f *File, _ *Settings) { f.Owner.Instance = "x" },
		"gone":      func(f *File, _ *Settings) { f.Services = nil },
	} {
		f, s := example(), settings
		edit(&f, &s)
		if Hash(f, s) == hash {
			t.Errorf("another %s must be another structure", name)
		}
	}
}

func TestHasStructure(t *testing.T) {
	f := example()
	text := Render(f, settings)
	f.Services[0].Servers[0].Drained = true
	if !HasStructure(text, f, settings) {
		t.Error("servers must not count")
	}
	if HasStructure([]byte(strings.Replace(string(text), "bind 192.0.2.1", "bind 192.0.2.2", 1)), f, settings) {
		t.Error("an edited bind must count")
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(Render(example(), settings))
	for name, c := range map[string]struct{ old, new, want string }{
		"layout":       {`"layout":1`, `"layout":2`, "layout 2"},
		"head":         {`# nplbridge {`, `# nplbridge `, "head"},
		"generation":   {`"generation":"7-`, `"generation":"x-`, "not a generation"},
		"service":      {`# service {`, `# service `, "line 2"},
		"udp":          {`"protocol":"TCP"`, `"protocol":"UDP"`, "only TCP"},
		"server id":    {` id 5 `, ` id 0 `, "bad id"},
		"server":       {` id 5 `, ` weight 5 `, "address, id or weight"},
		"server place": {`_uid-1 192.0.2.11:61000`, `_uid-1 web:61000`, "uid-1"},
	} {
		if _, err := Parse([]byte(strings.Replace(good, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", name, err, c.want)
		}
	}
	for _, foreign := range []string{"", "frontend x\n", "# nplbridge\n"} {
		if _, err := Parse([]byte(foreign)); !errors.Is(err, ErrForeign) {
			t.Errorf("%q: %v, want ErrForeign", foreign, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Render(example(), settings))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(Render(file, settings))
		if err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
		if Hash(again, settings) != Hash(file, settings) {
			t.Error("writing and reading again changes the structure")
		}
	})
}

func TestNames(t *testing.T) {
	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	if got := BackendName(key); got != "npl_b_shop_web_80" {
		t.Error(got)
	}
	long, longer := key, key
	long.Namespace, longer.Namespace = strings.Repeat("a", 63), strings.Repeat("a", 63)
	long.Service, longer.Service = strings.Repeat("b", 63), strings.Repeat("b", 62)+"c"
	a, b := BackendName(long), BackendName(longer)
	if len(a) != maxName || len(b) != maxName || a == b {
		t.Errorf("names %q and %q: want two of %d characters", a, b, maxName)
	}
	if name, err := ServerName(providers.MemberID{UID: strings.Repeat("x", maxUID+1), Address: netip.MustParseAddrPort("192.0.2.1:1")}); err == nil {
		t.Errorf("an endless UID became %q", name)
	}
}

func TestServerNameRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		id := genID.Draw(r, "id")
		name, err := ServerName(id)
		if err != nil {
			r.Fatal(err)
		}
		if i := strings.IndexFunc(name, func(c rune) bool { return !IsToken(string(c)) && c != ':' && c != '_' }); i >= 0 {
			r.Fatalf("%q is no name for haproxy", name)
		}
		if got, ok := ParseServerName(name); !ok || got != id {
			r.Fatalf("%q became %+v, %v; want %+v", name, got, ok, id)
		}
	})
}

func FuzzParseServerName(f *testing.F) {
	for _, name := range []string{"192.0.2.1:80_uid", "::1:80_", "1.2.3.4:080_x", "web1", "192.0.2.1:80_a_2", "192.0.2.1:80_a_5F"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, ok := ParseServerName(name)
		if !ok {
			return
		}
		if again, err := ServerName(id); err != nil || again != name {
			t.Errorf("%q means %+v, whose name is %q, %v", name, id, again, err)
		}
	})
}

func TestServerIDs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		taken := map[int]bool{}
		for _, id := range rapid.SliceOfN(genID, 1, 50).Draw(r, "members") {
			first := NewServerID(id.Address, func(int) bool { return false })
			n := NewServerID(id.Address, func(id int) bool { return taken[id] })
			if n < 1 || n > 1<<31-1 || taken[n] || !taken[first] && n != first {
				r.Fatalf("%s got id %d (first choice %d), taken %v", id.Address, n, first, taken)
			}
			taken[n] = true
		}
	})
}

func TestKeyAtLine(t *testing.T) {
	f := example()
	other := f.Services[0]
	other.Key.Service = "xxl"
	f.Set(other)
	text := Render(f, settings)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		key, ok := KeyAtLine(text, i+1)
		switch {
		case strings.Contains(line, "_web_") && (!ok || key.Service != "web"), strings.Contains(line, "_xxl_") && (!ok || key.Service != "xxl"), line == "global" && ok:
			t.Errorf("line %d %q belongs to %v, %v", i+1, line, key, ok)
		}
	}
}
