package avi

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

func TestNamesAreBoundedAndDistinct(t *testing.T) {
	n := names{"nplbridge", providers.Owner{ClusterUID: "u", Instance: "a/b"}}
	other := names{"nplbridge", providers.Owner{ClusterUID: "v", Instance: "a/b"}}
	seen := map[string]string{}
	add := func(what, name string) {
		t.Helper()
		if old, twice := seen[name]; twice {
			t.Errorf("%s and %s are both %s", old, what, name)
		}
		if len(name) > maxName || !strings.HasPrefix(name, "nplbridge--") {
			t.Errorf("%s: name %q of %d characters", what, name, len(name))
		}
		seen[name] = what
	}
	long := strings.Repeat("x", 63)
	for _, k := range []providers.Key{
		{Namespace: "a-b", Service: "c", Port: 80, Protocol: "TCP"}, {Namespace: "a", Service: "b-c", Port: 80, Protocol: "TCP"},
		{Namespace: "a", Service: "b-c", Port: 80, Protocol: "UDP"}, {Namespace: "a", Service: "b-c", Port: 8, Protocol: "TCP"},
		{Namespace: long, Service: long + strings.Repeat("y", 190), Port: 65535, Protocol: "TCP"}, {Namespace: long, Service: long + strings.Repeat("y", 191), Port: 65535, Protocol: "TCP"},
	} {
		add("pool "+k.String(), n.pool(k))
		add("pool of another cluster "+k.String(), other.pool(k))
		add("monitor "+k.String(), n.ofPool(k, "monitor-tcp"))
		if serviceOf(k) != (service{"a", "b-c"}) || k.Port == 8 {
			add("service "+k.String(), n.service(serviceOf(k)))
		}
	}
	add("group", n.vip("a-b-c", "group", "a/b-c", "V4_ONLY", ""))
	add("group of others", n.vip("a-b-c", "group", "a-b/c", "V4_ONLY", ""))
	add("address", n.vip("vip-192.0.2.1", "192.0.2.1"))
	if n.memberMark(providers.Key{Service: "a"}) == n.memberMark(providers.Key{Service: "b"}) {
		t.Error("two Services mark members alike")
	}
}

// TestOwns: an object is ours by both markers, each with that one value, and by created_by where there is one.
func TestOwns(t *testing.T) {
	n := names{"nplbridge", providers.Owner{ClusterUID: "u", Instance: "a/b"}}
	good := func() map[string]any { return map[string]any{"created_by": n.createdBy(), "markers": n.markers()} }
	for name, test := range map[string]struct {
		typ  string
		edit func(map[string]any)
		want bool
	}{
		"ours":                 {typePool, func(map[string]any) {}, true},
		"without created_by":   {typePool, func(o map[string]any) { delete(o, "created_by") }, false},
		"another's created_by": {typePool, func(o map[string]any) { o["created_by"] = n.createdBy() + "2" }, false},
		"a type that has none": {typeVsVip, func(o map[string]any) { delete(o, "created_by") }, true},
		"another cluster": {typePool, func(o map[string]any) {
			o["markers"] = []marker{{markCluster, []string{"v"}}, {markInstance, []string{"a/b"}}}
		}, false},
		"another instance": {typePool, func(o map[string]any) {
			o["markers"] = []marker{{markCluster, []string{"u"}}, {markInstance, []string{"a/c"}}}
		}, false},
		"a cluster among others": {typePool, func(o map[string]any) {
			o["markers"] = []marker{{markCluster, []string{"u", "v"}}, {markInstance, []string{"a/b"}}}
		}, false},
		"no markers":               {typePool, func(o map[string]any) { delete(o, "markers") }, false},
		"markers of another shape": {typePool, func(o map[string]any) { o["markers"] = "u" }, false},
	} {
		o := good()
		test.edit(o)
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.owns(client.Object{Type: test.typ, Raw: raw}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSettingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 3600).Draw(t, "s")) * time.Second
		})
		text := rapid.StringMatching(`[/a-zA-Z0-9=&?.%-]{0,20}`)
		s := providers.PoolSettings{
			Algorithm:   rapid.SampledFrom([]providers.Algorithm{"", providers.RoundRobin, providers.SourceHash}).Draw(t, "algorithm"),
			Persistence: providers.Persistence{Kind: rapid.SampledFrom([]providers.PersistenceKind{"", providers.SourceAddress}).Draw(t, "kind"), Timeout: seconds.Draw(t, "timeout")},
			Monitor: providers.Monitor{
				Type: rapid.SampledFrom([]providers.MonitorType{"", providers.MonitorHTTP}).Draw(t, "type"), Name: text.Draw(t, "name"), Path: text.Draw(t, "path"),
				Host: text.Draw(t, "host"), Interval: seconds.Draw(t, "interval"), Timeout: seconds.Draw(t, "timeout"), Rise: rapid.Uint8().Draw(t, "rise"), Fall: rapid.Uint8().Draw(t, "fall"),
			},
			SlowStart: seconds.Draw(t, "slow"),
		}
		got, err := decodeSettings(encodeSettings(s))
		if err != nil || !got.Equal(s) {
			t.Errorf("%+v\ncame back as %+v, %v", s, got, err)
		}
	})
}

func FuzzDecodeSettings(f *testing.F) {
	f.Add("algorithm=RoundRobin\nmonitor=HTTP")
	f.Add("slow-start=-1")
	f.Fuzz(func(t *testing.T, text string) {
		values := strings.Split(text, "\n")
		s, err := decodeSettings(values)
		if err != nil {
			return
		}
		if again, err := decodeSettings(encodeSettings(s)); err != nil || !again.Equal(s) {
			t.Errorf("%q: %+v came back as %+v, %v", text, s, again, err)
		}
	})
}

func FuzzDecodePort(f *testing.F) {
	f.Add("80/TCP=8080?network-profile=x")
	f.Add("53/UDP=53")
	f.Fuzz(func(t *testing.T, text string) {
		s := service{"shop", "web"}
		e, err := decodePort(s, text)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		if e.port == 0 || e.key.Port == 0 || e.key.Protocol == "" {
			t.Errorf("%q was taken as %+v", text, e)
		}
		if again, err := decodePort(s, encodePort(e)); err == nil && !reflect.DeepEqual(again, e) && !strings.ContainsAny(string(e.key.Protocol), "=?") {
			t.Errorf("%q: %+v came back as %+v", text, e, again)
		}
	})
}

func FuzzServerHealth(f *testing.F) {
	f.Add([]byte(`[{"ip_addr":{"addr":"10.0.0.1","type":"V4"},"port":61000,"oper_status":{"state":"OPER_UP"}}]`))
	f.Add([]byte(`{"results":[{}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for address, health := range serverHealth(raw) {
			if health != providers.HealthUp && health != providers.HealthDown {
				t.Errorf("%s is %q", address, health)
			}
		}
	})
}

// TestEditConverges holds edit to its purpose on any pool and any wish: what it says to write is what is wanted, nothing of others is lost, a block
// stays, and a second look finds nothing to do.
func TestEditConverges(t *testing.T) {
	n := names{"nplbridge", providers.Owner{ClusterUID: "u", Instance: "a/b"}}
	k, other := providers.Key{Service: "a"}, providers.Key{Service: "b"}
	rapid.Check(t, func(t *rapid.T) {
		v := view{mark: n.memberMark(k), own: rapid.Bool().Draw(t, "own"), takeOver: rapid.Bool().Draw(t, "takeOver")}
		draw := func(what string) []providers.Member {
			var out []providers.Member
			for i := range 6 {
				if rapid.Bool().Draw(t, what) {
					out = append(out, providers.Member{
						UID: fmt.Sprint("uid-", rapid.IntRange(0, 2).Draw(t, "uid")), Name: rapid.SampledFrom([]string{"", "shop/web"}).Draw(t, "name"),
						Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 61000), Weight: rapid.SampledFrom([]uint8{0, 1, 7}).Draw(t, "weight"),
						State: rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "state"),
					})
				}
			}
			return out
		}
		var actual []server
		for _, m := range draw("actual") {
			by := rapid.SampledFrom([]string{"us", "another key", "AKO", "hand"}).Draw(t, "by")
			s := view{mark: map[string]string{"us": v.mark}[by]}.server(m)
			switch by {
			case "another key":
				s.ExternalUUID = n.memberMark(other) + m.UID
			case "AKO":
				s.ExternalUUID = m.Address.String()
			case "hand":
				s.ExternalUUID = ""
			}
			if rapid.Bool().Draw(t, "blocked") {
				off := false
				s.Enabled, s.Description = &off, m.Name
			}
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text[:len(text)-1], `,"verify_network":true}`...)
			var read server
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			actual = append(actual, read)
		}
		wanted := draw("wanted")
		e, err := v.edit(actual, wanted)
		if err != nil {
			t.Fatal(err)
		}
		again, err := v.edit(e.whole, wanted)
		if err != nil || !again.empty() || !slices.Equal(again.taken, e.taken) {
			t.Fatalf("a second look: %+v, %v", again, err)
		}
		for _, s := range actual {
			if _, ours := v.uid(s); !ours && !slices.ContainsFunc(e.whole, func(o server) bool { return string(o.raw) == string(s.raw) && o.ExternalUUID == s.ExternalUUID }) {
				t.Fatalf("a server of somebody else was changed: %s", s.raw)
			}
		}
		members, blocked := v.members(e.whole)
		for _, w := range wanted {
			at := slices.IndexFunc(members, func(m providers.Member) bool { return m.ID() == w.ID() })
			if at < 0 {
				if !slices.Contains(e.taken, w.Address.String()) {
					t.Fatalf("%v is missing", w)
				}
				continue
			}
			if members[at].State != w.State || max(members[at].Weight, 1) != max(w.Weight, 1) {
				t.Fatalf("%v became %v", w, members[at])
			}
			was := slices.IndexFunc(actual, func(s server) bool { uid, _ := v.uid(s); return uid == w.UID && s.address() == w.Address })
			if was >= 0 && actual[was].blocked() && w.State == providers.Enabled && !blocked[w.ID()] {
				t.Fatalf("the block of %v is gone", w)
			}
		}
		if len(members)+len(e.taken) != len(wanted) {
			t.Fatalf("%d members, %d wanted, %d taken", len(members), len(wanted), len(e.taken))
		}
	})
}

func TestServerKeepsWhatItDoesNotKnow(t *testing.T) {
	var s server
	if err := json.Unmarshal([]byte(`{"ip":{"addr":"10.0.0.1","type":"V4"},"port":1,"enabled":true,"location":{"name":"x"},"ratio":3}`), &s); err != nil {
		t.Fatal(err)
	}
	off := false
	s.Enabled = &off
	text, err := json.Marshal([]server{s})
	if err != nil || !strings.Contains(string(text), `"location":{"name":"x"}`) || !strings.Contains(string(text), `"enabled":false`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestBadConfig(t *testing.T) {
	good := DefaultConfig()
	good.URL, good.Username, good.PasswordFile = "https://avi.example", "lbsync", "/etc/password"
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		`avi url: "http://a" is not https`:                func(c *Config) { c.URL = "http://a" },
		"avi url: it does not parse or holds a password":  func(c *Config) { c.URL = "https://u:geheim@a" },
		"avi username: empty":                             func(c *Config) { c.Username = "" },
		`give exactly one of them`:                        func(c *Config) { c.TokenFile = "/etc/token" },
		`avi apiVersion: "21.1.1" is not 22.1.3 or later`: func(c *Config) { c.APIVersion = "21.1.1" },
		`avi apiVersion: "31.2.1"`:                        func(c *Config) { c.APIVersion = "31.2.1" },
		`avi apiVersion: "new"`:                           func(c *Config) { c.APIVersion = "new" },
		"avi cloud: empty":                                func(c *Config) { c.Cloud = "" },
		`avi tenant: "*" is no tenant`:                    func(c *Config) { c.Tenant = "*" },
		"avi subnets: 192.0.2.1/24 has bits":              func(c *Config) { c.Network, c.Subnets = "n", []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")} },
		"without a network":                               func(c *Config) { c.Subnets = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
		"more than one per family": func(c *Config) {
			c.Network, c.Subnets = "n", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
		},
		`avi prefix: "a b"`:       func(c *Config) { c.Prefix = "a b" },
		"avi drainTimeout: 1m30s": func(c *Config) { c.DrainTimeout = 90 * time.Second },
		"avi requestTimeout: 1ms": func(c *Config) { c.RequestTimeout = time.Millisecond },
		"avi maxInFlight: 0":      func(c *Config) { c.MaxInFlight = 0 },
		"avi rate: 0":             func(c *Config) { c.Rate = 0 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("got %v, want %q", err, want)
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
