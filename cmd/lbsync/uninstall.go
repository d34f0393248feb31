package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/removal"
)

// uninstallLimit leaves Helm, which waits five minutes, some time to fail by itself.
const uninstallLimit = 4 * time.Minute

var errLeft = errors.New("something is left, and --fail-on-leftovers was given: the release stays; set it running again with helm rollback to the deployed revision (helm history), or try again")

func uninstallCommand(by caller) *cobra.Command {
	table := table()
	hook := &removal.Hook{}
	var fail bool
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Have all programs of a release take away what they have made, before helm uninstall takes the programs away",
		Long: `Runs in the chart's pre-delete hook. It sets state: removing in the ConfigMap of lbsync, waits until each Pod that reads it has said so by
an Event, does the same with npl-agent, and lists what is left, with what to do about it. lbsync clears load balancers and Services, npl-agent
the annotations and then the tables of its Node. With state: running in the ConfigMaps all of it comes back, as long as the Pods are there.

It exits 0 also when something is left, unless --fail-on-leftovers is given.`,
		Example: by.lines(`  lbsync uninstall --agents nplbridge-agent --lbsync nplbridge-lbsync --timeout 4m`),
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			if hook.Config, err = config(values); err != nil {
				return err
			}
			if hook.Client, err = program.ReachableClient(c.Context(), values); err != nil {
				return err
			}
			hook.Out = c.OutOrStdout()
			left, err := hook.Run(c.Context())
			if err != nil {
				return err
			}
			for _, l := range left {
				_, _ = fmt.Fprintln(hook.Out, "left:", l)
			}
			switch {
			case len(left) == 0:
				_, err = fmt.Fprintln(hook.Out, "nothing of", hook.Config.Instance, "is left")
				return err
			case fail:
				return errLeft
			}
			return nil
		},
	}
	command.Hidden = by.plugin // the hook's own
	table.AddFlags(command.Flags())
	command.Flags().StringVar(&hook.Agents, "agents", "", "ConfigMap with npl-agent's settings; empty where the release has no npl-agent")
	command.Flags().StringVar(&hook.LBSync, "lbsync", "", "ConfigMap with lbsync's settings; empty where the release runs no lbsync")
	command.Flags().BoolVar(&hook.External, "external", false, "lbsync runs on hosts of its own, and has to be cleaned up there")
	command.Flags().DurationVar(&hook.Limit, "timeout", uninstallLimit, "list what is left after that, instead of waiting on")
	command.Flags().BoolVar(&fail, "fail-on-leftovers", false, "exit 1 if something is left")
	return command
}
