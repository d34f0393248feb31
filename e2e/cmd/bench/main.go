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
	var only, sizes []string
	opt := bench.DefaultOptions()
	var parts strings.Builder
	for _, p := range bench.Parts() {
		fmt.Fprintf(&parts, "  %-14s %s\n", p.Name, p.Doc)
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
  bench --only cold,burst
  bench --only control --rates 1,10 --for 20s --samples control.csv
  bench --only scale --sizes 1000/100/100 --page scale.md`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			chosen, err := bench.Select(only)
			if err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			if len(sizes) > 0 {
				opt.Sizes = nil
			}
			for _, text := range sizes {
				size, err := bench.ParseSize(text)
				if err != nil {
					return fmt.Errorf("--sizes: %w", err)
				}
				opt.Sizes = append(opt.Sizes, size)
			}
			if err := opt.Validate(); err != nil {
				return err
			}
			lab.Contain(func() int { return measure(chosen, opt) })
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
	c.Flags().IntSliceVar(&opt.Rates, "rates", opt.Rates, "`changes` a second of the part control")
	c.Flags().DurationVar(&opt.For, "for", opt.For, "how long control keeps each rate")
	c.Flags().IntVar(&opt.Requests, "requests", opt.Requests, "`connections` a second through the VIP in the part control")
	c.Flags().StringVar(&opt.Samples, "samples", "", "`file` that control writes processor time and memory to as CSV, every second")
	c.Flags().StringVar(&opt.Page, "page", "", "`file` that the figures are written to as tables in Markdown, too")
	c.Flags().DurationVar(&opt.Steady, "steady", opt.Steady, "how long lbsync is left alone before its memory is read, in the parts scale, lbsync-large and haproxy-memory")
	c.Flags().IntVar(&opt.Members, "members", opt.Members, "`members` on HAProxy in the part haproxy-memory")
	c.Flags().StringSliceVar(&sizes, "sizes", nil, "`pods/nodes/services` of the clusters of the part scale, instead of three")
	return c
}

func measure(parts []bench.Part, opt bench.Options) int {
	klog.SetLogger(logr.Discard()) // client-go's complaints about watches that end are no figures
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := bench.Run(ctx, parts, opt, os.Stdout); {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench: interrupted")
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	return exitFailure
}
