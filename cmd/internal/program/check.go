package program

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/kube"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// Step is one thing that check tries. It changes nothing.
type Step struct {
	Name string
	Run  func(context.Context, kubernetes.Interface) error
}

// stepLimit bounds one step; check must always come to an end.
const stepLimit = 30 * time.Second

// CheckCommand tries, without changing anything, whether run would work: the settings, the API server, then the steps.
func CheckCommand(table settings.Table, what string, steps func(*settings.Values) ([]Step, error)) *cobra.Command {
	command := &cobra.Command{
		Use:   "check",
		Short: "Try whether run would work: " + what,
		Long: "Tries the settings, " + what + ", one line each. Nothing that carries traffic is changed, and a running " + table.Program +
			" is not disturbed. Exits 0 if all is well, 1 if something is not, 2 if a setting cannot be used.",
		Example: "  " + table.Program + " check --config /etc/nplbridge/settings.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			values, err := table.Load(c.Flags())
			if err != nil {
				return err
			}
			todo, err := steps(values)
			if err != nil {
				return err
			}
			return check(c.Context(), c.OutOrStdout(), values, todo)
		},
	}
	table.AddFlags(command.Flags())
	return command
}

func check(ctx context.Context, out io.Writer, values *settings.Values, steps []Step) error {
	report := func(name string, err error) {
		if err != nil {
			_, _ = fmt.Fprintf(out, "FAILED  %s: %v\n", name, err)
			return
		}
		_, _ = fmt.Fprintf(out, "ok      %s\n", name)
	}
	report("settings", nil)
	client, host, err := Client(values)
	if err != nil {
		return err
	}
	if err := kube.Reach(ctx, client); err != nil {
		report("API server", Unreachable(values, host, err))
		return ErrReported
	}
	report("API server "+host, nil)
	failed := false
	for _, s := range steps {
		limited, cancel := context.WithTimeout(ctx, stepLimit)
		err := s.Run(limited, client)
		cancel()
		report(s.Name, err)
		failed = failed || err != nil
	}
	if failed {
		return ErrReported
	}
	return nil
}

// RightsStep asks the API server for each permission.
func RightsStep(permissions []kube.Permission) Step {
	return Step{Name: "rights", Run: func(ctx context.Context, client kubernetes.Interface) error {
		denied, err := kube.Denied(ctx, client, permissions)
		if err == nil && len(denied) > 0 {
			err = fmt.Errorf("not allowed: %s; bind the ClusterRole and Role of the chart to this user or ServiceAccount",
				strings.Join(denied, ", "))
		}
		return err
	}}
}

// ReachableClient builds the Kubernetes client for a command that does one thing, after asking the API server once.
func ReachableClient(ctx context.Context, values *settings.Values) (kubernetes.Interface, error) {
	client, host, err := Client(values)
	if err != nil {
		return nil, err
	}
	if err := kube.Reach(ctx, client); err != nil {
		return nil, Unreachable(values, host, err)
	}
	return client, nil
}

// Alone returns an error while a process of the same program listens on the status socket. Without the setting nothing
// is known and nothing refused.
func Alone(values *settings.Values) error {
	if socket := values.String("statusSocket"); socket == "" || !serve.Listening(socket) {
		return nil
	}
	return fmt.Errorf("%s is running: it listens on %s", values.Program(), values.Describe("statusSocket"))
}

// Logger builds the logger of a command that does one thing.
func Logger(values *settings.Values) (*zap.Logger, error) {
	_, log, err := logger(values)
	return log, err
}
