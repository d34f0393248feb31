package bigip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
)

var anyAddr = rapid.Custom(func(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "v4") {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")))
	}
	return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))).Unmap()
})

// TestAddressesRoundTrip: an address and a destination read back as they were written, whatever the default route domain.
func TestAddressesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := address{anyAddr.Draw(t, "address"), rapid.IntRange(0, 65534).Draw(t, "rd")}
		def, port := rapid.SampledFrom([]int{0, 2, a.rd}).Draw(t, "default"), rapid.Uint16Range(1, 65535).Draw(t, "port")
		if got, ok := parseAddress(a.text(def), def); !ok || got != a {
			t.Fatalf("%v became %v", a, got)
		}
		if got, p, ok := destination("/P/"+joinEndpoint(a.text(def), port), def); !ok || got != a || p != port {
			t.Fatalf("%v port %d became %v port %d", a, port, got, p)
		}
		bits := rapid.IntRange(0, a.addr.BitLen()).Draw(t, "bits")
		want, _ := a.addr.Prefix(bits)
		if got, ok := source(fmt.Sprintf("%s/%d", a.text(def), bits), def); !ok || got != want {
			t.Fatalf("%v became %v", want, got)
		}
	})
}

func FuzzEndpoints(f *testing.F) {
	for _, text := range []string{"10.0.0.1:80", "2001:db8::1.80", "2001:db8::1%2.80", "web:http", "", ":", ".80", "/P/10.0.0.1%x:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if a, port, ok := destination(text, 0); ok {
			if got, p, ok := destination("/P/"+joinEndpoint(a.text(0), port), 0); !ok || got != a || p != port {
				t.Errorf("%q is %v port %d, which became %v port %d", text, a, port, got, p)
			}
		}
		_, _ = source(text, 0)
		r := parseRule(text)
		if !slices.IsSorted(r.monitors) {
			t.Errorf("%q: %v", text, r)
		}
	})
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1 80", "10.0.0.1%2:80": "10.0.0.1%2 80", "2001:db8::1.80": "2001:db8::1 80", "2001:db8::1%2.80": "2001:db8::1%2 80", "web-1:80": "web-1 80",
		"web.example:80": "web.example 80", "web:http": "", "10.0.0.1": "", "": "", ":80": "", "10.0.0.1:99999": "",
	} {
		host, port, ok := splitEndpoint(text)
		if got := fmt.Sprint(host, " ", port); (ok && got != want) || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}

var anyKey = rapid.Custom(func(t *rapid.T) providers.Key {
	name := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`)
	return providers.Key{
		Namespace: name.Draw(t, "namespace"), Service: name.Draw(t, "service"), Port: rapid.Uint16Range(1, 65535).Draw(t, "port"),
		Protocol: rapid.SampledFrom([]providers.Protocol{providers.TCP, providers.UDP, providers.SCTP}).Draw(t, "protocol"),
	}
})

// TestMarksRoundTrip: what a mark says reads back as it was.
func TestMarksRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[ -~]{0,20}`)
	seconds := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(0, 90000).Draw(t, "seconds")) * time.Second
	})
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey.Draw(t, "key")
		if got, ok := parseKey(k.String()); !ok || got != k {
			t.Fatalf("%v became %v", k, got)
		}
		s := providers.PoolSettings{
			Algorithm:   rapid.SampledFrom([]providers.Algorithm{"", providers.RoundRobin, providers.LeastConnections}).Draw(t, "algorithm"),
			Persistence: providers.Persistence{Kind: rapid.SampledFrom([]providers.PersistenceKind{"", providers.SourceAddress}).Draw(t, "kind"), Timeout: seconds.Draw(t, "timeout")},
			Monitor: providers.Monitor{
				Type: rapid.SampledFrom([]providers.MonitorType{"", providers.MonitorHTTP}).Draw(t, "type"), Name: text.Draw(t, "name"), Path: text.Draw(t, "path"), Host: text.Draw(t, "host"),
				Interval: seconds.Draw(t, "interval"), Timeout: seconds.Draw(t, "wait"), Rise: rapid.Uint8().Draw(t, "rise"), Fall: rapid.Uint8().Draw(t, "fall"),
			},
			SlowStart: seconds.Draw(t, "ramp"), MemberConnections: rapid.Uint32().Draw(t, "connections"),
			Options: rapid.MapOfN(rapid.SampledFrom([]string{"monitor", "x"}), text, 0, 2).Draw(t, "options"),
		}
		if got, err := decodePool(encodePool(s)); err != nil || !got.Equal(s) {
			t.Fatalf("%+v became %+v (%v)", s, got, err)
		}
		v := providers.VirtualServer{
			Key: k, VIPs: rapid.SliceOfNDistinct(anyAddr, 1, 2, func(a netip.Addr) netip.Addr { return a }).Draw(t, "vips"), Port: k.Port, Shared: text.Draw(t, "shared"),
			Settings: providers.VirtualServerSettings{Options: rapid.MapOfN(rapid.SampledFrom([]string{"snat", "vlans"}), text, 0, 2).Draw(t, "virtual options")},
		}
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			a := anyAddr.Draw(t, "range")
			p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			v.Settings.SourceRanges = append(v.Settings.SourceRanges, p)
		}
		got, err := decodeVirtual(k, encodeVirtual(v))
		if err != nil || !slices.Equal(got.VIPs, v.VIPs) || got.Port != v.Port || got.Shared != v.Shared || !got.Settings.Equal(v.Settings) {
			t.Fatalf("%+v became %+v (%v)", v, got, err)
		}
	})
}

func FuzzMarks(f *testing.F) {
	f.Add("algorithm=LeastConnections&monitor=HTTP")
	f.Add("port=80&vip=192.0.2.1&from=10.0.0.0/8")
	f.Add("shop/web:80/TCP")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := decodePool(text); err == nil && encodePool(s) != text {
			t.Errorf("%q was taken for %+v", text, s)
		}
		if v, err := decodeVirtual(providers.Key{}, text); err == nil && encodeVirtual(v) != text {
			t.Errorf("%q was taken for %+v", text, v)
		}
		if k, ok := parseKey(text); ok && k.String() != text {
			t.Errorf("%q was taken for %v", text, k)
		}
	})
}

// TestNames: names of different things differ, are short enough and hold nothing that a device refuses.
func TestNames(t *testing.T) {
	n := names{"nplbridge", "k8s", providers.Owner{ClusterUID: "u", Instance: "i"}}
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyKey.Draw(t, "a"), anyKey.Draw(t, "b")
		a.Namespace = strings.Repeat(a.Namespace, rapid.IntRange(1, 20).Draw(t, "times"))
		if (n.pool(a) == n.pool(b)) != (a == b) {
			t.Fatalf("%s and %s: %s", a, b, n.pool(a))
		}
		if name := n.virtual(a, true, netip.MustParsePrefix("10.0.0.0/8")); len(name) > maxName || !pathForm.MatchString(n.path(name)) {
			t.Fatalf("%q", name)
		}
		if n.virtual(a, true, netip.Prefix{}) == n.virtual(a, false, netip.Prefix{}) {
			t.Fatal("one name for two families")
		}
	})
}

// TestEditReachesWhatIsWanted: whatever is there and wanted, carrying out an edit leads there, a second one finds nothing to do, and what is
// somebody else's or blocked by an operator stays.
func TestEditReachesWhatIsWanted(t *testing.T) {
	v := view{mark: "m:", own: true}
	member := rapid.Custom(func(t *rapid.T) providers.Member {
		m := member(rapid.IntRange(0, 12).Draw(t, "address"))
		m.UID = fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "uid"))
		m.State = rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "state")
		m.Weight = rapid.Uint8Range(1, 20).Draw(t, "weight")
		return m
	})
	list := rapid.SliceOfNDistinct(member, 0, 10, func(m providers.Member) netip.AddrPort { return m.Address })
	place := func(m providers.Member) (nodeObject, error) {
		return nodeObject{Partition: "k8s", Name: m.Address.Addr().String(), FullPath: "/k8s/" + m.Address.Addr().String()}, nil
	}
	rapid.Check(t, func(t *rapid.T) {
		first, err := v.edit(nil, list.Draw(t, "before"), place)
		if err != nil {
			t.Fatal(err)
		}
		actual := first.whole
		blocked := map[providers.MemberID]bool{}
		for n := range actual {
			if actual[n].draining() || !rapid.Bool().Draw(t, "an operator disables it") {
				continue
			}
			actual[n].Session = sessionDisabled
			uid, _ := v.uid(actual[n])
			blocked[providers.MemberID{UID: uid, Address: actual[n].at}] = true
		}
		v := v
		v.own = rapid.Bool().Draw(t, "ours")
		foreign := memberObject{Name: "10.9.9.9:1", Partition: "k8s", FullPath: "/k8s/10.9.9.9:1", at: netip.MustParseAddrPort("10.9.9.9:1"), Ratio: 7}
		actual = append(actual, foreign)
		want := list.Draw(t, "want")
		e, err := v.edit(actual, want, place)
		if err != nil {
			t.Fatal(err)
		}
		got, status, _ := v.members(e.whole)
		slices.SortFunc(got, providers.CompareMembers)
		slices.SortFunc(want, providers.CompareMembers)
		if !slices.EqualFunc(got, want, func(a, b providers.Member) bool {
			return a.ID() == b.ID() && a.State == b.State && max(a.Weight, 1) == b.Weight
		}) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
		for _, m := range want {
			if was := blocked[m.ID()] && m.State == providers.Enabled; was != status[m.ID()].Blocked {
				t.Fatalf("%v was blocked: %v, is: %v", m.ID(), was, status[m.ID()].Blocked)
			}
		}
		if slices.ContainsFunc(e.whole, func(o memberObject) bool { return o.FullPath == foreign.FullPath }) == v.own || (!v.own && !e.single) {
			t.Fatalf("ours %v: the foreign member in %+v", v.own, e)
		}
		if again, err := v.edit(e.whole, want, place); err != nil || again.size() != 0 {
			t.Fatalf("again: %+v (%v)", again, err)
		}
	})
}

func TestConfig(t *testing.T) {
	good := DefaultConfig()
	good.URLs, good.Username, good.PasswordFile = []string{"https://a"}, "u", "/p"
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"bigip urls: empty":                                func(c *Config) { c.URLs = nil },
		`bigip urls: "http://a"`:                           func(c *Config) { c.URLs = []string{"http://a"} },
		"bigip urls: one does not parse or holds":          func(c *Config) { c.URLs = []string{"https://u:secret@a"} },
		"bigip urls: a device is named twice":              func(c *Config) { c.URLs = []string{"https://a", "https://a"} },
		`bigip mode: "x"`:                                  func(c *Config) { c.Mode = "x" },
		"bigip username: empty":                            func(c *Config) { c.Username = "" },
		"bigip passwordFile: empty":                        func(c *Config) { c.PasswordFile = "" },
		`bigip partition: "a/b"`:                           func(c *Config) { c.Partition = "a/b" },
		"bigip partition: Common":                          func(c *Config) { c.Partition = "Common" },
		"bigip routeDomain: 70000":                         func(c *Config) { c.RouteDomain = 70000 },
		`bigip prefix: "-x"`:                               func(c *Config) { c.Prefix = "-x" },
		`bigip snat: "pool"`:                               func(c *Config) { c.SNAT = "pool" },
		`bigip tcpProfile: "tcp"`:                          func(c *Config) { c.TCPProfile = "tcp" },
		`bigip foreignMembers: "x"`:                        func(c *Config) { c.ForeignMembers = "x" },
		"bigip saveDelay: 1ms":                             func(c *Config) { c.SaveDelay = time.Millisecond },
		"bigip syncDelay: 2h0m0s":                          func(c *Config) { c.SyncDelay = 2 * time.Hour },
		"bigip requestTimeout: 0s":                         func(c *Config) { c.RequestTimeout = 0 },
		"bigip maxInFlight: 17 is not within 1 and 16":     func(c *Config) { c.MaxInFlight = 17 },
		"bigip saveDelay: 25h0m0s is not within 1s and 24": func(c *Config) { c.SaveDelay = 25 * time.Hour },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// A request that was given up may be carried out for as long as it could have been answered.
func TestLate(t *testing.T) {
	p := &Provider{cfg: Config{RequestTimeout: 42 * time.Second}}
	if got := p.Capabilities().Late; got != p.cfg.RequestTimeout {
		t.Errorf("it may be carried out for %s, want %s", got, p.cfg.RequestTimeout)
	}
}
