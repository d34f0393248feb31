package loop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// brief is a provider whose calls end by their deadline after so many writes.
type brief struct {
	providers.Provider
	writes int
	calls  int
	keys   int // the most in one call
}

// spent is a context that ends when it has been asked so often whether it has.
type spent struct {
	context.Context
	left *int
}

func (s spent) Err() error {
	if *s.left--; *s.left < 0 {
		return context.DeadlineExceeded
	}
	return s.Context.Err()
}

func (b *brief) Apply(ctx context.Context, c providers.Changes) providers.Results {
	b.calls++
	b.keys = max(b.keys, len(changed(c)))
	left := b.writes
	return b.Provider.Apply(spent{ctx, &left}, c)
}

// More is to be written than fits into the time of one call, to a load balancer that takes one call at a time and so gets all of it at once: what
// was not written by the deadline is written by the calls that follow, as many as it takes and not many more.
func TestMoreThanFitsIntoOneCall(t *testing.T) {
	r := newRig(t)
	r.marks, r.version = &fixedMarks{}, 100
	r.restart()
	r.loop.source = versionedFeed{r.x, &r.version}
	b := &brief{Provider: r.loop.provider, writes: 20}
	r.loop.provider = b
	const services = 100 // each a pool and a virtual server
	for n := range services {
		name := fmt.Sprintf("s%c%c", 'a'+n/10, 'a'+n%10)
		s := aService(name)
		s.VIPs["lb"][0] = nodeAddr(n)
		r.x.SetService(s, r.clock.Now())
		r.pod(name, n)
	}
	r.pass(10 * time.Minute)
	if b.keys != services {
		t.Fatalf("the largest call was told of %d Services, so this shows nothing", b.keys)
	}
	state := r.lb.State()
	if len(state.Pools) != services || len(state.VirtualServers) != services {
		t.Errorf("%d pools and %d virtual servers after %d calls", len(state.Pools), len(state.VirtualServers), b.calls)
	}
	for n := range services {
		name := fmt.Sprintf("s%c%c", 'a'+n/10, 'a'+n%10)
		if !r.report(name).Ports[0].Programmed {
			t.Errorf("%s: %+v", name, r.report(name))
		}
	}
	if got := r.held(); got != "seen 100" {
		t.Errorf("watermark: %s", got)
	}
	t.Logf("%d calls of %d writes, %d readings", b.calls, b.writes, r.lb.Observations())
}
