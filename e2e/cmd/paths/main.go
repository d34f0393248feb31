// Command paths measures NodePort, NodePortLocal and Pod addresses beside each other in a lab of its own, and writes the page about it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/paths"
)

// The exit statuses other than 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	lab.Init()
	if err := command().ExecuteContext(context.Background()); err != nil { // of the command line: measuring ends the process itself
		fmt.Fprintln(os.Stderr, "paths:", err)
		os.Exit(exitUsage)
	}
}

func command() *cobra.Command {
	var o paths.Options
	var page string
	c := &cobra.Command{
		Use:   "paths",
		Short: "Measure NodePort, NodePortLocal and Pod addresses beside each other",
		Long: `paths starts a lab, puts NodePort with kube-proxy in both modes and policies, NodePortLocal, and the Pods' own addresses behind one HAProxy, measures them
side by side, and writes a page with tables, the figures as CSV, and plots. It never fails on a number.`,
		Example: `  paths --page docs/explanation/nodeport.md
  paths --page /tmp/try/nodeport.md --share-requests 2000 --roll-requests 500 --rounds 6 --slice 200ms --others 0,100`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			if o.ShareRequests < 1 || o.Rounds < 1 || o.Slice <= 0 || o.RollRequests < 0 || len(o.Others) == 0 {
				return errors.New("--share-requests, --rounds and --slice must be positive, --roll-requests not negative, and --others not empty")
			}
			lab.Contain(func() int { return measure(o, page) })
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&page, "page", "docs/explanation/nodeport.md", "`file` to write; figures and plots go into a directory of that name beside it")
	f.IntVar(&o.ShareRequests, "share-requests", 100_000, "`number` of requests over which the shares of Pods are taken")
	f.IntVar(&o.RollRequests, "roll-requests", 100_000, "`number` of requests on each way while Pods are replaced")
	f.IntVar(&o.Rounds, "rounds", 10, "`number` of rounds in each setting; fewer than 6 give no interval of 95 percent")
	f.DurationVar(&o.Slice, "slice", time.Second, "how long each measurement of a round takes")
	f.IntSliceVar(&o.Others, "others", []int{0, 1000, 5000}, "`numbers` of other Services")
	f.Uint64Var(&o.Seed, "seed", 1, "decides the order of the ways in each round")
	c.AddCommand(&cobra.Command{
		Use: paths.DriveCommand + " <task>", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var t paths.Task
			if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(paths.Drive(c.Context(), t))
		},
	})
	return c
}

func measure(o paths.Options, page string) int {
	klog.SetLogger(logr.Discard()) // client-go's complaints about watches that end are no figures
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := paths.Run(ctx, o, os.Stdout)
	if err == nil {
		err = report.Write(page)
	}
	switch {
	case err == nil:
		fmt.Println("written:", page)
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "paths: interrupted")
	default:
		fmt.Fprintln(os.Stderr, "paths:", err)
	}
	return exitFailure
}
