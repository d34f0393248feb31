package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// haproxySize has 10,000 members, in as many Services as the lab has addresses for.
var haproxySize = Size{Pods: 10_000, Nodes: 100, Services: 200}

// haproxyMemory measures the memory of an lbsync as it is released, beside a real HAProxy that has all members and does not check them:
// they are nowhere. First while they come, then of a process that finds them all there.
func haproxyMemory(ctx context.Context, r *runner) ([]Figure, error) {
	if err := r.start(ctx, 1); err != nil {
		return nil, err
	}
	t, err := newTemplates(ctx, r.lab, haproxySize, string(lab.HAProxy)) // with the chart nobody but npl-agent may annotate a Pod
	if err != nil {
		return nil, err
	}
	if err := r.lab.InstallChart(ctx); err != nil {
		return nil, err
	}
	if err := r.lab.StartLoadBalancer(ctx); err != nil {
		return nil, err
	}
	t.service.Annotations["nplbridge.io/monitor"] = "None"
	if err := freeze(); err != nil {
		return nil, err
	}
	r.lab.LoadBalancer().StopLBSync() // many objects in one transaction of etcd have one resourceVersion, which no watch ever tells
	if err := t.fill(ctx, r, r.lab); err != nil {
		return nil, err
	}
	if err := errors.Join(caughtUp(ctx, r.lab), r.lab.LoadBalancer().StartLBSync()); err != nil {
		return nil, err
	}
	var figures []Figure
	for _, what := range []string{"while they come", "started anew, nothing changed"} {
		began := time.Now()
		if err := r.members(ctx, haproxySize.Pods); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, tail(r.lab.LoadBalancer().LBSyncLog(), 2000))
		}
		r.say("%d members on HAProxy after %s, %s", haproxySize.Pods, seconds(time.Since(began)), what)
		if err := pause(ctx, steadyAfter); err != nil {
			return nil, err
		}
		rss, peak, err := residents(r.lab.LoadBalancer().LBSyncPID())
		if err != nil {
			return nil, err
		}
		figures = append(figures, Figure{
			What:     fmt.Sprintf("lbsync beside HAProxy with %d members in %d Services, %s: RSS", haproxySize.Pods, haproxySize.Services, what),
			Measured: fmt.Sprintf("%s, at most %s", mib(rss), mib(peak)), Expected: "< 100 MiB",
		})
		if len(figures) == 1 {
			r.lab.LoadBalancer().StopLBSync()
			if err := r.lab.LoadBalancer().StartLBSync(); err != nil {
				return nil, err
			}
		}
	}
	return figures, nil
}

// members waits until lbsync says that the load balancer has so many, as long as they become more.
func (r *runner) members(ctx context.Context, want int) error {
	last, since := -1, time.Now()
	for {
		have, err := r.counted(ctx)
		if have == want {
			return nil
		}
		if have != last {
			last, since = have, time.Now()
		} else if time.Since(since) > view.Patience {
			return errors.Join(fmt.Errorf("%d of %d members, and no more for %s", have, want, view.Patience), err)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// counted is how many members lbsync counts on the load balancer.
func (r *runner) counted(ctx context.Context) (int, error) {
	families, err := scrape(ctx, r.lab, "lb", "127.0.0.1:10362")
	have := 0.0
	for _, m := range families["lbsync_members"].GetMetric() {
		have += m.GetGauge().GetValue()
	}
	return int(have), err
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
