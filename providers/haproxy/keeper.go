package haproxy

import (
	"bytes"
	"context"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// silence is how many looks in a row nobody must answer to be news: a restart takes less.
const silence = 3

// sweepInterval is the time between two looks at the worker and at removed servers.
const sweepInterval = time.Second

// keep does what nobody waits for: it writes the file some time after members changed, deletes removed servers, and tells
// when another worker serves than the caller knows, or none.
func (p *Provider) keep(ctx context.Context) {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	var write <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.poke:
			if write == nil {
				write = time.After(p.cfg.WriteDelay)
			}
		case <-write:
			write = nil
			if err := p.flush(); err != nil {
				p.log.Error("the file does not list the current members; a restart of haproxy would bring back older ones", zap.Error(err))
				write = time.After(max(p.cfg.WriteDelay, sweepInterval))
			}
		case <-sweep.C:
			p.mu.Lock()
			p.look(ctx)
			if p.spares.stray {
				p.tidy(ctx)
			}
			if p.cfg.DeleteServers && len(p.leaving) > 0 {
				p.sweep(ctx)
			}
			p.mu.Unlock()
		}
	}
}

// fileLater has the file compared with the model, and written if they differ, after WriteDelay.
func (p *Provider) fileLater() {
	p.dirty = true
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// flush writes the file if the model may have changed since it was written, and did. What takes time it does without
// the lock, so members do not wait for a disk.
func (p *Provider) flush() error {
	p.mu.Lock()
	if !p.writable() {
		p.mu.Unlock()
		return nil
	}
	model, noted := p.model.Clone(), len(p.noted)
	before, old, err := p.readFile(p.files.Current)
	p.dirty = err != nil
	p.mu.Unlock()
	if err != nil {
		return err // somebody put another file there meanwhile
	}
	var route process.Staged
	if model.Map = old.Map; len(model.Open) > 0 && !maps.Equal(old.Routes(), model.Routes()) {
		model.Map = config.OtherMap(old.Map)
		if route, err = p.files.StageMap(model.Map, config.MapText(model.Routes())); err != nil {
			return fail(providers.Misconfigured, "writing "+p.files.MapPath(model.Map), err)
		}
	}
	text := config.Render(model, p.settings)
	if bytes.Equal(before, text) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.written(model, noted)
		return nil
	}
	staged, err := p.files.StageCurrent(text)
	if err != nil {
		route.Discard()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.model.Generation != model.Generation {
		staged.Discard() // a reload came between and wrote the file
		route.Discard()
		return nil
	}
	if err == nil {
		err = route.Commit() // before the text that refers to it
	}
	if err == nil {
		err = staged.Commit()
	}
	if err != nil {
		p.dirty = true
		return fail(providers.Misconfigured, "writing "+p.files.Path(), err)
	}
	p.replace(old)
	p.written(model, noted)
	return nil
}

// written forgets the list of drains, which the file tells of now, unless more came while it was written.
func (p *Provider) written(model config.File, noted int) {
	if p.model.Generation == model.Generation && len(p.noted) == noted {
		p.forgetDrains()
	}
}

// writable reports whether there is something to write. Without a worker that runs the model's structure, the file
// is still a wish and stays as it is.
func (p *Provider) writable() bool {
	return p.dirty && p.known && p.generation == p.model.Generation.String()
}

// look tells, once for each, of a worker that the caller does not know. A restarted HAProxy has the members of the file,
// which may be older than the last change. Of a silence it tells, too: else the next change would be the first to find it. Whoever observes then
// hears what is wrong.
func (p *Provider) look(ctx context.Context) {
	if p.worker == (runtime.Worker{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepInterval)
	defer cancel()
	s, err := runtime.Open(ctx, p.admin)
	if err != nil {
		if p.silent++; p.silent == silence {
			p.tell()
		}
		return
	}
	defer s.Close()
	p.silent = 0
	now := s.Info()
	if now.Worker == p.recalled {
		p.replaced = nil
	}
	if !now.Stopping && p.stranger(now.Worker) && p.told != now.Worker {
		p.told = now.Worker
		p.tell()
	}
}
