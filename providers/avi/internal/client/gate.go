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

// gate holds requests back while the Controller does not answer: one at a time tries, after each failure a little later. So a Controller
// that starts or changes its leader meets a trickle, however many Services wait for it.
type gate struct {
	clock clock.Clock

	mu      sync.Mutex
	pause   *backoff.ExponentialBackOff // nil while all is well
	until   time.Time                   // when the next one may try
	trying  bool
	changed chan struct{} // closed at the next report; nil while nobody waits
}

// The pauses, which grow by half and vary by half.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// pass is the leave to make one request.
type pass struct{ try bool }

// wait returns when a request may be made.
func (g *gate) wait(ctx context.Context) (pass, error) {
	for {
		g.mu.Lock()
		if g.pause == nil {
			g.mu.Unlock()
			return pass{}, nil
		}
		left := g.until.Sub(g.clock.Now())
		if left <= 0 && !g.trying {
			g.trying = true
			g.mu.Unlock()
			return pass{try: true}, nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		if err := g.sleep(ctx, left, changed); err != nil {
			return pass{}, &providers.Error{
				Kind: providers.Unavailable, What: fmt.Sprintf("the Controller does not answer, next attempt in %s", max(left, 0).Round(time.Millisecond)), Err: err,
			}
		}
	}
}

// sleep waits for the time or, while somebody tries, for the outcome.
func (g *gate) sleep(ctx context.Context, left time.Duration, changed <-chan struct{}) error {
	var due <-chan time.Time
	if left > 0 {
		timer := g.clock.NewTimer(left)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-due:
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// report enters how a request ended. Requests that failed together count once.
func (g *gate) report(ctx context.Context, p pass, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.try {
		g.trying = false
	}
	switch {
	case answered:
		g.pause = nil
	case ctx.Err() != nil: // the caller gave up, which says nothing
	case g.pause == nil || p.try:
		if g.pause == nil {
			g.pause = backoff.NewExponentialBackOff()
			g.pause.InitialInterval, g.pause.MaxInterval = firstRetry, lastRetry
		}
		g.until = g.clock.Now().Add(g.pause.NextBackOff())
	}
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
