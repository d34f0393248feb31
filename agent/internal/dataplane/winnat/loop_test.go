package winnat

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/loop"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// cluster is the API server of the loop's Node. It takes every annotation at once.
type cluster struct {
	pods    map[string]model.Pod
	patches int
	refused []model.Refusal
}

func (c *cluster) Node() model.Node {
	return model.Node{Name: "windows-1", Addresses: []model.NodeAddress{{Type: "InternalIP", IP: netip.MustParseAddr("192.0.2.1")}, {Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")}}}
}

func (c *cluster) Pods() []model.Pod { return slices.Collect(maps.Values(c.pods)) }

func (c *cluster) Services() []model.Service {
	return []model.Service{{Namespace: "shop", Name: "web", Type: "ClusterIP", Selector: map[string]string{"app": "web"}, Families: []npl.Family{npl.IPv4, npl.IPv6}, Ports: []model.ServicePort{{Protocol: npl.TCP, TargetPort: 80}}}}
}

func (c *cluster) Arrivals() map[string]time.Time { return nil }
func (c *cluster) Deletions() map[string]string   { return nil }
func (c *cluster) Version() string                { return "1" }
func (c *cluster) Since(model.Pod) string         { return "1" }
func (c *cluster) Failure(string) error           { return nil }
func (c *cluster) Refused(r model.Refusal)        { c.refused = append(c.refused, r) }
func (c *cluster) Changed(model.Refusal)          {}
func (c *cluster) Withdrawn(model.Refusal)        {}

func (c *cluster) Published(p model.Pod) ([]npl.Mapping, error) {
	if p = c.pods[p.UID]; !p.Annotated {
		return nil, nil
	}
	return npl.Decode(p.Annotation)
}

func (c *cluster) Set(all []publish.Desired) {
	for _, d := range all {
		p, ok := c.pods[d.Pod.UID]
		if annotation := npl.Encode(d.Mappings); ok && len(d.Mappings) > 0 && p.Annotation != annotation {
			p.Annotation, p.Annotated = annotation, true
			c.pods[p.UID] = p
			c.patches++
		}
	}
}

func (c *cluster) add(uid, ip string) {
	c.pods[uid] = model.Pod{UID: uid, Namespace: "shop", Name: uid, Labels: map[string]string{"app": "web"}, IPs: []netip.Addr{netip.MustParseAddr(ip), netip.MustParseAddr("fd00::9")}}
}

// TestTheLoopDrivesIt is the loop's own promises, I1 apart, over WinNAT instead of nftables.
func TestTheLoopDrivesIt(t *testing.T) {
	w := newNode(t)
	w.host.put(row{nat: "pods", protocol: "TCP", external: "0.0.0.0", port: 40000, target: "10.244.1.99", targetPort: 80})
	w.host.listens[tcp(40001)] = true
	c := &cluster{pods: map[string]model.Pod{}}
	clock := testclock.NewFakeClock(w.now)
	var l *loop.Loop
	start := func() {
		t.Helper()
		w.restart()
		metrics, err := loop.NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		l = loop.New(c, w.nat, c, nil, c, clock, zap.NewNop(), metrics, loop.Settings{
			Range: ports.Range{First: 40000, Last: 40004}, IPFamilies: []npl.Family{npl.IPv4, npl.IPv6}, Addresses: model.AddressPolicy{Types: []string{"InternalIP"}},
			CoolDown: 5 * time.Minute, RepairInterval: 30 * time.Second, WithdrawGrace: 30 * time.Second,
		})
	}
	pass := func(after time.Duration) {
		t.Helper()
		w.now = w.now.Add(after)
		clock.Step(after)
		for range 2 { // the second sees what the first published
			if _, err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	port := func(uid string) dataplane.Key {
		t.Helper()
		m, err := npl.Decode(c.pods[uid].Annotation)
		if err != nil || len(m) != 1 || m[0].NodeIP != netip.MustParseAddr("192.0.2.1") || m[0].NodePort < 40002 {
			t.Fatalf("Pod %s is published as %v, %v; want one IPv4 port that nobody else has", uid, m, err)
		}
		return tcp(m[0].NodePort)
	}

	start()
	c.add("a", "10.244.1.2")
	c.add("b", "10.244.1.3")
	before := w.host.starts
	pass(0)
	if starts := w.host.starts - before; starts > 4 {
		t.Errorf("the first two passes started PowerShell %d times; want load, change and comparison", starts)
	}
	a, b := port("a"), port("b")
	w.want(targets{a: to("10.244.1.2:80"), b: to("10.244.1.3:80")})

	writes, patches := w.host.writes, c.patches
	start()
	pass(time.Second)
	if w.host.writes != writes || c.patches != patches || port("a") != a {
		t.Fatalf("I4: a restart made %d cmdlets and %d patches", w.host.writes-writes, c.patches-patches)
	}

	w.host.take(a)
	pass(30 * time.Second)
	w.want(targets{a: to("10.244.1.2:80"), b: to("10.244.1.3:80")})

	delete(c.pods, "a")
	pass(time.Second)
	w.want(targets{b: to("10.244.1.3:80")})
	start()
	c.add("c", "10.244.1.4")
	c.add("d", "10.244.1.5")
	pass(4 * time.Minute)
	if port("c") == a || c.pods["d"].Annotated || len(c.refused) == 0 {
		t.Fatalf("I2: the port of Pod a, %s, was given away; c has %s, d %q", a, port("c"), c.pods["d"].Annotation)
	}
	pass(time.Minute)
	if port("d") != a {
		t.Errorf("after the cool-down Pod d has %s, want %s", port("d"), a)
	}
	if len(w.host.foreign()) != 1 {
		t.Error("I5: somebody else's mapping is gone")
	}
}
