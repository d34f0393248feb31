// Package chaos breaks everything around nplbridge that can break, in the lab, with packets flowing, and holds what it sees to the invariants
// I1 to I7 and to a budget of lost requests. A seed decides what happens.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
	"github.com/nplbridge/nplbridge/e2e/chaos/script"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Options choose a run.
type Options struct {
	Seed uint64
	// Duration is how long actions are begun; 0 is one round: each kind of action once.
	Duration time.Duration
	// Steps are run instead of what the seed would draw.
	Steps []script.Step
	// Small is one Node with few Pods, for what needs no more.
	Small bool
	// NoRedispatch takes away HAProxy's second tries: a connection that a member refuses has failed.
	NoRedispatch bool
	// OpenPorts has HAProxy listen before Services come, so that they come and go without a reload.
	OpenPorts bool
	// KeepGoing does not end the run at the first failure.
	KeepGoing bool
	// Programs are those of the lab; by default those that lab.Contain has built.
	Programs lab.Programs
	Out      io.Writer
}

// Flags are what of the options belongs to a script, as the command line has it.
func (o Options) Flags() (out string) {
	for _, flag := range []struct {
		text string
		set  bool
	}{{"--small ", o.Small}, {"--redispatch=off ", o.NoRedispatch}, {"--open-ports ", o.OpenPorts}} {
		if flag.set {
			out += flag.text
		}
	}
	return out
}

// Report is what came of a run.
type Report struct {
	Seed     uint64
	Flags    string        // with which it was made
	Steps    []script.Step // that were begun
	Failures []string      // of the last one
	Answered map[string]int
	Checked  map[string]int
	Lines    []line
	Behind   time.Duration // the longest that a connection was opened to a Pod after an edit had taken it out
	Late     int
	Reused   int
	Gap      time.Duration // the least between two owners of a node port
	Took     time.Duration
}

// line is one action in the report.
type line struct {
	action   string
	took     time.Duration
	requests int
	failed   int
	window   time.Duration
}

// lateBound is how long after an edit of labels or selectors a connection may still be opened to a Pod that it took out.
const lateBound = 2 * time.Second

// minAnswers is what a run must have seen of clients to mean anything.
const minAnswers = 10_000

// ActionNames are the kinds of action.
func ActionNames() []string { return names(actions()) }

// Actions lists the kinds of action for people: name, class and what happens.
func Actions() (out [][3]string) {
	for _, a := range actions() {
		out = append(out, [3]string{a.name, string(a.class), a.doc})
	}
	return out
}

// Run makes one run in a lab of its own. An error says that it could not be made; what it found is in the report.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	began := time.Now()
	r = &Report{Seed: o.Seed, Flags: o.Flags()}
	if o.NoRedispatch {
		if o.Programs, err = withoutRedispatch(ctx, o.Programs); err != nil {
			return nil, err
		}
		defer os.RemoveAll(filepath.Dir(o.Programs.LBSync))
	}
	s, err := newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.rest(ctx); err != nil {
		return nil, fmt.Errorf("before anything happened: %w", err)
	}
	if err := s.remember(ctx); err != nil {
		return nil, err
	}
	s.say("%7.1f s  the lab is at rest; clients begin", time.Since(began).Seconds())
	kinds, stop := s.startClients(ctx)
	defer stop()
	if err := sleep(ctx, time.Second); err != nil {
		return nil, err
	}
	source := script.NewSource(o.Seed, ActionNames())
	acting := time.Now()
	for n := 0; ; n++ {
		var step script.Step
		switch {
		case len(o.Steps) > 0 && n == len(o.Steps), len(o.Steps) == 0 && n >= len(actions()) && time.Since(acting) >= o.Duration:
			stop()
			r.Failures = append(r.Failures, s.final(ctx, r, kinds, len(o.Steps) == 0)...)
			r.Took = time.Since(began)
			return r, nil
		case len(o.Steps) > 0:
			step = o.Steps[n]
		default:
			step = source.Next()
		}
		r.Steps = append(r.Steps, step)
		found := s.act(ctx, r, step, began)
		r.Failures = append(r.Failures, found...)
		for _, f := range found {
			s.say("           FAILED: %s", f)
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if len(found) > 0 && !o.KeepGoing {
			stop()
			s.finish(r)
			r.Took = time.Since(began)
			s.dump(ctx)
			return r, nil
		}
	}
}

// act does one step, waits until everything is at rest, and returns what was not as it should be.
func (s *site) act(ctx context.Context, r *Report, step script.Step, began time.Time) (failures []string) {
	all := actions()
	a := all[slices.IndexFunc(all, func(a action) bool { return a.name == step.Action })]
	from := time.Now()
	s.say("%7.1f s  %s: %s", time.Since(began).Seconds(), script.Format([]script.Step{step}), a.doc)
	b, err := a.do(ctx, s, step.Random())
	if err != nil {
		failures = append(failures, fmt.Sprintf("%s could not be done: %v", a.name, err))
	}
	if err := s.rest(ctx); err != nil {
		failures = append(failures, err.Error())
	}
	until := time.Now()
	if err := s.ended(ctx, until); err != nil {
		failures = append(failures, err.Error())
	}
	requests := s.tally.Take(until)
	lost := ledger.Lost(requests)
	l := line{a.name, time.Since(from), len(requests), lost.Failed, lost.Window}
	r.Lines = append(r.Lines, l)
	s.say("           %5.1f s, %d requests, %d failed%s", l.took.Seconds(), l.requests, l.failed, window(lost))
	failures = append(failures, b.over(requests)...)
	failures = append(failures, s.judge(r, requests)...)
	return append(failures, s.watch.take()...)
}

func window(lost ledger.Losses) string {
	if lost.Failed == 0 {
		return ""
	}
	return fmt.Sprintf(" within %v (%s)", lost.Window.Round(time.Millisecond), strings.Join(lost.Kinds, ", "))
}

// judge holds every answer to what its Service selected. An edit of labels or selectors has a bound of its own.
func (s *site) judge(r *Report, requests []ledger.Request) (wrong []string) {
	for _, q := range requests {
		if q.Err != "" {
			continue
		}
		v := s.selection.Judge(q.Service, q.UID, q.Opened, q.Sent, q.Ended, apart)
		switch {
		case v.Wrong:
			wrong = append(wrong, "wrong answer: "+v.Why)
		case v.Late:
			r.Late++
			if r.Behind = max(r.Behind, v.Behind); v.Behind > lateBound {
				wrong = append(wrong, "wrong answer: "+v.Why)
			}
		}
	}
	if n := len(wrong); n > 5 {
		wrong = append(wrong[:5], fmt.Sprintf("and %d more wrong answers", n-5))
	}
	return wrong
}

// final looks once more when the clients have stopped, and whether the run saw enough.
func (s *site) final(ctx context.Context, r *Report, kinds []string, whole bool) (failures []string) {
	if err := s.rest(ctx); err != nil {
		failures = append(failures, "at the end: "+err.Error())
	}
	if err := s.nothingCools(ctx); err != nil {
		failures = append(failures, "at the end: "+err.Error())
	}
	failures = append(failures, nothing.over(s.tally.Take(time.Now()))...)
	failures = append(failures, s.watch.take()...)
	s.finish(r)
	if !whole {
		return failures
	}
	total := 0
	for _, kind := range kinds {
		if total += r.Answered[kind]; r.Answered[kind] == 0 {
			failures = append(failures, "no client of the kind "+kind+" had an answer")
		}
	}
	if total < minAnswers {
		failures = append(failures, fmt.Sprintf("%d answers were checked, fewer than %d mean nothing", total, minAnswers))
	}
	for _, invariant := range []string{"I1", "I3", "I4", "I5", "I6", "I7"} {
		if r.Checked[invariant] == 0 {
			failures = append(failures, invariant+" was never looked at")
		}
	}
	return failures
}

func (s *site) finish(r *Report) {
	r.Answered = s.tally.Answered()
	s.watch.mutex.Lock()
	defer s.watch.mutex.Unlock()
	r.Checked = maps.Clone(s.watch.checked)
	r.Reused, r.Gap = s.watch.nodePorts.Reused()
}

// dump prints what a person would look at first after a failure.
func (s *site) dump(ctx context.Context) {
	for _, args := range [][]string{
		{"-n", namespace, "get", "services,pods", "-o", "wide"},
		{"-n", namespace, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.name}{" "}{.metadata.uid}{" "}{.metadata.annotations.nodeportlocal\.antrea\.io}{"\n"}{end}`},
		{"-n", system, "logs", "-l", "app.kubernetes.io/component=agent", "--tail=25", "--prefix"},
	} {
		out, err := s.Lab.Kubectl(ctx, args...)
		if err != nil {
			out += err.Error()
		}
		s.say("kubectl %s\n%s", strings.Join(args, " "), out)
	}
	for _, b := range s.Lab.LoadBalancers() {
		lines := strings.Split(b.LBSyncLog(), "\n")
		s.say("the end of the log of lbsync on %s:\n%s", b.Place(), strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}
