package loop

import (
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

// guards are the pools that lost members lately which no event explains, by Service.
type guards map[model.ServiceKey]map[providers.Key]*guard

// guard is what is remembered of one pool.
type guard struct {
	holds  bool
	since  time.Time                         // of holding
	until  time.Time                         // when it is looked at again
	passed map[providers.MemberID]passedLoss // what went and was not suspicious by itself
}

type passedLoss struct {
	member providers.Member
	at     time.Time
}

// guard holds what is lost without an explanation when it is too much: at least for GuardHold, and until it is back, explained or
// allowed. Losses that come one by one count together as long as GuardHold.
func (l *Loop) guard(service model.ServiceKey, c providers.Changes, out outcome, now time.Time) providers.Changes {
	if len(out.Losses) == 0 && len(l.guards[service]) == 0 {
		return c
	}
	held := map[providers.Key]bool{}
	for key, losses := range l.lossesOf(service, out.Losses) {
		if l.holds(key, losses, out.State, now) {
			held[key] = true
			out.guarded[key] = len(losses)
		}
	}
	return plan.Guard(out.Losses, held)(c)
}

// lossesOf groups losses by key, and has each key that is remembered.
func (l *Loop) lossesOf(service model.ServiceKey, losses []model.Loss) map[providers.Key][]model.Loss {
	out := map[providers.Key][]model.Loss{}
	for key := range l.guards[service] {
		out[key] = nil
	}
	for _, loss := range losses {
		out[loss.Key] = append(out[loss.Key], loss)
	}
	return out
}

// holds decides about one pool and remembers what is let go.
func (l *Loop) holds(key providers.Key, losses []model.Loss, wanted providers.State, now time.Time) bool {
	service := model.ServiceKeyOf(key)
	g := l.guards[service][key]
	if g == nil {
		g = &guard{passed: map[providers.MemberID]passedLoss{}}
	}
	g.forget(findPool(wanted, key), now.Add(-l.cfg.GuardHold))
	suspicious := l.cfg.GuardHold > 0 && len(losses) > 0 && plan.Suspicious(g.before(l.pool(key)), g.all(key, losses))
	over := now.Sub(g.since) >= l.cfg.GuardHold
	switch {
	case suspicious && !g.holds:
		g.holds, g.since = true, now
		l.metrics.guards.Inc()
		l.log.Warn("the guard holds members whose loss no event explains", zap.String("pool", key.String()), zap.Int("members", len(losses)),
			zap.String("first", losses[0].Member.Address.String()), zap.String("why", losses[0].Why))
	case g.holds && (len(losses) == 0 || !suspicious && over):
		g.holds = false
		l.log.Info("the guard holds no more members", zap.String("pool", key.String()), zap.Int("removed", len(losses)))
	}
	if g.holds { // another Pod may get the address of a held member, which is no event of this Service
		g.until = now.Add(heldRetry)
	}
	if !g.holds {
		g.pass(l.pool(key), losses, now)
		if len(g.passed) > 0 {
			g.until = now.Add(l.cfg.GuardHold)
		}
	}
	l.guards.set(key, g)
	return g.holds
}

func (g guards) set(key providers.Key, one *guard) {
	service := model.ServiceKeyOf(key)
	if !one.holds && len(one.passed) == 0 {
		delete(g[service], key)
		if len(g[service]) == 0 {
			delete(g, service)
		}
		return
	}
	if g[service] == nil {
		g[service] = map[providers.Key]*guard{}
	}
	g[service][key] = one
}

// forget drops what went before limit, and what is wanted again.
func (g *guard) forget(wanted *providers.Pool, limit time.Time) {
	for id, loss := range g.passed {
		if !loss.at.After(limit) {
			delete(g.passed, id)
		}
	}
	if wanted == nil {
		return
	}
	for _, m := range wanted.Members {
		delete(g.passed, m.ID())
	}
}

// pass notes what is let go.
func (g *guard) pass(pool *providers.Pool, losses []model.Loss, now time.Time) {
	if pool == nil {
		return
	}
	lost := map[providers.MemberID]bool{}
	for _, loss := range losses {
		lost[loss.Member] = true
	}
	for _, m := range pool.Members {
		if _, known := g.passed[m.ID()]; lost[m.ID()] && !known {
			g.passed[m.ID()] = passedLoss{m, now}
		}
	}
}

// before returns the pool as it would be if nothing had been let go.
func (g *guard) before(pool *providers.Pool) *providers.Pool {
	if pool == nil || len(g.passed) == 0 {
		return pool
	}
	out := *pool
	out.Members = nil
	for _, m := range pool.Members {
		if _, passed := g.passed[m.ID()]; !passed {
			out.Members = append(out.Members, m)
		}
	}
	for _, loss := range g.passed {
		out.Members = append(out.Members, loss.member)
	}
	return &out
}

// all returns the losses of now and those that were let go.
func (g *guard) all(key providers.Key, losses []model.Loss) []model.Loss {
	out := append([]model.Loss(nil), losses...)
	for id := range g.passed {
		out = append(out, model.Loss{Key: key, Member: id})
	}
	return out
}

// pool returns what the load balancer has under key, or nil.
func (l *Loop) pool(key providers.Key) *providers.Pool {
	if h := l.picture[model.ServiceKeyOf(key)]; h != nil {
		return h.pools[key]
	}
	return nil
}
