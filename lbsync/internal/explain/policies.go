package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
)

// policiesOf returns the NetworkPolicies that select the Pod.
func policiesOf(d document.Document, pod string) []document.NetworkPolicy {
	return slices.DeleteFunc(slices.Clone(d.NetworkPolicies), func(n document.NetworkPolicy) bool { return pod == "" || !slices.Contains(n.Pods, pod) })
}

// policyBlocks says that NetworkPolicies let nothing but Pods reach the member, and "" when they may let a load balancer in, which is
// no Pod of the cluster.
func policyBlocks(d document.Document, m document.Member, p document.Port) string {
	policies := policiesOf(d, m.Pod)
	if len(policies) == 0 {
		return ""
	}
	var names []string
	for _, policy := range policies {
		if slices.ContainsFunc(policy.Rules, func(r document.Rule) bool { return (r.Anyone || len(r.Blocks) > 0) && opens(r, p) }) {
			return ""
		}
		names = append(names, policy.Policy)
	}
	return fmt.Sprintf("NetworkPolicy %s lets nobody but Pods reach port %s of it", strings.Join(names, ", "), targetOf(p))
}

// policyNarrows says from where alone NetworkPolicies let anybody reach the member; "" when from everywhere.
func policyNarrows(d document.Document, m document.Member, p document.Port) string {
	var names, blocks []string
	for _, policy := range policiesOf(d, m.Pod) {
		names = append(names, policy.Policy)
		for _, r := range policy.Rules {
			if !opens(r, p) {
				continue
			}
			if r.Anyone {
				return ""
			}
			blocks = append(blocks, r.Blocks...)
		}
	}
	if len(blocks) == 0 {
		return ""
	}
	slices.Sort(blocks)
	return fmt.Sprintf("NetworkPolicy %s lets in only %s, which must contain the addresses that the load balancer sends from",
		strings.Join(names, ", "), strings.Join(slices.Compact(blocks), ", "))
}

// opens reports whether the rule may be about the port of the Pods. A name that nobody resolved may be.
func opens(r document.Rule, p document.Port) bool {
	if len(r.Ports) == 0 {
		return true
	}
	number, err := strconv.ParseUint(p.Target, 10, 16)
	return slices.ContainsFunc(r.Ports, func(o document.RulePort) bool {
		if !strings.EqualFold(o.Protocol, p.Protocol) {
			return false
		}
		if err != nil || o.Name != "" {
			return o.Name == p.Target || (err != nil) != (o.Name != "")
		}
		return o.First == 0 || o.First <= uint16(number) && uint16(number) <= max(o.First, o.Last)
	})
}

func targetOf(p document.Port) string {
	if p.Target == "" {
		return fmt.Sprint(p.Port)
	}
	return p.Target
}
