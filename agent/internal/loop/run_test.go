package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/internal/loop/kerneltest"
	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// counting is an inventory that counts the passes made over it.
type counting struct {
	*world
	passes atomic.Int64
}

func (c *counting) Services() []model.Service {
	c.passes.Add(1)
	return nil
}

// running starts a loop in a bubble of virtual time.
func running(t *testing.T, before func(op string) error) (*Loop, *counting, *kerneltest.Kernel) {
	c := &counting{world: &world{}}
	k := kerneltest.New(clock.RealClock{})
	k.Before = before
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	l := New(c, k, c, nil, c, clock.RealClock{}, zap.NewNop(), m, Settings{RepairInterval: 30 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l, c, k
}

func TestRunMakesOnePassOfManyTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c, _ := running(t, nil)
		synctest.Wait()
		if got := c.passes.Load(); got != 1 {
			t.Fatalf("%d passes at the start, want 1", got)
		}
		for range 100 {
			l.Trigger()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := c.passes.Load(); got != 2 {
			t.Errorf("%d passes, want 2", got)
		}
		start := time.Now()
		l.Trigger() // when nothing has happened for a while, a change is served at once
		synctest.Wait()
		if c.passes.Load() != 3 || time.Since(start) != 0 {
			t.Errorf("%d passes after %s", c.passes.Load(), time.Since(start))
		}
	})
}

func TestRunMakesOnePassOfManyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c, _ := running(t, nil)
		time.Sleep(time.Second)
		tell := func(times int) {
			for range times {
				l.TriggerLater()
				time.Sleep(laterGap / 100)
			}
		}
		tell(99)
		if got := c.passes.Load(); got != 1 {
			t.Errorf("%d passes, want the first one only: nobody waits", got)
		}
		tell(99) // more answers do not put it off
		if got := c.passes.Load(); got != 2 {
			t.Errorf("%d passes, want one for many answers", got)
		}
		time.Sleep(time.Second)
		c.passes.Store(2)
		l.TriggerLater()
		synctest.Wait()
		l.Trigger() // what does not wait takes the rest along
		synctest.Wait()
		if got := c.passes.Load(); got != 3 {
			t.Errorf("%d passes, want one at once", got)
		}
		time.Sleep(2 * laterGap)
		synctest.Wait()
		if got := c.passes.Load(); got != 3 {
			t.Errorf("%d passes, want none for what has been seen", got)
		}
	})
}

func TestRunRepairsFromTimeToTimeAndWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repairs atomic.Int64
		l, _, _ := running(t, func(op string) error {
			if op == "repair" {
				repairs.Add(1)
			}
			return nil
		})
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if got := repairs.Load(); got != 21 {
			t.Errorf("%d repairs in 10 minutes of 30 s, want 21 with the first", got)
		}
		l.Repair()
		synctest.Wait()
		if got := repairs.Load(); got != 22 {
			t.Errorf("%d repairs, want one more at once", got)
		}
	})
}

func TestRunTriesAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		l, c, _ := running(t, func(string) error {
			if failing.Load() {
				return errors.New("no")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := c.passes.Load(); got < 20 || got > 60 {
			t.Errorf("%d passes in 10 minutes of failure", got)
		}
		if l.FirstSync() == nil || l.Kernel() == nil {
			t.Error("ready while everything fails")
		}
		failing.Store(false)
		time.Sleep(2 * lastRetry)
		synctest.Wait()
		if err := errors.Join(l.FirstSync(), l.Kernel()); err != nil {
			t.Error(err)
		}
	})
}
