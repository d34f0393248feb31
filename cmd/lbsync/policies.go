package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/lbsync"
)

// appendPolicies adds the NetworkPolicies of a namespace that restrict what comes in. Where they, or the Pods that they select, may not be
// read the error says how it can be done.
func appendPolicies(ctx context.Context, client kubernetes.Interface, to []lbsync.PolicyStatus, namespace string) ([]lbsync.PolicyStatus, error) {
	list, err := client.NetworkingV1().NetworkPolicies(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return to, unread(err, namespace)
	}
	for _, policy := range list.Items {
		if types := policy.Spec.PolicyTypes; len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeIngress) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			continue // the API server takes no such policy
		}
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return to, unread(err, namespace)
		}
		var names []string
		for _, p := range pods.Items {
			names = append(names, namespace+"/"+p.Name)
		}
		to = append(to, policyStatus(policy, names))
	}
	return to, nil
}

// unread shortens the API server's refusal, which the ServiceAccount of lbsync always gets: it has no business with NetworkPolicies.
func unread(err error, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("they may not be read in namespace %s; name the kubeconfig of somebody who may with --kubeconfig", namespace)
}

func policyStatus(policy networkingv1.NetworkPolicy, pods []string) lbsync.PolicyStatus {
	out := lbsync.PolicyStatus{Policy: policy.Namespace + "/" + policy.Name, Pods: pods}
	for _, rule := range policy.Spec.Ingress {
		r := lbsync.PolicyRule{Anyone: len(rule.From) == 0}
		for _, peer := range rule.From {
			switch block := peer.IPBlock; {
			case block == nil: // Pods, which a load balancer is not
			case everything(block):
				r.Anyone = true
			default:
				r.Blocks = append(r.Blocks, blockText(block))
			}
		}
		for _, port := range rule.Ports {
			r.Ports = append(r.Ports, rulePort(port))
		}
		out.Rules = append(out.Rules, r)
	}
	return out
}

func everything(block *networkingv1.IPBlock) bool {
	p, err := netip.ParsePrefix(block.CIDR)
	return err == nil && p.Bits() == 0 && len(block.Except) == 0
}

func blockText(block *networkingv1.IPBlock) string {
	if len(block.Except) == 0 {
		return block.CIDR
	}
	return fmt.Sprintf("%s without %s", block.CIDR, strings.Join(block.Except, " and "))
}

func rulePort(port networkingv1.NetworkPolicyPort) lbsync.PolicyRulePort {
	out := lbsync.PolicyRulePort{Protocol: strings.ToLower(string(corev1.ProtocolTCP))}
	if port.Protocol != nil {
		out.Protocol = strings.ToLower(string(*port.Protocol))
	}
	if port.Port != nil {
		if out.Name = port.Port.StrVal; out.Name == "" {
			out.First = uint16(port.Port.IntVal)
		}
	}
	if port.EndPort != nil {
		out.Last = uint16(*port.EndPort)
	}
	return out
}

// namespacesOf returns the namespaces whose NetworkPolicies the answer may need.
func namespacesOf(d lbsync.Document, t lbsync.Target) []string {
	if namespace, _, ok := strings.Cut(t.Name, "/"); ok && (t.Kind == lbsync.TargetService || t.Kind == lbsync.TargetPod) {
		return []string{namespace}
	}
	var out []string
	for _, s := range d.Services {
		for _, p := range s.Ports {
			has := slices.ContainsFunc(p.VIPs, func(vip string) bool { return strings.Contains(t.Name, vip) }) ||
				slices.ContainsFunc(p.Members, func(m lbsync.MemberStatus) bool { return strings.HasPrefix(t.Name, m.Address) })
			if has {
				out = append(out, s.Namespace())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
