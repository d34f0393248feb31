package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/drift"
	"github.com/nplbridge/nplbridge/cmd/internal/settings/settingstest"
)

func TestDocs(t *testing.T) {
	settingstest.Reference(t, "../../docs/reference/settings.md", table())

	cfg := agent.DefaultConfig()
	cfg.NodeName = "node-1"
	metrics := drift.NewMetrics()
	if _, err := agent.New(cfg, fake.NewClientset(), zap.NewNop(), metrics); err != nil {
		t.Fatal(err)
	}
	metrics.Reference(t, "../../docs/reference/metrics.md", "npl-agent")
}

func TestChart(t *testing.T) {
	own := []string{"nodeName", "kubeconfig", "statusSocket", "watermarkNamespace", "state"}
	differs := []string{"logFormat", "coolDown", "portReuse"} // the last two follow whether the chart has an lbsync
	settingstest.Chart(t, "../../charts/nplbridge", "agent", table(), own, differs)
}

func execute(args ...string) (string, error) {
	var out bytes.Buffer
	command := root()
	command.SetArgs(args)
	command.SetOut(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.Execute()
	return out.String(), err
}

func TestBadSettings(t *testing.T) {
	for want, args := range map[string][]string{
		"nodeName":      {},
		"(from --":      {"--node-name=n", "--port-range=9-1"},
		"9-1":           {"--node-name=n", "--port-range=9-1"},
		"masquerade":    {"--node-name=n", "--masquerade=maybe"},
		"coolDown":      {"--node-name=n", "--cool-down=48h"},
		"60":            {"--node-name=n", "--cool-down=60"},
		"/no/such/file": {"--config=/no/such/file"},
		`nodeName: "UPPER_bad!" (from --node-name): want the name of a Node`: {"--node-name=UPPER_bad!"},
		`listen: "foo" (from --listen): want ADDRESS:PORT or :PORT`:          {"--node-name=n", "--listen=foo"},
		`listen: ":99999" (from --listen): want ADDRESS:PORT or :PORT`:       {"--node-name=n", "--listen=:99999"},
		`listen: ":10361x"`: {"--node-name=n", "--listen=:10361x"},
		`listen: "a b:1"`:   {"--node-name=n", "--listen=a b:1"},
		`startTimeout: "-1s" (from --start-timeout): want 0s or more; for example 2m`:               {"--node-name=n", "--start-timeout=-1s"},
		`statusSocket: "s.sock" (from --status-socket): want an absolute path; for example /run/np`: {"--node-name=n", "--status-socket=s.sock"},
		"want a path of 107 bytes at most":                                                          {"--node-name=n", "--status-socket=/" + strings.Repeat("s", 107)},
		"coolDown 48h: ":                                                                            {"--node-name=n", "--cool-down=48h"},
	} {
		for _, verb := range []string{"run", "check", "cleanup"} {
			_, err := execute(append([]string{verb}, args...)...)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %q: %v, want one line with %q", verb, args, err, want)
			}
		}
	}
}

// Beside a running agent, even one that does not serve yet, cleanup is refused; with --force it gets as far as the API server.
func TestCleanupBesideARunningAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "npl") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	cleanup := func(more ...string) string {
		t.Helper()
		_, err := execute(append([]string{"cleanup", "--node-name=n", "--kubeconfig=/no/kubeconfig", "--status-socket=" + socket}, more...)...)
		if err == nil {
			t.Fatal("no error")
		}
		return err.Error()
	}
	const refused, wentOn = "npl-agent is running: it listens on statusSocket", "/no/kubeconfig"
	got := cleanup()
	for _, want := range []string{refused, socket, "stop it first", "--force"} {
		if !strings.Contains(got, want) {
			t.Errorf("beside an agent: %q does not contain %q", got, want)
		}
	}
	if got := cleanup("--force"); !strings.Contains(got, wentOn) {
		t.Errorf("with --force: %q", got)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if got := cleanup(); !strings.Contains(got, wentOn) {
		t.Errorf("without an agent: %q", got)
	}
}

func TestPrintConfig(t *testing.T) {
	out, err := execute("run", "--node-name=worker-1", "--port-range=50000-51000", "--print-config")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`nodeName: "worker-1" # --node-name`, `portRange: "50000-51000" # --port-range`, `logLevel: "info" # default`} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	if _, err := execute("rum"); err == nil || !strings.Contains(err.Error(), `unknown command "rum"`) {
		t.Errorf("got %v", err)
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, command := range append([]*cobra.Command{root()}, root().Commands()...) {
		if command.Example == "" || command.Short == "" {
			t.Errorf("%s has no example or no short text", command.Name())
		}
	}
}
