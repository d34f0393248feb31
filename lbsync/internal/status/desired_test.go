package status

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
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
)

var (
	now  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	vips = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
)

func web() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 53, Protocol: corev1.ProtocolUDP}},
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

func unsupported(p *loop.PortReport) { p.Programmed, p.Unsupported, p.VIPs = false, true, nil }

func absent(p *loop.PortReport) { p.VIPs = nil }

func report(ports ...loop.PortReport) loop.Report { return loop.Report{Wanted: true, Ports: ports} }

func TestSpeak(t *testing.T) {
	wasProgrammed := web()
	setCondition(wasProgrammed, metav1.Condition{Type: Programmed, Status: metav1.ConditionTrue, Reason: ReasonProgrammed}, now)
	disabled, badAlgorithm := web(), web()
	disabled.Annotations[npl.EnabledAnnotation] = "false"
	badAlgorithm.Annotations[annotations.Algorithm] = "fastest"
	sticky, restricted := web(), web()
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	restricted.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/28"}
	_, outOfReach := request(restricted)
	for _, test := range []struct {
		name                 string
		service              *corev1.Service
		facts                facts
		accepted, programmed string // reasons; a True condition's is its own name
		ingress              string
		again                time.Duration
	}{
		{"all is well", web(), facts{vips: vips, report: report(port(53, "UDP"), port(80, "TCP"))}, "Accepted", "Programmed", "192.0.2.1 53 80", 0},
		{"session affinity", sticky, facts{vips: vips, report: report(port(53, "UDP"), port(80, "TCP"))}, "SessionAffinityUnsupported", "Programmed", "192.0.2.1 53 80", 0},
		{"source ranges", restricted, facts{refused: outOfReach, vips: vips}, "SourceRangesUnsupported", "NotAccepted", "", 0},
		{"a protocol that cannot be balanced", web(), facts{vips: vips, report: report(port(53, "UDP", unsupported), port(80, "TCP"))},
			"UnsupportedProtocol", "Programmed", "192.0.2.1 53! 80", 0},
		{"no protocol can be balanced", web(), facts{vips: vips, report: report(port(53, "UDP", unsupported))}, "UnsupportedProtocol", "NotAccepted", "", 0},
		{"not told yet", web(), facts{vips: vips}, "Accepted", "Pending", "", 0},
		{"the load balancer cannot be read", web(), facts{vips: vips, trouble: &providers.Error{Kind: providers.Misconfigured, What: "wrong password"}},
			"Accepted", "ProviderMisconfigured", "", 0},
		{"refused", web(), facts{refused: &refusal{"AddressConflict", "taken"}}, "AddressConflict", "NotAccepted", "", 0},
		{"refused, keeps what it has", web(), facts{refused: &refusal{"AddressConflict", "taken"}, vips: vips, report: report(port(80, "TCP"))},
			"AddressConflict", "Programmed", "192.0.2.1 53 80", 0},
		{"never programmed", web(), facts{vips: vips, report: report(port(80, "TCP", absent, failing(providers.Unavailable, 0)))},
			"Accepted", "ProviderUnavailable", "", 0},
		{"one of two ports is there", web(), facts{vips: vips, report: report(port(53, "UDP", absent, failing(providers.Rejected, 0)), port(80, "TCP"))},
			"Accepted", "ProviderRejected", "192.0.2.1 53 80", 0},
		{"a failure that may pass", wasProgrammed, facts{vips: vips, report: report(port(80, "TCP", failing(providers.Unavailable, 2*time.Second)))},
			"Accepted", "Programmed", "192.0.2.1 53 80", 3 * time.Second},
		{"a failure that has not passed", wasProgrammed, facts{vips: vips, report: report(port(80, "TCP", failing(providers.Unavailable, grace)))},
			"Accepted", "ProviderUnavailable", "192.0.2.1 53 80", 0},
		{"a failure that will not pass", wasProgrammed, facts{vips: vips, report: report(port(80, "TCP", failing(providers.Rejected, 0)))},
			"Accepted", "ProviderRejected", "192.0.2.1 53 80", 0},
		{"waiting for its turn", web(), facts{vips: vips, report: report(port(80, "TCP", absent, func(p *loop.PortReport) { p.Programmed = false }))},
			"Accepted", "Pending", "", 0},
		{"another port waiting for its turn", wasProgrammed, facts{vips: vips, report: report(port(53, "UDP", absent, func(p *loop.PortReport) { p.Programmed = false }), port(80, "TCP"))},
			"Accepted", "Programmed", "192.0.2.1 53 80", 0},
		{"removals held", web(), facts{vips: vips, report: report(port(80, "TCP", func(p *loop.PortReport) { p.Problem, p.Programmed = "wait", false }))},
			"Accepted", "RemovalsHeld", "192.0.2.1 53 80", 0},
		{"disabled by the user", disabled, facts{vips: vips, report: report(port(80, "TCP"))}, "NodePortLocalDisabled", "Programmed", "192.0.2.1 53 80", 0},
		{"malformed annotation", badAlgorithm, facts{vips: vips, report: report(port(80, "TCP"))}, "InvalidAnnotation", "Programmed", "192.0.2.1 53 80", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.facts.now = now
			out, again := speak(test.service, test.facts)
			got := ""
			for _, i := range out.Status.LoadBalancer.Ingress {
				got += i.IP
				if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeProxy {
					t.Error("ipMode is not Proxy")
				}
				for _, p := range i.Ports {
					if p.Port == 53 {
						got += fmt.Sprintf(" %d", p.Port)
						if p.Error != nil {
							got += "!"
						}
					}
				}
				got += " 80"
			}
			if got != test.ingress || again != test.again {
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

func TestClaimAndLetGo(t *testing.T) {
	const instance = "ns/name"
	selection := inventory.Selection{Instances: []string{"haproxy"}, Manager: "ns/name/haproxy"}
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
		claimed := claim(s, selection, instance, vips)
		if got := claimed.Annotations[npl.EnabledAnnotation]; got != test.claimed || (claimed.Annotations[annotations.EnabledBy] == instance) != test.claimedBy {
			t.Errorf("%s: claimed %v", test.name, claimed.Annotations)
		}
		if twice := claim(claimed, selection, instance, vips); !reflect.DeepEqual(twice, claimed) {
			t.Errorf("%s: claimed twice: %v", test.name, twice)
		}
		free := letGo(claimed, instance)
		if got := free.Annotations[npl.EnabledAnnotation]; got != test.letGo || len(free.Finalizers) > 0 ||
			free.Annotations[annotations.ManagedBy] != "" || free.Annotations[annotations.AssignedIPs] != "" {
			t.Errorf("%s: let go %v, %v", test.name, free.Annotations, free.Finalizers)
		}
	}
	if s := claim(web(), selection, instance, nil); len(s.Finalizers) > 0 {
		t.Error("a finalizer without an address: nothing is going to be written")
	}
}

func TestRequest(t *testing.T) {
	for _, test := range []struct{ annotation, field, want, refused string }{
		{},
		{field: "192.0.2.5", want: "[192.0.2.5]"},
		{annotation: "192.0.2.6", field: "192.0.2.5", want: "[192.0.2.6]"},
		{annotation: "x", field: "192.0.2.5", refused: ReasonInvalidAnnotation},
		{field: "y", refused: ReasonInvalidAnnotation},
	} {
		s := web()
		s.Annotations[annotations.LoadBalancerIPs], s.Spec.LoadBalancerIP = test.annotation, test.field
		r, refused := request(s)
		if test.want == "" {
			test.want = "[]"
		}
		if fmt.Sprint(r.Addresses) != test.want || (refused == nil) != (test.refused == "") || refused != nil && refused.reason != test.refused {
			t.Errorf("%+v: %v, %v", test, r, refused)
		}
	}
}

func TestSilence(t *testing.T) {
	s := web()
	s.Annotations[annotations.AssignedIPs] = "192.0.2.1"
	s.Status.Conditions = []metav1.Condition{{Type: Accepted}, {Type: Programmed}, {Type: "other/Condition"}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if out := silence(s, nil); len(out.Status.Conditions) != 1 || len(out.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("left %+v", out.Status)
	}
	s.Status.LoadBalancer.Ingress[0].IP = "203.0.113.1"
	if out := silence(s, nil); len(out.Status.LoadBalancer.Ingress) != 1 {
		t.Error("somebody else's address was removed")
	}
}

// A message is not to promise what is not so.
func TestAcceptedMessages(t *testing.T) {
	disabled := web()
	disabled.Annotations[npl.EnabledAnnotation] = "false"
	for _, test := range []struct {
		service      *corev1.Service
		report       loop.Report
		want, absent string
	}{
		{web(), report(port(53, "UDP", unsupported), port(80, "TCP")), "cannot balance 53/UDP; the other ports are served", "no port"},
		{web(), report(port(53, "UDP", unsupported), port(80, "SCTP", unsupported)), "cannot balance 53/UDP, 80/SCTP; no port is served", "other"},
		{disabled, report(port(80, "TCP")), `"false", so this Service asks for no node ports`, "get no node ports"},
	} {
		if c := accepted(test.service, nil, test.report); !strings.Contains(c.Message, test.want) || strings.Contains(c.Message, test.absent) {
			t.Errorf("%s: %q, want %q and not %q", c.Reason, c.Message, test.want, test.absent)
		}
	}
}

func TestPassing(t *testing.T) {
	if !passing(report(port(80, "TCP", failing(providers.Unavailable, 0)), port(81, "TCP", failing(providers.KindOf(errors.New("x")), 0)))) ||
		passing(report(port(80, "TCP", failing(providers.Misconfigured, 0)))) {
		t.Error("only what may be over in a moment is passing")
	}
}
