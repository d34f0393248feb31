package chart

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// Somebody with an agent's rights writes the same node port to two Pods while the agent is down and their rules are lost.
// lbsync has neither as a member, and the agent that comes back gives the port to neither.
func TestAContestedNodePortIsNobodys(t *testing.T) {
	const ns = "contested"
	ctx := t.Context()
	namespace(t, ns, nil)
	if err := theLab.StartLoadBalancer(ctx); err != nil {
		t.Fatal(err)
	}
	service := enabled(ns, "web", intstr.FromInt32(8080))
	service.Annotations = nil
	service.Spec.Type, service.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("nplbridge.io/haproxy")
	if _, err := theLab.Client().CoreV1().Services(ns).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = theLab.Kubectl(t.Context(), "-n", ns, "delete", "service", "web", "--timeout=1m") // lbsync is to see it go
	})
	for _, name := range []string{"a", "b"} {
		create(t, echoPod(ns, name, func(p *corev1.Pod) {
			p.Labels["app"], p.Spec.NodeName = "web", "node-1"
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD_NAME", Value: name}}
		}))
	}
	shop := view.View{Lab: theLab, Namespace: ns}
	if _, err := shop.Settled(ctx, "web", 2); err != nil {
		t.Fatal(err)
	}

	const agents = "daemonset/nplbridge-agent"
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := theLab.Kubectl(ctx, append([]string{"-n", systemNamespace}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("patch", agents, "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}`)
	kubectl("wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=agent", "--timeout=2m")
	for _, family := range []string{"ip", "ip6"} {
		if out, err := theLab.Command(ctx, "node-1", "nft", "flush", "map", family, "nplbridge", "ports").CombinedOutput(); err != nil {
			t.Fatalf("nft: %v\n%s", err, out)
		}
	}
	config := theLab.RESTConfig()
	config.UserAgent = userAgent
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + systemNamespace + ":" + agentAccount,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}},
	}
	contested := netip.AddrPortFrom(lab.NodeAddress("node-1"), 61500)
	entry := npl.Encode([]npl.Mapping{{PodPort: 8080, NodeIP: contested.Addr(), NodePort: contested.Port(), Protocol: npl.TCP, Family: npl.IPv4}})
	for _, name := range []string{"a", "b"} {
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, npl.Annotation, entry)
		if _, err := clientOf(t, config).CoreV1().Pods(ns).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		members, err := shop.Members("web")
		if err == nil && len(members) > 0 {
			err = fmt.Errorf("the pool has %v", members)
		}
		return err
	})

	kubectl("patch", agents, "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":null}}}}}`)
	kubectl("rollout", "status", agents, "--timeout=2m")
	eventually(t, func() error {
		members, err := shop.Published(ctx, "web", 2)
		if owner, ok := members[contested]; ok {
			err = fmt.Errorf("%v is still published for Pod %s", contested, owner)
		}
		return err
	})
	members, err := shop.Settled(ctx, "web", 2)
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := members[contested]; ok {
		t.Errorf("%v is a member, for Pod %s", contested, owner)
	}
	rules, err := theLab.Command(ctx, "node-1", "nft", "list", "table", "ip", "nplbridge").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(rules), "tcp . 61500 :") {
		t.Errorf("the contested port has a rule:\n%s", rules)
	}
}
