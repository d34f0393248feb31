package loop

import (
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

// pace is how often a kind of failure is retried: first after initial, then ever slower up to max.
type pace struct{ initial, max time.Duration }

func paceOf(kind providers.Kind) pace {
	switch kind {
	case providers.Throttled:
		return pace{2 * time.Second, time.Minute}
	case providers.Conflict:
		return pace{50 * time.Millisecond, 5 * time.Second}
	case providers.Rejected, providers.Misconfigured:
		return pace{10 * time.Second, 5 * time.Minute}
	default:
		return pace{250 * time.Millisecond, 5 * time.Second}
	}
}

// failure is what stands between one key and what is wanted of it.
type failure struct {
	err    error
	kind   providers.Kind
	since  time.Time // of the first failure in a row
	until  time.Time // no attempt before
	unsure bool      // not observed since: no change may be made before that
	waits  bool      // by plan: nothing is wrong

	tried   []providers.MemberID // that lead to another Pod, and were to be removed by what failed
	pool    *providers.Pool      // what was wanted when it failed
	virtual *providers.VirtualServer
	pace    *backoff.ExponentialBackOff
}

// failures are the present ones, by Service.
type failures map[model.ServiceKey]map[providers.Key]*failure

// set enters one more failure of key.
func (f failures) set(key providers.Key, err error, now time.Time) *failure {
	service := model.ServiceKeyOf(key)
	if f[service] == nil {
		f[service] = map[providers.Key]*failure{}
	}
	f[service][key] = nextFailure(f[service][key], err, now)
	return f[service][key]
}

func (f failures) clear(key providers.Key) {
	service := model.ServiceKeyOf(key)
	delete(f[service], key)
	if len(f[service]) == 0 {
		delete(f, service)
	}
}

// of returns the failure of a key, or nil.
func (f failures) of(key providers.Key) *failure { return f[model.ServiceKeyOf(key)][key] }

// unsure reports whether anything of the Service may not be what we think.
func (f failures) unsure(service model.ServiceKey) bool {
	for _, failure := range f[service] {
		if failure.unsure {
			return true
		}
	}
	return false
}

// nextFailure returns the failure that follows previous, which may be nil.
func nextFailure(previous *failure, err error, now time.Time) *failure {
	kind := providers.KindOf(err)
	f := &failure{err: err, kind: kind, since: now, unsure: true}
	if previous != nil {
		f.since = previous.since
		if previous.kind == kind {
			f.pace = previous.pace
		}
	}
	if wait := providers.RetryAfter(err); wait > 0 {
		f.waits, f.unsure, f.until = true, false, now.Add(wait)
		return f
	}
	if f.pace == nil {
		p := paceOf(kind)
		f.pace = backoff.NewExponentialBackOff()
		f.pace.InitialInterval, f.pace.MaxInterval, f.pace.Multiplier = p.initial, p.max, 2
		f.pace.Reset()
	}
	f.until = now.Add(f.pace.NextBackOff())
	if within := providers.RetryWithin(err); within > 0 {
		f.until = earlier(f.until, now.Add(within))
	}
	return f
}

// reconsider ends the wait of a change that was refused for what it is, when it is another one now. Members do not count: they come and go
// with every Pod, and would have the load balancer refuse the same thing again each time.
func (f *failure) reconsider(pool *providers.Pool, vs *providers.VirtualServer, now time.Time) {
	if f.kind != providers.Rejected || f.until.Before(now) ||
		plan.EqualPools(withoutMembers(f.pool), withoutMembers(pool)) && plan.EqualVirtualServers(f.virtual, vs) {
		return
	}
	f.until, f.pool, f.virtual = now, pool, vs
	if f.pace != nil {
		f.pace.Reset()
	}
}

func withoutMembers(pool *providers.Pool) *providers.Pool {
	if pool == nil {
		return nil
	}
	return &providers.Pool{Key: pool.Key, Attached: pool.Attached, Settings: pool.Settings}
}

// repeats reports whether the failure says what previous, which may be nil, has said.
func (f *failure) repeats(previous *failure) bool {
	return previous != nil && f.kind == previous.kind && f.err.Error() == previous.err.Error()
}

// hurry ends the wait of a change that is to remove members which lead to another Pod, unless the attempt that failed was to do so.
func (f *failure) hurry(leads []providers.MemberID, now time.Time) {
	for _, id := range leads {
		if !slices.Contains(f.tried, id) {
			f.tried = append(f.tried, id)
			f.until = now
		}
	}
}

// forgive ends the wait for a load balancer that is another one now. What it asked us to wait for stays: it may still count.
func (f *failure) forgive(now time.Time) {
	if f.waits || f.kind == providers.Throttled {
		return
	}
	f.until = now
	f.pace.Reset()
}
