package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers"
)

// gate holds requests back while the Controller does not answer: after each failed attempt a little longer. So a Controller that
// starts or changes its leader meets a trickle, however many Services wait for it.
type gate struct {
	clock clock.Clock

	mu    sync.Mutex
	pause *backoff.ExponentialBackOff // nil while all is well
	until time.Time
}

// The pauses, which grow by half and vary by half.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// wait returns when the gate is open, and the time of that.
func (g *gate) wait(ctx context.Context) (time.Time, error) {
	for {
		g.mu.Lock()
		now := g.clock.Now()
		left := g.until.Sub(now)
		g.mu.Unlock()
		if left <= 0 {
			return now, nil
		}
		timer := g.clock.NewTimer(left)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return now, &providers.Error{
				Kind: providers.Unavailable, What: fmt.Sprintf("the Controller does not answer, next attempt in %s", left.Round(time.Millisecond)), Err: context.Cause(ctx),
			}
		}
	}
}

// report enters how a request that began at a time ended. Of requests that failed together the first counts.
func (g *gate) report(ctx context.Context, began time.Time, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case answered:
		g.pause, g.until = nil, time.Time{}
	case ctx.Err() != nil: // the caller gave up
	case !began.Before(g.until):
		if g.pause == nil {
			g.pause = backoff.NewExponentialBackOff()
			g.pause.InitialInterval, g.pause.MaxInterval = firstRetry, lastRetry
		}
		g.until = g.clock.Now().Add(g.pause.NextBackOff())
	}
}
