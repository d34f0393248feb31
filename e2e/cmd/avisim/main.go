// Command avisim runs a simulated Avi Controller: its REST API with TLS, a page that shows what it has, and, where asked, the traffic.
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
		fmt.Fprintln(os.Stderr, "avisim:", err)
		return exitUsage
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, "avisim:", failed)
		return exitFailure
	}
	return 0
}

// command runs the Controller; what goes wrong once the flags are understood is left in failed.
func command(failed *error) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "avisim",
		Short: "Run a simulated Avi (NSX ALB) Controller on this machine",
		Long: `avisim serves the part of a Controller's REST API that nplbridge uses, and refuses what a Controller refuses. Everything is in memory and
gone when it ends. The page at / shows virtual services, pools and servers; it needs no login, so keep --addr where only you can reach it.

It begins with cloud Default-Cloud, SE group Default-Group, VRF global, tenant admin, the System-* profiles and monitors, and a network with the addresses
of --vip-range. With --proxy it listens on the VIPs, which must be addresses of this host, and carries TCP and UDP to the servers that are enabled and up.

The certificate is signed by an authority that is made at every start; --cert-dir says where its ca.crt goes.`,
		Example: `  avisim --password-file password
  avisim --addr 127.0.0.1:9443 --username admin --password-file password --cert-dir /tmp/avisim
  avisim --password-file password --vip-range 127.0.10.1-127.0.10.99 --proxy
  avisim --password-file password --delay 20ms --log-calls`,
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
	f.StringVar(&o.addr, "addr", "127.0.0.1:9443", "`address` to listen on")
	f.StringVar(&o.username, "username", "admin", "the user's `name`")
	f.StringVar(&o.passwordFile, "password-file", "", "`file` with the user's password; white space around it does not count (required)")
	f.StringVar(&o.certDir, "cert-dir", "", "`directory` for ca.crt, which clients have to trust; made if it is not there")
	f.StringVar(&o.version, "controller-version", "31.1.1", "`version` of the Controller")
	f.StringVar(&o.network, "network", "vips", "`name` of the network that VIPs are taken from")
	f.StringVar(&o.vipRange, "vip-range", "192.0.2.10-192.0.2.99", "first and last `address` for VIPs, joined by -")
	f.StringSliceVar(&o.tenants, "tenant", nil, "`name` of a tenant beside admin; may be given more than once")
	f.DurationVar(&o.delay, "delay", 0, "how long each call takes beyond its work")
	f.BoolVar(&o.proxy, "proxy", false, "listen on the VIPs and carry traffic to the servers")
	f.DurationVar(&o.monitorInterval, "monitor-interval", 0, "replaces the interval of health monitors with --proxy; 0 keeps theirs")
	f.BoolVar(&o.logCalls, "log-calls", false, "write a line for each call to stderr")
	return c
}
