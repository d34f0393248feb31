package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/lbsync"
)

// Exit codes of diff, as kubectl's.
const (
	exitDifferent = 1
	exitFailed    = 2
)

// planLimit bounds an own reading of cluster and load balancers, unless a flag says otherwise.
const planLimit = 5 * time.Minute

func diffCommand(by caller) *cobra.Command {
	command := &cobra.Command{
		Use:   "diff",
		Short: "Show what is wanted on the load balancers and not there yet",
		Long: `Shows the changes that the running lbsync is about to make, could not make or, with dryRun, would make. With --live it asks nobody:
it reads cluster and load balancers itself, with the settings that run would have, and writes nothing.

+ comes, - goes, ~ changes. Exits 0 without a difference, 1 with one, 2 if it cannot tell.
` + askHelp,
		Example: by.lines(`  lbsync diff
  lbsync diff -n shop -o json
  lbsync diff --live --config /etc/nplbridge/lbsync.yaml
  lbsync run --config lbsync.yaml --dry-run & lbsync diff --config lbsync.yaml`),
		Args: cobra.NoArgs,
	}
	output := program.OutputFlag(command, "text", "json", "yaml")
	namespace := namespaceFlags(command)
	ask := askFlags(command, by)
	live := command.Flags().Bool("live", false, "read cluster and load balancers, instead of asking the running process")
	limit := command.Flags().Duration("timeout", planLimit, "with --live, how long reading may take")
	command.RunE = func(c *cobra.Command, _ []string) error {
		var d lbsync.Document
		var err error
		if *live {
			d, err = plan(c, ask, *limit)
		} else if d, _, err = ask.ask(c); err == nil {
			err = knowing(d)
		}
		if err != nil {
			return &program.ExitError{Code: exitFailed, Err: err}
		}
		changes := plannedIn(d, *namespace)
		if *output == "text" {
			err = printChanges(c.OutOrStdout(), changes)
		} else {
			err = printView(c.OutOrStdout(), *output, changes)
		}
		switch {
		case err != nil:
			return &program.ExitError{Code: exitFailed, Err: err}
		case len(changes) > 0:
			return &program.ExitError{Code: exitDifferent, Err: program.ErrReported}
		default:
			return nil
		}
	}
	return command
}

// knowing returns an error when the process cannot say what is planned.
func knowing(d lbsync.Document) error {
	if d.Problem != "" {
		return errors.New(d.Problem)
	}
	for _, p := range d.Providers {
		switch {
		case p.Problem != "":
			return fmt.Errorf("%s cannot be read: %s", p.Name, p.Problem)
		case !p.Writing:
			return fmt.Errorf("%s does not write %s, so it does not know; %s holds the Lease: ask that one, with --remote --process, or where it runs", d.Identity, p.Name, nobody(d.Leader))
		case !p.Ready:
			return fmt.Errorf("%s has not looked at everything on %s yet; ask again in a moment", d.Identity, p.Name)
		}
	}
	return nil
}

func nobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

// plan plans here, without the running process.
func plan(c *cobra.Command, a *asker, limit time.Duration) (lbsync.Document, error) {
	values, err := a.table.Load(c.Flags())
	if err != nil {
		return lbsync.Document{}, err
	}
	cfg, err := config(values)
	if err != nil {
		return lbsync.Document{}, err
	}
	balancers, err := balancers(values)
	if err != nil {
		return lbsync.Document{}, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	client, err := program.ReachableClient(ctx, values)
	if err != nil {
		return lbsync.Document{}, err
	}
	open, err := openAll(ctx, cfg, balancers, client, zap.NewNop(), unobserved)
	if err != nil {
		return lbsync.Document{}, err
	}
	d, err := lbsync.Plan(ctx, cfg, client, open, zap.NewNop())
	return d, errors.Join(err, open.Close())
}

// change is a change and where it belongs.
type change struct {
	Provider string `json:"provider"`
	lbsync.PlannedChange
}

func plannedIn(d lbsync.Document, namespace string) []change {
	out := []change{}
	for _, p := range d.Providers {
		for _, planned := range p.Planned {
			if namespace == "" || strings.HasPrefix(planned.Key, namespace+"/") {
				out = append(out, change{p.Name, planned})
			}
		}
	}
	return out
}

func printChanges(w io.Writer, changes []change) error {
	var out strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&out, "%s %s %s on %s\n", c.Op, c.Object, c.Key, c.Provider)
		for _, s := range c.Steps {
			fmt.Fprintf(&out, "  %s %s", s.Op, s.What)
			if s.Op == "~" {
				fmt.Fprintf(&out, ": %s -> %s", s.From, s.To)
			}
			out.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
