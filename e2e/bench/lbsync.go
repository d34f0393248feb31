package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// SubjectCommand is the command, of the program that Run is in, that calls ServeInMemory: it is given a kubeconfig and a number of members.
const SubjectCommand = "lbsync-in-memory"

// lbsyncLarge measures lbsync in the largest cluster.
func lbsyncLarge(ctx context.Context, r *runner) ([]Figure, error) {
	return lbsyncCluster(ctx, r, largest)
}

// scale measures lbsync in clusters of several sizes.
func scale(ctx context.Context, r *runner) (all []Figure, err error) {
	for _, size := range r.opt.Sizes {
		figures, err := lbsyncCluster(ctx, r, size)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", size, err)
		}
		all = append(all, figures...)
	}
	return all, nil
}

// lbsyncCluster measures the start and the memory of lbsync in a cluster, what changes cost it there, and what it does when it is started anew.
func lbsyncCluster(ctx context.Context, r *runner, size Size) ([]Figure, error) {
	if err := r.start(ctx, 1); err != nil {
		return nil, err
	}
	t, err := newTemplates(ctx, r.lab, size, lbsyncProvider)
	if err != nil {
		return nil, err
	}
	if err := freeze(); err != nil {
		return nil, err
	}
	if err := t.fill(ctx, r, r.lab); err != nil {
		return nil, err
	}
	if err := caughtUp(ctx, r.lab); err != nil {
		return nil, err
	}
	r.say("the API server has them all")
	p, err := startProcess(ctx, r, size)
	if err != nil {
		return nil, err
	}
	figures, err := p.measure(ctx, r, &t)
	if err := errors.Join(err, p.stop()); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, p.complaints.Bytes())
	}
	return of(size.String(), figures), nil
}

// process is a running lbsync.
type process struct {
	cmd        *exec.Cmd
	in         io.WriteCloser
	moments    *bufio.Scanner
	complaints bytes.Buffer
	began      time.Time
}

func startProcess(ctx context.Context, r *runner, size Size) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: r.lab.Command(ctx, "", program, SubjectCommand, r.lab.Kubeconfig(), fmt.Sprint(size.Pods))}
	p.cmd.Stderr = &p.complaints
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.moments = bufio.NewScanner(out)
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting lbsync: %w", err)
	}
	return p, nil
}

func (p *process) stop() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

// next waits for a moment.
func (p *process) next(r *runner, what string) (m moment, err error) {
	if !p.moments.Scan() {
		return m, fmt.Errorf("lbsync ended before the moment %q", what)
	}
	if err := json.Unmarshal(p.moments.Bytes(), &m); err != nil {
		return m, err
	}
	if m.What != what {
		return m, fmt.Errorf("lbsync told the moment %q and not %q", m.What, what)
	}
	rss, peak, err := p.memory()
	r.say("lbsync: %s at %s; processor time %s; RSS %s, peak %s; %d steps in %d calls, %d refused; %d writes to Kubernetes", what, seconds(m.At.Sub(p.began)),
		seconds(m.Processor), mib(rss), mib(peak), m.Steps, m.Applications, m.Refused, m.Written)
	return m, err
}

func (p *process) memory() (rss, peak float64, err error) {
	return residents(p.cmd.Process.Pid)
}

// residents are RSS and its peak of a process, in bytes.
func residents(pid int) (rss, peak float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	rss, err = kilobytes(status, "VmRSS")
	if err != nil {
		return 0, 0, err
	}
	peak, err = kilobytes(status, "VmHWM")
	return rss, peak, err
}

// order tells the process what to do, and waits for the moment when it is done.
func (p *process) order(r *runner, what, then string) (moment, error) {
	if _, err := io.WriteString(p.in, what+"\n"); err != nil {
		return moment{}, err
	}
	return p.next(r, then)
}

func (p *process) measure(ctx context.Context, r *runner, t *templates) ([]Figure, error) {
	at := map[string]moment{}
	peaks := map[string]float64{}
	for _, what := range []string{momentCaches, momentModel, momentApplied, momentRested} {
		m, err := p.next(r, what)
		if err != nil {
			return nil, err
		}
		at[what] = m
		if _, peaks[what], err = p.memory(); err != nil {
			return nil, err
		}
	}
	changes, rss, changed, err := p.changes(ctx, r, t)
	if err != nil {
		return nil, err
	}
	again := time.Now()
	if at["again "+momentCaches], err = p.order(r, tellAgain, momentCaches); err != nil {
		return nil, err
	}
	for _, what := range []string{momentRestarted, momentQuiet} {
		if at["again "+what], err = p.next(r, what); err != nil {
			return nil, err
		}
	}
	caches, model, applied := at[momentCaches].At, at[momentModel].At, at[momentApplied].At
	quiet := at["again "+momentQuiet]
	const limit = 1.5 * (1 << 30)
	return append([]Figure{
		{What: "process started to caches full", Measured: fmt.Sprintf("%s, %s of lbsync's own processor time", seconds(caches.Sub(p.began)), seconds(at[momentCaches].Processor))},
		{What: "caches full to the first complete model", Measured: within(model.Sub(caches), 10*time.Second), Expected: "< 10 s"},
		{What: "caches full to everything applied", Measured: fmt.Sprintf("%s, %s of lbsync's own processor time", seconds(applied.Sub(caches)),
			seconds(at[momentApplied].Processor-at[momentCaches].Processor))},
		{What: "process started to everything applied, no delay", Measured: fmt.Sprintf("%s, %d ports refused",
			seconds(applied.Sub(p.began)), at[momentApplied].Refused)},
		{What: "until everything is applied, load balancer: calls, writes in them, readings", Measured: fmt.Sprintf("%d, %d, %d",
			at[momentApplied].Applications, at[momentApplied].Steps, at[momentApplied].Observations)},
		{What: "until everything is applied, API server: calls, bytes to and from it", Measured: at[momentApplied].traffic(moment{})},
		{What: "process started to every status written", Measured: fmt.Sprintf("%s, %d requests", seconds(at[momentRested].At.Sub(p.began)), at[momentRested].Written)},
		{What: "RSS, peak at the first list", Measured: mib(peaks[momentCaches])},
		{What: "RSS, peak when everything is applied", Measured: mib(peaks[momentApplied])},
		{What: "RSS, steady (" + r.opt.Steady.String() + " after the last write)", Measured: fmt.Sprintf("%s (%.2f of it)", mib(rss), rss/limit), Expected: "< 1536 MiB"},
		{What: "started anew, nothing changed: to caches full", Measured: fmt.Sprintf("%s, %s of lbsync's own processor time",
			seconds(at["again "+momentCaches].At.Sub(again)), seconds(at["again "+momentCaches].Processor-changed.Processor))},
		{What: "started anew: to every Service looked at, the Lease won", Measured: seconds(at["again "+momentRestarted].At.Sub(again))},
		{
			What: fmt.Sprintf("started anew: calls that write to the load balancer, writes to Services, Pods, Events until %s later", restAfter),
			Measured: fmt.Sprintf("%d, %d (%d readings; %d to Lease and watermark)", quiet.Applications, quiet.Written, quiet.Observations,
				quiet.Coordination),
			Expected: "0, 0",
		},
	}, changes...), nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// within prints a time and its share of what it is to be at most.
func within(d, limit time.Duration) string {
	return fmt.Sprintf("%s (%.2f of it)", seconds(d), d.Seconds()/limit.Seconds())
}
