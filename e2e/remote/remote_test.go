package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

func TestAvi(t *testing.T) { tell(t, lab.Avi) }

func TestBigIP(t *testing.T) { tell(t, lab.BigIP) }

// tell lets one load balancer go through everything, with the same Service. The order counts.
func tell(t *testing.T, kind lab.Kind) {
	if err := theLab.StartLoadBalancerOf(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	defer theLab.StopLoadBalancer()
	if err := theLab.StartLoadBalancer(t.Context()); err == nil || theLab.LoadBalancer().Kind() != kind {
		t.Errorf("a second load balancer: %v", err)
	}
	s := &site{View: view.View{Lab: theLab, Namespace: string(kind)}, t: t, lb: theLab.LoadBalancer()}
	s.must(s.lb.ConfigureLBSync(t.Context(), "resync=10s", "bigip.saveDelay=1s"))
	s.must(theLab.Apply(t.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+s.Namespace+"}}"))
	defer func() {
		if t.Failed() {
			s.dump(t)
		}
	}()
	for _, part := range []struct {
		name string
		run  func(*site)
	}{
		{"a Service is served", (*site).served},
		{"the pool follows the Pods", (*site).follows},
		{"a rolling update fails no request", (*site).rolls},
		{"a Pod that is deleted drains", (*site).drains},
		{"a new lbsync writes nothing", (*site).restarts},
		{"Pods change while the API is away", (*site).away},
		{"the load balancer comes back empty", (*site).empty},
		{"members only", (*site).membersOnly},
		{"calls are counted", (*site).counted},
		{"nothing stays behind", (*site).removed},
		{"the password is nowhere", (*site).secret},
		{"the chart runs lbsync", (*site).byChart},
	} {
		t.Run(part.name, func(t *testing.T) {
			s.t = t
			part.run(s)
		})
		if t.Failed() {
			return // the rest builds on it
		}
	}
}

func (s *site) dump(t *testing.T) {
	tail := func(text string, n int) string {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		return strings.Join(lines[max(0, len(lines)-n):], "\n")
	}
	state, err := s.Lab.Kubectl(t.Context(), "-n", s.Namespace, "get", "services,pods", "-o", "wide")
	t.Logf("%s%v\nlbsync:\n%s\nsimulator:\n%s", state, err, tail(s.lb.LBSyncLog(), 40), tail(s.lb.SimulatorLog(), 40))
}

// served: an address out of the Controller's own network, or out of lbsync's; traffic reaches the right Pods and all of them; the Service says so.
func (s *site) served() {
	s.apply("web", 3, "")
	s.vip = s.address("web")
	s.balanced(s.vip, s.settled("web", 3))
	vip := netip.MustParseAddrPort(s.vip).Addr()
	first, last := netip.MustParseAddr("172.31.0.10"), netip.MustParseAddr("172.31.0.199") // of the network on the Controller
	if !lab.VIPs()[0].Contains(vip) || s.lb.Kind() == lab.Avi && (vip.Less(first) || last.Less(vip)) {
		s.t.Errorf("VIP %s", vip)
	}
	svc := s.service("web")
	if in := svc.Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IPMode == nil || *in[0].IPMode != corev1.LoadBalancerIPModeProxy {
		s.t.Errorf("ingress %+v", in)
	}
	if !slices.Contains(svc.Finalizers, "nplbridge.io/cleanup") {
		s.t.Errorf("finalizers %q", svc.Finalizers)
	}
	if out, err := s.lb.LBSync(s.t.Context(), "check"); err != nil {
		s.t.Errorf("%v\n%s", err, out)
	}
	s.hasCondition("web", "nplbridge.io/Accepted", "True")
	s.hasCondition("web", "nplbridge.io/Programmed", "True")
}

func (s *site) follows() {
	for _, pods := range []int{5, 2} {
		s.kubectl("scale", "deployment", "web", fmt.Sprintf("--replicas=%d", pods))
		s.balanced(s.vip, s.settled("web", pods))
	}
}

func (s *site) rolls() {
	before, err := s.Pods(s.t.Context(), "web")
	s.must(err)
	s.underLoad(func() {
		s.kubectl("rollout", "restart", "deployment", "web")
		s.eventually(func() error {
			now, err := s.Pods(s.t.Context(), "web")
			if err != nil {
				return err
			}
			for _, p := range now {
				if slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID }) {
					return fmt.Errorf("%s is still there", p.Name)
				}
			}
			return nil
		})
		s.settled("web", 2)
	})
}

// drains: the member of a terminating Pod takes no new connections, is still listed for those it has, and goes with the Pod.
func (s *site) drains() {
	members := s.settled("web", 2)
	var leaving netip.AddrPort
	var pod string
	for leaving, pod = range members {
		break
	}
	s.underLoad(func() {
		s.kubectl("delete", "pod", pod, "--wait=false")
		s.eventually(func() error {
			servers, err := s.Members("web")
			if err != nil {
				return err
			}
			if m, listed := servers[leaving]; !listed {
				s.t.Fatalf("%s left the pool without draining", leaving)
			} else if m.Enabled {
				return fmt.Errorf("%s takes connections", leaving)
			}
			return nil
		})
		s.eventually(func() error {
			servers, err := s.Members("web")
			if _, listed := servers[leaving]; err == nil && listed {
				err = fmt.Errorf("%s is still listed", leaving)
			}
			return err
		})
		s.settled("web", 2)
	})
}

// restarts: killed without a warning, lbsync reads everything back when it starts and finds nothing to write, and nothing to save.
func (s *site) restarts() {
	s.quiet()
	before := len(s.calls(0))
	s.lbsyncRestarts()
	s.eventually(func() error {
		if n := s.readings(s.calls(before)); n < 2 {
			return fmt.Errorf("%d readings", n)
		}
		return nil
	})
	if w := writes(s.calls(before)); len(w) > 0 {
		s.t.Errorf("%d writes: %v", len(w), w)
	}
	s.balanced(s.vip, s.settled("web", 2))
}

// away: nobody can reach the API, the data plane goes on. What happened meanwhile is done as soon as it is back.
func (s *site) away() {
	port := netip.MustParseAddrPort(s.lb.ManagementAddress()).Port()
	nft := func(script string) {
		s.t.Helper()
		cmd := s.Lab.Command(s.t.Context(), "lb", "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("nft: %v\n%s", err, out)
		}
	}
	lbsync := s.lb.LBSyncPID()
	s.underLoad(func() {
		nft(fmt.Sprintf("table inet away { chain input { type filter hook input priority 0; tcp dport %d reject with tcp reset; }; }", port))
		s.kubectl("scale", "deployment", "web", "--replicas=4")
		s.hasCondition("web", "nplbridge.io/Programmed", "False")
		s.t.Log(s.condition("web", "nplbridge.io/Programmed"))
		nft("delete table inet away")
		s.settled("web", 4)
	})
	s.hasCondition("web", "nplbridge.io/Programmed", "True")
	s.balanced(s.vip, s.settled("web", 4))
	if now := s.lb.LBSyncPID(); now != lbsync {
		s.t.Error("lbsync did not stay up")
	}
}

// empty: the simulator is killed and has nothing when it is back, not even its certificate. The Service gets everything again, its address included.
func (s *site) empty() {
	before := s.lb.SimulatorPID()
	s.lb.KillSimulator()
	s.eventually(func() error {
		if s.lb.SimulatorPID() == before {
			return errors.New("the simulator does not run again yet")
		}
		return s.lb.SimulatorReady(s.t.Context())
	})
	members := s.settled("web", 4)
	if now := s.address("web"); now != s.vip {
		s.t.Errorf("the address was %s and is %s", s.vip, now)
	}
	s.eventually(func() error { // its listener
		conn, err := s.Lab.Dial(s.t.Context(), "client", "tcp", s.vip)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	s.balanced(s.vip, members)
	s.hasCondition("web", "nplbridge.io/Programmed", "True")
}

// counted: Prometheus learns what was asked of the load balancer, and no name of an object.
func (s *site) counted() {
	text, err := s.lb.LBSyncMetrics(s.t.Context())
	s.must(err)
	var series []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "lbsync_provider_request_duration_seconds_count{") {
			series = append(series, strings.TrimSpace(line))
		}
	}
	want := map[lab.Kind]string{
		lab.Avi:   `{code="200",endpoint="pool",method="GET",provider="avi"}`,
		lab.BigIP: `{code="200",endpoint="ltm/pool",method="GET",provider="bigip"}`,
	}[s.lb.Kind()]
	all := strings.Join(series, "\n")
	if !strings.Contains(all, want) {
		s.t.Errorf("nothing with %s in\n%s", want, all)
	}
	if len(series) > 100 || strings.Contains(all, "web") {
		s.t.Errorf("%d series, or with names of objects:\n%s", len(series), all)
	}
}

// removed: with the last Service, everything of ours is gone, and nothing of anybody else.
func (s *site) removed() {
	s.gone("web")
	s.eventually(func() error {
		if left := s.ours(); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}

// secret: neither password nor token reached a log, an argument, metrics, the status, or an object.
func (s *site) secret() {
	password, err := s.lb.Password()
	s.must(err)
	metrics, err := s.lb.LBSyncMetrics(s.t.Context())
	s.must(err)
	status, err := s.lb.LBSync(s.t.Context(), "status", "-o", "json")
	s.must(err)
	objects, err := s.Lab.Kubectl(s.t.Context(), "get", "services,events,configmaps,leases,pods", "-A", "-o", "yaml")
	s.must(err)
	arguments, err := exec.CommandContext(s.t.Context(), "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true").Output()
	s.must(err)
	settings, err := s.lb.LBSync(s.t.Context(), "config", "print")
	s.must(err)
	for where, text := range map[string]string{
		"lbsync's log": s.lb.LBSyncLog(), "the simulator's log": s.lb.SimulatorLog(), "metrics": metrics, "the status": status, "objects": objects,
		"arguments and environments": string(arguments), "the settings": settings,
	} {
		if len(text) < 100 {
			s.t.Errorf("%s: %q is too little to mean anything", where, text)
		}
		if strings.Contains(text, password) {
			s.t.Errorf("the password is in %s", where)
		}
	}
	if s.lb.Kind() == lab.BigIP && !strings.Contains(s.lb.SimulatorLog(), "/mgmt/shared/authn/login") {
		s.t.Error("lbsync did not log in with its password")
	}
}

// call is Administer with an answer that must be good.
func (s *site) call(method, path string, body any) []byte {
	s.t.Helper()
	answer, err := s.lb.Administer(s.t.Context(), method, path, body)
	s.must(err)
	return answer
}

// ours are the names of objects that carry our mark, or are in the partition that is lbsync's alone.
func (s *site) ours() []string {
	s.t.Helper()
	var out []string
	for _, path := range map[lab.Kind][]string{
		lab.Avi: {"/api/pool", "/api/virtualservice", "/api/vsvip", "/api/l4policyset", "/api/healthmonitor", "/api/applicationpersistenceprofile"},
		lab.BigIP: {
			"/mgmt/tm/ltm/pool", "/mgmt/tm/ltm/virtual", "/mgmt/tm/ltm/virtual-address", "/mgmt/tm/ltm/node", "/mgmt/tm/ltm/monitor/tcp",
			"/mgmt/tm/ltm/monitor/http", "/mgmt/tm/ltm/persistence/source-addr",
		},
	}[s.lb.Kind()] {
		var answer struct {
			Results, Items []json.RawMessage
		}
		s.must(json.Unmarshal(s.call("GET", path, nil), &answer))
		for _, o := range slices.Concat(answer.Results, answer.Items) {
			var named struct{ Name, FullPath string }
			s.must(json.Unmarshal(o, &named))
			if bytes.Contains(o, []byte(`"nplbridge-instance"`)) || strings.HasPrefix(named.FullPath, "/k8s/") {
				out = append(out, path+" "+named.Name)
			}
		}
	}
	return out
}
