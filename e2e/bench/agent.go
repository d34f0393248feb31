package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/nplbridge/nplbridge/e2e/view"
)

const agentAddress = "127.0.0.1:10361"

// poll calls f until it succeeds.
func poll(ctx context.Context, f func() error) error { return view.Poll(ctx, f) }

// agent is a running npl-agent.
type agent struct {
	site  *site
	cmd   *exec.Cmd
	log   string
	began time.Time
	done  chan error
}

// command prepares npl-agent with the site's settings and more.
func (s *site) command(ctx context.Context, verb string, more ...string) *exec.Cmd {
	argv := append([]string{s.lab.Programs().NPLAgent, verb, "--node-name=" + nodeName, "--kubeconfig=" + s.kubeconfig(),
		"--status-socket=" + filepath.Join(s.dir, "status.sock"), "--log-format=json"}, more...)
	return s.lab.Command(ctx, host, argv...)
}

// startAgent starts npl-agent, with more settings, and does not wait for anything. A pass that only compares would be counted as one that
// something caused, so it makes none; and a port is free again at once, so that one round after another finds them all.
func (s *site) startAgent(ctx context.Context, more ...string) (*agent, error) {
	a := &agent{site: s, log: filepath.Join(s.dir, "agent.log"), done: make(chan error, 1)}
	log, err := os.Create(a.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	a.cmd = s.command(ctx, "run", append([]string{"--listen=" + agentAddress, "--repair-interval=1h", "--cool-down=0s"}, more...)...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.began = time.Now()
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting npl-agent: %w", err)
	}
	go func() { a.done <- a.cmd.Wait() }()
	return a, nil
}

// ready waits until the agent says that it is.
func (a *agent) ready(ctx context.Context) error {
	return a.explain(poll(ctx, func() error {
		families, err := a.metrics(ctx)
		if err == nil && histogram(families["npl_agent_sync_duration_seconds"]).count == 0 {
			err = errors.New("npl-agent has made no pass yet")
		}
		return err
	}))
}

// explain adds the end of the agent's log to an error.
func (a *agent) explain(err error) error {
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(a.log)
	return fmt.Errorf("%w\n%s", err, tail(string(log), 2000))
}

func (a *agent) stop() error {
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return a.explain(<-a.done)
}

// cleanup takes rules and annotations off the Node. No agent may be running.
func (s *site) cleanup(ctx context.Context) error {
	if out, err := s.command(ctx, "cleanup", "--withdraw-grace=0s").CombinedOutput(); err != nil {
		return fmt.Errorf("npl-agent cleanup: %w\n%s", err, out)
	}
	return nil
}

func (a *agent) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	return scrape(ctx, a.site.lab, host, agentAddress)
}

// usage is what an agent has taken so far.
type usage struct {
	rss, peak, anonymous float64 // bytes; anonymous is RSS without the pages of the program's file
	heap                 float64 // bytes of live and not yet collected objects
	cpu                  time.Duration
	passes               float64
}

func (a *agent) usage(ctx context.Context) (u usage, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return u, err
	}
	for field, to := range map[string]*float64{"VmRSS": &u.rss, "VmHWM": &u.peak, "RssAnon": &u.anonymous} {
		if *to, err = kilobytes(status, field); err != nil {
			return u, err
		}
	}
	families, err := a.metrics(ctx)
	if err != nil {
		return u, err
	}
	u.passes = histogram(families["npl_agent_sync_duration_seconds"]).count
	for _, m := range families["process_cpu_seconds_total"].GetMetric() {
		u.cpu = time.Duration(m.GetCounter().GetValue() * float64(time.Second))
	}
	for _, m := range families["go_memstats_heap_alloc_bytes"].GetMetric() {
		u.heap = m.GetGauge().GetValue()
	}
	return u, nil
}

// kilobytes reads a line such as "VmRSS:  1234 kB" of /proc/<pid>/status, in bytes.
func kilobytes(status []byte, field string) (float64, error) {
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != field {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return 0, fmt.Errorf("%s in /proc/<pid>/status: %w", field, err)
		}
		return n * 1024, nil
	}
	return 0, fmt.Errorf("/proc/<pid>/status has no %s", field)
}
