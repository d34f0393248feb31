package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "name of the lab; not needed while only one is running")
}

func kubectlCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "kubectl [--name NAME] -- ARGUMENT...",
		Short: "Run the lab's kubectl as administrator",
		Example: `  lab kubectl -- get pods -A -o wide
  lab kubectl --name second -- -n demo scale deployment echo --replicas=6`,
		RunE: func(_ *cobra.Command, args []string) error {
			running, err := lab.Find(name)
			if err != nil {
				return err
			}
			environment := append(os.Environ(), "KUBECONFIG="+running.Kubeconfig, "KUBECACHEDIR="+running.KubectlCache)
			return syscall.Exec(running.ControlPlane, append([]string{"kubectl"}, args...), environment)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().SetInterspersed(false) // what follows is kubectl's
	return cmd
}

func execCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "exec [--name NAME] WHERE -- COMMAND [ARGUMENT...]",
		Short: "Run a command somewhere in the lab's network",
		Long: `exec runs a command in the network namespace of a place: node-1 and so on, lb, client,
pod:<namespace>/<name>, or underlay, where the control plane is. Files are those of the host, except
/run, which is the lab's own.`,
		Example: `  lab exec node-1 -- nft list table ip nplbridge
  lab exec client -- curl -s http://172.31.0.1
  lab exec pod:default/echo-0 -- ip route`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("exec: name a place and a command: lab exec node-1 -- ip address")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			where, command := args[0], args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			return run(name, where, command)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().SetInterspersed(false) // what follows is the command's
	return cmd
}

func logsCommand() *cobra.Command {
	var name string
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [--name NAME] [--follow] [COMPONENT]",
		Short: "Show the log of a component; without one, list them",
		Example: `  lab logs
  lab logs kube-apiserver
  lab logs --follow lbsync`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			running, err := lab.Find(name)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return run(running.Name, "", []string{"ls", running.LogDir})
			}
			command := []string{"tail", "-n", "+1"}
			if follow {
				command = append(command, "-F")
			}
			file := strings.TrimSuffix(args[0], ".log") + ".log"
			return run(running.Name, "", append(command, "--", filepath.Join(running.LogDir, filepath.Base(file))))
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on showing what is written")
	return cmd
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the running labs of this user",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			labs, err := lab.List()
			if err != nil {
				return err
			}
			if len(labs) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no lab of this user is running: start one with `lab up`")
				return nil
			}
			out := table.NewWriter()
			out.SetOutputMirror(cmd.OutOrStdout())
			out.SetStyle(table.StyleLight)
			out.Style().Options = table.OptionsNoBordersAndSeparators
			out.AppendHeader(table.Row{"name", "pid", "nodes", "pod network", "age", "kubeconfig"})
			for _, l := range labs {
				age := time.Duration(l.Seconds * float64(time.Second)).Round(time.Second)
				out.AppendRow(table.Row{l.Name, strconv.Itoa(l.PID), l.Nodes, l.PodNetwork, age, l.Kubeconfig})
			}
			out.Render()
			return nil
		},
	}
}

func run(name, where string, argv []string) error {
	status, err := lab.Exec(name, where, argv)
	if err == nil && status != 0 {
		err = exitStatus(status)
	}
	return err
}
