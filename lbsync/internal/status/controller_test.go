package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// replaced is what a user's manifest with another type makes of a Service: our metadata is lost, our status is not.
func replaced(d *desk) *corev1.Service {
	s := balanced()
	s.Spec.Type, s.Spec.LoadBalancerClass, s.Status = corev1.ServiceTypeClusterIP, nil, d.web().Status
	return s
}

// serving returns a desk with a Service at an address other than the first of the pool.
func serving(t *testing.T, edits ...func(*corev1.Service)) *desk {
	s := balanced(append(edits, annotated(annotations.AssignedIPs, "192.0.2.5"))...)
	d := newDesk(t, nil, s)
	d.restart()
	d.at["haproxy"].reports[webKey] = there("192.0.2.5")
	d.look()
	if got := d.web(); len(got.Status.Conditions) != 2 || publishedBy(got) != "192.0.2.5" || len(got.Finalizers) != 1 {
		t.Fatalf("not served: %+v", got)
	}
	d.events()
	d.patches = nil
	return d
}

// onTwo returns a desk with a Service on the load balancers a and b.
func onTwo(t *testing.T) *desk {
	s := balanced(annotated(annotations.Providers, "a,b"))
	s.Spec.LoadBalancerClass = new("nplbridge.io/a")
	d := newDesk(t, []string{"a", "b"}, s)
	d.look()
	d.at["a"].reports[webKey], d.at["b"].reports[webKey] = there("192.0.2.1"), there("192.0.2.2")
	d.look()
	if got := d.web(); got.Annotations[annotations.AssignedIPs] != "a=192.0.2.1 b=192.0.2.2" || publishedBy(got) != "192.0.2.1,192.0.2.2" {
		t.Fatalf("not served: %v, %q, %s", got.Annotations, publishedBy(got), is(got, Programmed))
	}
	d.events()
	return d
}

func deleted(s *corev1.Service) { s.DeletionTimestamp = new(metav1.NewTime(now)) }

// Whoever replaces a Service by its manifest gets the same one back.
func TestStrippedServiceIsClaimedAgain(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := serving(t)
		bare := balanced()
		bare.Status = d.web().Status
		d.replace(bare)
		if restarted { // another holds the Lease now, and knows only what is published
			d.restart()
		}
		d.look()
		if got := d.web(); got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.5" || len(got.Finalizers) != 1 ||
			got.Annotations[npl.EnabledAnnotation] != "true" {
			t.Errorf("restarted %t: annotations %v, finalizers %v", restarted, got.Annotations, got.Finalizers)
		}
	}
}

// Which address was on which load balancer only those know.
func TestStrippedOnTwo(t *testing.T) {
	d := onTwo(t)
	a := d.at["a"].reports[webKey]
	d.at["a"].reports[webKey], d.at["b"].reports[webKey] = d.at["b"].reports[webKey], a // so that the order does not help
	d.edit(func(s *corev1.Service) {
		s.Annotations, s.Finalizers = map[string]string{annotations.Providers: "a,b"}, nil
	})
	reports := map[string]loop.Report{}
	for name, at := range d.at {
		reports[name] = at.reports[webKey]
		delete(at.reports, webKey)
	}
	d.restart()
	d.look()
	if got := d.web(); got.Annotations[annotations.AssignedIPs] != "" || publishedBy(got) != "192.0.2.1,192.0.2.2" {
		t.Errorf("before the load balancers are read: %v, %q", got.Annotations, publishedBy(got))
	}
	for name, at := range d.at {
		at.reports[webKey] = reports[name]
	}
	d.look()
	if got := d.web(); got.Annotations[annotations.AssignedIPs] != "a=192.0.2.2 b=192.0.2.1" || len(got.Finalizers) != 1 || publishedBy(got) != "192.0.2.1,192.0.2.2" {
		t.Errorf("annotations %v, published %q", got.Annotations, publishedBy(got))
	}
}

// A Service that stopped being ours without leaving us our metadata is cleaned up, and its address is free, only when the
// load balancer has confirmed.
func TestStrippedAndNoLongerOurs(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := serving(t)
		d.replace(replaced(d))
		if restarted {
			d.restart()
		}
		reports := d.at["haproxy"].reports
		stuck := report(port(80, "TCP", failing(providers.Unavailable, time.Minute)))
		stuck.Wanted = false
		for _, before := range []loop.Report{reports[webKey], stuck} {
			reports[webKey] = before
			d.look()
			if got := d.web(); len(got.Status.Conditions) != 2 || !restarted && d.has("haproxy") == "" {
				t.Errorf("restarted %t: let go of with %+v: holds %q, conditions %v", restarted, before, d.has("haproxy"), got.Status.Conditions)
			}
			if taken, _, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.5")); len(taken) > 0 {
				t.Errorf("restarted %t: its address was given away", restarted)
			}
		}
		reports[webKey] = gone
		d.look()
		if got := d.web(); len(got.Status.Conditions) > 0 || len(got.Status.LoadBalancer.Ingress) > 0 || d.has("haproxy") != "" {
			t.Errorf("restarted %t: holds %q, status %+v", restarted, d.has("haproxy"), got.Status)
		}
		d.look()
		if got := d.web(); len(got.Annotations) > 0 || len(got.Finalizers) > 0 {
			t.Errorf("restarted %t: marked again: %v, %v", restarted, got.Annotations, got.Finalizers)
		}
		if taken, _, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.5")); len(taken) == 0 {
			t.Errorf("restarted %t: its address is never free again", restarted)
		}
	}
}

// Nor is the address of a deleted Service free before that, finalizer or not.
func TestDeletedPastTheFinalizer(t *testing.T) {
	d := serving(t)
	if err := d.client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.look()
	if d.has("haproxy") == "" {
		t.Error("the address is free while the load balancer has it")
	}
	delete(d.at["haproxy"].reports, webKey) // the loop forgets what is neither here nor there
	d.look()
	if d.has("haproxy") != "" {
		t.Error("the address is never free again")
	}
}

// What another lbsync, or another load balancer, has said on a Service stays.
func TestOthersConditionsStay(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Service){
		"another class": func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("nplbridge.io/avi") },
		"a finalizer of nobody knows whom": func(s *corev1.Service) {
			s.Spec.Type, s.Finalizers = corev1.ServiceTypeClusterIP, []string{annotations.Finalizer}
		},
		"another manager, no longer theirs": func(s *corev1.Service) {
			s.Spec.Type, s.Annotations[annotations.ManagedBy] = corev1.ServiceTypeClusterIP, "ns/one/avi"
		},
		"members of another's": func(s *corev1.Service) {
			s.Spec.Type, s.Annotations[annotations.Pool] = corev1.ServiceTypeClusterIP, "80=avi:web"
		},
	} {
		s := balanced(edit)
		setCondition(s, metav1.Condition{Type: Accepted, Status: metav1.ConditionTrue, Reason: ReasonAccepted}, now)
		d := newDesk(t, nil, s)
		d.at["haproxy"].reports[webKey] = gone
		d.look()
		if got := d.web(); len(got.Status.Conditions) != 1 || len(d.patches) > 0 {
			t.Errorf("%s: conditions %v, patches %v", name, got.Status.Conditions, d.patches)
		}
	}
}

// A Service that leaves a load balancer is remembered there until that has let go of it.
func TestLeavesOneOfTwo(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := onTwo(t)
		d.edit(annotated(annotations.Providers, "b"))
		stuck := report(port(80, "TCP", failing(providers.Unavailable, time.Minute)))
		stuck.Wanted = false
		d.at["a"].reports[webKey] = stuck
		if restarted {
			d.restart()
		}
		d.look()
		got := d.web()
		if got.Annotations[annotations.AssignedIPs] != "a=192.0.2.1 b=192.0.2.2" || publishedBy(got) != "192.0.2.1,192.0.2.2" ||
			!strings.Contains(is(got, Programmed), "False ProviderUnavailable: a: waiting to remove it") {
			t.Errorf("restarted %t: leaving: %v, published %q, %s", restarted, got.Annotations, publishedBy(got), is(got, Programmed))
		}
		// Deleted meanwhile, it waits for both.
		d.edit(deleted)
		d.at["b"].reports[webKey] = gone
		d.look()
		if got := d.web(); len(got.Finalizers) != 1 || !strings.Contains(is(got, Programmed), "nplbridge.io/abandon: a") {
			t.Errorf("restarted %t: let go of while a has it: %v, %s", restarted, got.Finalizers, is(got, Programmed))
		}
		d.at["a"].reports[webKey] = gone
		d.look()
		if got := d.web(); got != nil && len(got.Finalizers) > 0 {
			t.Errorf("restarted %t: never let go of: %+v", restarted, got.Annotations)
		}
	}
	d := onTwo(t)
	d.edit(annotated(annotations.Providers, "b"))
	d.at["a"].reports[webKey] = gone
	d.look()
	if got := d.web(); got.Annotations[annotations.AssignedIPs] != "b=192.0.2.2" || publishedBy(got) != "192.0.2.2" || is(got, Programmed)[:4] != "True" {
		t.Errorf("left: %v, published %q, %s", got.Annotations, publishedBy(got), is(got, Programmed))
	}
	if taken, _, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.1")); len(taken) == 0 {
		t.Error("its address there is never free again")
	}
}

func askFor(address string) ask {
	r := ask{key: model.ServiceKey{Namespace: "shop", Name: "other"}, group: "shop/other"}
	r.Instance, r.Service, r.Namespace = "haproxy", "shop/other", "shop"
	r.Families = []npl.Family{npl.IPv4}
	if address != "" {
		r.Addresses = addrs{addr(address)}
	}
	return r
}

// The address of a Service changes without a moment in which none is published, and the old one is nobody else's before the
// load balancer has given it up.
func TestAddressChange(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := serving(t)
		d.edit(annotated(annotations.LoadBalancerIPs, "192.0.2.7"))
		step := func(what, published string, free bool) {
			t.Helper()
			if restarted {
				d.restart()
			}
			d.look()
			d.look()
			taken, no, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.5"))
			if got := d.web(); publishedBy(got) != published || got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.7" || (len(taken) > 0) != free {
				t.Errorf("restarted %t, %s: published %q, assigned %v, old one given to another: %v (%v)", restarted, what, publishedBy(got),
					got.Annotations[annotations.AssignedIPs], taken, no)
			}
		}
		step("assigned", "192.0.2.5", false)
		changing := there("192.0.2.7")
		changing.Ports[1].VIPs = addrs{addr("192.0.2.5")}
		d.at["haproxy"].reports[webKey] = changing
		step("on its way", "192.0.2.5,192.0.2.7", false)
		d.at["haproxy"].reports[webKey], d.at["haproxy"].pending = there("192.0.2.7"), []string{"lb-2"}
		step("not acknowledged by another process", "192.0.2.5,192.0.2.7", false)
		unsure := there("192.0.2.7")
		unsure.Ports[1].Programmed = false
		d.at["haproxy"].reports[webKey], d.at["haproxy"].pending = unsure, nil
		step("not all acknowledged", "192.0.2.7", false)
		d.at["haproxy"].reports[webKey] = there("192.0.2.7")
		step("acknowledged", "192.0.2.7", true)
	}
}

// Every refusal of an address leaves the one in use.
func TestRefusedAddressKeepsTheOld(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.Service)
		want string
	}{
		"not an address":           {annotated(annotations.LoadBalancerIPs, "web.example"), "False InvalidAnnotation: annotation nplbridge.io/load-balancer-ips: \"web.example\" is not an IP address"},
		"a field that is none":     {func(s *corev1.Service) { s.Spec.LoadBalancerIP = "x" }, "False InvalidAnnotation: spec.loadBalancerIP: \"x\""},
		"in no pool":               {annotated(annotations.LoadBalancerIPs, "203.0.113.1"), "False AddressNotInPool: "},
		"another's":                {annotated(annotations.LoadBalancerIPs, "192.0.2.9"), "False AddressConflict: the address 192.0.2.9 belongs to Service shop/other"},
		"of a family it has not":   {annotated(annotations.LoadBalancerIPs, "2001:db8::1"), "False AddressFamily: "},
		"a pool that is none":      {annotated(annotations.AddressPool, "gold"), "False NoAddressPool: no address pool is named gold"},
		"a pool's name that is no": {annotated(annotations.AddressPool, "Gold!"), "False InvalidAnnotation: annotation nplbridge.io/address-pool"},
	} {
		d := serving(t)
		if _, no, err := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.9")); no != nil || err != nil {
			t.Fatal(no, err)
		}
		d.edit(test.edit)
		for range 2 {
			d.look()
		}
		got := d.web()
		if !strings.HasPrefix(is(got, Accepted), test.want) || got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.5" ||
			publishedBy(got) != "192.0.2.5" || is(got, Programmed)[:4] != "True" {
			t.Errorf("%s: %s; assigned %s, published %s, %s", name, is(got, Accepted), got.Annotations[annotations.AssignedIPs], publishedBy(got), is(got, Programmed))
		}
		if events := d.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning "+strings.Fields(strings.TrimSuffix(test.want, ":"))[1][:8]) {
			t.Errorf("%s: Events %q", name, events)
		}
	}
}

// Every word of the vocabulary is tried wrong: the condition and one Event name it and what would be right; what is in use stays; and when
// it is mended, all is well again.
func TestEveryWrongAnnotation(t *testing.T) {
	wrong := map[string][]string{
		annotations.LoadBalancerIPs: {"no-address", "192.0.2.1,192.0.2.2"}, annotations.AddressPool: {"Gold!"}, annotations.SharedVIP: {"a/b"},
		annotations.Providers: {"nginx", "haproxy,nginx", ","}, annotations.Pool: {"80", "80=nginx:p", "x=:"}, annotations.ServiceType: {"HostPort"},
		annotations.Algorithm: {"fastest"}, annotations.Persistence: {"Cookie"}, annotations.PersistenceTimeout: {"-1s", "soon"},
		annotations.Monitor: {"ICMP"}, annotations.MonitorPath: {"no-slash"}, annotations.MonitorHost: {"a b"}, annotations.MonitorName: {"a\nb"},
		annotations.MonitorInterval: {"0s", "often"}, annotations.MonitorTimeout: {"x"}, annotations.MonitorRise: {"0", "many"}, annotations.MonitorFall: {"-1"},
		annotations.ProxyProtocol: {"v3"}, annotations.AcceptProxyProtocol: {"perhaps"}, annotations.SlowStart: {"x"}, annotations.MemberConnections: {"-5"},
		annotations.SourceRanges: {"everybody", "", "192.0.2.1/99"}, annotations.IdleTimeout: {"x"}, annotations.DrainLimit: {"-1s", "x"},
		annotations.AllowRemoval: {"maybe"}, annotations.Abandon: {"a b", ","},
	}
	for _, word := range annotations.Vocabulary() {
		if word.On == "Service" && strings.HasPrefix(word.Name, "nplbridge.io/") && wrong[word.Name] == nil {
			t.Errorf("%s is not tried wrong", word.Name)
		}
	}
	wrong["nplbridge.io/algo-rithm"] = []string{"RoundRobin"} // no such word
	wrong["nginx.nplbridge.io/workers"] = []string{"1"}       // no such kind
	wrong["spec.loadBalancerIP"] = []string{"nowhere", "::1"} // fields
	wrong["spec.loadBalancerSourceRanges"] = []string{"everybody"}
	for key, values := range wrong {
		for _, value := range values {
			t.Run(key+"="+value, func(t *testing.T) {
				d := serving(t)
				d.edit(func(s *corev1.Service) {
					switch key {
					case "spec.loadBalancerIP":
						s.Spec.LoadBalancerIP = value
					case "spec.loadBalancerSourceRanges":
						s.Spec.LoadBalancerSourceRanges = []string{value}
					default:
						s.Annotations[key] = value
					}
				})
				for range 3 {
					d.look()
				}
				got := d.web()
				if c := is(got, Accepted); !strings.HasPrefix(c, "False InvalidAnnotation: ") || !strings.Contains(c, key) {
					t.Errorf("%s", c)
				}
				if events := d.events(); len(events) != 1 || !strings.Contains(events[0], key) || !strings.HasPrefix(events[0], "Warning InvalidAnnotation") {
					t.Errorf("Events %q", events)
				}
				if got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.5" || len(got.Finalizers) != 1 || publishedBy(got) != "192.0.2.5" ||
					got.Annotations[npl.EnabledAnnotation] != "true" || d.has("haproxy") != "192.0.2.5" {
					t.Errorf("not as it was: %v, finalizers %v, published %s", got.Annotations, got.Finalizers, publishedBy(got))
				}
				d.edit(func(s *corev1.Service) {
					delete(s.Annotations, key)
					s.Spec.LoadBalancerIP, s.Spec.LoadBalancerSourceRanges = "", nil
				})
				d.look()
				if c := is(d.web(), Accepted); !strings.HasPrefix(c, "True") {
					t.Errorf("mended: %s", c)
				}
			})
		}
	}
}

// What cannot be read at the first sight of a Service gives it nothing.
func TestNothingNewByWhatCannotBeRead(t *testing.T) {
	for key, value := range map[string]string{annotations.Providers: "nginx", annotations.SourceRanges: "everybody", annotations.LoadBalancerIPs: "x", annotations.ServiceType: "x", annotations.Pool: "x"} {
		d := newDesk(t, nil, balanced(annotated(key, value)))
		d.look()
		d.at["haproxy"].reports[webKey] = gone
		d.look()
		got := d.web()
		if got.Annotations[annotations.AssignedIPs] != "" || len(got.Finalizers) > 0 || !strings.HasPrefix(is(got, Accepted), "False InvalidAnnotation") ||
			!strings.HasPrefix(is(got, Programmed), "False NotAccepted") {
			t.Errorf("%s: %v, %v, %s, %s", key, got.Annotations, got.Finalizers, is(got, Accepted), is(got, Programmed))
		}
	}
}

// Where a source cannot be read, node ports are neither asked for nor given up.
func TestUnreadableSourceLeavesTheRequest(t *testing.T) {
	for _, first := range []string{"NodePort", "NodePortLocal"} {
		d := newDesk(t, nil, balanced(annotated(annotations.ServiceType, first)))
		d.look()
		d.at["haproxy"].reports[webKey] = there("192.0.2.1")
		d.look()
		before := d.web().Annotations[npl.EnabledAnnotation]
		d.edit(annotated(annotations.ServiceType, "HostPort"))
		d.look()
		if got := d.web().Annotations[npl.EnabledAnnotation]; got != before || (got == "") != (first == "NodePort") {
			t.Errorf("%s: %q, then %q", first, before, got)
		}
	}
}

// Which ports a Service has decides whether an attachment means anything.
func TestAttachedToNoPort(t *testing.T) {
	d := newDesk(t, nil, balanced(annotated(annotations.Pool, "80=haproxy:p,99=haproxy:q")))
	d.look()
	if c := is(d.web(), Accepted); !strings.HasPrefix(c, "False InvalidAnnotation: annotation nplbridge.io/pool: ") || !strings.Contains(c, "99") {
		t.Errorf("%s", c)
	}
}

// Where no attachment means a port there is nothing to wait for; where one does, there is.
func TestNothingIsAwaitedOfNoPort(t *testing.T) {
	for pools, want := range map[string]string{
		"99=haproxy:q": "False NotAccepted: ", "99=haproxy:q,http=haproxy:r": "False NotAccepted: ", "80=haproxy:p,99=haproxy:q": "False Pending: ", "80=haproxy:p": "False Pending: ",
	} {
		d := newDesk(t, nil, balanced(annotated(annotations.Pool, pools)))
		d.look()
		if c := is(d.web(), Programmed); c != "" && !strings.HasPrefix(c, "False Pending") {
			t.Errorf("%s, before the load balancer is read: %s", pools, c)
		}
		d.at["haproxy"].reports[webKey] = gone
		d.edit(func(s *corev1.Service) { // so that there is something to be said
			s.Annotations[annotations.Algorithm] = "fastest"
		})
		d.look()
		if c := is(d.web(), Programmed); !strings.HasPrefix(c, want) || Unserved(d.web()) != strings.HasPrefix(want, "False NotAccepted") {
			t.Errorf("%s: %q, want %q", pools, c, want)
		}
	}
}

// Nor where the load balancer has nothing that could be kept.
func TestNothingIsAwaitedOfWhatCannotBeRead(t *testing.T) {
	d := serving(t)
	d.at["haproxy"].reports[webKey] = gone
	d.edit(annotated(annotations.Providers, "nginx"))
	d.look()
	if c := is(d.web(), Programmed); !strings.HasPrefix(c, "False NotAccepted: ") {
		t.Errorf("%s", c)
	}
}

// Of several things wrong, the condition names all.
func TestAllThatIsWrong(t *testing.T) {
	d := serving(t)
	d.edit(func(s *corev1.Service) {
		s.Annotations[annotations.Algorithm], s.Annotations[annotations.DrainLimit] = "fastest", "x"
		s.Annotations[annotations.LoadBalancerIPs] = "192.0.2.99"
	})
	d.look()
	c := is(d.web(), Accepted)
	for _, part := range []string{"False InvalidAnnotation", annotations.Algorithm, annotations.DrainLimit, "192.0.2.99"} {
		if !strings.Contains(c, part) {
			t.Errorf("%q does not say %s", c, part)
		}
	}
	d.events()
	d.edit(annotated(annotations.Algorithm, "slowest"))
	d.look()
	d.look()
	if events := d.events(); len(events) != 1 || !strings.Contains(events[0], "slowest") {
		t.Errorf("what is wrong now is another: Events %q", events)
	}
}

func TestGoneForGood(t *testing.T) {
	stuck := report(port(80, "TCP", failing(providers.Unavailable, time.Hour)))
	stuck.Wanted = false
	t.Run("while the Service is there", func(t *testing.T) {
		d := onTwo(t)
		d.at["a"].reports[webKey] = report(port(80, "TCP", failing(providers.Unavailable, time.Hour)))
		d.look()
		if c := is(d.web(), Programmed); !strings.HasPrefix(c, "False ProviderUnavailable: a: ") {
			t.Errorf("%s", c)
		}
		d.edit(annotated(annotations.Abandon, "a"))
		d.look()
		got := d.web()
		if !strings.HasPrefix(is(got, Programmed), "True") || publishedBy(got) != "192.0.2.2" || d.has("a") != "192.0.2.1" {
			t.Errorf("%s, published %q, reserved on a %q", is(got, Programmed), publishedBy(got), d.has("a"))
		}
	})
	t.Run("when it is deleted", func(t *testing.T) {
		d := onTwo(t)
		d.edit(deleted)
		d.at["a"].reports[webKey], d.at["b"].reports[webKey] = stuck, gone
		d.look()
		if len(d.web().Finalizers) != 1 {
			t.Fatal("let go of")
		}
		d.events()
		d.edit(annotated(annotations.Abandon, "a"))
		d.look()
		if got := d.web(); got != nil && len(got.Finalizers) > 0 {
			t.Errorf("not let go of: %s", is(got, Programmed))
		}
		if events := d.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning Abandoned") || !strings.Contains(events[0], "192.0.2.1") {
			t.Errorf("Events %q", events)
		}
	})
	t.Run("when it leaves", func(t *testing.T) {
		d := onTwo(t)
		d.at["a"].reports[webKey] = stuck
		d.edit(func(s *corev1.Service) {
			s.Annotations[annotations.Providers], s.Annotations[annotations.Abandon] = "b", "a"
		})
		d.look()
		d.look()
		if got := d.web(); got.Annotations[annotations.AssignedIPs] != "b=192.0.2.2" || !strings.HasPrefix(is(got, Programmed), "True") || d.has("a") != "" {
			t.Errorf("%v, %s, reserved on a %q", got.Annotations, is(got, Programmed), d.has("a"))
		}
		if events := d.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning Abandoned") {
			t.Errorf("Events %q", events)
		}
	})
	t.Run("when it is not configured any more", func(t *testing.T) {
		d := serving(t, annotated(annotations.AssignedIPs, "old=192.0.2.3 haproxy=192.0.2.5"))
		d.edit(func(s *corev1.Service) {
			deleted(s)
			s.Annotations[annotations.AssignedIPs] = "old=192.0.2.3 haproxy=192.0.2.5"
		})
		d.restart()
		d.at["haproxy"].reports[webKey] = gone
		d.look()
		if got := d.web(); len(got.Finalizers) != 1 || !strings.HasPrefix(is(got, Programmed), "False UnknownProvider: the Service is on old") {
			t.Errorf("finalizers %v, %s", got.Finalizers, is(got, Programmed))
		}
		if taken, _, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.3")); len(taken) > 0 {
			t.Error("its address there was given away")
		}
		d.edit(annotated(annotations.Abandon, "old"))
		d.look()
		if got := d.web(); got != nil && len(got.Finalizers) > 0 {
			t.Errorf("not let go of: %s", is(got, Programmed))
		}
	})
}

// Other processes beside load balancers of the same name are waited for, silent ones are not.
func TestOthersInAGroup(t *testing.T) {
	d := serving(t)
	at := d.at["haproxy"]
	at.pending = []string{"lb-2"}
	d.look()
	if c := is(d.web(), Programmed); !strings.HasPrefix(c, "True") {
		t.Errorf("at once: %s", c)
	}
	d.clock.Step(grace)
	d.look()
	if c := is(d.web(), Programmed); c != "False Pending: not confirmed yet by the load balancer of lb-2" {
		t.Errorf("after a while: %s", c)
	}
	d.edit(deleted)
	at.reports[webKey] = gone
	d.look()
	d.clock.Step(grace)
	d.look()
	if got := d.web(); len(got.Finalizers) != 1 || !strings.Contains(is(got, Programmed), "waiting to remove it from the load balancer of lb-2") {
		t.Errorf("finalizers %v, %s", got.Finalizers, is(got, Programmed))
	}
	at.pending, at.silent = nil, []string{"lb-2"}
	d.look()
	if got := d.web(); got != nil && len(got.Finalizers) > 0 {
		t.Errorf("a silent one is waited for: %s", is(got, Programmed))
	}
}

// A Service that gives members to a pool of somebody else has no address of ours, and what it publishes is not ours either.
func TestMembersOnly(t *testing.T) {
	s := balanced(annotated(annotations.Pool, "80=haproxy:/Common/web"))
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	d := newDesk(t, nil, s)
	d.look()
	got := d.web()
	if len(got.Finalizers) != 1 || got.Annotations[annotations.ManagedBy] != "ns/one/lease" || got.Annotations[annotations.AssignedIPs] != "" ||
		got.Annotations[npl.EnabledAnnotation] != "true" {
		t.Errorf("%v, %v", got.Finalizers, got.Annotations)
	}
	d.at["haproxy"].reports[webKey] = report(port(80, "TCP", absent, func(p *loop.PortReport) { p.Attached = "/Common/web" }))
	d.look()
	if got = d.web(); is(got, Accepted) != "True Accepted: the Service is served" || is(got, Programmed) != "True Programmed: its members are in the pool /Common/web" ||
		publishedBy(got) != "" {
		t.Errorf("%s, %s, published %q", is(got, Accepted), is(got, Programmed), publishedBy(got))
	}
	d.edit(without(annotations.Pool))
	d.at["haproxy"].reports[webKey] = gone
	d.look()
	if got = d.web(); len(got.Annotations) > 0 || len(got.Finalizers) > 0 || len(got.Status.Conditions) > 0 {
		t.Errorf("left: %v, %v, %v", got.Annotations, got.Finalizers, got.Status.Conditions)
	}
}

// A Service of ours that becomes one that only gives members keeps its address until the virtual server is gone.
func TestBecomesMembersOnly(t *testing.T) {
	d := serving(t)
	d.edit(annotated(annotations.Pool, "80=haproxy:/Common/web"))
	d.look()
	d.restart()
	d.look()
	if got := d.web(); publishedBy(got) != "192.0.2.5" || got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.5" || len(got.Finalizers) != 1 {
		t.Errorf("published %q, %v, %v", publishedBy(got), got.Annotations, got.Finalizers)
	}
	if taken, _, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.5")); len(taken) > 0 {
		t.Error("its address was given away")
	}
	d.at["haproxy"].reports[webKey] = report(port(80, "TCP", absent, func(p *loop.PortReport) { p.Attached = "/Common/web" }))
	d.look()
	d.look()
	if got := d.web(); publishedBy(got) != "" || got.Annotations[annotations.AssignedIPs] != "" || !strings.HasPrefix(is(got, Programmed), "True Programmed: its members") {
		t.Errorf("published %q, %s", publishedBy(got), is(got, Programmed))
	}
	if taken, _, _ := d.vips.assign(t.Context(), d.Balancers[0], askFor("192.0.2.5")); len(taken) == 0 {
		t.Error("its address is never free again")
	}
}

// The request for node ports is ours only with NodePortLocal, and is not taken back while one of them is in a pool.
func TestSourceSwitch(t *testing.T) {
	d := serving(t)
	nodePort := addr("203.0.113.11")
	r := there("192.0.2.5")
	r.Pools = []providers.Pool{{Key: r.Ports[1].Key, Members: []providers.Member{{UID: "p", Address: netipAddrPort(nodePort, 61001)}}}}
	d.at["haproxy"].reports[webKey] = r
	claimed := true
	d.Claimants = func(c model.Claim, except string) []string {
		if claimed && c.Address == netipAddrPort(nodePort, 61001) && c.Protocol == npl.TCP && except == "" {
			return []string{"shop/web-1"}
		}
		return nil
	}
	d.edit(annotated(annotations.ServiceType, "NodePort"))
	if again, err := d.sync(t.Context(), webKey); err != nil || again == 0 {
		t.Errorf("again %s, %v", again, err)
	}
	if got := d.web().Annotations[npl.EnabledAnnotation]; got != "true" {
		t.Errorf("taken back while a pool has the node port: %q", got)
	}
	r.Pools[0].Members[0].Address = netipAddrPort(nodePort, 30080)
	d.patches = nil
	d.look()
	if got := d.web().Annotations; got[npl.EnabledAnnotation] != "" || got[annotations.EnabledBy] != "" {
		t.Errorf("not taken back: %v", got)
	}
	if len(d.patches) != 1 || strings.Contains(d.patches[0], "status") || strings.Count(d.patches[0], "null") != 2 {
		t.Errorf("patches %q", d.patches)
	}
	d.edit(annotated(annotations.ServiceType, "NodePortLocal"))
	d.look()
	if got := d.web().Annotations; got[npl.EnabledAnnotation] != "true" || got[annotations.EnabledBy] != "ns/one" {
		t.Errorf("not set again: %v", got)
	}
	// The user's own is not ours to take.
	d.edit(func(s *corev1.Service) {
		delete(s.Annotations, annotations.EnabledBy)
		s.Annotations[annotations.ServiceType] = "ClusterIP"
	})
	d.look()
	if got := d.web().Annotations; got[npl.EnabledAnnotation] != "true" {
		t.Errorf("the user's own: %v", got)
	}
}

// What cannot be served for its type is left alone and told once.
func TestServicesThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(*corev1.Service)
		reason string
	}{
		"ExternalName": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Annotations[annotations.Pool] = corev1.ServiceTypeExternalName, "a.example", "80=haproxy:p"
		}, ReasonUnsupportedType},
		"NodePort": {func(s *corev1.Service) {
			s.Spec.Type, s.Annotations[annotations.Pool] = corev1.ServiceTypeNodePort, "80=haproxy:p"
		}, ReasonUnsupportedType},
		"NodePort with nothing of ours": {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }, ""},
	} {
		s := balanced(test.edit)
		s.Spec.LoadBalancerClass = nil
		d := newDesk(t, nil, s)
		d.at["haproxy"].reports[webKey] = gone
		for range 3 {
			d.look()
		}
		events := d.events()
		if (test.reason == "") != (len(events) == 0) || len(events) > 1 || len(events) == 1 && !strings.HasPrefix(events[0], "Warning "+test.reason) || len(d.patches) > 0 {
			t.Errorf("%s: Events %q, patches %q", name, events, d.patches)
		}
	}
}

// With NodePort as the source, a Service of that type is as good as any.
func TestNodePortServiceWithNodePorts(t *testing.T) {
	s := balanced(annotated(annotations.Pool, "80=haproxy:p"), annotated(annotations.ServiceType, "NodePort"))
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeNodePort, nil
	d := newDesk(t, nil, s)
	d.look()
	if got := d.web(); len(got.Finalizers) != 1 || got.Annotations[npl.EnabledAnnotation] != "" || len(d.events()) > 0 {
		t.Errorf("%v, %v", got.Finalizers, got.Annotations)
	}
}

// A Service that turns into one of type NodePort is cleaned up, though it still asks.
func TestTurnedNodePort(t *testing.T) {
	s := balanced(annotated(annotations.Pool, "80=haproxy:p"))
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	d := newDesk(t, nil, s)
	d.look()
	d.edit(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	d.at["haproxy"].reports[webKey] = gone
	d.look()
	if got := d.web(); len(got.Finalizers) > 0 || got.Annotations[npl.EnabledAnnotation] != "" {
		t.Errorf("%v, %v", got.Finalizers, got.Annotations)
	}
}

func TestNoSelector(t *testing.T) {
	d := serving(t)
	d.edit(func(s *corev1.Service) { s.Spec.Selector = nil })
	for range 3 {
		d.look()
	}
	if events := d.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning NoSelector") {
		t.Errorf("Events %q", events)
	}
	if c := is(d.web(), Accepted); !strings.HasPrefix(c, "True") {
		t.Errorf("%s", c)
	}
	d.edit(annotated(annotations.ServiceType, "NodePort"))
	d.look()
	d.edit(without(annotations.ServiceType))
	d.look()
	if events := d.events(); len(events) != 1 {
		t.Errorf("told again when it is so again: Events %q", events)
	}
}

// An annotation about load balancers that are not ours may be another lbsync's: one Event, nothing written.
func TestPerhapsAnothers(t *testing.T) {
	s := balanced(annotated(annotations.Pool, "80=elsewhere:p"))
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	d := newDesk(t, nil, s)
	for range 3 {
		d.look()
	}
	if events := d.events(); len(events) != 1 || !strings.Contains(events[0], "elsewhere") || len(d.patches) > 0 {
		t.Errorf("Events %q, patches %q", events, d.patches)
	}
}

// Two Services of a group have one address; the same port twice is refused.
func TestSharedVIP(t *testing.T) {
	one, two, three := balanced(annotated(annotations.SharedVIP, "edge")), balanced(annotated(annotations.SharedVIP, "edge")), balanced(annotated(annotations.SharedVIP, "edge"))
	two.Name, three.Name = "api", "twin"
	two.Spec.Ports = []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}}
	d := newDesk(t, nil, one, two, three)
	for _, name := range []string{"web", "api", "twin"} {
		d.lookAt(model.ServiceKey{Namespace: "shop", Name: name})
	}
	for name, want := range map[string]string{"web": "haproxy=192.0.2.1", "api": "haproxy=192.0.2.1", "twin": ""} {
		s := d.Service(model.ServiceKey{Namespace: "shop", Name: name})
		if s.Annotations[annotations.AssignedIPs] != want {
			t.Errorf("%s has %q", name, s.Annotations[annotations.AssignedIPs])
		}
		if name == "twin" && !strings.HasPrefix(is(s, Accepted), "False AddressPortConflict: ") {
			t.Errorf("%s", is(s, Accepted))
		}
	}
}

// Who waits for an address is looked at again when one is free.
func TestWaitingForAnAddress(t *testing.T) {
	d := newDesk(t, []string{"haproxy", "another"}, balanced(annotated(annotations.LoadBalancerIPs, "192.0.2.5")))
	d.look()
	d.at["haproxy"].reports[webKey], d.at["another"].reports[webKey] = there("192.0.2.5"), gone
	other := balanced(annotated(annotations.LoadBalancerIPs, "192.0.2.5"))
	other.Name, other.UID = "api", "svc-api"
	if err := d.client.Tracker().Add(other); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d.lookAt(model.ServiceKey{Namespace: "shop", Name: "api"})
		d.look()
	}
	if d.queue.Len() != 0 {
		t.Fatal("looked at again although nothing is free")
	}
	d.edit(deleted)
	d.at["haproxy"].reports[webKey] = gone
	d.look()
	if d.queue.Len() != 1 {
		t.Fatalf("%d in the queue", d.queue.Len())
	}
	key, _ := d.queue.Get()
	d.lookAt(key)
	if got := d.Service(key).Annotations[annotations.AssignedIPs]; got != "haproxy=192.0.2.5" {
		t.Errorf("%s has %q", key, got)
	}
}

// A load balancer that a Service has never been on is not waited for, whatever is wrong with it: not to be served elsewhere, nor to go.
func TestNeverOnTheOther(t *testing.T) {
	trouble := &providers.Error{Kind: providers.Unavailable, What: "no answer"}
	for name, edit := range map[string]func(*corev1.Service){
		"at an address": func(*corev1.Service) {},
		"members only":  annotated(annotations.Pool, "80=a:p"),
	} {
		s := balanced(edit)
		s.Spec.LoadBalancerClass = new("nplbridge.io/a")
		d := newDesk(t, []string{"a", "b"}, s)
		d.at["b"].trouble = trouble
		for range 2 {
			d.look()
			d.at["a"].reports[webKey] = there("192.0.2.1")
		}
		if got := d.web(); !strings.HasPrefix(is(got, Programmed), "True") {
			t.Errorf("%s: %s", name, is(got, Programmed))
		}
		d.restart()
		d.edit(deleted)
		d.at["a"].reports[webKey] = gone
		d.look()
		if got := d.web(); got != nil && len(got.Finalizers) > 0 {
			t.Errorf("%s: not let go of: %s", name, is(got, Programmed))
		}
	}
}

// Of a Service that carries only our finalizer nobody knows where it has been.
func TestOnlyTheFinalizer(t *testing.T) {
	d := newDesk(t, []string{"a", "b"}, balanced(deleted, func(s *corev1.Service) {
		s.Spec.LoadBalancerClass, s.Finalizers = new("nplbridge.io/a"), []string{annotations.Finalizer}
		s.Annotations[annotations.ManagedBy] = "ns/one/lease"
	}))
	d.at["a"].reports[webKey] = gone
	d.look()
	if len(d.web().Finalizers) != 1 {
		t.Error("let go of before b was read")
	}
	d.at["b"].reports[webKey] = gone
	d.look()
	if got := d.web(); got != nil && len(got.Finalizers) > 0 {
		t.Error("not let go of")
	}
}

// One that it has given members to is.
func TestLeavesAPoolOfAnothers(t *testing.T) {
	d := newDesk(t, []string{"a", "b"}, balanced(annotated(annotations.Pool, "80=a:p,53=b:p"), func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	}))
	d.look()
	if got := d.web().Annotations[annotations.AttachedTo]; got != "a,b" {
		t.Errorf("attached to %q", got)
	}
	d.edit(annotated(annotations.Pool, "53=b:p"))
	d.restart() // and a cannot be read
	d.at["a"].trouble = &providers.Error{Kind: providers.Unavailable, What: "no answer"}
	d.at["b"].reports[webKey] = report(port(53, "UDP", absent, func(p *loop.PortReport) { p.Attached = "p" }))
	d.look()
	if got := d.web(); got.Annotations[annotations.AttachedTo] != "a,b" || !strings.HasPrefix(is(got, Programmed), "False ProviderUnavailable: a: waiting to remove it") {
		t.Errorf("attached to %q, %s", got.Annotations[annotations.AttachedTo], is(got, Programmed))
	}
	d.edit(deleted)
	d.at["b"].reports[webKey] = gone
	d.look()
	if got := d.web(); len(got.Finalizers) != 1 {
		t.Error("let go of while a may have its members")
	}
	d.at["a"].trouble = nil
	d.at["a"].reports[webKey] = gone
	d.look()
	if got := d.web(); got != nil && (len(got.Finalizers) > 0 || got.Annotations[annotations.AttachedTo] != "") {
		t.Errorf("not let go of: %v", got.Annotations)
	}
}

// What a load balancer cannot do is said until it is asked again.
func TestUnsupportedStaysSaid(t *testing.T) {
	d := serving(t)
	r := there("192.0.2.5")
	r.Ports[1].Cannot = "memory cannot do that"
	d.at["haproxy"].reports[webKey] = r
	d.look()
	d.patches = nil
	delete(d.at["haproxy"].reports, webKey)
	d.at["haproxy"].trouble = &providers.Error{Kind: providers.Unavailable, What: "no answer"}
	d.restart()
	d.look()
	if got := is(d.web(), Accepted); !strings.HasPrefix(got, "False UnsupportedSetting") {
		t.Errorf("%s", got)
	}
	d.at["haproxy"].reports[webKey], d.at["haproxy"].trouble = there("192.0.2.5"), nil
	d.look()
	if got := is(d.web(), Accepted); !strings.HasPrefix(got, "True") {
		t.Errorf("%s", got)
	}
}

// Each refusal of a Pod is one Event, whichever load balancers find it.
func TestRefusalsAreToldOnce(t *testing.T) {
	d := onTwo(t)
	refusal := model.Refusal{Key: there().Ports[1].Key, Pod: "shop/web-1", PodUID: "u1", Reason: model.Contested, Message: "taken"}
	for _, at := range d.at {
		r := at.reports[webKey]
		r.Refusals = []model.Refusal{refusal}
		at.reports[webKey] = r
	}
	for range 3 {
		d.look()
	}
	if events := d.events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning Contested") {
		t.Errorf("Events %q", events)
	}
}

// I4: with nothing changed, a new Lease holder writes nothing and says nothing.
func TestRestartIsNothing(t *testing.T) {
	d := onTwo(t)
	d.patches = nil
	d.restart()
	for range 3 {
		d.look()
	}
	if events := d.events(); len(d.patches) > 0 || len(events) > 0 {
		t.Errorf("patches %q, Events %q", d.patches, events)
	}
}

func TestReasonsAreListed(t *testing.T) {
	for _, reason := range []string{ReasonGuarded, ReasonUnknown, "ProviderRejected", "AddressPortConflict"} {
		if !slices.Contains(ConditionReasons(), reason) {
			t.Errorf("%s is not listed", reason)
		}
	}
}
