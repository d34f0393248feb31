package annotations

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

var instances = []string{"avi", "edge"}

// on makes annotations of key, value, key, value, ...
func on(pairs ...string) map[string]string {
	out := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

func addresses(list string) []netip.Addr {
	out, err := ParseAddresses(list)
	if err != nil {
		panic(err)
	}
	return out
}

func ranges(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestDecode(t *testing.T) {
	pool := func(change func(*providers.PoolSettings)) (w Wishes) { change(&w.Pool); return w }
	monitor := func(m providers.Monitor) (w Wishes) { w.Pool.Monitor = m; return w }
	for name, test := range map[string]struct {
		values map[string]string
		spec   Spec
		want   Wishes
	}{
		"nothing":                   {},
		"annotations of others":     {values: on("example.com/x", "y", "prometheus.io/scrape", "true", "nplbridge.example.com/algorithm", "x")},
		"what lbsync sets itself":   {values: on(AssignedIPs, "edge=192.0.2.1", ManagedBy, "x/y/z", EnabledBy, "x/y")},
		"empty is not there":        {values: on(Algorithm, "", LoadBalancerIPs, " ", Monitor, "", Pool, "", "cis.f5.com/health", "")},
		"blanks around are ignored": {values: on(Algorithm, " SourceHash\n"), want: pool(func(s *providers.PoolSettings) { s.Algorithm = providers.SourceHash })},

		"addresses":                              {values: on(LoadBalancerIPs, "2001:db8::1, 192.0.2.1"), want: Wishes{Addresses: addresses("192.0.2.1,2001:db8::1")}},
		"the field for an address":               {spec: Spec{LoadBalancerIP: "192.0.2.1"}, want: Wishes{Addresses: addresses("192.0.2.1")}},
		"the annotation before the field":        {values: on(LoadBalancerIPs, "192.0.2.2"), spec: Spec{LoadBalancerIP: "192.0.2.1"}, want: Wishes{Addresses: addresses("192.0.2.2")}},
		"an address pool":                        {values: on(AddressPool, "public"), want: Wishes{AddressPool: "public"}},
		"a group":                                {values: on(SharedVIP, "Web_1.x"), want: Wishes{SharedVIP: "Web_1.x"}},
		"load balancers":                         {values: on(Providers, "edge, avi,edge"), want: Wishes{Providers: []string{"avi", "edge"}}},
		"a source of members":                    {values: on(ServiceType, "NodePort"), want: Wishes{Source: NodePort}},
		"a drain limit of nothing":               {values: on(DrainLimit, "0s"), want: Wishes{DrainLimit: new(time.Duration(0))}},
		"a drain limit":                          {values: on(DrainLimit, "90s"), want: Wishes{DrainLimit: new(90 * time.Second)}},
		"removals":                               {values: on(AllowRemoval, "true"), want: Wishes{AllowRemoval: true}},
		"abandoned, also what is not configured": {values: on(Abandon, "old,avi"), want: Wishes{Abandoned: []string{"avi", "old"}}},
		"node ports":                             {values: on(npl.EnabledAnnotation, "true"), want: Wishes{Enabled: Enabled}},
		"no node ports":                          {values: on(npl.EnabledAnnotation, "True"), want: Wishes{Enabled: Disabled}},
		"pools of others": {values: on(Pool, "https=avi:web pool, 080 = edge:/Common/web,8080=edge:a:b", DrainLimit, "1s", ServiceType, "ClusterIP"),
			want: Wishes{Attachments: []Attachment{{"https", "avi", "web pool"}, {"80", "edge", "/Common/web"}, {"8080", "edge", "a:b"}}, DrainLimit: new(time.Second), Source: ClusterIP}},

		"persistence": {values: on(Persistence, "SourceAddress", PersistenceTimeout, "1h30m"), want: pool(func(s *providers.PoolSettings) {
			s.Persistence = providers.Persistence{Kind: providers.SourceAddress, Timeout: 90 * time.Minute}
		})},
		"session affinity": {spec: Spec{SessionAffinity: true, AffinityTimeout: time.Hour}, want: pool(func(s *providers.PoolSettings) {
			s.Persistence = providers.Persistence{Kind: providers.SourceAddress, Timeout: time.Hour}
		})},
		"session affinity, not wanted": {values: on(Persistence, "None"), spec: Spec{SessionAffinity: true, AffinityTimeout: time.Hour}},
		"session affinity, another timeout": {values: on(PersistenceTimeout, "24h"), spec: Spec{SessionAffinity: true, AffinityTimeout: time.Hour},
			want: pool(func(s *providers.PoolSettings) {
				s.Persistence = providers.Persistence{Kind: providers.SourceAddress, Timeout: 24 * time.Hour}
			})},
		"settings of the pool": {values: on(Algorithm, "LeastConnections", ProxyProtocol, "v2", SlowStart, "30s", MemberConnections, "1000000"), want: pool(func(s *providers.PoolSettings) {
			*s = providers.PoolSettings{Algorithm: providers.LeastConnections, ProxyProtocol: providers.ProxyV2, SlowStart: 30 * time.Second, MemberConnections: 1_000_000}
		})},
		"an HTTP monitor": {values: on(Monitor, "HTTP", MonitorPath, "/healthz?full=1", MonitorHost, "[2001:db8::1]:8080", MonitorInterval, "5s", MonitorTimeout, "5s", MonitorRise, "2", MonitorFall, "50"),
			want: monitor(providers.Monitor{Type: providers.MonitorHTTP, Path: "/healthz?full=1", Host: "[2001:db8::1]:8080", Interval: 5 * time.Second, Timeout: 5 * time.Second, Rise: 2, Fall: 50})},
		"how often the usual monitor looks": {values: on(MonitorInterval, "1h", MonitorFall, "1"), want: monitor(providers.Monitor{Interval: time.Hour, Fall: 1})},
		"a monitor of somebody else":        {values: on(Monitor, "Existing", MonitorName, "/Common/my http"), want: monitor(providers.Monitor{Type: providers.MonitorExisting, Name: "/Common/my http"})},
		"no monitor":                        {values: on(Monitor, "None"), want: monitor(providers.Monitor{Type: providers.MonitorNone})},

		"settings of the virtual server": {values: on(IdleTimeout, "240h", AcceptProxyProtocol, "true"), want: Wishes{Virtual: providers.VirtualServerSettings{IdleTimeout: 240 * time.Hour, AcceptProxyProtocol: true}}},
		"source ranges are sorted, none within another": {values: on(SourceRanges, "2001:db8::/32,192.0.2.7, 192.0.2.0/24,10.0.0.0/8,10.0.0.0/9,2001:db8::1"),
			want: Wishes{Virtual: providers.VirtualServerSettings{SourceRanges: ranges("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32")}}},
		"source ranges in the field": {spec: Spec{SourceRanges: []string{"192.0.2.9/24", " 198.51.100.1/32"}},
			want: Wishes{Virtual: providers.VirtualServerSettings{SourceRanges: ranges("192.0.2.0/24", "198.51.100.1/32")}}},
		"source ranges in Kubernetes' own older annotation": {values: on(legacyRanges, "192.0.2.0/24, 198.51.100.0/24"),
			want: Wishes{Virtual: providers.VirtualServerSettings{SourceRanges: ranges("192.0.2.0/24", "198.51.100.0/24")}}},
		"source ranges, the field before the older annotation": {values: on(legacyRanges, "0.0.0.0/0"), spec: Spec{SourceRanges: []string{"192.0.2.0/24"}},
			want: Wishes{Virtual: providers.VirtualServerSettings{SourceRanges: ranges("192.0.2.0/24")}}},
		"source ranges, ours before both": {values: on(SourceRanges, "192.0.2.0/25", legacyRanges, "0.0.0.0/0"), spec: Spec{SourceRanges: []string{"192.0.2.0/24"}},
			want: Wishes{Virtual: providers.VirtualServerSettings{SourceRanges: ranges("192.0.2.0/25")}}},

		"options": {values: on("avi.nplbridge.io/network-profile", "System-TCP-Proxy", "memory.nplbridge.io/x", "", "bigip.nplbridge.io/a1-b2", "c"),
			want: Wishes{Options: map[string]map[string]string{"avi": {"network-profile": "System-TCP-Proxy"}, "memory": {"x": ""}, "bigip": {"a1-b2": "c"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := Decode(test.values, test.spec, instances)
			if !reflect.DeepEqual(got, test.want) || len(problems) > 0 {
				t.Errorf("got  %+v\nwant %+v\nproblems %v", got, test.want, problems)
			}
		})
	}
}

// Each annotation tried wrong: the Problem names the key, the value and what would be right, and what cannot be read stays as it is.
func TestWrongAnnotations(t *testing.T) {
	keeps := map[string]Wishes{
		"nothing": {}, "the pool": {Kept: Kept{Pool: true}}, "the virtual server": {Kept: Kept{Virtual: true}}, "the addresses": {Kept: Kept{Addresses: true}},
		"the structure": {Kept: Kept{Structure: true}}, "all, and is not served": {Kept: Kept{Virtual: true}, Unservable: true},
	}
	wrong := map[string]map[string]struct{ keeps, says string }{
		LoadBalancerIPs: {
			"web": {"the addresses", "write one IPv4 address, one IPv6 address, or both"}, "192.0.2.1,192.0.2.2": {"the addresses", "at most one of each"},
			"127.0.0.1": {"the addresses", "write a unicast address"},
		},
		AddressPool:   {"Public": {"the addresses", "lower-case letters"}, strings.Repeat("x", 64): {"the addresses", "lower-case letters"}},
		SharedVIP:     {"a b": {"the structure", "at most 63 letters"}, "a/b": {"the structure", "at most 63 letters"}},
		Providers:     {"edge,avii": {"the structure", "did you mean avi?; there are avi, edge"}, "edge,": {"the structure", "there are avi, edge"}, "bigip": {"the structure", "there are"}},
		ServiceType:   {"Nodeport": {"the structure", "write NodePortLocal, NodePort or ClusterIP"}},
		Algorithm:     {"fastest": {"the pool", "write RoundRobin, LeastConnections or SourceHash"}},
		Persistence:   {"Cookie": {"the pool", "write None or SourceAddress"}},
		ProxyProtocol: {"2": {"the pool", "write v1 or v2"}},
		SlowStart:     {"0s": {"the pool", "from 1s to 1h"}, "30": {"the pool", "such as 30s"}, "1500ms": {"the pool", "not whole seconds"}, "2h": {"the pool", "out of range"}},
		Pool: {
			"80": {"the structure", "<port>=<load balancer>:<pool>"}, "80=web": {"the structure", "does not say which pool"}, "0=edge:web": {"the structure", "neither the number nor the name"},
			"70000=edge:web": {"the structure", "neither the number nor the name"}, "Web=edge:web": {"the structure", "neither the number nor the name"},
			"80=edge:": {"the structure", "cannot be the name of a pool"}, `80=edge:a"b`: {"the structure", "cannot be the name of a pool"}, "80=egde:web": {"the structure", "did you mean edge?"},
			"80=edge:a,080=edge:b": {"the structure", "port 80 is in two pools of edge"}, "80=edge:a,": {"the structure", "which pool"},
		},
		PersistenceTimeout: {"25h": {"the pool", "from 1s to 24h"}, "3h": {"nothing", "goes with nplbridge.io/persistence or spec.sessionAffinity"}},
		MemberConnections:  {"0": {"the pool", "from 1 to 1000000"}, "many": {"the pool", "such as 5"}, "1000001": {"the pool", "whole number"}},
		Monitor:            {"http": {"the pool", "write None, TCP, HTTP, HTTPS, UDP or Existing"}, "Existing": {"the pool", "goes with nplbridge.io/monitor-name"}},
		MonitorPath:        {"healthz": {"the pool", `begins with "/"`}, "/a b": {"the pool", "without blanks"}, "/a\r\nb": {"the pool", "without blanks"}, "/x": {"the pool", "monitor HTTP or HTTPS"}},
		MonitorHost:        {"a b": {"the pool", "write a host name"}, "a\r\nX: y": {"the pool", "write a host name"}, "shop.example.com": {"the pool", "monitor HTTP or HTTPS"}},
		MonitorName:        {"a,b": {"the pool", "without commas"}, "web": {"the pool", "monitor Existing"}},
		MonitorInterval:    {"0s": {"the pool", "from 1s to 1h"}},
		MonitorTimeout:     {"-1s": {"the pool", "from 1s to 1h"}},
		MonitorRise:        {"0": {"the pool", "from 1 to 50"}},
		MonitorFall:        {"51": {"the pool", "from 1 to 50"}},
		SourceRanges: {
			"": {"all, and is not served", "remove the annotation"}, "192.0.2.0/33": {"all, and is not served", "such as 192.0.2.0/24"}, "192.0.2.0/24,": {"all, and is not served", "prefix"},
			"192.0.2.5/24": {"all, and is not served", "write 192.0.2.0/24 for that whole range, or 192.0.2.5"}, "::ffff:192.0.2.1": {"all, and is not served", "write 192.0.2.1"},
			"fe80::1%eth0": {"all, and is not served", "prefix"}, "all": {"all, and is not served", "prefix"},
		},
		IdleTimeout:         {"241h": {"the virtual server", "from 1s to 240h"}},
		AcceptProxyProtocol: {"yes": {"the virtual server", `write "true" or "false"`}},
		DrainLimit:          {"25h": {"nothing", "from 0s to 24h"}, "-1s": {"nothing", "out of range"}},
		AllowRemoval:        {"1": {"nothing", `write "true" or "false"`}},
		Abandon:             {"a b": {"nothing", "names of load balancers, separated by commas"}},
		Weight:              {"5": {"nothing", "set it on the Pod"}},
		Drain:               {"true": {"nothing", "set it on the Node"}},

		"nplbridge.io/algorithms":         {"RoundRobin": {"nothing", "did you mean nplbridge.io/algorithm?"}},
		"nplbridge.io/monitor-retries":    {"3": {"nothing", "there is no annotation of this name"}},
		"nplbridge.io/":                   {"x": {"nothing", "there is no annotation of this name"}},
		"avii.nplbridge.io/x":             {"y": {"nothing", "did you mean avi?; there are avi, bigip, haproxy"}},
		"avi.nplbridge.io/Network":        {"y": {"nothing", "lower-case words"}},
		"cis.f5.com/ip":                   {"192.0.2.1%2": {"nothing", "not an IP address"}},
		"ako.vmware.com/load-balancer-ip": {"web": {"nothing", "not an IP address"}},
		"kube-vip.io/loadbalancerIPs":     {"0.0.0.0": {"nothing", "unicast"}},
		"lbipam.cilium.io/ips":            {"192.0.2.1,192.0.2.2": {"nothing", "at most one of each"}},
		"cis.f5.com/ipamLabel":            {"a b": {"nothing", "a name that an address pool can have"}},
		"metallb.io/allow-shared-ip":      {"a b": {"nothing", "at most 63 letters"}},
		legacyRanges:                      {"all": {"all, and is not served", "such as 192.0.2.0/24"}},
		"cis.f5.com/health": {
			"5":                               {"the pool", "JSON of a monitor"},
			`{"interval": "5"}`:               {"the pool", "JSON of a monitor"},
			`{"intervall": 5}`:                {"the pool", "intervall"},
			`{"interval": 5} x`:               {"the pool", "something follows"},
			`[]`:                              {"the pool", "has 0 monitors"},
			`[{"type":"tcp"},{"type":"udp"}]`: {"the pool", "has 2 monitors"},
			`{"type": "icmp"}`:                {"the pool", `"icmp" is not a type that can be taken over`},
			`{"type": "none"}`:                {"the pool", `"none" is not a type that can be taken over`},
			`{"interval": -5}`:                {"the pool", "from 0 to 3600 seconds"},
			`{"timeout": 3601}`:               {"the pool", "from 0 to 3600 seconds"},
			`{"reference": "bigip"}`:          {"the pool", "wants the name of a monitor"},
			`{"type":"http","send":"HEAD /"}`: {"the pool", "not a GET request"},
			`{"type":"http","send":"GET x"}`:  {"the pool", "no path"},
			`{"type":"http","send":"GET / HTTP/1.1\r\nHost: a b"}`: {"the pool", "no host"},
		},
	}
	for _, w := range Vocabulary() {
		if wrong[w.Name] == nil {
			t.Errorf("%s is not tried wrong", w.Name)
		}
	}
	for key, values := range wrong {
		for value, want := range values {
			t.Run(key+"="+value, func(t *testing.T) {
				got, problems := Decode(on(key, value), Spec{}, instances)
				kept, known := keeps[want.keeps]
				if !known || !reflect.DeepEqual(got, kept) {
					t.Errorf("got %+v; want that it keeps %s", got, want.keeps)
				}
				if len(problems) != 1 {
					t.Fatalf("problems: %v", problems)
				}
				text, quoted := problems[0].String(), fmt.Sprintf("%q", shorten(strings.TrimSpace(value)))
				for _, part := range []string{key, want.says} {
					if !strings.Contains(text, part) {
						t.Errorf("%s\ndoes not say %q", text, part)
					}
				}
				if !strings.Contains(text, strings.Trim(quoted, `"`)) && !strings.ContainsAny(value, ",=/") {
					t.Errorf("%s\ndoes not show the value %s", text, quoted)
				}
				if len(text) > 600 || strings.Contains(text, "\n") {
					t.Errorf("%d bytes: %s", len(text), text)
				}
			})
		}
	}
}

// What cannot be read leaves alone what can.
func TestTheRestGoesOn(t *testing.T) {
	got, problems := Decode(on(
		Algorithm, "fastest", SlowStart, "30s", IdleTimeout, "never", AcceptProxyProtocol, "true", LoadBalancerIPs, "192.0.2.1", "nplbridge.io/foo", "bar", DrainLimit, "soon",
	), Spec{}, instances)
	want := Wishes{Addresses: addresses("192.0.2.1"), Kept: Kept{Pool: true, Virtual: true}}
	want.Pool.SlowStart, want.Virtual.AcceptProxyProtocol = 30*time.Second, true
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	keys := []string{Algorithm, DrainLimit, "nplbridge.io/foo", IdleTimeout}
	if got := keysOf(problems); !slices.Equal(got, keys) {
		t.Errorf("problems %v, want %v", got, keys)
	}
}

func keysOf(problems []Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Key)
	}
	return out
}

// Half a monitor could take every member out, so it is all of it or the usual one.
func TestMonitorIsOneWish(t *testing.T) {
	for name, test := range map[string]struct {
		values map[string]string
		on     string
	}{
		"a bad path":                            {on(Monitor, "HTTP", MonitorPath, "x", MonitorInterval, "5s"), MonitorPath},
		"a bad type":                            {on(Monitor, "HTPP", MonitorPath, "/x"), Monitor},
		"a timeout that is longer":              {on(MonitorInterval, "5s", MonitorTimeout, "6s"), MonitorTimeout},
		"an interval of somebody else's":        {on(Monitor, "Existing", MonitorName, "web", MonitorInterval, "5s"), MonitorInterval},
		"looks that nobody takes":               {on(Monitor, "None", MonitorRise, "5"), MonitorRise},
		"a path of a monitor that asks nothing": {on(Monitor, "TCP", MonitorPath, "/x"), MonitorPath},
		"a name beside a type":                  {on(Monitor, "TCP", MonitorName, "web"), MonitorName},
	} {
		got, problems := Decode(test.values, Spec{}, instances)
		if !reflect.DeepEqual(got, Wishes{Kept: Kept{Pool: true}}) || len(problems) != 1 || problems[0].Key != test.on {
			t.Errorf("%s: %+v, %v", name, got, problems)
		}
	}
}

func TestPoolsOfOthers(t *testing.T) {
	attached := []Attachment{{"80", "edge", "web"}}
	for name, test := range map[string]struct {
		values   map[string]string
		spec     Spec
		want     Wishes
		problems []string
	}{
		"settings have no effect": {
			values: on(Algorithm, "SourceHash", IdleTimeout, "1h", LoadBalancerIPs, "192.0.2.1", Providers, "avi", "avi.nplbridge.io/x", "y"), want: Wishes{Attachments: attached},
			problems: []string{"avi.nplbridge.io/x", Algorithm, IdleTimeout, LoadBalancerIPs, Providers},
		},
		"fields that have always been there say nothing": {spec: Spec{LoadBalancerIP: "192.0.2.1", SessionAffinity: true}, want: Wishes{Attachments: attached}},
		"what cannot be read either is said once":        {values: on(Algorithm, "x"), want: Wishes{Attachments: attached}, problems: []string{Algorithm}},
		"a restriction that cannot be enforced": {
			values: on(SourceRanges, "192.0.2.0/24"), want: Wishes{Attachments: attached, Unservable: true}, problems: []string{SourceRanges},
		},
		"a restriction in the field": {
			spec: Spec{SourceRanges: []string{"192.0.2.0/24"}}, want: Wishes{Attachments: attached, Unservable: true}, problems: []string{"spec.loadBalancerSourceRanges"},
		},
		"a restriction that cannot be read": {
			values: on(SourceRanges, "x"), want: Wishes{Attachments: attached, Unservable: true}, problems: []string{SourceRanges},
		},
		"what is about members": {
			values: on(AllowRemoval, "true", Abandon, "avi", ServiceType, "ClusterIP"), want: Wishes{Attachments: attached, AllowRemoval: true, Abandoned: []string{"avi"}, Source: ClusterIP},
		},
	} {
		values := on(Pool, "80=edge:web")
		maps.Copy(values, test.values)
		got, problems := Decode(values, test.spec, instances)
		if !reflect.DeepEqual(got, test.want) || !slices.Equal(keysOf(problems), test.problems) {
			t.Errorf("%s: got %+v\nwant %+v\nproblems %v", name, got, test.want, problems)
		}
	}
}

func TestFieldsThatCannotBeRead(t *testing.T) {
	got, problems := Decode(nil, Spec{LoadBalancerIP: "web.example.com", SourceRanges: []string{"192.0.2.0/24", "x"}}, instances)
	if want := (Wishes{Kept: Kept{Addresses: true, Virtual: true}, Unservable: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if len(problems) != 2 || !strings.HasPrefix(problems[0].String(), `spec.loadBalancerIP: "web.example.com" is not`) ||
		!strings.HasPrefix(problems[1].String(), `spec.loadBalancerSourceRanges: "x" is neither`) || problems[1].Value != "192.0.2.0/24,x" {
		t.Errorf("problems: %q", problems)
	}
}

func TestPodsAndNodes(t *testing.T) {
	for value, want := range map[string]uint8{"1": 1, " 20 ": 20, "0": 0, "21": 0, "": 0, "-1": 0, "2.5": 0, "x": 0} {
		got, problem := ParseWeight(value)
		if got != want || (problem == nil) != (want != 0) || problem != nil && (problem.Key != Weight || !strings.Contains(problem.Message, "from 1 to 20")) {
			t.Errorf("weight %q: %d, %v", value, got, problem)
		}
	}
	for value, want := range map[string]string{"true": "true", " false ": "false", "": "false", "yes": "", "True": "", "1": ""} {
		got, problem := ParseDrain(value)
		if problem != nil && (problem.Key != Drain || got || !strings.Contains(problem.Message, `write "true" or "false"`)) || (problem == nil) != (want != "") || got != (want == "true") {
			t.Errorf("drain %q: %t, %v", value, got, problem)
		}
	}
}

// The table can be documented, and its examples are good values.
func TestVocabulary(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Vocabulary() {
		if seen[w.Name] || !strings.HasPrefix(w.Name, ClassPrefix) || w.Doc == "" || w.Values == "" || strings.HasSuffix(w.Doc, ".") || strings.Contains(w.Doc+w.Values+w.Example, "|") {
			t.Errorf("%+v", w)
		}
		seen[w.Name] = true
		var problems []Problem
		switch w.On {
		case "Service":
			values := on(w.Name, w.Example)
			switch w.Name {
			case MonitorPath, MonitorHost:
				values[Monitor] = "HTTP"
			case MonitorName:
				values[Monitor] = "Existing"
			case PersistenceTimeout:
				values[Persistence] = "SourceAddress"
			}
			_, problems = Decode(values, Spec{}, instances)
		case "Pod":
			if _, p := ParseWeight(w.Example); p != nil {
				problems = append(problems, *p)
			}
		case "Node":
			if drain, p := ParseDrain(w.Example); p != nil || !drain {
				t.Errorf("%s: %v", w.Name, p)
			}
		default:
			t.Errorf("%s is on %q", w.Name, w.On)
		}
		if len(problems) > 0 {
			t.Errorf("the example of %s: %v", w.Name, problems)
		}
	}
}

// Decode runs for each event of each Service of the cluster.
func BenchmarkDecode(b *testing.B) {
	all := map[string]string{}
	for _, w := range Vocabulary() {
		if w.On == "Service" && w.Name != Pool {
			all[w.Name] = w.Example
		}
	}
	for name, values := range map[string]map[string]string{"of others": on("example.com/x", "y"), "everything": all} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decode(values, Spec{}, instances)
			}
		})
	}
}
