package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

func buildCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the programs of a lab, or find them in the cache, and print where they are",
		Example: `  lab build
  lab build --output /tmp/programs        # then: NPLBRIDGE_PROGRAMS=/tmp/programs lab up`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			programs, err := lab.Build(ctx, os.Stderr)
			if err != nil {
				return err
			}
			if output != "" {
				return programs.Export(output)
			}
			for _, path := range programs.Paths() {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "also copy them to this directory, for users that cannot build")
	return cmd
}
