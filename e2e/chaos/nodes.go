package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodes are what is done to Nodes and leaves their Pods alone, or lets them go in order.
func nodes() []action {
	return []action{
		{"node-notready", "a Node says nothing until it and its Pods count as not ready, while the Pods go on", fault, nodeNotReady},
		{"node-drain", "a Node is drained as kubectl does, and taken back", careful, nodeDrain},
	}
}

func nodeNotReady(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	if err := s.Lab.PauseHeartbeats(node, true); err != nil {
		return nothing, err
	}
	err := poll(ctx, func() error { return s.lost(ctx, node) })
	if err == nil {
		err = sleep(ctx, 2*time.Second)
	}
	return nothing, errors.Join(err, s.Lab.PauseHeartbeats(node, false))
}

// lost returns nil when a Node counts as not ready, and so do its Pods.
func (s *site) lost(ctx context.Context, name string) error {
	node, err := s.Lab.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return fmt.Errorf("%s is ready", name)
		}
	}
	for _, p := range s.watch.list() {
		if p.Spec.NodeName == name && ready(p) {
			return fmt.Errorf("the Pod %s on %s is ready", p.Name, name)
		}
	}
	return nil
}

// nodeDrain evicts what a Node runs, but for its DaemonSets. PodDisruptionBudgets let one Pod of a Deployment go after the other.
func nodeDrain(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	if s.small {
		s.say("           left out: the Pods of the only Node have nowhere to go")
		return nothing, nil
	}
	node := pick(random, s.Lab.Nodes())
	out, err := s.Lab.Kubectl(ctx, "drain", node, "--ignore-daemonsets", "--timeout=90s")
	for range strings.Count(out, " evicted\n") {
		s.watch.count("Pods evicted")
	}
	_, back := s.Lab.Kubectl(context.WithoutCancel(ctx), "uncordon", node)
	return nothing, errors.Join(err, back)
}
