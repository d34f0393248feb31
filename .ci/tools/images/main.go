// Command images builds the container images of nplbridge from nothing but Go: the programs are cross-compiled, put on an empty base
// or on the one that is named, and written as OCI image layouts, which registries take, and as archives, which `docker load` and
// `ctr images import` take. The same commit gives the same bytes. No engine and no registry is needed; where an engine answers,
// it builds the Dockerfiles as well, so that the images stand in it.
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
	"strings"
	"syscall"
	"text/tabwriter"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// scratch is the base that is empty, as in a Dockerfile.
const scratch = "scratch"

// options are the flags.
type options struct {
	root, output string
	version      string // of the programs, "v1.2.3"
	base         string // an image's name, or scratch
	only         []string
	platforms    []v1.Platform
	engine       bool
}

// tag is the images' tag: versions without the v, as the chart's appVersion has them.
func (o options) tag() string { return strings.TrimPrefix(o.version, "v") }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(2)
	}
	if err := build(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	var only, platforms string
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&o.root, "root", ".", "directory of the repository")
	flags.StringVar(&o.output, "output", "bin/images", "directory that the images are written to; what stood there under their names is replaced")
	flags.StringVar(&o.version, "version", "devel", "version of the programs; without a leading v it is the tag")
	flags.StringVar(&o.base, "base", scratch, "image to build on, or scratch; any other is fetched from its registry")
	flags.StringVar(&only, "only", "npl-agent,lbsync", "images to build, with commas between them; there is echo, too")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms to build for, with commas between them")
	flags.BoolVar(&o.engine, "engine", true, "where a Docker engine answers, build the Dockerfiles there, too")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: there are only flags", flags.Arg(0))
	}
	for text := range strings.SplitSeq(platforms, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS != "linux" || p.Architecture == "" {
			return o, fmt.Errorf("-platforms: %q is not linux/ARCHITECTURE", text)
		}
		o.platforms = append(o.platforms, *p)
	}
	o.only = strings.Split(only, ",")
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return o, err
	}
	if o.output, err = filepath.Abs(o.output); err != nil {
		return o, err
	}
	return o, check(o)
}

func check(o options) error {
	if strings.TrimLeft(o.tag(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != "" || o.tag() == "" || len(o.tag()) > 128 ||
		strings.ContainsAny(o.tag()[:1], ".-") {
		return fmt.Errorf("-version: %q cannot be a tag; want letters, digits, and dots, dashes and underscores behind the first", o.version)
	}
	for _, name := range o.only {
		if _, err := find(name); err != nil {
			return err
		}
	}
	return nil
}

// build makes every image that is asked for and prints what it made.
func build(ctx context.Context, o options, out io.Writer) error {
	at, err := committed(ctx, o.root)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tPLATFORM\tSIZE\tCOMPRESSED\tDIGEST")
	for _, name := range o.only {
		i, err := find(name)
		if err != nil {
			return err
		}
		made, err := i.make(ctx, o, at)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := write(o, i, made); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range made {
			size, err := m.size()
			if err != nil {
				return err
			}
			fmt.Fprintf(table, "%s:%s\t%s\t%.1f MiB\t%.1f MiB\t%s\n", i.repository(), o.tag(), m.platform, size.plain, size.compressed, size.digest)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return withEngine(ctx, o, at, out)
}
