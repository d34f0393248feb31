// Command bench measures nplbridge in labs of its own and prints the figures.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/nplbridge/nplbridge/e2e/bench"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// The exit statuses other than 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	lab.Init()
	if err := command().ExecuteContext(context.Background()); err != nil { // of the command line: measuring ends the process itself
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitUsage)
	}
}

func command() *cobra.Command {
	var only []string
	var parts strings.Builder
	for _, p := range bench.Parts() {
		fmt.Fprintf(&parts, "  %-10s %s\n", p.Name, p.Doc)
	}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure nplbridge in a lab and print the figures",
		Long: `bench starts labs on this machine, measures in them, and prints a table of what it measured beside what nplbridge is
expected to do. It never fails on a number.

Parts:
` + parts.String(),
		Example: `  bench
  bench --only memory
  bench --only cold,burst`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			chosen, err := bench.Select(only)
			if err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			lab.Contain(func() int { return measure(chosen) })
			return nil
		},
	}
	c.AddCommand(&cobra.Command{
		Use: bench.SubjectCommand + " <kubeconfig> <members>", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			members, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			return bench.ServeInMemory(c.Context(), args[0], members, c.InOrStdin(), c.OutOrStdout())
		},
	})
	c.Flags().StringSliceVar(&only, "only", nil, "`parts` to measure, instead of all")
	return c
}

func measure(parts []bench.Part) int {
	klog.SetLogger(logr.Discard()) // client-go's complaints about watches that end are no figures
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := bench.Run(ctx, parts, os.Stdout); {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench: interrupted")
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	return exitFailure
}
