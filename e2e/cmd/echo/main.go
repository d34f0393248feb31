// Command echo is the lab's application: it answers HTTP, TCP and UDP with its Pod's identity and the peer it saw.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/e2e/echo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	host, _ := os.Hostname() // a Pod's hostname is its name; without one the name is empty
	cfg := echo.Config{Identity: echo.Identity{
		Pod: cmp.Or(os.Getenv("POD_NAME"), host), UID: os.Getenv("POD_UID"), Node: os.Getenv("NODE_NAME"),
	}}
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Answer HTTP, TCP and UDP with the Pod's identity and the address of the peer",
		Long: `echo answers every request with one line of JSON: the Pod's name, UID and Node, the peer's address and its own.

  HTTP  GET / answers the line, GET /healthz answers "ok"
  TCP   each line received is answered with the line
  UDP   each datagram is answered with the line

The identity comes from POD_NAME, POD_UID and NODE_NAME (the downward API); without POD_NAME it is the host's name. On SIGTERM it goes on serving for --linger,
telling HTTP clients to close, then finishes what was begun and exits.`,
		Example: `  echo                                  # HTTP on 8080, TCP and UDP on 9090
  echo --http 127.0.0.1:8080 --tcp= --udp=
  echo --linger 5s                      # for Pods whose load balancer needs a moment to notice`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := echo.Listen(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return s.Serve(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.HTTP, "http", ":8080", "address for HTTP; empty for none")
	flags.StringVar(&cfg.TCP, "tcp", ":9090", "address for the TCP line protocol; empty for none")
	flags.StringVar(&cfg.UDP, "udp", ":9090", "address for UDP; empty for none")
	flags.DurationVar(&cfg.Linger, "linger", 0, "how long to go on serving after SIGTERM")
	return cmd
}
