package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of the changes whose cost is measured: each of so many Pods becomes not ready and then ready again, at a rate that leaves none of them
// waiting for another.
const (
	changedPods   = 100
	changesAtOnce = 50 * time.Millisecond
)

// traffic is what went to the API server and came from it since another moment.
func (m moment) traffic(since moment) string {
	return fmt.Sprintf("%d calls, %s and %s", m.Calls-since.Calls, mib(float64(m.Sent-since.Sent)), mib(float64(m.Received-since.Received)))
}

// changes measures what lbsync takes when nothing happens, and what single Pods that change cost beyond that; changed is the moment after them.
func (p *process) changes(ctx context.Context, r *runner, t *templates) (out []Figure, rss float64, changed moment, err error) {
	begin, err := p.order(r, tellSteady, momentSteady)
	if err != nil {
		return nil, 0, changed, err
	}
	if err := pause(ctx, r.opt.Steady); err != nil {
		return nil, 0, changed, err
	}
	steady, err := p.order(r, tellSteady, momentSteady)
	if err != nil {
		return nil, 0, changed, err
	}
	if rss, _, err = p.memory(); err != nil {
		return nil, 0, changed, err
	}
	for _, ready := range []string{"False", "True"} {
		if err := t.setReady(ctx, r, ready); err != nil {
			return nil, 0, changed, err
		}
	}
	n := 2 * min(changedPods, t.of.Pods, t.of.Services)
	changed, err = p.order(r, strconv.Itoa(n), momentChanged)
	if err != nil {
		return nil, 0, changed, err
	}
	return changeCost{n, begin, steady, changed}.figures(), rss, changed, nil
}

// changeCost is what is known of n changes: the moments around a time in which nothing happened, and the one at which they were written.
type changeCost struct {
	n                      int
	begin, steady, changed moment
}

func (c changeCost) figures() []Figure {
	idle := float64(c.steady.Processor-c.begin.Processor) / float64(c.steady.At.Sub(c.begin.At))
	span := c.changed.At.Sub(c.steady.At)
	own := c.changed.Processor - c.steady.Processor - time.Duration(idle*float64(span))
	n := float64(c.n)
	return []Figure{
		{What: "nothing happens: processor", Measured: fmt.Sprintf("%.2f%% of one; API server: %s in %s", 100*idle, c.steady.traffic(c.begin), seconds(c.steady.At.Sub(c.begin.At)))},
		{
			What:     "a Pod that changes: processor time, without what passes when nothing happens",
			Measured: fmt.Sprintf("%s (mean of %d)", ms(own/time.Duration(c.n)), c.n),
		},
		{
			What: "a Pod that changes, load balancer: calls, writes in them, readings",
			Measured: fmt.Sprintf("%.2f, %.2f, %.2f", float64(c.changed.Applications-c.steady.Applications)/n, float64(c.changed.Steps-c.steady.Steps)/n,
				float64(c.changed.Observations-c.steady.Observations)/n),
		},
		{
			What: "a Pod that changes, API server: calls, bytes to and from it",
			Measured: fmt.Sprintf("%.2f calls, %.0f and %.0f bytes", float64(c.changed.Calls-c.steady.Calls)/n, float64(c.changed.Sent-c.steady.Sent)/n,
				float64(c.changed.Received-c.steady.Received)/n),
		},
	}
}

// setReady makes Pods, each of another Service, ready or not, one after the other.
func (t *templates) setReady(ctx context.Context, r *runner, status string) error {
	pods := r.lab.Client().CoreV1()
	for i := range min(changedPods, t.of.Pods, t.of.Services) {
		p := t.podNumber(i)
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, status, time.Now().UTC().Format(time.RFC3339))
		_, err := pods.Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
		if err != nil {
			return err
		}
		if err := pause(ctx, changesAtOnce); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
