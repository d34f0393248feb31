// Command lab runs and uses Kubernetes clusters made of processes and network namespaces on this machine.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Exit statuses; those of programs run for the user are their own.
const (
	exitFailure = 1
	exitUsage   = 2 // a command line that cannot be used
)

func main() {
	lab.Init()
	command, started := newCommand(), false
	command.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := command.Execute()
	var status exitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		fmt.Fprintln(os.Stderr, "lab:", err)
		if !started {
			os.Exit(exitUsage)
		}
		os.Exit(exitFailure)
	}
}

// exitStatus is the status of a program that was run for the user, who has seen its messages.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "A Kubernetes cluster with a real network on this machine, without containers",
		Long: `lab runs a Kubernetes cluster on this machine: a real control plane, Nodes that are network
namespaces and run Pods as processes, a load balancer and a client. It needs no container engine and
no root where user namespaces are allowed, and leaves nothing behind.

The programs are built from source once (about 5 minutes) and kept in the cache directory:
$NPLBRIDGE_CACHE, else $XDG_CACHE_HOME, else ~/.cache. With NPLBRIDGE_PROGRAMS set to a directory
made by "lab build --output", nothing is built.`,
		Example: `  lab up                                  # in one terminal; Ctrl-C ends it
  lab kubectl -- get nodes -o wide        # in another
  lab exec node-1 -- nft list ruleset
  lab exec client -- curl http://172.31.0.1`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(upCommand(), kubectlCommand(), execCommand(), listCommand(), logsCommand(), buildCommand())
	return root
}
