package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/removal"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/lbsync"
	"github.com/nplbridge/nplbridge/providers"
)

// garbage is how much of it may collect before it is looked for, in percent of what is in use. Go's default is 100; an lbsync beside each HAProxy
// shares its Node's memory with applications, and takes little processor time that a collector could add to.
const garbage = 50

// boundGarbage sets that, unless the environment says something else in GOGC, as of every Go program.
func boundGarbage(environment string) {
	if environment == "" {
		debug.SetGCPercent(garbage)
	}
}

func runCommand(by caller) *cobra.Command {
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
			if err := valid(values); err != nil {
				return err
			}
			boundGarbage(os.Getenv("GOGC"))
			runner := program.Runner{
				Table:         table,
				MetricsPrefix: "lbsync",
				StatusAddress: statusAddress,
				Anew:          true, // HAProxy in the same Pod goes on
				Valid:         valid,
				New:           service,
			}
			return runner.Run(c.Context(), c.Flags(), values)
		},
	}
	command.Hidden = by.plugin // nobody runs it by kubectl
	table.AddFlags(command.Flags())
	printConfig = program.PrintConfig(command.Flags())
	return command
}

// valid says what is wrong with the settings.
func valid(values *settings.Values) error {
	_, err := config(values)
	return err
}

func service(ctx context.Context, values *settings.Values, client kubernetes.Interface, log *zap.Logger, metrics prometheus.Registerer) (program.Service, error) {
	cfg, err := config(values)
	if err != nil {
		return program.Service{}, err
	}
	balancers, err := balancers(values)
	if err != nil {
		return program.Service{}, err
	}
	calls, err := observeCalls(metrics)
	if err != nil {
		return program.Service{}, err
	}
	open, err := openAll(ctx, cfg, balancers, client, log, calls)
	if err != nil {
		return program.Service{}, err
	}
	if program.IsRemoving(values) {
		return leave(cfg, open, client, log), nil
	}
	s, err := lbsync.New(cfg, client, open, log, metrics)
	if err != nil {
		return program.Service{}, errors.Join(err, open.Close())
	}
	var checks []serve.Check
	for _, c := range s.Checks() {
		checks = append(checks, serve.Check(c))
	}
	run := func(ctx context.Context) error { return errors.Join(s.Run(ctx), open.Close()) }
	reload := func(v *settings.Values) error { return take(s, cfg, v) }
	return program.Service{Run: run, Checks: checks, Status: s.Status, Reload: reload}, nil
}

// leave is what runs in state removing.
func leave(cfg lbsync.Config, open opened, client kubernetes.Interface, log *zap.Logger) program.Service {
	p := &removal.Process{
		Program: "lbsync", Client: client, Log: log,
		Remove: func(ctx context.Context, tell func(string)) error {
			return lbsync.Remove(ctx, cfg, client, open, log, tell)
		},
		Status: func(left string) any { return lbsync.Leaving(cfg, left) },
	}
	out := p.Service()
	run := out.Run
	out.Run = func(ctx context.Context) error { return errors.Join(run(ctx), open.Close()) }
	return out
}

// take has a running Syncer take over those settings that are Live.
func take(s *lbsync.Syncer, running lbsync.Config, v *settings.Values) error {
	now, err := config(v)
	if err != nil {
		return err
	}
	running.DrainLimit, running.Resync, running.GuardHold, running.GateTimeout = now.DrainLimit, now.Resync, now.GuardHold, now.GateTimeout
	running.PortRange, running.NodePortSelector, running.NodePortRange = now.PortRange, now.NodePortSelector, now.NodePortRange
	return s.Reload(running)
}

// opened are the providers by name.
type opened map[string]providers.Provider

// openAll builds the providers with the mark of this cluster and instance; calls is who is told about the requests of one.
func openAll(ctx context.Context, cfg lbsync.Config, balancers []balancer, client kubernetes.Interface, log *zap.Logger,
	calls func(provider string) observer,
) (opened, error) {
	uid, err := lbsync.ClusterUID(ctx, client)
	if err != nil {
		return nil, err
	}
	out := opened{}
	for _, b := range balancers {
		p, err := b.build(providers.Owner{ClusterUID: uid, Instance: cfg.Instance}, log.With(zap.String("provider", b.name)), calls(b.name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("provider %s: %w", b.name, err), out.Close())
		}
		out[b.name] = p
	}
	return out, nil
}

// Close closes all.
func (o opened) Close() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o)) {
		errs = append(errs, o[name].Close())
	}
	return errors.Join(errs...)
}
