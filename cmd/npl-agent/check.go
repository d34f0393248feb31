package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/kube"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// permissions is what the chart's ClusterRole and, for the watermarks, its Role grant.
func permissions(cfg agent.Config) []kube.Permission {
	all := []kube.Permission{
		{Resource: "pods", Verbs: []string{"list", "watch"}},
		{Resource: "services", Verbs: []string{"list", "watch"}},
		{Resource: "nodes", Verbs: []string{"get", "list", "watch"}},
		{Resource: "pods", Subresource: "status", Verbs: []string{"patch"}},
		{Resource: "namespaces", Verbs: []string{"get"}, Name: metav1.NamespaceSystem},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}},
	}
	if cfg.PortReuse == agent.ReuseConfirmed {
		all = append(all, kube.Permission{Resource: "configmaps", Verbs: []string{"list", "watch"}, Namespace: cfg.WatermarkNamespace})
	}
	return all
}

func checkCommand() *cobra.Command {
	return program.CheckCommand(table(), "the kernel, the API server and the rights", func(values *settings.Values) ([]program.Step, error) {
		cfg, err := config(values)
		if err != nil {
			return nil, err
		}
		return []program.Step{
			program.RightsStep(permissions(cfg)),
			{Name: "Node " + cfg.NodeName, Run: func(ctx context.Context, client kubernetes.Interface) error {
				if _, err := client.CoreV1().Nodes().Get(ctx, cfg.NodeName, metav1.GetOptions{}); err != nil {
					return fmt.Errorf("%w; check %s", err, values.Describe("nodeName"))
				}
				return nil
			}},
			{Name: "kernel", Run: func(ctx context.Context, client kubernetes.Interface) error {
				return agent.Probe(ctx, cfg, client, zap.NewNop())
			}},
		}, nil
	})
}
