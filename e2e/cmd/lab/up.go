package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

func upCommand() *cobra.Command {
	var options lab.Options
	var chart bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab and keep it up until Ctrl-C",
		Example: `  lab up
  lab up --nodes 5 --pod-network bridged --kube-proxy
  lab up --chart --name second            # with nplbridge installed and its load balancer`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return err
			}
			if options.Nodes == 0 {
				return errors.New("nodes 0: the lab has room for 1 to 9") // Options take it for their default
			}
			return options.Validate()
		},
		RunE: func(*cobra.Command, []string) error {
			options.Progress = os.Stderr
			lab.Contain(func() int {
				if err := up(options, chart); err != nil {
					fmt.Fprintln(os.Stderr, "lab:", err)
					return exitFailure
				}
				return 0
			})
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Name, "name", "", "name of the lab; by default the first free one of lab, lab-2, ...")
	flags.IntVar(&options.Nodes, "nodes", 3, "number of Nodes, 1 to 9")
	flags.StringVar((*string)(&options.PodNetwork), "pod-network", string(lab.Routed), "how Pods are connected: routed, bridged or overlay")
	flags.BoolVar(&options.BridgeNetfilter, "bridge-netfilter", false, "send traffic between Pods of one Node through netfilter (not routed)")
	flags.BoolVar(&options.ReusePodIPs, "reuse-pod-ips", false, "give new Pods the addresses freed last")
	flags.BoolVar(&options.KubeProxy, "kube-proxy", false, "run kube-proxy on every Node")
	flags.BoolVar(&chart, "chart", false, "install nplbridge's chart and start the load balancer")
	return cmd
}

func up(options lab.Options, chart bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := lab.Start(ctx, options)
	if err != nil {
		return interrupted(ctx, err)
	}
	err = serve(ctx, l, chart)
	stop() // a second Ctrl-C ends everything at once
	return errors.Join(interrupted(ctx, err), l.Close())
}

func serve(ctx context.Context, l *lab.Lab, chart bool) error {
	if chart {
		if err := l.InstallChart(ctx); err != nil {
			return err
		}
		if err := l.StartLoadBalancer(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, `
try, in another terminal:
  go run ./e2e/cmd/lab kubectl --name %[1]s -- get nodes -o wide
  kubectl --kubeconfig %[2]s get nodes
  go run ./e2e/cmd/lab exec --name %[1]s node-1 -- ip address
Ctrl-C ends the lab; nothing stays behind.
`, l.Name(), l.HostKubeconfig())
	return l.Wait(ctx)
}

// interrupted hides the errors that an interrupt caused.
func interrupted(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}
