package manifests

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Where the cluster denies traffic by default the Pod of the hook reaches the API server, and nobody reaches it; the way is open before it starts.
func TestNetworkPolicyOfTheHook(t *testing.T) {
	cidr := []string{"lbsync.networkPolicy.enabled=true", "lbsync.networkPolicy.apiServerCIDRs={192.0.2.1/32}"}
	for name, set := range map[string][]string{
		"a Deployment": combinations["network policy"],
		"a DaemonSet":  cidr, // lbsync is on the Node's network, the hook is not
		"agent alone":  append(slices.Clone(cidr), "lbsync.enabled=false"),
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, set...)
			job := named[*batchv1.Job](t, objects, "nplbridge-uninstall")
			policy := named[*networkingv1.NetworkPolicy](t, objects, "nplbridge-uninstall")
			selects(t, policy.Spec.PodSelector.MatchLabels, job.Spec.Template.Labels)
			tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
			port := func(p *corev1.Protocol, n int32) networkingv1.NetworkPolicyPort {
				return networkingv1.NetworkPolicyPort{Protocol: p, Port: new(intstr.FromInt32(n))}
			}
			want := []networkingv1.NetworkPolicyEgressRule{
				{
					To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.1/32"}}},
					Ports: []networkingv1.NetworkPolicyPort{port(&tcp, 443), port(&tcp, 6443)},
				},
				{Ports: []networkingv1.NetworkPolicyPort{port(&udp, 53), port(&tcp, 53)}},
			}
			if diff := cmp.Diff(want, policy.Spec.Egress); diff != "" || len(policy.Spec.Ingress) > 0 || len(policy.Spec.PolicyTypes) != 2 {
				t.Errorf("ingress %v, types %v, egress -want +got:\n%s", policy.Spec.Ingress, policy.Spec.PolicyTypes, diff)
			}
			if policy.Annotations["helm.sh/hook"] != "pre-delete" || weight(t, policy.Annotations) >= weight(t, job.Annotations) {
				t.Errorf("it is there after the Job: %v", policy.Annotations)
			}
		})
	}
	for name, set := range map[string][]string{"default": nil, "no hook": append(slices.Clone(cidr), "uninstall.cleanup=false")} {
		if _, has := find[*networkingv1.NetworkPolicy](render(t, set...), "nplbridge-uninstall"); has {
			t.Errorf("%s: a NetworkPolicy", name)
		}
	}
}

func weight(t *testing.T, annotations map[string]string) int {
	t.Helper()
	w, err := strconv.Atoi(annotations["helm.sh/hook-weight"])
	if err != nil {
		t.Error(err)
	}
	return w
}

// The hook runs on whatever Node there is.
func TestTolerationsOfTheHook(t *testing.T) {
	for _, set := range [][]string{nil, {"lbsync.tolerations[0].key=edge", "agent.tolerations=null"}} {
		got := named[*batchv1.Job](t, render(t, set...), "nplbridge-uninstall").Spec.Template.Spec.Tolerations
		if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, got); diff != "" {
			t.Errorf("%q: -want +got:\n%s", set, diff)
		}
	}
}
