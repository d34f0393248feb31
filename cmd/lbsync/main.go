// Command lbsync keeps the pools of a load balancer equal to the annotations of Pods.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
)

func main() { os.Exit(program.Main(root(callerOf(os.Args[0])))) }

func root(by caller) *cobra.Command {
	examples := `  lbsync check --config /etc/nplbridge/lbsync.yaml
  lbsync status
  lbsync explain service web -n shop
  lbsync diff`
	if !by.plugin { // nobody runs it by kubectl
		examples = "  lbsync run --config /etc/nplbridge/lbsync.yaml\n" + examples
	}
	command := &cobra.Command{
		Use:   by.name,
		Short: "Keep a load balancer's pools equal to the Pods",
		Long: `lbsync reads Services, Pods and the annotation nodeportlocal.antrea.io, and keeps the virtual servers and pools of
load balancers equal to them: one pool per Service port, one member nodeIP:nodePort per ready Pod.

The same program under the name kubectl-npl is a plugin of kubectl: kubectl npl status, explain, diff ask the lbsync in the cluster.`,
		Example:     by.lines(examples),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: by.typed},
	}
	// No Args here: with them cobra takes an unknown command for an argument and prints the help.
	command.AddCommand(runCommand(by), checkCommand(), statusCommand(by), explainCommand(by), diffCommand(by), cleanupCommand(by), configCommand(by),
		importCommand(by),
		haproxyCommand(by), uninstallCommand(by), program.VersionCommand(by.typed))
	return command
}
