package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func configCommand(by caller) *cobra.Command {
	command := &cobra.Command{
		Use:     "config",
		Short:   "Print the settings in force, or say what is wrong with them",
		Example: by.lines("  lbsync config print --config lbsync.yaml\n  lbsync config validate --config lbsync.yaml"),
	}
	command.AddCommand(printCommand(by), validateCommand(by))
	return command
}

func printCommand(by caller) *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:     "print",
		Short:   "Print the settings in force, with where each comes from",
		Long:    "Prints every setting as a file that can be used again, with a comment that says where its value comes from. Secrets are left out.",
		Example: by.lines("  lbsync config print --config lbsync.yaml\n  LBSYNC_RESYNC=1m lbsync config print | grep resync"),
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			return values.Print(c.OutOrStdout())
		},
	}
	table.AddFlags(command.Flags())
	return command
}

func validateCommand(by caller) *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:   "validate",
		Short: "Say what is wrong with the settings",
		Long: `Checks every setting, alone and together with the others, and connects to nothing. Exits 0 if run would take them, 2 with one line
that names setting, value and source if not.`,
		Example: by.lines("  lbsync config validate --config lbsync.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			if _, err := config(values); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "the settings are good")
			return err
		},
	}
	table.AddFlags(command.Flags())
	return command
}
