package lbsync

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// entry returns a Service of the document, or nil.
func entry(d Document, name string) *ServiceStatus {
	i := slices.IndexFunc(d.Services, func(s ServiceStatus) bool { return s.Service == name })
	if i < 0 {
		return nil
	}
	return &d.Services[i]
}

func TestDocument(t *testing.T) {
	unready, forged, bare := pod("web", 2), pod("web", 3), pod("web", 4)
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	forged.Annotations[npl.Annotation] = strings.ReplaceAll(forged.Annotations[npl.Annotation], "198.51.100.11", "203.0.113.9")
	delete(bare.Annotations, npl.Annotation)
	odd := service("odd")
	odd.Annotations = map[string]string{annotations.LoadBalancerIPs: "nonsense"}
	foreignClass, unclassed, inside := service("classed"), service("unclassed"), service("inside")
	foreignClass.Spec.LoadBalancerClass = new("example.org/other")
	unclassed.Spec.LoadBalancerClass = nil
	inside.Spec.Type, inside.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	other := service("others")
	other.Annotations = map[string]string{annotations.ManagedBy: "other/nplbridge/lbsync"}
	ports := service("ports")
	ports.Spec.Ports[0].NodePort = 30080

	w := newWorld(t, node(), service("web"), odd, foreignClass, unclassed, inside, other, ports, pod("web", 1), unready, forged, bare)
	s, _ := w.start("one")
	w.eventually("web is programmed", func() bool { return programmed(w.service("web")) })
	var d Document
	w.eventually("it says so", func() bool {
		d = s.Document()
		web := entry(d, "shop/web")
		return web != nil && len(web.Ports) == 1 && web.Ports[0].Programmed && len(web.Conditions) == 2 && web.Conditions[1].Status == "True"
	})

	if d.Version != DocumentVersion || d.Identity != "one" || !d.Leading || d.Leader != "one" || d.Problem != "" {
		t.Errorf("%+v", d)
	}
	if p := d.Providers[0]; p.Name != "memory" || p.Kind != "memory" || !p.Writing || p.LastObserve == nil || p.Problem != "" {
		t.Errorf("%+v", p)
	}
	web := entry(d, "shop/web")
	port := web.Ports[0]
	if port.Target != "8080" || port.Provider != "memory" || len(port.VIPs) != 1 {
		t.Errorf("%+v", port)
	}
	if len(port.Members) != 1 || port.Members[0].Pod != "shop/web-1" || port.Members[0].Address != "198.51.100.11:61001" || port.Members[0].State != "Enabled" {
		t.Errorf("members: %+v", port.Members)
	}
	var refused, left []string
	for _, r := range port.Refusals {
		refused = append(refused, r.Pod+" "+r.Reason)
	}
	for _, p := range web.Pods {
		left = append(left, fmt.Sprintf("%s ready=%v %v", p.Pod, p.Ready, p.Mappings))
	}
	if want := []string{"shop/web-3 ForeignNodeAddress", "shop/web-4 NotPublished"}; !slices.Equal(refused, want) {
		t.Errorf("refusals: %q, want %q", refused, want)
	}
	want := []string{
		"shop/web-2 ready=false [8080/tcp at 198.51.100.11:61002]", "shop/web-3 ready=true [8080/tcp at 203.0.113.9:61003]", "shop/web-4 ready=true []",
	}
	if web.Selected != 4 || !slices.Equal(left, want) {
		t.Errorf("selected %d, and these Pods are not in: %q, want %q", web.Selected, left, want)
	}
	if p := entry(d, "shop/odd").Problems; len(p) != 1 || p[0].Key != annotations.LoadBalancerIPs || p[0].Value != "nonsense" {
		t.Errorf("problems: %+v", p)
	}
	if got := entry(d, "shop/others"); got.ManagedBy != "other/nplbridge/lbsync" {
		t.Errorf("%+v", got)
	}
	if !entry(d, "shop/ports").NodePorts || web.NodePorts {
		t.Error("which Services have node ports of Kubernetes")
	}
	var ignored []string
	for _, i := range d.Ignored {
		ignored = append(ignored, i.Service+": "+i.Why)
	}
	if want := []string{
		`shop/classed: its loadBalancerClass is "example.org/other"; those of lbsync are nplbridge.io/memory`,
		"shop/unclassed: it has no loadBalancerClass, and handleUnclassed is false; the classes of lbsync are nplbridge.io/memory",
	}; !slices.Equal(ignored, want) {
		t.Errorf("ignored: %q", ignored)
	}
	for target, broken := range map[Target]bool{
		{TargetService, "shop/web"}: false, {TargetPod, "shop/web-1"}: false, {TargetPod, "shop/web-2"}: true, {TargetService, "shop/odd"}: true,
		{TargetService, "shop/classed"}: true, {TargetService, "shop/others"}: true, {TargetVIP, port.VIPs[0]}: false, {TargetMember, "198.51.100.11:61001"}: false,
	} {
		if e, err := Explain(d, target); err != nil || e.Broken() != broken {
			t.Errorf("%v: broken = %v, %v\n%+v", target, e.Broken(), err, e)
		}
	}
	if _, err := Explain(d, Target{"node", "node-1"}); err == nil {
		t.Error("a Node is explained")
	}
	text, err := json.Marshal(d)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%v, lists that are null: %s", err, text)
	}

	// A deletion that the load balancer does not confirm yet.
	release := w.lb.HoldKey(providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP})
	if err := w.client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("what is left of a Service that is gone is told", func() bool {
		web := entry(s.Document(), "shop/web")
		return web != nil && web.Deleting && len(s.Document().Providers[0].Planned) > 0
	})
	release()
	w.eventually("and then nothing", func() bool { return entry(s.Document(), "shop/web") == nil })
}

// A process that does not lead says who does.
func TestDocumentOfAFollower(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.eventually("web is programmed", func() bool { return programmed(w.service("web")) })
	two, _ := w.start("two")
	w.eventually("it knows the leader", func() bool {
		d := two.Document()
		return !d.Leading && d.Leader == "one" && !d.Providers[0].Writing
	})
	e, err := Explain(two.Document(), Target{TargetService, "shop/web"})
	if err != nil || !e.Broken() || !strings.Contains(e.Chains[0].Steps[0].Found, "one holds the Lease") {
		t.Errorf("%v, %+v", err, e)
	}
}
