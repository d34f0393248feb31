package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// haproxySize has so many members, in as many Services as the lab has addresses for.
func haproxySize(members int) Size {
	return Size{Pods: members, Nodes: 100, Services: min(members, 200)}
}

// haproxyMemory measures an lbsync as it is released, beside a real HAProxy that has all members and does not check them: they are nowhere.
// First its memory when it has brought them there, then what changes cost, then the memory of a process that finds them all there.
func haproxyMemory(ctx context.Context, r *runner) ([]Figure, error) {
	if err := r.start(ctx, 1); err != nil {
		return nil, err
	}
	size := haproxySize(r.opt.Members)
	t, err := newTemplates(ctx, r.lab, size, string(lab.HAProxy)) // with the chart nobody but npl-agent may annotate a Pod
	if err != nil {
		return nil, err
	}
	if err := r.lab.InstallChart(ctx); err != nil {
		return nil, err
	}
	if err := r.lab.StartLoadBalancer(ctx); err != nil {
		return nil, err
	}
	b := beside{runner: r, lb: r.lab.LoadBalancer(), members: size.Pods}
	path := filepath.Join(filepath.Dir(b.lb.AdminSocket()), "meter.sock")
	said, listener, err := newMeter(path, b.lb.AdminSocket())
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	b.said = said
	if err := b.lb.ConfigureLBSync(ctx, "haproxy.adminSocket="+path); err != nil {
		return nil, err
	}
	t.service.Annotations["nplbridge.io/monitor"] = "None"
	if err := freeze(); err != nil {
		return nil, err
	}
	b.lb.StopLBSync() // many objects in one transaction of etcd have one resourceVersion, which no watch ever tells
	if err := errors.Join(t.fill(ctx, r, r.lab), caughtUp(ctx, r.lab)); err != nil {
		return nil, err
	}
	figures, err := b.measure(ctx, &t)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(b.lb.LBSyncLog(), 2000))
	}
	return of(fmt.Sprintf("%d members in %d Services", size.Pods, size.Services), figures), nil
}

// beside is an lbsync beside HAProxy that is measured.
type beside struct {
	*runner
	lb      *lab.LoadBalancer
	said    *meter // on HAProxy's command line
	members int
}

// instant is what lbsync has taken and said at a time.
type instant struct {
	sample
	spoken
}

func (b *beside) instant() (i instant, err error) {
	i.spoken = b.said.read()
	i.sample, err = readSample(b.lb.LBSyncPID())
	return i, err
}

func (b *beside) measure(ctx context.Context, t *templates) ([]Figure, error) {
	came, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	begin, end, rss, err := b.rest(ctx)
	if err != nil {
		return nil, err
	}
	for _, ready := range []string{"False", "True"} {
		if err := t.setReady(ctx, b.runner, ready); err != nil {
			return nil, err
		}
	}
	if err := b.complete(ctx); err != nil {
		return nil, err
	}
	if err := pause(ctx, 3*time.Second); err != nil { // the file is written behind
		return nil, err
	}
	changed, err := b.instant()
	if err != nil {
		return nil, err
	}
	b.lb.StopLBSync()
	found, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	_, _, again, err := b.rest(ctx)
	if err != nil {
		return nil, err
	}
	return append([]Figure{
		{What: "process started to all members on HAProxy", Measured: came.String()},
		{What: "process started to all members on HAProxy: connections to its command line, bytes to and from it", Measured: came.spoken.String()},
		{What: "RSS", Measured: rss, Expected: "< 100 MiB"},
		{What: "started anew, nothing changed: to all members known", Measured: found.String()},
		{What: "started anew: connections to HAProxy's command line, bytes to and from it", Measured: found.spoken.String()},
		{What: "started anew: RSS", Measured: again, Expected: "< 100 MiB"},
	}, spokenCost{2 * min(changedPods, t.of.Pods, t.of.Services), begin, end, changed}.figures()...), nil
}

// arrived is what a start took lbsync, and what it said meanwhile.
type arrived struct {
	clock, processor time.Duration
	spoken           spoken
}

func (a arrived) String() string {
	return fmt.Sprintf("%s, %s of lbsync's own processor time", seconds(a.clock), seconds(a.processor))
}

// start starts lbsync, and waits until it counts all members.
func (b *beside) start(ctx context.Context) (a arrived, err error) {
	began, before := time.Now(), b.said.read()
	if err := b.lb.StartLBSync(); err != nil {
		return a, err
	}
	if err := b.complete(ctx); err != nil {
		return a, err
	}
	a.clock = time.Since(began)
	i, err := b.instant()
	a.processor, a.spoken = i.cpu, i.since(before)
	b.say("%d members on HAProxy after %s", b.members, a)
	return a, err
}

// rest leaves lbsync alone and returns two instants of the second half of that time, and its memory.
func (b *beside) rest(ctx context.Context) (begin, end instant, rss string, err error) {
	for _, i := range []*instant{&begin, &end} {
		if err := pause(ctx, b.opt.Steady/2); err != nil {
			return begin, end, "", err
		}
		if *i, err = b.instant(); err != nil {
			return begin, end, "", err
		}
	}
	now, peak, err := residents(b.lb.LBSyncPID())
	rss = fmt.Sprintf("%s, at most %s", mib(now), mib(peak))
	b.say("RSS of lbsync: %s", rss)
	return begin, end, rss, err
}

// complete waits until lbsync says that the load balancer has all members, as long as they become more.
func (b *beside) complete(ctx context.Context) error {
	last, since := -1, time.Now()
	for {
		have, err := b.counted(ctx)
		if have == b.members {
			return nil
		}
		if have != last {
			last, since = have, time.Now()
		} else if time.Since(since) > view.Patience {
			return errors.Join(fmt.Errorf("%d of %d members, and no more for %s", have, b.members, view.Patience), err)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// counted is how many members lbsync counts on the load balancer.
func (b *beside) counted(ctx context.Context) (int, error) {
	families, err := scrape(ctx, b.lab, b.lb.Place(), "127.0.0.1:10362")
	have := 0.0
	for _, m := range families["lbsync_members"].GetMetric() {
		have += m.GetGauge().GetValue()
	}
	return int(have), err
}

// spokenCost is what is known of n changes: instants around a time in which nothing happened, and the one after them.
type spokenCost struct {
	n                   int
	begin, end, changed instant
}

func (c spokenCost) figures() []Figure {
	rested, took := c.end.at.Sub(c.begin.at), c.changed.at.Sub(c.end.at)
	idle, said := c.end.since(c.begin.spoken), c.changed.since(c.end.spoken)
	// own is the mean of a change, without what passes when nothing happens.
	own := func(all, idle float64) float64 { return (all - idle*took.Seconds()/rested.Seconds()) / float64(c.n) }
	return []Figure{
		{
			What:     "nothing happens: processor; connections to HAProxy's command line, bytes to and from it",
			Measured: fmt.Sprintf("%.2f%% of one; %s in %s", 100*(c.end.cpu-c.begin.cpu).Seconds()/rested.Seconds(), idle, seconds(rested)),
		},
		{
			What:     "a Pod that changes: processor time, without what passes when nothing happens",
			Measured: fmt.Sprintf("%s (mean of %d)", ms(time.Duration(own(float64(c.changed.cpu-c.end.cpu), float64(c.end.cpu-c.begin.cpu)))), c.n),
		},
		{
			What: "a Pod that changes: connections to HAProxy's command line, bytes to and from it",
			Measured: fmt.Sprintf("%.2f, %.0f and %.0f", own(float64(said.connections), float64(idle.connections)), own(float64(said.sent), float64(idle.sent)),
				own(float64(said.received), float64(idle.received))),
		},
	}
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
