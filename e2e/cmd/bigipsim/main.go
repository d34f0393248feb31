// Command bigipsim runs a simulated BIG-IP: its iControl REST interface with TLS, a page that shows what it has, and, where asked, the traffic.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit statuses other than 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:]))
}

func execute(ctx context.Context, args []string) int {
	var failed error
	c := command(&failed)
	c.SetArgs(args)
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bigipsim:", err)
		return exitUsage
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, "bigipsim:", failed)
		return exitFailure
	}
	return 0
}

// command runs the device; what goes wrong once the flags are understood is left in failed.
func command(failed *error) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "bigipsim",
		Short: "Run a simulated BIG-IP on this machine",
		Long: `bigipsim serves the part of a BIG-IP's iControl REST interface that nplbridge uses, and refuses what a BIG-IP refuses. Everything is in memory and
gone when it ends. The page at / shows virtual servers, pools and members; it needs no login, so keep --addr where only you can reach it.

It begins with partition Common and those of --partition, route domain 0, and the profiles, monitors and persistence profiles that a device comes with.
With --peer-addr it is a pair in one sync-failover group; SIGUSR1 makes the other one active. With --proxy it listens on the destinations of virtual
servers, which must be addresses of this host, and carries TCP and UDP to the members that are enabled and up.

The certificates are signed by authorities that are made at every start; --cert-dir says where ca.crt, and ca-peer.crt of the peer, go.`,
		Example: `  bigipsim --password-file password
  bigipsim --addr 127.0.0.1:8443 --username admin --password-file password --partition kubernetes --cert-dir /tmp/bigipsim
  bigipsim --password-file password --partition kubernetes --peer-addr 127.0.0.1:8444
  bigipsim --password-file password --partition kubernetes --proxy --monitor-interval 1s
  bigipsim --password-file password --delay 20ms --log-calls`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.config()
			if err != nil {
				return err
			}
			*failed = run(cmd.Context(), o, cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.addr, "addr", "127.0.0.1:8443", "`address` to listen on")
	f.StringVar(&o.peerAddr, "peer-addr", "", "`address` of the second device of a pair; empty is one device by itself")
	f.StringVar(&o.username, "username", "admin", "the user's `name`; only admin may have more than 100 tokens")
	f.StringVar(&o.passwordFile, "password-file", "", "`file` with the user's password; white space around it does not count (required)")
	f.StringVar(&o.certDir, "cert-dir", "", "`directory` for ca.crt, which clients have to trust; made if it is not there")
	f.StringVar(&o.version, "tmos-version", "16.1.4", "`version` of TMOS")
	f.StringSliceVar(&o.partitions, "partition", []string{"kubernetes"}, "`name` of a partition beside Common; may be given more than once")
	f.BoolVar(&o.autoSync, "auto-sync", false, "synchronise a pair after each write, as a device group with autoSync")
	f.DurationVar(&o.delay, "delay", 0, "how long each call takes beyond its work; writes take it one after the other")
	f.BoolVar(&o.proxy, "proxy", false, "listen on the destinations of virtual servers and carry traffic to the members")
	f.DurationVar(&o.monitorInterval, "monitor-interval", 0, "replaces the interval of monitors with --proxy; 0 keeps theirs")
	f.BoolVar(&o.logCalls, "log-calls", false, "write a line for each call to stderr")
	return c
}
