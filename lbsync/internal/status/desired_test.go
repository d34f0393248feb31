package status

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var (
	now  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	vips = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
)

func web() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	}
}

func port(number uint16, protocol providers.Protocol, edit ...func(*loop.PortReport)) loop.PortReport {
	p := loop.PortReport{
		Key: providers.Key{Namespace: "shop", Service: "web", Port: number, Protocol: protocol}, Programmed: true, VIPs: vips,
	}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func failing(kind providers.Kind, age time.Duration) func(*loop.PortReport) {
	return func(p *loop.PortReport) {
		p.Programmed, p.Kind, p.Problem, p.Since = false, kind, "no answer", now.Add(-age)
	}
}

// unsupported is a port that cannot be served.
func unsupported(p *loop.PortReport) { p.Programmed, p.Unsupported, p.VIPs = false, true, nil }

// cannotDo is a port that is served in part.
func cannotDo(what string) func(*loop.PortReport) {
	return func(p *loop.PortReport) { p.Cannot = what }
}

func waiting(p *loop.PortReport) { p.Programmed = false }

func absent(p *loop.PortReport) { p.VIPs = nil }

func guarded(p *loop.PortReport) { p.Guarded, p.Programmed = 4, false }

func report(ports ...loop.PortReport) loop.Report { return loop.Report{Wanted: true, Ports: ports} }

// onOne are the facts about a Service on one load balancer.
func onOne(s *corev1.Service, assigned addrs, r loop.Report, edits ...func(*served)) facts {
	selection := inventory.Selection{Instances: []string{"haproxy"}, Source: annotations.NodePortLocal}
	f := facts{record: selection.Service(s), now: now}
	_, f.problems = selection.Wishes(s)
	on := served{assigned: assigned, stand: stand{
		balancer: Balancer{Name: "haproxy", Capabilities: providertest.MemoryCapabilities()}, wanted: true, reported: true, report: r,
	}}
	for _, e := range edits {
		e(&on)
	}
	f.on = []served{on}
	return f
}

// with adds another load balancer.
func (f facts) with(name string, assigned addrs, r loop.Report, edits ...func(*served)) facts {
	on := f.on[0]
	on.balancer.Name, on.assigned, on.report, on.refused = name, assigned, r, nil
	for _, e := range edits {
		e(&on)
	}
	f.on = append(slices.Clip(f.on), on)
	return f
}

func refusedFor(reason string) func(*served) {
	return func(s *served) { s.refused = &refusal{reason, "it is " + reason} }
}

func troubled(kind providers.Kind) func(*served) {
	return func(s *served) { s.trouble = &providers.Error{Kind: kind, What: "it is troubled"} }
}

func abandonedOne(s *served) { s.abandoned = true }
func leavingOne(s *served)   { s.wanted = false }
func unreported(s *served)   { s.reported = false }

func notYet(names ...string) func(*served) { return func(s *served) { s.pending = names } }
func mute(names ...string) func(*served)   { return func(s *served) { s.silent = names } }

func (f facts) since(age time.Duration) facts { f.waiting = now.Add(-age); return f }

func TestSpeak(t *testing.T) {
	was := web()
	setCondition(was, metav1.Condition{Type: Programmed, Status: metav1.ConditionTrue, Reason: ReasonProgrammed}, now)
	disabled, badAlgorithm, ranges := web(), web(), web()
	disabled.Annotations[npl.EnabledAnnotation] = "false"
	badAlgorithm.Annotations[annotations.Algorithm] = "fastest"
	ranges.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/28"}
	attached := web()
	attached.Annotations[annotations.Pool] = "80=haproxy:/Common/web"
	second := addrs{addr("192.0.2.2")}
	at := func(vip string) func(*loop.PortReport) {
		return func(p *loop.PortReport) { p.VIPs = []netip.Addr{addr(vip)} }
	}
	all := report(port(53, "UDP"), port(80, "TCP"))
	noRanges := func(s *served) { s.balancer.Capabilities.Features = nil }
	for _, test := range []struct {
		name                 string
		service              *corev1.Service
		facts                facts
		accepted, programmed string // reasons; a True condition's is its own name
		ingress              string // addresses with the errors of their ports
		again                time.Duration
	}{
		{"all is well", web(), onOne(web(), vips, all), "Accepted", "Programmed", "192.0.2.1", 0},
		{"a protocol that cannot be balanced", web(), onOne(web(), vips, report(port(80, "TCP"), port(53, "SCTP", unsupported))),
			"UnsupportedProtocol", "Programmed", "192.0.2.1", 0},
		{"a setting that cannot be had", web(), onOne(web(), vips, report(port(80, "TCP", cannotDo("memory cannot start members slowly")))),
			"UnsupportedSetting", "Programmed", "192.0.2.1", 0},
		{"a restriction that cannot be had", ranges, onOne(ranges, vips, report(port(53, "UDP", unsupported, cannotDo("memory cannot restrict clients")), port(80, "TCP")), noRanges),
			"SourceRangesUnsupported", "Programmed", "192.0.2.1 53=SourceRangesUnsupported", 0},
		{"another setting of a port without which it is not served", web(), onOne(web(), vips, report(port(53, "UDP", unsupported, cannotDo("memory cannot")), port(80, "TCP"))),
			"UnsupportedSetting", "Programmed", "192.0.2.1 53=UnsupportedSetting", 0},
		{"nothing can be balanced", web(), onOne(web(), vips, report(port(53, "SCTP", unsupported))), "UnsupportedProtocol", "NotAccepted", "", 0},
		{"not told yet", web(), onOne(web(), vips, loop.Report{}), "Accepted", "Pending", "", 0},
		{"the load balancer cannot be read", web(), onOne(web(), vips, loop.Report{}, troubled(providers.Misconfigured)), "Accepted", "ProviderMisconfigured", "", 0},
		{"a change failed, and now nobody may look", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Conflict, 0))), troubled(providers.Misconfigured)),
			"Accepted", "ProviderMisconfigured", "192.0.2.1", 0},
		{"a change was refused, and now nobody may look", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Rejected, 0))), troubled(providers.Misconfigured)),
			"Accepted", "ProviderMisconfigured", "192.0.2.1", 0},
		{"a change failed, and now nobody answers", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Conflict, grace))), troubled(providers.Unavailable)),
			"Accepted", "ProviderUnavailable", "192.0.2.1", 0},
		{"a change failed, and nobody answers for a moment", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Conflict, 0))), troubled(providers.Unavailable)),
			"Accepted", "Programmed", "192.0.2.1", grace},
		{"a change was refused, and now nobody answers", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Rejected, 0))), troubled(providers.Unavailable)),
			"Accepted", "ProviderRejected", "192.0.2.1", 0},
		{"all was done, and now nobody may look", was, onOne(was, vips, all, troubled(providers.Misconfigured)), "Accepted", "Programmed", "192.0.2.1", 0},
		{"refused", web(), onOne(web(), nil, loop.Report{}, refusedFor("AddressConflict")), "AddressConflict", "NotAccepted", "", 0},
		{"refused, keeps what it has", web(), onOne(web(), vips, all, refusedFor("AddressConflict")), "AddressConflict", "Programmed", "192.0.2.1", 0},
		{"never programmed", web(), onOne(web(), vips, report(port(80, "TCP", absent, failing(providers.Unavailable, 0)))), "Accepted", "ProviderUnavailable", "", 0},
		{"one of two ports is there", web(), onOne(web(), vips, report(port(53, "UDP", absent, failing(providers.Rejected, 0)), port(80, "TCP"))),
			"Accepted", "ProviderRejected", "192.0.2.1 53=ProviderRejected", 0},
		{"a failure that may pass", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Unavailable, 2*time.Second)))),
			"Accepted", "Programmed", "192.0.2.1", 3 * time.Second},
		{"a failure that has not passed", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Unavailable, grace)))),
			"Accepted", "ProviderUnavailable", "192.0.2.1", 0},
		{"the older of two failures counts", was, onOne(was, vips, report(port(53, "UDP", failing(providers.Conflict, 0)), port(80, "TCP", failing(providers.Unavailable, grace)))),
			"Accepted", "ProviderConflict", "192.0.2.1", 0},
		{"a failure that will not pass", was, onOne(was, vips, report(port(80, "TCP", failing(providers.Rejected, 0)))), "Accepted", "ProviderRejected", "192.0.2.1", 0},
		{"waiting for its turn", web(), onOne(web(), vips, report(port(80, "TCP", absent, waiting))), "Accepted", "Pending", "", 0},
		{"another port waiting for its turn", was, onOne(was, vips, report(port(53, "UDP", absent, waiting), port(80, "TCP"))), "Accepted", "Programmed", "192.0.2.1", 0},
		{"removals held", web(), onOne(web(), vips, report(port(80, "TCP", waiting, func(p *loop.PortReport) { p.Problem = "wait" }))), "Accepted", "RemovalsHeld", "192.0.2.1", 0},
		{"the guard holds members", was, onOne(was, vips, report(port(80, "TCP", guarded))), "Accepted", "MembersHeld", "192.0.2.1", 0},
		{"a failure weighs more than a hold", was, onOne(was, vips, report(port(53, "UDP", guarded), port(80, "TCP", failing(providers.Rejected, 0)))),
			"Accepted", "ProviderRejected", "192.0.2.1", 0},
		{"disabled by the user", disabled, onOne(disabled, vips, all), "NodePortLocalDisabled", "Programmed", "192.0.2.1", 0},
		{"malformed annotation", badAlgorithm, onOne(badAlgorithm, vips, all), "InvalidAnnotation", "Programmed", "192.0.2.1", 0},

		{"two load balancers", web(), onOne(web(), vips, all).with("avi", second, report(port(80, "TCP", at("192.0.2.2")))), "Accepted", "Programmed", "192.0.2.1 192.0.2.2", 0},
		{"one of two fails", was, onOne(was, vips, all).with("avi", second, report(port(80, "TCP", at("192.0.2.2"), failing(providers.Rejected, 0)))),
			"Accepted", "ProviderRejected", "192.0.2.1 192.0.2.2", 0},
		{"one of two has no address", web(), onOne(web(), vips, all).with("avi", nil, loop.Report{}, refusedFor("NoAddressPool")), "NoAddressPool", "Programmed", "192.0.2.1", 0},
		{"one of two cannot be read", was, onOne(was, vips, all).with("avi", second, loop.Report{}, troubled(providers.Unavailable)), "Accepted", "ProviderUnavailable", "192.0.2.1", 0},
		{"one of two is gone for good", was, onOne(was, vips, all).with("avi", second, report(port(80, "TCP", at("192.0.2.2"), failing(providers.Unavailable, time.Hour))), abandonedOne),
			"Accepted", "Programmed", "192.0.2.1", 0},
		{"it has just left one of two", was, onOne(was, vips, all).with("avi", nil, report(port(80, "TCP", at("192.0.2.2"))), leavingOne).since(0),
			"Accepted", "Programmed", "192.0.2.1", grace},
		{"it cannot leave one of two", was, onOne(was, vips, all).with("avi", nil, report(port(80, "TCP", at("192.0.2.2"), failing(providers.Rejected, 0))), leavingOne).since(0),
			"Accepted", "ProviderRejected", "192.0.2.1", 0},
		{"it has long left one of two", was, onOne(was, vips, all).with("avi", nil, report(port(80, "TCP", at("192.0.2.2"))), leavingOne).since(grace),
			"Accepted", "Pending", "192.0.2.1", 0},

		{"another process has just not applied it", was, onOne(was, vips, all, notYet("lb-2")).since(time.Second), "Accepted", "Programmed", "192.0.2.1", 4 * time.Second},
		{"another process has not applied it", was, onOne(was, vips, all, notYet("lb-2")).since(grace), "Accepted", "Pending", "192.0.2.1", 0},
		{"another process is silent", was, onOne(was, vips, all, mute("lb-2")), "Accepted", "Programmed", "192.0.2.1", 0},

		{"members only", attached, onOne(attached, nil, report(port(80, "TCP", absent, func(p *loop.PortReport) { p.Attached = "/Common/web" }))), "Accepted", "Programmed", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.facts.membersOnly = membersOnly(test.service, test.facts.record)
			out, again := speak(test.service, test.facts)
			var got []string
			for _, i := range out.Status.LoadBalancer.Ingress {
				text := i.IP
				if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeProxy {
					t.Error("ipMode is not Proxy")
				}
				if len(i.Ports) != 2 {
					t.Errorf("ports %+v", i.Ports)
				}
				for _, p := range i.Ports {
					if p.Error != nil {
						text += fmt.Sprintf(" %d=%s", p.Port, strings.TrimPrefix(*p.Error, "nplbridge.io/"))
					}
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != test.ingress || again != test.again {
				t.Errorf("ingress %q, again %s; want %q, %s", got, again, test.ingress, test.again)
			}
			for kind, want := range map[string]string{Accepted: test.accepted, Programmed: test.programmed} {
				c := meta.FindStatusCondition(out.Status.Conditions, kind)
				good := want == ReasonAccepted || want == ReasonProgrammed
				if c.Reason != want || (c.Status == metav1.ConditionTrue) != good {
					t.Errorf("%s is %s because of %s (%s), want %s", kind, c.Status, c.Reason, c.Message, want)
				}
			}
			// Saying the same again changes nothing.
			test.facts.now = now.Add(time.Second)
			if twice, _ := speak(out, test.facts); test.again == 0 && !reflect.DeepEqual(twice.Status, out.Status) {
				t.Errorf("said twice:\n%v\n%v", out.Status, twice.Status)
			}
		})
	}
}

// A message names the load balancer where there are several, and does not promise what is not so.
func TestMessages(t *testing.T) {
	disabled := web()
	disabled.Annotations[npl.EnabledAnnotation] = "false"
	for _, test := range []struct {
		kind         string
		service      *corev1.Service
		facts        facts
		want, absent string
	}{
		{Accepted, web(), onOne(web(), vips, report(port(53, "SCTP", unsupported), port(80, "TCP"))),
			"53/SCTP: the load balancer cannot balance SCTP; the other ports are served", "haproxy"},
		{Accepted, web(), onOne(web(), vips, report(port(53, "SCTP", unsupported), port(81, "SCTP", unsupported))), "53/SCTP, 81/SCTP: ", "other"},
		{Accepted, web(), onOne(web(), vips, report(port(53, "SCTP", unsupported))), "no port is served", "other"},
		{Accepted, web(), onOne(web(), vips, report(port(53, "UDP", cannotDo("a")), port(80, "TCP", cannotDo("a")))), "53/UDP, 80/TCP: a; the rest is served", "haproxy"},
		{Accepted, web(), onOne(web(), vips, report(port(80, "TCP", cannotDo("a")))).with("avi", vips, report(port(80, "TCP", cannotDo("b")))),
			"haproxy: 80/TCP: a; the rest is served; avi: 80/TCP: b", ""},
		{Accepted, disabled, onOne(disabled, vips, report(port(80, "TCP"))), `"false", so this Service asks for no node ports`, "get no node ports"},
		{Programmed, web(), onOne(web(), vips, report(port(80, "TCP"))), "the load balancer serves it at 192.0.2.1", "haproxy"},
		{Programmed, web(), onOne(web(), vips, report(port(80, "TCP")), mute("lb-2", "lb-3")), "serves it at 192.0.2.1; nothing is heard of lb-2, lb-3", ""},
		{Programmed, web(), onOne(web(), vips, report(port(80, "TCP"))).with("avi", vips, report(port(80, "TCP"))),
			"haproxy: the load balancer serves it at 192.0.2.1; avi: the load balancer serves it", ""},
		{Programmed, web(), onOne(web(), vips, report(port(80, "TCP"))).with("avi", vips, report(port(80, "TCP", failing(providers.Rejected, 0)))),
			"avi: 80/TCP: no answer", "haproxy"},
		{Programmed, web(), onOne(web(), vips, report(port(53, "UDP", failing(providers.Conflict, 0)), port(80, "TCP", failing(providers.Rejected, 0))), troubled(providers.Misconfigured)),
			"ProviderMisconfigured: it is troubled; 80/TCP: no answer", "53"},
		{Programmed, web(), onOne(web(), vips, report(port(80, "TCP", guarded))), `80/TCP: 4 members are kept, whose loss nothing explains; to let them go, set the annotation nplbridge.io/allow-removal: "true"`, ""},
		{Programmed, web(), onOne(web(), vips, report(port(80, "TCP")), notYet("lb-2")).since(time.Minute), "not confirmed yet by the load balancer of lb-2", ""},
	} {
		out, _ := speak(test.service, test.facts)
		if got := is(out, test.kind); !strings.Contains(got, test.want) || test.absent != "" && strings.Contains(got, test.absent) {
			t.Errorf("%q, want %q and not %q", got, test.want, test.absent)
		}
	}
}

// An address is published when it is announced, and stays as long as it is.
func TestPublish(t *testing.T) {
	old, fresh := "192.0.2.1", addrs{addr("192.0.2.2")}
	at := func(vips ...string) func(*loop.PortReport) {
		return func(p *loop.PortReport) {
			p.VIPs = nil
			for _, v := range vips {
				p.VIPs = append(p.VIPs, addr(v))
			}
		}
	}
	for _, test := range []struct {
		name  string
		facts func(*corev1.Service) facts
		want  string
	}{
		{"the new one is assigned", func(s *corev1.Service) facts { return onOne(s, fresh, report(port(80, "TCP"))) }, old},
		{"on its way", func(s *corev1.Service) facts {
			return onOne(s, fresh, report(port(53, "UDP", at("192.0.2.2")), port(80, "TCP")))
		}, "192.0.2.1,192.0.2.2"},
		{"acknowledged", func(s *corev1.Service) facts { return onOne(s, fresh, report(port(80, "TCP", at("192.0.2.2")))) }, "192.0.2.2"},
		{"edited on the load balancer by hand", func(s *corev1.Service) facts { return onOne(s, fresh, report(port(80, "TCP", at("203.0.113.9")))) }, ""},
		{"gone", func(s *corev1.Service) facts { return onOne(s, fresh, report(port(80, "TCP", absent))) }, ""},
		{"nothing known", func(s *corev1.Service) facts { return onOne(s, fresh, loop.Report{}, unreported) }, old},
		{"one of two is not known", func(s *corev1.Service) facts {
			return onOne(s, fresh, report(port(80, "TCP", at("192.0.2.2")))).with("avi", vips, loop.Report{}, unreported)
		}, "192.0.2.1,192.0.2.2"},
	} {
		s := web()
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: old}}
		out, _ := speak(s, test.facts(s))
		if got := publishedBy(out); got != test.want {
			t.Errorf("%s: published %q, want %q", test.name, got, test.want)
		}
	}
}

// What somebody else publishes on a Service that only gives members stays.
func TestPublishMembersOnly(t *testing.T) {
	s := web()
	s.Annotations[annotations.Pool] = "80=haproxy:p"
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}, {IP: "192.0.2.1"}, {Hostname: "a.example"}}
	f := onOne(s, nil, report(port(80, "TCP", absent)))
	f.membersOnly = true
	out, _ := speak(s, f)
	if !reflect.DeepEqual(out.Status.LoadBalancer, s.Status.LoadBalancer) {
		t.Errorf("published %+v", out.Status.LoadBalancer)
	}
	f.had = vips // until lately it had a virtual server of ours
	if out, _ = speak(s, f); len(out.Status.LoadBalancer.Ingress) != 2 || out.Status.LoadBalancer.Ingress[0].IP != "203.0.113.1" {
		t.Errorf("published %+v", out.Status.LoadBalancer)
	}
}

func TestClaimAndLetGo(t *testing.T) {
	const instance = "ns/name"
	ours := claimed{manager: "ns/name/lease", instance: instance, assigned: map[string][]netip.Addr{"haproxy": vips}, admit: true, enabling: enable}
	for _, test := range []struct {
		name           string
		annotations    map[string]string
		claimed, letGo string // value of the enable annotation
		claimedBy      bool
	}{
		{name: "ours to set", claimed: "true", claimedBy: true},
		{name: "the user's own", annotations: map[string]string{npl.EnabledAnnotation: "true"}, claimed: "true", letGo: "true"},
		{name: "the user's refusal", annotations: map[string]string{npl.EnabledAnnotation: "false"}, claimed: "false", letGo: "false"},
		{name: "ours, then refused by the user", annotations: map[string]string{npl.EnabledAnnotation: "no", annotations.EnabledBy: instance}, claimed: "no", letGo: "no"},
		{name: "another lbsync's", annotations: map[string]string{npl.EnabledAnnotation: "true", annotations.EnabledBy: "other/one"}, claimed: "true", letGo: "true"},
	} {
		s := web()
		maps.Copy(s.Annotations, test.annotations)
		claimed := claim(s, ours)
		if got := claimed.Annotations[npl.EnabledAnnotation]; got != test.claimed || (claimed.Annotations[annotations.EnabledBy] == instance) != test.claimedBy {
			t.Errorf("%s: claimed %v", test.name, claimed.Annotations)
		}
		if twice := claim(claimed, ours); !reflect.DeepEqual(twice, claimed) {
			t.Errorf("%s: claimed twice: %v", test.name, twice)
		}
		back := ours
		back.enabling = takeBack
		if got := claim(claimed, back).Annotations; got[npl.EnabledAnnotation] != test.letGo || got[annotations.EnabledBy] == instance || got[annotations.ManagedBy] == "" {
			t.Errorf("%s: taken back: %v", test.name, got)
		}
		kept := ours
		kept.enabling = leave
		if got := claim(claimed, kept); !reflect.DeepEqual(got, claimed) {
			t.Errorf("%s: not left alone: %v", test.name, got.Annotations)
		}
		free := letGo(claimed, instance)
		if got := free.Annotations[npl.EnabledAnnotation]; got != test.letGo || len(free.Finalizers) > 0 ||
			free.Annotations[annotations.ManagedBy] != "" || free.Annotations[annotations.AssignedIPs] != "" {
			t.Errorf("%s: let go %v, %v", test.name, free.Annotations, free.Finalizers)
		}
	}
	nothing := ours
	nothing.assigned, nothing.admit = nil, false
	if s := claim(web(), nothing); len(s.Finalizers) > 0 {
		t.Error("a finalizer although nothing is going to be written")
	}
}

func TestSilence(t *testing.T) {
	s := web()
	s.Status.Conditions = []metav1.Condition{{Type: Accepted}, {Type: Programmed}, {Type: "other/Condition"}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if out := silence(s, vips); len(out.Status.Conditions) != 1 || len(out.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("left %+v", out.Status)
	}
	for _, others := range []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}, {Hostname: "a.example"}} {
		s.Status.LoadBalancer.Ingress[0] = others
		if out := silence(s, vips); len(out.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("somebody else's was removed: %v", others)
		}
	}
}

func TestPassing(t *testing.T) {
	passing := func(r loop.Report) bool { return stand{report: r}.passing() }
	if !passing(report(port(80, "TCP", failing(providers.Unavailable, 0)), port(81, "TCP", failing(providers.KindOf(fmt.Errorf("x")), 0)))) ||
		passing(report(port(80, "TCP", failing(providers.Misconfigured, 0)))) {
		t.Error("only what may be over in a moment is passing")
	}
}
