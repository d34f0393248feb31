package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// healthy is a document in which nothing is wrong: shop/web has two Pods behind one VIP on edge.
func healthy() document.Document {
	return document.Document{
		Version: document.Version, Instance: "nplbridge-system/nplbridge", Identity: "lbsync-a", Leading: true, Leader: "lbsync-a", ServiceType: "NodePortLocal",
		Providers: []document.Provider{{Name: "edge", Kind: "haproxy", Local: true, Writing: true, Ready: true}},
		Services: []document.Service{{
			Service: "shop/web", On: []string{"edge"}, Source: "NodePortLocal", Selected: 2,
			Conditions: []document.Condition{{Type: "nplbridge.io/Accepted", Status: "True", Reason: "Accepted"}},
			Ports: []document.Port{{
				Port: 80, Protocol: "TCP", Provider: "edge", Target: "8080", VIPs: []string{"192.0.2.1"}, Programmed: true,
				Members: []document.Member{
					{Pod: "shop/web-1", PodUID: "u1", Address: "192.0.2.11:61000", State: "Enabled", Health: "Up"},
					{Pod: "shop/web-2", PodUID: "u2", Address: "192.0.2.12:61000", State: "Enabled"},
				},
			}},
		}},
	}
}

// text is the chains as the command prints them, roughly, without the fixes.
func text(e Explanation) string {
	var b strings.Builder
	for _, c := range e.Chains {
		fmt.Fprintf(&b, "%s\n", c.Title)
		for _, s := range c.Steps {
			fmt.Fprintf(&b, "  %s %s: %s\n", s.Level, s.Link, s.Found)
		}
	}
	return b.String()
}

func TestHealthyService(t *testing.T) {
	e := Service(healthy(), "shop/web")
	want := `Service shop/web
shop/web:80/TCP on edge
  ok VIP: 192.0.2.1 on edge (haproxy)
  ok virtual server: confirmed by edge
  ok members: 2 take connections: shop/web-1 at 192.0.2.11:61000, shop/web-2 at 192.0.2.12:61000
`
	if diff := cmp.Diff(want, text(e)); diff != "" || e.Broken() {
		t.Errorf("broken: %v, -want +got:\n%s", e.Broken(), diff)
	}
}

// Each case breaks one link; the answer names it, says how to mend it, and says nothing about what lies behind.
func TestFirstBrokenLink(t *testing.T) {
	connections := 3
	for name, test := range map[string]struct {
		edit  func(*document.Document, *document.Service, *document.Port)
		want  string // last step
		fix   string
		whole bool // what is wrong breaks the Service as a whole, not only Pods
	}{
		"another process leads": {
			edit: func(d *document.Document, _ *document.Service, _ *document.Port) {
				d.Leading, d.Leader, d.Providers[0].Writing = false, "lbsync-b", false
			},
			want: "broken lbsync: this process, lbsync-a, waits for its turn and knows nothing of the load balancers; lbsync-b holds the Lease", fix: "--process lbsync-b", whole: true,
		},
		"nobody leads": {
			edit: func(d *document.Document, _ *document.Service, _ *document.Port) {
				d.Leading, d.Leader, d.Providers[0].Writing = false, "", false
			},
			want: "broken lbsync: nobody holds the Lease", fix: "lbsync check", whole: true,
		},
		"process in trouble": {
			edit: func(d *document.Document, _ *document.Service, _ *document.Port) {
				d.Problem = "waiting for the API server's first answer"
			},
			want: "broken lbsync: waiting for the API server's first answer", fix: "see its log", whole: true,
		},
		"dry run": {
			edit: func(d *document.Document, _ *document.Service, p *document.Port) {
				d.DryRun = true
				d.Providers[0].Planned = []document.Change{{Key: "shop/web:80/TCP", Object: "pool", Op: "change"}}
			},
			want: "broken lbsync: it runs with dryRun and writes nothing", fix: "lbsync diff", whole: true,
		},
		"managed by other": {
			edit: func(_ *document.Document, s *document.Service, _ *document.Port) { s.ManagedBy = "other/nplbridge" },
			want: `broken Service: another lbsync, "other/nplbridge", manages it`, fix: "nplbridge.io/managed-by-", whole: true,
		},
		"annotation": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				s.Problems = []document.Problem{{Key: "nplbridge.io/load-balancer-ips", Value: "x", Message: "is no address"}}
				p.Programmed = false
			},
			want: `broken Service: nplbridge.io/load-balancer-ips: "x": is no address`, fix: "correct it", whole: true,
		},
		"not accepted": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				s.Conditions[0] = document.Condition{Type: "nplbridge.io/Accepted", Status: "False", Reason: "AddressPoolExhausted", Message: "every address is taken"}
				s.Ports = nil
			},
			want: "broken Service: not accepted as it is written (AddressPoolExhausted): every address is taken", whole: true,
		},
		"not accepted, with a harmless problem": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				s.Problems = []document.Problem{{Key: "nplbridge.io/algorithm", Value: "fastest", Message: `"fastest" is no algorithm`}}
				s.Conditions[0] = document.Condition{Type: "nplbridge.io/Accepted", Status: "False", Reason: "InvalidAnnotation",
					Message: `annotation nplbridge.io/algorithm: "fastest" is no algorithm; every address is taken`}
				s.Ports = nil
			},
			want: `broken Service: not accepted as it is written (InvalidAnnotation): annotation nplbridge.io/algorithm: "fastest" is no algorithm; every address is taken`,
			fix:  "correct it", whole: true,
		},
		"cannot": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) {
				p.Unserved, p.Cannot = true, "haproxy cannot balance SCTP"
			},
			want: "broken virtual server: haproxy cannot balance SCTP", fix: "choose a load balancer that can", whole: true,
		},
		"no VIP": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) {
				p.VIPs, p.Programmed = nil, false
			},
			want: "waiting VIP: it has no address on edge", fix: "describe service web",
		},
		"load balancer away": {
			edit: func(d *document.Document, _ *document.Service, _ *document.Port) {
				d.Providers[0].Problem, d.Providers[0].ProblemKind = "connection refused", "Unavailable"
			},
			want: "broken load balancer: edge cannot be read: connection refused; everything on it stays as it is", fix: "lbsync check", whole: true,
		},
		"refused change": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) {
				p.Problem, p.ProblemKind, p.Since = "no such monitor", "Rejected", "2026-01-02T03:04:05Z"
			},
			want: "broken virtual server: edge did not take a change since 2026-01-02T03:04:05Z: no such monitor", fix: "change what the message names", whole: true,
		},
		"guarded": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) { p.Guarded = 2 },
			want: "waiting pool: 2 members are held, because more than half of the pool was lost and no event explains it\n  ok members",
			fix:  "nplbridge.io/allow-removal=true",
		},
		"selects nothing": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) { s.Selected, p.Members = 0, nil },
			want: "broken members: there are none: the Service selects no Pod", whole: true,
		},
		"Pod not ready": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				p.Members = nil
				s.Pods = []document.Pod{{Pod: "shop/web-1", UID: "u1"}}
			},
			want: "broken Pod: shop/web-1 is not ready", fix: "describe pod web-1", whole: true,
		},
		"one of two not ready": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				p.Members = p.Members[:1]
				s.Pods = []document.Pod{{Pod: "shop/web-2", UID: "u2"}}
			},
			want: "note Pod: shop/web-2 is not ready", fix: "describe pod web-2",
		},
		"node port missing": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				p.Members = nil
				p.Refusals = []document.Refusal{{Pod: "shop/web-1", PodUID: "u1", Reason: "NotPublished", Message: "no mapping"}}
				s.Pods = []document.Pod{{Pod: "shop/web-1", UID: "u1", Ready: true}}
			},
			want: "broken node port: shop/web-1 (NotPublished): no mapping", fix: "npl-agent status", whole: true,
		},
		"draining": {
			edit: func(_ *document.Document, s *document.Service, p *document.Port) {
				p.Members = p.Members[:1]
				p.Members[0].State, p.Members[0].Connections = "Draining", &connections
				s.Pods = []document.Pod{{Pod: "shop/web-1", UID: "u1", Ready: true, Terminating: true}}
			},
			want: "waiting member: shop/web-1 at 192.0.2.11:61000 takes no new connections and leaves when it has none, 3 connections: its Pod is being deleted",
		},
		"draining, and not selected": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) {
				p.Members[0].State, p.Members[0].Deselected = "Draining", true
			},
			want: "waiting member: shop/web-1 at 192.0.2.11:61000 takes no new connections and leaves when it has none: the Service does not select its Pod any more",
		},
		"monitor says down": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) {
				p.Members = p.Members[:1]
				p.Members[0].Health = "Down"
			},
			want: "broken node port: edge calls shop/web-1 at 192.0.2.11:61000 down: it gets no answer there", fix: "npl-agent status --port 192.0.2.11:61000", whole: true,
		},
		"down by NetworkPolicy": {
			edit: func(d *document.Document, _ *document.Service, p *document.Port) {
				p.Members = p.Members[:1]
				p.Members[0].Health = "Down"
				d.NetworkPolicies = []document.NetworkPolicy{{Policy: "shop/closed", Pods: []string{"shop/web-1"}, Rules: []document.Rule{{}}}}
			},
			want: "broken Pod: edge calls shop/web-1 at 192.0.2.11:61000 down, and NetworkPolicy shop/closed lets nobody but Pods reach port 8080 of it", fix: "ipBlock", whole: true,
		},
		"blocked by operator": {
			edit: func(_ *document.Document, _ *document.Service, p *document.Port) {
				p.Members = p.Members[:1]
				p.Members[0].Blocked = true
			},
			want: "broken member: shop/web-1 at 192.0.2.11:61000 is disabled on edge by an operator", fix: "enable it", whole: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := healthy()
			test.edit(&d, &d.Services[0], &d.Services[0].Ports[0])
			e := Service(d, "shop/web")
			got := text(e)
			if at := strings.Index(got, "  "+test.want); at < 0 || strings.Count(got[at:], "\n") > strings.Count(test.want, "\n")+1 {
				t.Errorf("it does not end with %q:\n%s", test.want, got)
			}
			if all, _ := json.Marshal(e); test.fix != "" && !strings.Contains(string(all), test.fix) {
				t.Errorf("no fix with %q: %s", test.fix, all)
			}
			if e.Broken() != test.whole {
				t.Errorf("Broken() = %v:\n%s", e.Broken(), got)
			}
		})
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// What is but a note about a Service with other Pods breaks the Pod itself.
func TestPod(t *testing.T) {
	d := healthy()
	d.Services[0].Ports[0].Members = d.Services[0].Ports[0].Members[:1]
	d.Services[0].Pods = []document.Pod{{Pod: "shop/web-2", UID: "u2"}}
	for pod, want := range map[string]string{
		"shop/web-1": "ok member: shop/web-1 at 192.0.2.11:61000 is enabled, monitor says up",
		"shop/web-2": "broken Pod: shop/web-2 is not ready",
		"shop/web-3": "broken Service: no Service that lbsync serves selects this Pod, or there is no such Pod",
	} {
		e := Pod(d, pod)
		if got := lastLine(text(e)); got != "  "+want || e.Broken() != strings.HasPrefix(want, "broken") {
			t.Errorf("%s: %q", pod, got)
		}
	}
	d.Services[0].Pods = []document.Pod{{Pod: "shop/web-1", UID: "u1", Ready: true, Gated: true}}
	if got := lastLine(text(Pod(d, "shop/web-1"))); !strings.Contains(got, "waiting Pod: its readiness gate") {
		t.Errorf("gated: %q", got)
	}
}

func TestVIP(t *testing.T) {
	for at, want := range map[string]string{
		"192.0.2.1":     "ok members: 2 take connections",
		"192.0.2.1:80":  "ok members: 2 take connections",
		"192.0.2.1:443": "broken virtual server: no Service has port 443 of 192.0.2.1; it has 80/TCP (shop/web)",
		"192.0.2.9":     "broken VIP: no virtual server of ours has the address 192.0.2.9",
	} {
		e, err := VIP(healthy(), at)
		if got := lastLine(text(e)); err != nil || !strings.HasPrefix(got, "  "+want) {
			t.Errorf("%s: %v, %q", at, err, got)
		}
	}
	if _, err := VIP(healthy(), "web"); err == nil || !strings.Contains(err.Error(), `"web" is not a VIP: write an address`) {
		t.Error(err)
	}
}

func TestMember(t *testing.T) {
	d := healthy()
	d.Services[0].Pods = []document.Pod{{Pod: "shop/web-3", UID: "u3", Mappings: []string{"8080/tcp at 192.0.2.13:61003"}}}
	d.Providers[0].Watermark = &document.Watermark{Held: []string{"worker-9 61009/tcp IPv4"}}
	for at, want := range map[string]string{
		"192.0.2.12:61000":     "ok member: shop/web-2 at 192.0.2.12:61000 is enabled",
		"192.0.2.12:61000/tcp": "ok member: shop/web-2",
		"192.0.2.12:61000/udp": "broken pool: no pool of ours has such a member",
		"192.0.2.13:61003":     "broken pool: it is the node port of Pod shop/web-3",
		"192.0.2.19:61009":     "broken pool: no pool of ours has such a member",
	} {
		e, err := Member(d, at)
		if got := lastLine(text(e)); err != nil || !strings.HasPrefix(got, "  "+want) {
			t.Errorf("%s: %v, %q", at, err, got)
		}
	}
	if e, _ := Member(d, "192.0.2.19:61009"); !strings.Contains(text(e), "edge may still list node port worker-9 61009/tcp IPv4") {
		t.Errorf("what is held is not told:\n%s", text(e))
	}
	if _, err := Member(d, "192.0.2.1"); err == nil || !strings.Contains(err.Error(), "write ADDRESS:PORT") {
		t.Error(err)
	}
}

func TestUnknownServices(t *testing.T) {
	d := healthy()
	d.Ignored = []document.Ignored{{Service: "shop/other", Why: `its loadBalancerClass is "x"`}}
	for name, want := range map[string]string{
		"shop/other": `broken Service: its loadBalancerClass is "x"`,
		"shop/none":  "broken Service: lbsync knows no such Service",
	} {
		if got := lastLine(text(Service(d, name))); !strings.HasPrefix(got, "  "+want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAdvice(t *testing.T) {
	d := healthy()
	d.Services[0].NodePorts = true
	if got := text(Service(d, "shop/web")); !strings.Contains(got, "note Service: Kubernetes allocates node ports for it") {
		t.Errorf("no advice:\n%s", got)
	}
	d.Services[0].Source = "NodePort"
	if got := text(Service(d, "shop/web")); strings.Contains(got, "allocates") {
		t.Errorf("advice against what members are made of:\n%s", got)
	}
}

func TestPolicies(t *testing.T) {
	member := document.Member{Pod: "shop/web-1"}
	port := document.Port{Protocol: "TCP", Port: 80, Target: "8080"}
	named := document.Port{Protocol: "TCP", Port: 80, Target: "http"}
	tcp := func(first, last uint16) []document.RulePort {
		return []document.RulePort{{Protocol: "tcp", First: first, Last: last}}
	}
	for name, test := range map[string]struct {
		port           document.Port
		rules          []document.Rule
		blocks, narrow bool
	}{
		"nothing allowed":       {port, nil, true, false},
		"only Pods":             {port, []document.Rule{{}}, true, false},
		"anyone":                {port, []document.Rule{{Anyone: true}}, false, false},
		"anyone, other port":    {port, []document.Rule{{Anyone: true, Ports: tcp(9090, 0)}}, true, false},
		"anyone, range":         {port, []document.Rule{{Anyone: true, Ports: tcp(8000, 9000)}}, false, false},
		"anyone, other family":  {port, []document.Rule{{Anyone: true, Ports: []document.RulePort{{Protocol: "udp", First: 8080}}}}, true, false},
		"a network":             {port, []document.Rule{{Blocks: []string{"10.0.0.0/8"}}}, false, true},
		"name against number":   {port, []document.Rule{{Anyone: true, Ports: []document.RulePort{{Protocol: "tcp", Name: "http"}}}}, false, false},
		"number against name":   {named, []document.Rule{{Anyone: true, Ports: tcp(9090, 0)}}, false, false},
		"same name":             {named, []document.Rule{{Anyone: true, Ports: []document.RulePort{{Protocol: "tcp", Name: "http"}}}}, false, false},
		"another name":          {named, []document.Rule{{Anyone: true, Ports: []document.RulePort{{Protocol: "tcp", Name: "grpc"}}}}, true, false},
		"every port of TCP":     {port, []document.Rule{{Anyone: true, Ports: tcp(0, 0)}}, false, false},
		"one rule of two opens": {port, []document.Rule{{}, {Anyone: true}}, false, false},
	} {
		d := document.Document{NetworkPolicies: []document.NetworkPolicy{{Policy: "shop/p", Pods: []string{"shop/web-1"}, Rules: test.rules}}}
		if got := policyBlocks(d, member, test.port) != ""; got != test.blocks {
			t.Errorf("%s: blocks = %v", name, got)
		}
		if got := policyNarrows(d, member, test.port) != ""; got != test.narrow {
			t.Errorf("%s: narrows = %v", name, got)
		}
		if policyBlocks(d, document.Member{Pod: "shop/other"}, test.port) != "" {
			t.Errorf("%s: it is about another Pod", name)
		}
	}
}

// Everything that can be the reason of a refusal or an error has its way out.
func TestEveryReasonHasAFix(t *testing.T) {
	for _, reason := range model.Reasons() {
		if reasonFix(document.Refusal{Pod: "shop/web-1", Reason: string(reason)}, document.Service{Service: "shop/web"}) == "" {
			t.Errorf("no fix for %s", reason)
		}
	}
	kinds := []providers.Kind{providers.Unavailable, providers.Throttled, providers.Conflict, providers.Rejected, providers.Misconfigured}
	for _, kind := range kinds {
		if kindFix(string(kind)) == "" {
			t.Errorf("no fix for %s", kind)
		}
	}
}

// Whatever a document says, an explanation of anything in it comes to an end and says at least one thing.
func TestAnyDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"", "a/x", "a/y", "edge", "Enabled", "Draining", "Down", "192.0.2.1", "192.0.2.1:80", "False"})
		var d document.Document
		d.Leader, d.Leading, d.DryRun = word.Draw(t, "leader"), rapid.Bool().Draw(t, "leading"), rapid.Bool().Draw(t, "dry")
		for range rapid.IntRange(0, 2).Draw(t, "providers") {
			d.Providers = append(d.Providers, document.Provider{Name: word.Draw(t, "p"), Writing: rapid.Bool().Draw(t, "w"), Problem: word.Draw(t, "pp")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "services") {
			s := document.Service{Service: word.Draw(t, "s"), On: []string{word.Draw(t, "on")}, Deleting: rapid.Bool().Draw(t, "d")}
			for range rapid.IntRange(0, 2).Draw(t, "ports") {
				s.Ports = append(s.Ports, document.Port{
					Provider: word.Draw(t, "pp"), VIPs: []string{word.Draw(t, "vip")}, Problem: word.Draw(t, "problem"),
					Members:  []document.Member{{Pod: word.Draw(t, "m"), Address: word.Draw(t, "ma"), State: word.Draw(t, "ms"), Health: word.Draw(t, "mh")}},
					Refusals: []document.Refusal{{Pod: word.Draw(t, "r"), Reason: word.Draw(t, "rr")}},
				})
			}
			s.Pods = []document.Pod{{Pod: word.Draw(t, "pod"), Ready: rapid.Bool().Draw(t, "ready")}}
			d.Services = append(d.Services, s)
		}
		what := word.Draw(t, "what")
		answers := []Explanation{Service(d, what), Pod(d, what)}
		if e, err := VIP(d, what); err == nil {
			answers = append(answers, e)
		}
		if e, err := Member(d, what); err == nil {
			answers = append(answers, e)
		}
		for _, e := range answers {
			if len(e.Chains) == 0 || !slices.ContainsFunc(e.Chains, func(c Chain) bool { return len(c.Steps) > 0 }) {
				t.Fatalf("nothing said: %+v", e)
			}
		}
	})
}
