package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/lbsync"
	"github.com/nplbridge/nplbridge/providers"
)

func runCommand() *cobra.Command {
	table := table()
	var printConfig *bool
	command := &cobra.Command{
		Use:   "run",
		Short: "Keep the load balancer up to date until a signal ends it",
		Long: `Keeps the load balancer up to date. On SIGINT or SIGTERM it stops and leaves the load balancer as it is, so that
traffic goes on.

Each setting comes from its flag, else its environment variable, else the file, else its default.`,
		Example: `  lbsync run --config /etc/nplbridge/lbsync.yaml
  LBSYNC_ADDRESS_POOLS=192.0.2.0/24 lbsync run --kubeconfig /etc/nplbridge/kubeconfig
  lbsync run --config lbsync.yaml --print-config`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			if *printConfig {
				return values.Print(c.OutOrStdout())
			}
			cfg, err := config(values)
			if err != nil {
				return err
			}
			build, err := provider(values)
			if err != nil {
				return err
			}
			runner := program.Runner{
				Table:         table,
				MetricsPrefix: "lbsync",
				New: func(ctx context.Context, client kubernetes.Interface, log *zap.Logger, metrics prometheus.Registerer) (program.Service, error) {
					return service(ctx, cfg, build, client, log, metrics)
				},
			}
			return runner.Run(c.Context(), c.Flags(), values)
		},
	}
	table.AddFlags(command.Flags())
	printConfig = program.PrintConfig(command.Flags())
	return command
}

func service(ctx context.Context, cfg lbsync.Config, build builder, client kubernetes.Interface, log *zap.Logger, metrics prometheus.Registerer) (program.Service, error) {
	p, err := open(ctx, cfg, build, client, log)
	if err != nil {
		return program.Service{}, err
	}
	s, err := lbsync.New(cfg, client, map[string]providers.Provider{cfg.Providers[0]: p}, log, metrics)
	if err != nil {
		return program.Service{}, errors.Join(err, p.Close())
	}
	var checks []serve.Check
	for _, c := range s.Checks() {
		checks = append(checks, serve.Check(c))
	}
	run := func(ctx context.Context) error { return errors.Join(s.Run(ctx), p.Close()) }
	return program.Service{Run: run, Checks: checks, Status: s.Status}, nil
}

// open builds the provider with the mark of this cluster and instance.
func open(ctx context.Context, cfg lbsync.Config, build builder, client kubernetes.Interface, log *zap.Logger) (providers.Provider, error) {
	namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the cluster's identity, the UID of Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return build(providers.Owner{ClusterUID: string(namespace.UID), Instance: cfg.Instance}, log)
}
