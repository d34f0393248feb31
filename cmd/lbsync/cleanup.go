package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/lbsync"
)

func cleanupCommand(by caller) *cobra.Command {
	table := table()
	var wait bool
	var limit time.Duration
	var retire string
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything of this installation from the load balancers and from Kubernetes",
		Long: `Removes pools and virtual servers from the load balancers, then finalizers, annotations, conditions and addresses from Services,
then watermarks and the Lease. It takes the Lease meanwhile, and refuses while another process holds it: stop lbsync first, or give
--wait and stop it then. Only what carries the mark of this cluster and instance is touched. After a failure run it again: it goes on
where it was. Readiness gates that are True stay True, so that no Pod becomes unready.

An HAProxy is cleaned up where its lbsync ran, with the settings of that one.

With --retire it removes only what one process has published that is gone for good together with its load balancer, and that npl-agents
would wait for otherwise. With --dry-run it shows what it would remove.`,
		Example: by.lines(`  lbsync cleanup --config /etc/nplbridge/lbsync.yaml --dry-run
  lbsync cleanup --config /etc/nplbridge/lbsync.yaml --wait
  lbsync cleanup --kubeconfig /etc/kubernetes/admin.conf --retire lb-2`),
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
			balancers, err := balancers(values)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), limit)
			defer cancel()
			client, err := program.ReachableClient(ctx, values)
			if err != nil {
				return err
			}
			if retire != "" {
				return retireProcess(ctx, c, cfg, client, retire)
			}
			if err := program.Alone(values); err != nil && !wait && !cfg.DryRun {
				return fmt.Errorf("%w; it would write everything again: stop it first, or give --wait and stop it then", err)
			}
			log, err := program.Logger(values)
			if err != nil {
				return err
			}
			open, err := openAll(ctx, cfg, balancers, client, log, unobserved)
			if err != nil {
				return err
			}
			if cfg.DryRun {
				err = showCleanup(ctx, c, cfg, client, open)
			} else {
				err = clean(ctx, c, cfg, client, open, log, wait)
			}
			return errors.Join(err, open.Close())
		},
	}
	table.AddFlags(command.Flags())
	command.Flags().BoolVar(&wait, "wait", false, "wait for the process that holds the Lease to stop, instead of refusing")
	command.Flags().DurationVar(&limit, "timeout", planLimit, "give up after that")
	command.Flags().StringVar(&retire, "retire", "", "remove only what the process of this identity has published")
	return command
}

func clean(ctx context.Context, c *cobra.Command, cfg lbsync.Config, client kubernetes.Interface, open opened, log *zap.Logger, wait bool) error {
	tell := func(left string) { _, _ = fmt.Fprintln(c.OutOrStdout(), left) }
	if err := lbsync.Cleanup(ctx, cfg, client, open, log, lbsync.Cleaning{Wait: wait, Tell: tell}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), "nothing of", cfg.Instance, "is left")
	return err
}

func showCleanup(ctx context.Context, c *cobra.Command, cfg lbsync.Config, client kubernetes.Interface, open opened) error {
	d, err := lbsync.PlanCleanup(ctx, cfg, client, open, zap.NewNop())
	if err != nil {
		return err
	}
	if err := printChanges(c.OutOrStdout(), plannedIn(d, "")); err != nil {
		return err
	}
	for _, s := range d.Services {
		if _, err := fmt.Fprintf(c.OutOrStdout(), "let go of Service %s\n", s.Service); err != nil {
			return err
		}
	}
	return nil
}

func retireProcess(ctx context.Context, c *cobra.Command, cfg lbsync.Config, client kubernetes.Interface, identity string) error {
	removed, err := lbsync.Retire(ctx, cfg, client, identity)
	for _, name := range removed {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "removed", name)
	}
	return err
}
