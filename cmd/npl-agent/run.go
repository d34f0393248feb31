package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/removal"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

func runCommand() *cobra.Command {
	table := table()
	var printConfig *bool
	command := &cobra.Command{
		Use:   "run",
		Short: "Serve this Node until a signal ends it",
		Long: `Serves this Node. On SIGINT or SIGTERM it stops and leaves rules and annotations in place, so that connections and
load balancers go on; ` + "`npl-agent cleanup`" + ` removes them.

Each setting comes from its flag, else its environment variable, else the file, else its default.`,
		Example: `  npl-agent run --config /etc/nplbridge/settings.yaml
  NPL_AGENT_NODE_NAME=worker-1 npl-agent run --port-range 50000-51000
  npl-agent run --config settings.yaml --print-config`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			if *printConfig {
				return values.Print(c.OutOrStdout())
			}
			if err := valid(values); err != nil {
				return err
			}
			runner := program.Runner{Table: table, MetricsPrefix: "npl_agent", Valid: valid, New: service}
			return runner.Run(c.Context(), c.Flags(), values)
		},
	}
	table.AddFlags(command.Flags())
	printConfig = program.PrintConfig(command.Flags())
	return command
}

// valid says what is wrong with the settings.
func valid(values *settings.Values) error {
	_, err := config(values)
	return err
}

func service(_ context.Context, values *settings.Values, client kubernetes.Interface, log *zap.Logger, metrics prometheus.Registerer) (program.Service, error) {
	cfg, err := config(values)
	if err != nil {
		return program.Service{}, err
	}
	if program.IsRemoving(values) {
		return leave(cfg, client, log), nil
	}
	a, err := agent.New(cfg, client, log, metrics)
	if err != nil {
		return program.Service{}, err
	}
	var checks []serve.Check
	for _, c := range a.Checks() {
		checks = append(checks, serve.Check(c))
	}
	return program.Service{Run: a.Run, Checks: checks, Status: a.Status}, nil
}

// leave is what runs in state removing.
func leave(cfg agent.Config, client kubernetes.Interface, log *zap.Logger) program.Service {
	p := &removal.Process{
		Program: "npl-agent", Client: client, Log: log,
		Remove: func(ctx context.Context, tell func(string)) error {
			tell("annotations of Pods and tables of this Node are being removed")
			return agent.Cleanup(ctx, cfg, client, log)
		},
		Status: func(left string) any { return agent.Leaving(cfg, left) },
	}
	return p.Service()
}

func cleanupCommand() *cobra.Command {
	table := table()
	var force bool
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the annotations of this Node's Pods, then the rules",
		Long: `Takes npl-agent off this Node: the annotations go first, and after withdrawGrace the nftables tables. Stop the
running agent before: it would write both again, so cleanup refuses while one listens on the status socket. With --force it goes
on all the same; if the annotations come back then, it fails and leaves the rules to whoever put them there. Where Antrea's agent
serves the Node, the annotations are Antrea's and stay.`,
		Example: `  npl-agent cleanup --node-name worker-1 --kubeconfig /etc/kubernetes/admin.conf
  npl-agent cleanup --config /etc/nplbridge/settings.yaml --withdraw-grace 0s`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			cfg, err := config(values)
			if err != nil {
				return err
			}
			if err := program.Alone(values); err != nil && !force {
				return fmt.Errorf("%w; it would write everything again: stop it first, or go on with --force", err)
			}
			log, err := program.Logger(values)
			if err != nil {
				return err
			}
			client, err := program.ReachableClient(c.Context(), values)
			if err != nil {
				return err
			}
			return agent.Cleanup(c.Context(), cfg, client, log)
		},
	}
	table.AddFlags(command.Flags())
	command.Flags().BoolVar(&force, "force", false, "go on although something listens on the status socket; if it is an agent, cleanup fails as soon as the annotations are back")
	return command
}
