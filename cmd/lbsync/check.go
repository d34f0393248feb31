package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/kube"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/lbsync"
	"github.com/nplbridge/nplbridge/providers"
)

// permissions is what the chart's ClusterRole and Role grant.
func permissions(cfg lbsync.Config) []kube.Permission {
	out := []kube.Permission{
		{Resource: "services", Verbs: []string{"list", "watch", "patch"}},
		{Resource: "services", Subresource: "status", Verbs: []string{"patch"}},
		{Resource: "pods", Verbs: []string{"list", "watch"}},
		{Resource: "pods", Subresource: "status", Verbs: []string{"patch"}},
		{Resource: "nodes", Verbs: []string{"list", "watch"}},
		{Resource: "namespaces", Verbs: []string{"get"}, Name: metav1.NamespaceSystem},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create"}, Namespace: cfg.LeaseNamespace},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "update"}, Namespace: cfg.LeaseNamespace, Name: cfg.LeaseName},
		{Resource: "configmaps", Verbs: []string{"get", "list", "watch", "create", "update"}, Namespace: cfg.LeaseNamespace},
	}
	if len(cfg.NamespaceSelector) > 0 {
		out = append(out, kube.Permission{Resource: "namespaces", Verbs: []string{"list", "watch"}})
	}
	return out
}

func checkCommand() *cobra.Command {
	return program.CheckCommand(table(), "the API server, the rights and the load balancer", func(values *settings.Values) ([]program.Step, error) {
		cfg, err := config(values)
		if err != nil {
			return nil, err
		}
		balancers, err := balancers(values)
		if err != nil {
			return nil, err
		}
		steps := []program.Step{program.RightsStep(permissions(cfg))}
		for _, b := range balancers {
			steps = append(steps, program.Step{Name: "load balancer " + b.name, Run: func(ctx context.Context, client kubernetes.Interface) error {
				open, err := openAll(ctx, cfg, []balancer{b}, client, zap.NewNop(), unobserved)
				if err != nil {
					return err
				}
				_, err = open[b.name].Observe(ctx, providers.Scope{})
				return errors.Join(err, open.Close())
			}})
		}
		return steps, nil
	})
}
