// Package program is what the commands of npl-agent and lbsync have in common: exit codes, the common settings, and
// the life of a running process from its first log line to its last.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nplbridge/nplbridge/cmd/internal/buildinfo"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/cmd/internal/statusview"
)

// Exit codes, the same for every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2 // a command line or a setting that cannot be used
)

// ErrReported is returned by a command that failed and has said so: the exit code tells, and nothing more is printed.
var ErrReported = errors.New("reported")

// ExitError is returned by a command whose exit code means something of its own. Err is printed, unless it is ErrReported.
type ExitError struct {
	Code int
	Err  error
}

// Error returns what Err says.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Main runs the command line and returns the exit code. SIGINT and SIGTERM end the context of commands; a second one
// ends the process at once.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SilenceErrors, root.SilenceUsage = true, true
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, ErrReported) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	}
	var setting *settings.Error
	var exit *ExitError
	switch {
	case !started:
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", command.CommandPath())
		return exitUsage
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &setting):
		return exitUsage
	default:
		return exitFailure
	}
}

// CommonSettings are the settings of every program of ours. listen is the default address of probes and metrics, socket
// that of the status.
func CommonSettings(listen, socket string) []settings.Setting {
	return []settings.Setting{
		{
			Key: "kubeconfig", Example: "/etc/nplbridge/kubeconfig",
			Doc: "kubeconfig file that leads to the API server; empty means the ServiceAccount of the Pod this runs in",
		},
		{
			Key: "startTimeout", Kind: settings.Duration, Default: 30 * time.Second, Example: "2m", Want: wantNotNegative,
			Doc: "how long run waits at start for the API server before it gives up; 0s waits for ever. Later outages are always sat out",
		},
		{
			Key: "listen", Default: listen, Example: "127.0.0.1:" + listen[strings.LastIndexByte(listen, ':')+1:], Want: wantAddress,
			Doc: "address and port of /livez, /readyz and /metrics; empty serves none of them",
		},
		{
			Key: "statusSocket", Default: socket, Example: socket, Want: wantSocket,
			Doc: "absolute path of the unix socket on which the running process serves its status, read-only; empty serves none",
		},
		{
			Key: StateKey, Default: Running, Example: Removing, Live: true, Want: wantState,
			Doc: "running: it does its work; removing: it takes everything of its own away, says so by an Event and waits, until it is ended or the state is running again. Written by the hook of `helm uninstall`",
		},
		{
			Key: "logLevel", Default: "info", Example: "debug", Live: true,
			Doc: "least severe level that is logged: debug, info, warn or error",
		},
		{
			Key: "logFormat", Default: "auto", Example: "json",
			Doc: "console for people, json for machines, auto for console on a terminal and json elsewhere",
		},
	}
}

// PrintConfig defines --print-config and returns where its value will be.
func PrintConfig(flags *pflag.FlagSet) *bool {
	return flags.Bool("print-config", false, "print the settings in force, with where each comes from, and exit")
}

// VersionCommand prints the build.
func VersionCommand(name string) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print which build this is",
		Example: "  " + name + " version -o json",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return oneOf(output, "text", "json") },
		RunE: func(c *cobra.Command, _ []string) error {
			build := buildinfo.Read()
			if output == "json" {
				return json.NewEncoder(c.OutOrStdout()).Encode(build)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s %s\n", name, build)
			return err
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return command
}

// StatusCommand prints what the running process serves on its status socket.
func StatusCommand(table settings.Table) *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what the running " + table.Program + " knows and does",
		Long: "Reads the status of the " + table.Program + " that runs on this machine or in this container from its unix " +
			"socket. Nothing is asked of Kubernetes.",
		Example: "  " + table.Program + " status\n  " + table.Program + " status -o json | jq .",
		Args:    cobra.NoArgs,
	}
	output := OutputFlag(command, statusview.Formats...)
	command.RunE = func(c *cobra.Command, _ []string) error {
		document, err := ReadStatus(c, table)
		if err != nil {
			return err
		}
		return statusview.Write(c.OutOrStdout(), *output, document)
	}
	table.AddFlags(command.Flags())
	return command
}

// ReadStatus returns the status document of the process that runs here.
func ReadStatus(c *cobra.Command, table settings.Table) ([]byte, error) {
	values, err := table.Load(c.Flags())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
	defer cancel()
	document, err := serve.ReadStatus(ctx, values.String("statusSocket"))
	if err != nil {
		return nil, fmt.Errorf("no %s answers on %s: %w; run this where it runs, in its container or on its host",
			table.Program, values.Describe("statusSocket"), err)
	}
	return document, nil
}

// OutputFlag defines -o and returns where its value will be: one of known, the first by default. Others are refused before the command runs.
func OutputFlag(command *cobra.Command, known ...string) *string {
	output := command.Flags().StringP("output", "o", known[0], strings.Join(known, ", "))
	command.PreRunE = func(*cobra.Command, []string) error { return oneOf(*output, known...) }
	return output
}

func oneOf(output string, known ...string) error {
	if slices.Contains(known, output) {
		return nil
	}
	return &settings.Error{
		Key: "output", Value: output, Source: "-o", Reason: "want one of " + strings.Join(known, ", "),
	}
}
