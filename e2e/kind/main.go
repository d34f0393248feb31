// Command kind shows nplbridge in a kind cluster of three Nodes: it builds the images and loads them, installs the chart, puts HAProxy inside the
// cluster or into a container of its own, holds what the demo holds, and takes everything away again. It needs Docker, and a registry for the
// images of kind and HAProxy. -plan prints the commands instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
)

// options are the flags.
type options struct {
	root, name   string
	haproxy      string // where it runs: inside or outside
	nodeImage    string
	haproxyImage string
	keep, plan   bool
}

const (
	inside  = "inside"
	outside = "outside"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kind:", err)
		os.Exit(2)
	}
	if err := tell(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kind:", err)
		os.Exit(1)
	}
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("kind", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&o.root, "root", ".", "directory of the repository")
	flags.StringVar(&o.name, "name", "nplbridge", "name of the cluster, and what the names of the containers beside it begin with")
	flags.StringVar(&o.haproxy, "haproxy", outside, "where HAProxy runs: inside, as the chart does it by default, or outside, in a container beside the cluster")
	flags.StringVar(&o.nodeImage, "node-image", "", "image of the Nodes; empty is the default of the pinned kind")
	flags.StringVar(&o.haproxyImage, "haproxy-image", "docker.io/library/haproxy:2.6-bookworm", "image of the HAProxy outside")
	flags.BoolVar(&o.keep, "keep", false, "leave the cluster, and print how to remove it")
	flags.BoolVar(&o.plan, "plan", false, "print the commands, and run none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: there are only flags", flags.Arg(0))
	case o.haproxy != inside && o.haproxy != outside:
		return o, fmt.Errorf("-haproxy: %q is neither inside nor outside", o.haproxy)
	case !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`).MatchString(o.name):
		return o, fmt.Errorf("-name: %q; want up to 32 small letters, digits and dashes", o.name)
	}
	var err error
	o.root, err = filepath.Abs(o.root)
	return o, err
}

// tell runs the whole story. What was made is removed again, also when something failed or was interrupted.
func tell(ctx context.Context, o options, out io.Writer) (err error) {
	if o.plan {
		return printPlan(o, out)
	}
	dir, err := os.MkdirTemp("", "nplbridge-kind-")
	if err != nil {
		return err
	}
	s := &story{options: o, dir: dir, runner: programs{root: o.root, out: out}, out: out, arch: runtime.GOARCH}
	defer func() {
		if o.keep {
			fmt.Fprintln(out, "\nThe cluster stays. Remove it with:")
			err = errors.Join(err, show(out, s.down()...))
			return
		}
		err = errors.Join(err, s.removeAll(context.WithoutCancel(ctx)), os.RemoveAll(dir))
	}()
	if err := s.up(ctx); err != nil {
		return err
	}
	return s.check(ctx)
}
