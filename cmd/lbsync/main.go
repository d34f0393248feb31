// Command lbsync keeps the pools of a load balancer equal to the annotations of Pods.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
)

func main() { os.Exit(program.Main(root())) }

func root() *cobra.Command {
	command := &cobra.Command{
		Use:   "lbsync",
		Short: "Keep a load balancer's pools equal to the Pods",
		Long: `lbsync reads Services, Pods and the annotation nodeportlocal.antrea.io, and keeps the virtual servers and pools of a
load balancer equal to them: one pool per Service port, one member nodeIP:nodePort per ready Pod.`,
		Example: `  lbsync run --config /etc/nplbridge/lbsync.yaml
  lbsync run --kubeconfig ~/.kube/config --address-pools 192.0.2.0/24 --log-level debug
  lbsync check --config /etc/nplbridge/lbsync.yaml
  lbsync status -o yaml`,
	}
	// No Args here: with them cobra takes an unknown command for an argument and prints the help.
	command.AddCommand(runCommand(), checkCommand(), program.StatusCommand(table()), program.VersionCommand("lbsync"))
	return command
}
