package config

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
)

var openSettings = func() Settings {
	s := settings
	s.MapFile = "/etc/haproxy/npl.d/50-npl.map"
	s.OpenPorts, _ = ParseOpenPorts([]string{"192.0.2.1:8000-8009", "[2001:db8::1]:8000-8009"})
	return s
}()

// openExample has a Service with a spare backend beside the one of example.
func openExample() File {
	f := example()
	f.Open = slices.Clone(openSettings.OpenPorts)
	f.Map = "b"
	f.Spares = []string{"npl_s_0001", "npl_s_0002"}
	f.Set(Service{
		Key: providers.Key{Namespace: "shop", Service: "cart", Port: 80, Protocol: providers.TCP}, Pool: SpareSettings, Spare: "npl_s_0002",
		VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, Port: 8001, Shared: "shop/group",
		Servers: []Server{{Name: "192.0.2.11:61005_uid-5", ID: 9, Weight: 1, Address: netip.MustParseAddrPort("192.0.2.11:61005")}},
	})
	return f
}

func TestRenderOpen(t *testing.T) {
	const want = `
# open {"ports":["192.0.2.1:8000-8009","[2001:db8::1]:8000-8009"],"map":"b","binds":["192.0.2.1:8000-8009","[2001:db8::1]:8000-8009"]}
frontend npl_open from npl-tcp
    bind 192.0.2.1:8000-8009
    bind [2001:db8::1]:8000-8009
    tcp-request connection set-var(sess.npl_port) dst_port
    tcp-request connection set-var(sess.npl_to) dst,concat(:,sess.npl_port),map(/etc/haproxy/npl.d/50-npl.map.b)
    tcp-request connection reject unless { var(sess.npl_to) -m found }
    use_backend %[var(sess.npl_to)]
# spare npl_s_0001
backend npl_s_0001 from npl-tcp
    balance roundrobin

# service {"namespace":"shop","service":"cart","port":80,"protocol":"TCP","pool":{"algorithm":"RoundRobin"},"vips":["192.0.2.1","2001:db8::1"],"listen":8001,"shared":"shop/group","spare":"npl_s_0002"}
backend npl_s_0002 from npl-tcp
    balance roundrobin
    server 192.0.2.11:61005_uid-5 192.0.2.11:61005 id 9`
	if text := string(Render(openExample(), openSettings)); !strings.Contains(text, want) {
		t.Errorf("rendered\n%s", text)
	}
	const wantMap = "192.0.2.1:8001 npl_s_0002\n2001:db8::1:8001 npl_s_0002\nnpl_s_0002 shop/cart:80|8001|shop/group\nnplbridge 1\n"
	if text := string(MapText(openExample().Routes())); text != wantMap {
		t.Errorf("the map is\n%s", text)
	}
}

func TestOpenRoundTrip(t *testing.T) {
	f := openExample()
	text := Render(f, openSettings)
	again, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if string(Render(again, openSettings)) != string(text) || !HasStructure(text, again, openSettings) {
		t.Errorf("written again\n%s", Render(again, openSettings))
	}
	if got := ParseRoutes(f.Routes()); len(got) != 1 || !got[0].SameStructure(f.Services[0]) {
		t.Errorf("the map says %+v", got)
	}
}

// TestSparesAreNoStructure: what comes and goes without a reload leaves the generation as it is, and what needs one does not.
func TestSparesAreNoStructure(t *testing.T) {
	hash := Hash(openExample(), openSettings)
	for name, c := range map[string]struct {
		edit func(*File, *Settings)
		same bool
	}{
		"Service gone":      {func(f *File, _ *Settings) { f.Services = f.Services[1:] }, true},
		"Service elsewhere": {func(f *File, _ *Settings) { f.Services[0].Port = 8002 }, true},
		"other map":         {func(f *File, _ *Settings) { f.Map = "a" }, true},
		"more spares":       {func(f *File, _ *Settings) { f.Spares = append(f.Spares, "npl_s_0003") }, true},
		"port closed":       {func(f *File, _ *Settings) { f.Open = f.Open[1:] }, false},
		"setting":           {func(_ *File, s *Settings) { s.OpenPorts = s.OpenPorts[1:] }, false},
		"backend of its own": {func(f *File, _ *Settings) {
			f.Services[0].Spare = ""
		}, false},
	} {
		f, s := openExample(), openSettings
		c.edit(&f, &s)
		if (Hash(f, s) == hash) != c.same {
			t.Errorf("%s: the same structure is %v", name, !c.same)
		}
	}
}

func TestParseOpenPorts(t *testing.T) {
	binds, err := ParseOpenPorts([]string{"192.0.2.4/31:80", "192.0.2.1:443", "192.0.2.1:80-90", "192.0.2.1:85-95", "192.0.2.1:96", "[2001:db8::/127]:443"})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, b := range binds {
		texts = append(texts, b.String())
	}
	want := []string{
		"192.0.2.1:80-96", "192.0.2.1:443", "192.0.2.4:80", "192.0.2.5:80", "[2001:db8::]:443", "[2001:db8::1]:443",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%q", texts)
	}
	for _, bad := range []string{
		"", "192.0.2.1", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:90-80", "192.0.2.1:65536", "web:80", "192.0.2.1/24:80", "2001:db8::1:80", "[2001:db8::1]",
		"[2001:db8::1:80", "0.0.0.0:80", "[::ffff:192.0.2.1]:80", "[fe80::1%eth0]:80", "192.0.2.0/16:80", "192.0.0.0/16:80", "192.0.2.1:1-20000",
	} {
		if got, err := ParseOpenPorts([]string{bad}); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

// TestWithout: nothing but what is taken away is missing, whatever the ranges.
func TestWithout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		port := rapid.Uint16Range(1, 40)
		addr := rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")})
		ports := func(binds []Bind) map[netip.AddrPort]bool {
			out := map[netip.AddrPort]bool{}
			for _, b := range binds {
				for p := b.First; p <= b.Last; p++ {
					out[netip.AddrPortFrom(b.Addr, p)] = true
				}
			}
			return out
		}
		var binds []Bind
		for range rapid.IntRange(0, 5).Draw(t, "binds") {
			first := port.Draw(t, "first")
			binds = append(binds, Bind{addr.Draw(t, "addr"), first, first + rapid.Uint16Range(0, 9).Draw(t, "more")})
		}
		want := ports(binds)
		gone := map[netip.AddrPort]bool{}
		for range rapid.IntRange(0, 10).Draw(t, "gone") {
			at := netip.AddrPortFrom(addr.Draw(t, "gone addr"), port.Draw(t, "gone port"))
			gone[at] = true
			delete(want, at)
		}
		got := Without(Tidy(binds), func(at netip.AddrPort) bool { return gone[at] })
		if !maps.Equal(ports(got), want) {
			t.Fatalf("%v without %v is %v", binds, gone, got)
		}
		for i := 1; i < len(got); i++ {
			if got[i-1].Addr == got[i].Addr && got[i-1].Last+1 >= got[i].First {
				t.Fatalf("%v is not tidy", got)
			}
		}
	})
}

// FuzzParseRoutes: whatever the worker's map says, what is read of it can be written and is read the same.
func FuzzParseRoutes(f *testing.F) {
	f.Add("npl_s_0001", "shop/web:80|8000|", "192.0.2.1:8000", "npl_s_0001")
	f.Add("npl_s_0001", "shop/web:80|0|", "2001:db8::1:80", "npl_s_0002")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		services := ParseRoutes(map[string]string{a: b, c: d})
		file := File{Services: services, Open: openSettings.OpenPorts}
		again := ParseRoutes(file.Routes())
		if !slices.EqualFunc(services, again, Service.SameStructure) {
			t.Fatalf("%+v became %+v", services, again)
		}
	})
}
