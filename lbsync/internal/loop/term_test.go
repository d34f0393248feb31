package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// A load balancer whose requests take seconds each is read, though that takes longer than any one renewal of the Lease lasts.
func TestReadingOutlastsTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 4 * time.Second
		fence := func() (time.Time, error) { return time.Now().Add(lasts), nil }
		until, _ := fence()
		tm := &term{fence: fence, until: until}
		err := tm.during(t.Context(), time.Hour, func(ctx context.Context) error {
			for range 40 { // requests
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(2 * time.Second):
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// What was read while another may have written is not used, whether the Lease is ours again by then or not.
func TestReadingEndsWithTheTerm(t *testing.T) {
	lost := errors.New("lost")
	for name, test := range map[string]struct {
		fence func(began time.Time) (time.Time, error)
		read  func(context.Context) error
		want  error
	}{
		"not renewed": {
			func(time.Time) (time.Time, error) { return time.Time{}, lost },
			func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, errTerm,
		},
		"too long": {
			func(time.Time) (time.Time, error) { return time.Now().Add(4 * time.Second), nil },
			func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, context.DeadlineExceeded,
		},
		"back after a gap": {
			func(began time.Time) (time.Time, error) {
				if time.Since(began) < time.Minute {
					return time.Time{}, lost
				}
				return time.Now().Add(4 * time.Second), nil
			},
			func(ctx context.Context) error { time.Sleep(2 * time.Minute); return nil }, errTerm,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				tm := &term{fence: func() (time.Time, error) { return test.fence(began) }, until: began.Add(4 * time.Second)}
				if err := tm.during(t.Context(), 10*time.Minute, test.read); !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		})
	}
}

// A process that was frozen while nobody looked cannot tell that another wrote meanwhile.
func TestTermIsOverAfterAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence := func() (time.Time, error) { return time.Now().Add(4 * time.Second), nil }
		until, _ := fence()
		tm := &term{fence: fence, until: until}
		for range 10 {
			time.Sleep(3 * time.Second)
			if !tm.held() {
				t.Fatal("over while it is renewed")
			}
		}
		time.Sleep(5 * time.Second)
		for range 2 {
			if tm.held() {
				t.Fatal("not over, because it is ours again")
			}
		}
	})
}

// longRead is a load balancer that takes its time to be read.
type longRead struct {
	providers.Provider
	wait func()
}

func (p longRead) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	p.wait()
	return p.Provider.Observe(ctx, scope)
}

// While it is read nothing is written to a load balancer, so it is not read all the time.
func TestSlowReadingsLeaveTimeToWrite(t *testing.T) {
	r := newRig(t)
	const takes = 20 * time.Second
	r.loop.provider = longRead{r.loop.provider, func() { r.clock.Step(takes) }}
	r.loop.observe(t.Context(), r.clock.Now())
	if wait := r.loop.readings.pollAt.Sub(r.clock.Now()); wait < takes {
		t.Errorf("polled again %s after a reading of %s", wait, takes)
	}
	r.loop.provider = r.loop.provider.(longRead).Provider
	r.loop.observe(t.Context(), r.clock.Now())
	if wait := r.loop.readings.pollAt.Sub(r.clock.Now()); wait != r.loop.cfg.DrainPoll {
		t.Errorf("polled again %s after a fast reading", wait)
	}
}
