package bigip

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// maxSilence is how much longer than its last whole reading took a device may answer nothing while another one was read already. It is as long as a
// connection may take to be made, so one that hangs holds the others up no longer than one that cannot be reached.
const maxSilence = 5 * time.Second

// read reads all groups at the same time. One that answers nothing, and was read before, is given up once another was read: nothing is written while
// it is waited for. One that was never read is waited for, since nothing can be written without it.
func (p *Provider) read(ctx context.Context, scope providers.Scope) ([]memory, []error) {
	now, errs := make([]memory, len(p.groups)), make([]error, len(p.groups))
	another, once := make(chan struct{}), sync.Once{}
	p.each(func(n int, g *group) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		p.mu.Lock()
		before := p.last[n]
		p.mu.Unlock()
		if before.read {
			go func() { cancel(g.devices[0].silent(ctx, before.took+p.silence, another)) }()
		}
		began := time.Now()
		seen, err := g.observe(ctx, scope)
		now[n], errs[n] = memory{read: true, seen: seen, took: time.Since(began)}, err
		if err == nil {
			once.Do(func() { close(another) })
		}
	})
	return now, errs
}

// silent returns an error when the device has answered nothing for so long and another was read, and nil when ctx ends.
func (d *device) silent(ctx context.Context, long time.Duration, another <-chan struct{}) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	var enough <-chan struct{}
	for {
		select {
		case <-d.signs:
			timer.Reset(long)
			enough = nil
		case <-timer.C:
			enough = another
		case <-enough:
			return fmt.Errorf("it has answered nothing for %s, and another device was read", long.Round(time.Millisecond))
		case <-ctx.Done():
			return nil
		}
	}
}
