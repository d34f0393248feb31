// Command chaos breaks everything around nplbridge that can break, in a lab of its own, while clients check every answer.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/nplbridge/nplbridge/e2e/chaos"
	"github.com/nplbridge/nplbridge/e2e/chaos/script"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// The exit statuses other than 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	lab.Init()
	if err := command().ExecuteContext(context.Background()); err != nil { // of the command line: a run ends the process itself
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(exitUsage)
	}
}

// flags are those of the command line.
type flags struct {
	seed     uint64
	duration time.Duration
	script   string
	shrink   int
	small    bool
	open     bool
	going    bool

	redispatch string
}

func command() *cobra.Command {
	var f flags
	var list strings.Builder
	for _, a := range chaos.Actions() {
		fmt.Fprintf(&list, "  %-20s %-8s %s\n", a[0], a[1], a[2])
	}
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Break everything around nplbridge while clients check every answer",
		Long: `chaos starts a lab with HAProxy, a simulated Avi Controller and a simulated BIG-IP, driven by two lbsyncs of which one leads, and clients that ask through
each of them and straight at node ports. Then a script that the seed decides does one thing after the other; after each everything must come
to rest. The invariants I1 to I7 are looked at all the time, I4 after every restart. It exits 0 only if all held.

Without --duration each kind of action happens once.

Actions:
` + list.String(),
		Example: `  chaos
  chaos --seed 7 --duration 20m
  chaos --script rollout:1,agent-kill:2`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.redispatch != "on" && f.redispatch != "off" {
				return fmt.Errorf("--redispatch=%s: use on or off", f.redispatch)
			}
			o := chaos.Options{Seed: f.seed, Duration: f.duration, Small: f.small, NoRedispatch: f.redispatch == "off", OpenPorts: f.open, KeepGoing: f.going, Out: os.Stdout}
			if f.script == "" && !c.Flags().Changed("open-ports") {
				o.OpenPorts = f.seed%2 == 1
			}
			if f.script != "" {
				var err error
				if o.Steps, err = script.Parse(f.script, chaos.ActionNames()); err != nil {
					return fmt.Errorf("--script: %w", err)
				}
			}
			lab.Contain(func() int { return contained(func(ctx context.Context) error { return run(ctx, o, f.shrink) }) })
			return nil
		},
	}
	c.Flags().Uint64Var(&f.seed, "seed", rand.Uint64N(1e6), "`number` that decides what happens; a random one if not given")
	c.Flags().DurationVar(&f.duration, "duration", 0, "how long actions are begun; 0 is each kind once")
	c.Flags().StringVar(&f.script, "script", "", "`steps` to do instead, as a failed run prints them: rollout:1,agent-kill:2")
	c.Flags().IntVar(&f.shrink, "shrink", 6, "after a failure, how many shorter scripts to try, to find the smallest one that fails")
	c.Flags().BoolVar(&f.small, "small", false, "one Node with few Pods")
	c.Flags().BoolVar(&f.open, "open-ports", false, "HAProxy listens before Services come (haproxy.openPorts); if not given, runs with an odd seed do")
	c.Flags().StringVar(&f.redispatch, "redispatch", "on", "off takes away HAProxy's second tries, which lbsync otherwise configures")
	c.Flags().BoolVar(&f.going, "keep-going", false, "go on after a failure")
	c.AddCommand(mutants())
	return c
}

func mutants() *cobra.Command {
	return &cobra.Command{
		Use:   "mutants",
		Short: "Check the checker: builds of nplbridge that break an invariant must be caught",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			lab.Contain(func() int {
				return contained(func(ctx context.Context) error { return chaos.CheckMutants(ctx, os.Stdout) })
			})
			return nil
		},
	}
}

// contained runs where labs can be started, and returns the exit status.
func contained(f func(context.Context) error) int {
	klog.SetLogger(logr.Discard()) // client-go's complaints about watches that end are no part of the story
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := f(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return exitFailure
	}
	return 0
}

// run makes a run, and after a failure looks for the smallest script that fails.
func run(ctx context.Context, o chaos.Options, shrink int) error {
	fmt.Printf("chaos %swith seed %d\n", o.Flags(), o.Seed)
	report, err := chaos.Run(ctx, o)
	if err != nil {
		return err
	}
	report.Print(o.Out)
	if len(report.Failures) == 0 {
		return nil
	}
	if shrink > 0 && len(report.Steps) > 1 {
		smallest := script.Shrink(report.Steps, shrink, func(steps []script.Step) bool {
			fmt.Printf("trying %s\n", script.Format(steps))
			shorter := o
			shorter.Steps, shorter.Out = steps, io.Discard
			again, err := chaos.Run(ctx, shorter)
			if err != nil || len(again.Failures) == 0 {
				fmt.Println("  it does not fail")
				return false
			}
			headline, _, _ := strings.Cut(again.Failures[0], "\n")
			fmt.Printf("  it fails, too: %s\n", headline)
			return true
		})
		fmt.Printf("the smallest reproduction found: go run ./e2e/cmd/chaos %s--script %s\n", o.Flags(), script.Format(smallest))
	}
	return errors.New("not everything held, see above")
}
