// Command npl-agent runs on every Node: it gives each port of each Service-backend Pod a port of the Node and
// publishes it in the Pod's annotation.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
)

func main() { os.Exit(program.Main(root())) }

func root() *cobra.Command {
	command := &cobra.Command{
		Use:   "npl-agent",
		Short: "NodePortLocal for the Pods of one Node",
		Long: `npl-agent serves one Node: each port of each Pod behind a chosen Service gets a port of the Node, forwarded by
nftables, and the Pod's annotation nodeportlocal.antrea.io says which.`,
		Example: `  npl-agent run --config /etc/nplbridge/settings.yaml
  npl-agent run --node-name "$(hostname)" --kubeconfig ~/.kube/config --log-level debug
  npl-agent check
  npl-agent status
  npl-agent status --port 192.0.2.11:61000/tcp`,
	}
	// No Args here: with them cobra takes an unknown command for an argument and prints the help.
	command.AddCommand(runCommand(), checkCommand(), statusCommand(), cleanupCommand(), program.VersionCommand("npl-agent"))
	return command
}
