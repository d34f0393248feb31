package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

var table = settings.Table{Program: "demo", EnvPrefix: "DEMO", Settings: CommonSettings(":0", "/run/demo.sock")}

// rig is a settings file with a kubeconfig that leads to an API server.
type rig struct {
	dir, address string
	flags        *pflag.FlagSet
}

func newRig(t *testing.T, apiServer string, extra ...string) rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "npl") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	r := rig{dir: dir, address: free.Addr().String()}
	r.write(t, "kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, apiServer))
	r.write(t, "settings.yaml", strings.Join(append([]string{
		"kubeconfig: " + filepath.Join(dir, "kubeconfig"),
		"listen: " + r.address,
		"statusSocket: " + filepath.Join(dir, "s.sock"),
	}, extra...), "\n"))
	r.flags = pflag.NewFlagSet("demo", pflag.ContinueOnError)
	table.AddFlags(r.flags)
	if err := r.flags.Set(settings.ConfigFlag, filepath.Join(dir, "settings.yaml")); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r rig) write(t *testing.T, name, content string) {
	t.Helper()
	// By renaming, as careful writers do: a file cut short by a write in place can be a good file of other settings.
	temporary := filepath.Join(r.dir, "."+name)
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(r.dir, name)); err != nil {
		t.Fatal(err)
	}
}

// run runs r's program with log, and the test's New.
func (r rig) run(ctx context.Context, t *testing.T, log *zap.Logger, level zap.AtomicLevel, build func() (Service, error)) error {
	t.Helper()
	values, err := table.Load(r.flags)
	if err != nil {
		t.Fatal(err)
	}
	runner := Runner{Table: table, MetricsPrefix: "demo", New: func(context.Context, *settings.Values, kubernetes.Interface, *zap.Logger, prometheus.Registerer) (Service, error) {
		return build()
	}}
	return runner.run(ctx, r.flags, values, level, log)
}

func (r rig) readyz() string {
	response, err := http.Get("http://" + r.address + "/readyz?verbose")
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within a minute: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func apiServer(t *testing.T, answer http.HandlerFunc) string {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func TestLife(t *testing.T) {
	up := make(chan struct{})
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-up:
			_, _ = w.Write([]byte("{}"))
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	r := newRig(t, api, "startTimeout: 0s")
	level := zap.NewAtomicLevel()
	core, logs := observer.New(level)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- r.run(ctx, t, zap.New(core), level, func() (Service, error) {
			return Service{
				Run:    func(ctx context.Context) error { <-ctx.Done(); return nil },
				Checks: []serve.Check{{Name: "caches", Check: func() error { return nil }}},
				Status: func() any { return map[string]int{"pods": 3} },
			}, nil
		})
	}()

	eventually(t, "not ready while the API server is away", func() bool {
		return strings.Contains(r.readyz(), "[-]api-server: waiting for its first answer")
	})
	close(up)
	eventually(t, "ready by the Service's own checks", func() bool { return r.readyz() == "[+]caches ok\nok\n" })
	eventually(t, "status on the socket", func() bool {
		document, err := serve.ReadStatus(ctx, filepath.Join(r.dir, "s.sock"))
		return err == nil && string(document) == `{"pods":3}`
	})

	content, err := os.ReadFile(filepath.Join(r.dir, "settings.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new level, and a warning about the rest", func() bool {
		// Written again each time: the watch may begin after the first.
		r.write(t, "settings.yaml", string(content)+"\nlogLevel: debug\nlogFormat: json\n")
		return level.Level() == zap.DebugLevel && logs.FilterMessageSnippet("need a restart").Len() > 0
	})
	r.write(t, "settings.yaml", "logLevel: loud\n")
	eventually(t, "a bad file is reported", func() bool { return logs.FilterMessageSnippet("cannot be used").Len() > 0 })
	if level.Level() != zap.DebugLevel {
		t.Errorf("a bad file changed the level to %v", level.Level())
	}

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "s.sock")); err == nil {
		t.Error("the socket's file is left behind")
	}
}

// Settings that take effect live reach the Service, those that changed before it was there too; what it refuses is as before.
func TestReload(t *testing.T) {
	live := settings.Table{Program: "demo", EnvPrefix: "DEMO", Settings: append(CommonSettings(":0", "/run/demo.sock"),
		settings.Setting{Key: "drainLimit", Kind: settings.Duration, Live: true}, settings.Setting{Key: "name"})}
	load := func(content string) *settings.Values {
		t.Helper()
		file := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
		live.AddFlags(flags)
		if err := flags.Parse([]string{"--config=" + file}); err != nil {
			t.Fatal(err)
		}
		values, err := live.Load(flags)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	level := zap.NewAtomicLevel()
	core, logs := observer.New(level)
	registry := prometheus.NewRegistry()
	r := newReloader("demo", registry, load("drainLimit: 1s"), level, zap.New(core))
	good := func() bool {
		families, err := registry.Gather()
		return err == nil && families[0].GetMetric()[0].GetGauge().GetValue() == 1
	}
	var got []time.Duration
	var refusal error
	take := func(v *settings.Values) error {
		got = append(got, v.Duration("drainLimit"))
		return refusal
	}

	r.changed(load("drainLimit: 2s"), nil)
	if r.serve(take); len(got) != 1 || got[0] != 2*time.Second {
		t.Fatalf("what changed before the Service was there did not reach it: %v", got)
	}
	r.changed(load("drainLimit: 2s\nname: other"), nil)
	if len(got) != 1 || logs.FilterMessageSnippet("need a restart").Len() != 1 {
		t.Errorf("%v, %v", got, logs.All())
	}
	refusal = errors.New("too long")
	r.changed(load("drainLimit: 3s"), nil)
	if good() || logs.FilterMessageSnippet("cannot be used").Len() != 1 {
		t.Error("a refusal is not told")
	}
	refusal = nil
	r.changed(load("drainLimit: 3s"), nil)
	if len(got) != 3 || !good() {
		t.Errorf("what was refused once is not tried again: %v", got)
	}
	r.changed(nil, errors.New("not YAML"))
	if len(got) != 3 || good() {
		t.Errorf("a bad file reached the Service: %v", got)
	}
}

// Where the program has a setting for it, the status is served on a TCP address as well.
func TestStatusAddress(t *testing.T) {
	api := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	r := newRig(t, api)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	address := free.Addr().String()
	with := settings.Table{Program: "demo", EnvPrefix: "DEMO", Settings: append(CommonSettings(":0", "/run/demo.sock"), settings.Setting{Key: "statusAddress"})}
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	with.AddFlags(flags)
	if err := flags.Parse([]string{"--config=" + filepath.Join(r.dir, "settings.yaml"), "--status-address=" + address}); err != nil {
		t.Fatal(err)
	}
	values, err := with.Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	runner := Runner{Table: with, MetricsPrefix: "demo", StatusAddress: "statusAddress", New: func(context.Context, *settings.Values, kubernetes.Interface, *zap.Logger, prometheus.Registerer) (Service, error) {
		return Service{Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Status: func() any { return map[string]int{"pods": 3} }}, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.run(ctx, flags, values, zap.NewAtomicLevel(), zap.NewNop()) }()
	eventually(t, "the status on the address", func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		document, err := serve.ReadStatusOver(ctx, conn)
		return err == nil && string(document) == `{"pods":3}`
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStartErrors(t *testing.T) {
	never := func() (Service, error) { return Service{}, errors.New("must not be reached") }
	t.Run("API server away", func(t *testing.T) {
		r := newRig(t, "http://127.0.0.1:1", "startTimeout: 1ms")
		err := r.run(t.Context(), t, zap.NewNop(), zap.NewAtomicLevel(), never)
		wantIn(t, err, "http://127.0.0.1:1", "connection refused", "kubeconfig", r.dir, "--kubeconfig", "DEMO_KUBECONFIG")
	})
	t.Run("port in use", func(t *testing.T) {
		r := newRig(t, "http://127.0.0.1:1")
		other, err := net.Listen("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		err = r.run(t.Context(), t, zap.NewNop(), zap.NewAtomicLevel(), never)
		wantIn(t, err, "listen", r.address, "already in use", "--listen", "DEMO_LISTEN", "stop the process")
	})
	t.Run("a second copy on the socket", func(t *testing.T) {
		r := newRig(t, "http://127.0.0.1:1")
		other, err := serve.ListenUnix(filepath.Join(r.dir, "s.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		err = r.run(t.Context(), t, zap.NewNop(), zap.NewAtomicLevel(), never)
		wantIn(t, err, "statusSocket", "s.sock", "already in use", "--status-socket")
	})
	t.Run("kubeconfig missing", func(t *testing.T) {
		r := newRig(t, "")
		if err := os.Remove(filepath.Join(r.dir, "kubeconfig")); err != nil {
			t.Fatal(err)
		}
		err := r.run(t.Context(), t, zap.NewNop(), zap.NewAtomicLevel(), never)
		wantIn(t, err, "kubeconfig: ", "settings.yaml", "no such file")
	})
}

func TestServiceErrorEndsTheRun(t *testing.T) {
	api := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	broken := errors.New("the kernel has no nf_tables")
	err := newRig(t, api).run(t.Context(), t, zap.NewNop(), zap.NewAtomicLevel(), func() (Service, error) {
		return Service{Run: func(context.Context) error { return broken }, Status: func() any { return nil }}, nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func wantIn(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		err  error
		want int
	}{
		"good":              {[]string{"do"}, nil, 0},
		"help":              {[]string{"--help"}, nil, 0},
		"failure":           {[]string{"do"}, errors.New("broken"), 1},
		"bad setting":       {[]string{"do"}, fmt.Errorf("wrapped: %w", &settings.Error{Key: "listen"}), 2},
		"reported":          {[]string{"do"}, ErrReported, 1},
		"a code of its own": {[]string{"do"}, &ExitError{Code: 7, Err: ErrReported}, 7},
		"unknown command":   {[]string{"dance"}, nil, 2},
		"unknown flag":      {[]string{"do", "--fast"}, nil, 2},
		"extra argument":    {[]string{"do", "it"}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "demo"}
			root.AddCommand(&cobra.Command{Use: "do", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return test.err }})
			root.SetArgs(test.args)
			root.SetOut(io.Discard)
			if got := Main(root); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}

func TestStatusAndVersionCommands(t *testing.T) {
	r := newRig(t, "")
	var out bytes.Buffer
	execute := func(command *cobra.Command, args ...string) error {
		out.Reset()
		command.SetOut(&out)
		command.SetArgs(args)
		return command.ExecuteContext(t.Context())
	}
	config := "--config=" + filepath.Join(r.dir, "settings.yaml")
	wantIn(t, execute(StatusCommand(table), config), "no demo answers", "statusSocket", "s.sock", "--status-socket")
	if err := execute(StatusCommand(table), config, "-o", "xml"); err == nil || !strings.Contains(err.Error(), "table, json, yaml") {
		t.Errorf("got %v", err)
	}

	listener, err := serve.ListenUnix(filepath.Join(r.dir, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve.Serve(ctx, listener, serve.StatusHandler(func() any { return map[string]int{"pods": 3} }))
	}()
	if err := execute(StatusCommand(table), config); err != nil || out.String() != "pods   3\n" {
		t.Errorf("%v\n%s", err, &out)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	if err := execute(VersionCommand("demo"), "-o", "json"); err != nil || !strings.Contains(out.String(), `"go":"go1.`) {
		t.Errorf("%v\n%s", err, &out)
	}
	if err := execute(VersionCommand("demo")); err != nil || !strings.HasPrefix(out.String(), "demo ") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// With another state or, where the program does so, another setting in the file, it begins anew; a file that cannot be used changes nothing.
func TestState(t *testing.T) {
	api := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	r := newRig(t, api)
	content, err := os.ReadFile(filepath.Join(r.dir, "settings.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(more string) { r.write(t, "settings.yaml", string(content)+"\n"+more) }
	values, err := table.Load(r.flags)
	if err != nil {
		t.Fatal(err)
	}
	lives := make(chan string, 8)
	core, logs := observer.New(zap.InfoLevel)
	runner := Runner{
		Table: table, MetricsPrefix: "demo", Anew: true,
		Valid: func(v *settings.Values) error {
			if v.String("logFormat") == "console" {
				return errors.New("no console")
			}
			return nil
		},
		New: func(_ context.Context, v *settings.Values, _ kubernetes.Interface, _ *zap.Logger, metrics prometheus.Registerer) (Service, error) {
			metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "demo_lives"})) // once in each life
			lives <- v.String(StateKey) + " " + v.String("logFormat")
			return Service{Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Status: func() any { return nil }}, nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.run(ctx, r.flags, values, zap.NewAtomicLevel(), zap.New(core)) }()
	want := func(want string) {
		t.Helper()
		select {
		case got := <-lives:
			if got != want {
				t.Errorf("it lives with %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no life with %q", want)
		}
	}
	want("running auto")
	write("state: removing\nlogFormat: json")
	want("removing json")
	eventually(t, "it is ready", func() bool { return r.readyz() == "ok\n" })
	write("state: removing\nlogFormat: auto")
	want("removing auto")
	write("state: running\nlogFormat: console")
	eventually(t, "the bad file is refused", func() bool { return logs.FilterMessageSnippet("cannot be used").Len() > 0 })
	write("state: gone")
	eventually(t, "the bad state is refused", func() bool {
		for _, e := range logs.FilterMessageSnippet("cannot be used").All() {
			if text := fmt.Sprint(e.ContextMap()["error"]); strings.Contains(text, "gone") && strings.Contains(text, "want running or removing") {
				return true
			}
		}
		return false
	})
	write("")
	want("running auto")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(lives) > 0 {
		t.Errorf("and a life with %q", <-lives)
	}
}
