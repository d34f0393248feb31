package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// nodePort asks the uneven Pods through a NodePort Service, as an external load balancer without NodePortLocal would:
// Nodes are its members and kube-proxy chooses the Pod. It tries both external traffic policies.
func (s *Story) nodePort(ctx context.Context, a *app) error {
	if err := a.apply(ctx, "classic", corev1.ServiceTypeNodePort); err != nil {
		return err
	}
	for _, node := range s.Lab.Nodes() {
		if err := s.Lab.StartKubeProxy(ctx, node, lab.NFTables); err != nil {
			return err
		}
	}
	pods, err := a.Pods(ctx, "uneven")
	if err != nil {
		return err
	}
	everywhere, err := s.throughNodePort(ctx, a, corev1.ServiceExternalTrafficPolicyCluster, s.Lab.Nodes())
	if err != nil {
		return err
	}
	local, err := s.throughNodePort(ctx, a, corev1.ServiceExternalTrafficPolicyLocal, nodesOf(pods))
	if err != nil {
		return err
	}
	s.table(table.Row{"", "NodePortLocal", "NodePort, policy Cluster", "NodePort, policy Local"},
		table.Row{"members of the pool", "the 4 Pods", "all Nodes, Pods there or not", "the Nodes that have Pods"},
		table.Row{"who chooses the Pod", "the load balancer", "kube-proxy, a second time", "kube-proxy, a second time"},
		table.Row{"largest over smallest share", fmt.Sprintf("%.2f", a.uneven.Ratio()), everywhere.ratio(), local.ratio()},
		table.Row{"requests that hop to another Node", "none: a member is on its Pod's Node", everywhere.hopped(), local.hopped()},
	)
	return nil
}

// throughNodePort sets the policy, asks each of the Nodes in turn, and prints the shares.
func (s *Story) throughNodePort(ctx context.Context, a *app, policy corev1.ServiceExternalTrafficPolicy, nodes []string) (*classicResult, error) {
	_, err := s.Lab.Kubectl(ctx, "-n", namespace, "patch", "service", "classic", "-p", fmt.Sprintf(`{"spec":{"externalTrafficPolicy":%q}}`, policy))
	if err != nil {
		return nil, err
	}
	svc, err := s.Lab.Client().CoreV1().Services(namespace).Get(ctx, "classic", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	result := &classicResult{nodeOf: map[string]string{}}
	var targets []string
	for _, node := range nodes {
		target := netip.AddrPortFrom(lab.NodeAddress(node), uint16(svc.Spec.Ports[0].NodePort)).String()
		targets = append(targets, target)
		result.nodeOf[target] = node
	}
	options := a.client(targets...)
	// kube-proxy takes a moment: with policy Local no request may leave the Node that was asked.
	err = view.Poll(ctx, func() error {
		try := &classicResult{nodeOf: result.nodeOf}
		options.OnAnswer = try.count
		r := load.Run(ctx, len(targets)*8, options)
		if r.Failed > 0 {
			return fmt.Errorf("kube-proxy does not answer on every Node yet: %v", r.Failures)
		}
		if policy == corev1.ServiceExternalTrafficPolicyLocal && try.second.Load() > 0 {
			return fmt.Errorf("kube-proxy does not follow the policy %s yet", policy)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	options.OnAnswer = result.count
	result.Result = load.Run(ctx, shareRequests, options)
	s.say("externalTrafficPolicy: %s", policy)
	s.shareTable(result.Result)
	return result, nil
}

func nodesOf(pods []corev1.Pod) []string {
	var nodes []string
	for _, p := range pods {
		nodes = append(nodes, p.Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// classicResult is what came of asking Nodes.
type classicResult struct {
	load.Result

	nodeOf map[string]string // target to Node
	second atomic.Int64      // answers from another Node than the one that was asked
}

func (c *classicResult) count(target string, answer load.Answer, _ time.Time) {
	if c.nodeOf[target] != answer.Node {
		c.second.Add(1)
	}
}

func (c *classicResult) ratio() string { return fmt.Sprintf("%.2f", c.Ratio()) }

func (c *classicResult) hopped() string {
	return fmt.Sprintf("%.0f %%", 100*float64(c.second.Load())/float64(max(1, c.Requests)))
}
