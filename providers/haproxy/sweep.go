package haproxy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// A removed server is deleted when it has no connection. 2.6 lacks two upstream fixes of use after free in `del server`, so there two looks in a row, a
// sweepInterval apart, must have seen none. From 3.0 on HAProxy itself says when a server can go, connections that wait for reuse included.

const (
	// removableWait is how long HAProxy may take until a server without a connection can be deleted: it closes those that wait for reuse. Members wait as long.
	removableWait = 20 * time.Millisecond
	// removableBatch is how many servers are waited for before one that cannot go yet ends it.
	removableBatch = 10
)

// sweep looks at the removed servers and deletes those that are free.
func (p *Provider) sweep(ctx context.Context) {
	backends := map[string]bool{}
	for r := range p.leaving {
		backends[r.backend] = true
	}
	var names []string
	var asks []runtime.Command
	for backend := range backends {
		names = append(names, backend)
		asks = append(asks, askSessions(backend))
	}
	err := p.withReads(ctx, asks, func(s *runtime.Session, answers []runtime.Result) error {
		if p.stranger(s.Info().Worker) {
			return nil // Observe finds what that one has of them
		}
		can, err := p.featuresOf(ctx, s)
		if err != nil {
			return err
		}
		looks := 2
		if can.WaitRemovable {
			looks = 1
		}
		sessions := map[string]map[string]int{}
		for i, backend := range names {
			if known, err := sessionsIn(answers[i]); err == nil { // without that nothing of this backend is deleted
				sessions[backend] = known
			}
		}
		return p.deleteServers(ctx, s, p.idle(sessions, looks), can)
	})
	if err != nil && ctx.Err() == nil {
		p.log.Debug("removed servers are looked at again later", zap.Error(err))
	}
}

// idle returns the removed servers, in order, that this many looks in a row have seen without a connection.
func (p *Provider) idle(sessions map[string]map[string]int, looks int) []ref {
	var idle []ref
	for r, since := range p.leaving {
		switch {
		case sessions[r.backend] == nil:
		case sessions[r.backend][r.server] > 0:
			p.leaving[r] = time.Time{}
		case looks > 1 && since.IsZero():
			p.leaving[r] = time.Now()
		case looks == 1 || time.Since(since) >= sweepInterval:
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b ref) int { return cmp.Or(cmp.Compare(a.backend, b.backend), cmp.Compare(a.server, b.server)) })
	return idle
}

// deleteServers deletes servers. One that cannot go yet is looked at again.
func (p *Provider) deleteServers(ctx context.Context, s *runtime.Session, idle []ref, can runtime.Features) error {
	size := max(len(idle), 1)
	if can.WaitRemovable {
		size = removableBatch
	}
	for batch := range slices.Chunk(idle, size) {
		var commands []runtime.Command
		for _, r := range batch {
			if can.WaitRemovable {
				commands = append(commands, runtime.WaitRemovable(r.backend, r.server, removableWait))
			}
			commands = append(commands, runtime.DeleteServer(r.backend, r.server))
		}
		results, err := s.Run(ctx, commands)
		if err != nil {
			return err
		}
		refused, each := false, len(commands)/len(batch)
		for i, r := range batch {
			result := results[(i+1)*each-1]
			if result.Err == nil || refusalKind(result.Err) == providers.Conflict {
				delete(p.leaving, r)
				continue
			}
			p.leaving[r], refused = time.Now(), true
		}
		if refused && can.WaitRemovable {
			return nil // the others would make members wait
		}
	}
	return nil
}

// learn finds out what planning depends on.
func (p *Provider) learn(ctx context.Context, s *runtime.Session) error {
	if !p.cfg.StartDown {
		return nil
	}
	can, err := p.featuresOf(ctx, s)
	p.settings.InitState = can.InitState
	return err
}

// featuresOf returns what the worker of a session can do. It is asked once.
func (p *Provider) featuresOf(ctx context.Context, s *runtime.Session) (runtime.Features, error) {
	if worker := s.Info().Worker; p.asked != worker {
		can, err := s.Features(ctx)
		if err != nil {
			return runtime.Features{}, err
		}
		p.features, p.asked = can, worker
	}
	return p.features, nil
}
