package haproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// restructure fulfils the tasks with one reload. A task that cannot be is left out, with its error, and the others go on.
func (p *Provider) restructure(ctx context.Context, tasks []*task) {
	if wait := p.reloadInterval() - time.Since(p.lastReload); wait > 0 {
		failAll(tasks, &providers.Error{
			Kind: providers.Throttled, What: "haproxy: reload", RetryAfter: wait,
			Err: fmt.Errorf("the next one is allowed in %s", wait.Round(time.Millisecond)),
		})
		return
	}
	tasks = p.testBinds(ctx, tasks)
	bindable := p.bindable(ctx)
	var candidate string
	var next config.File
	var text []byte
	for {
		if tasks = p.claim(tasks); len(tasks) == 0 {
			return
		}
		var err error
		next = p.nextFile(tasks, bindable)
		if err := p.enough(ctx, next); err != nil {
			if rest := smaller(tasks); len(rest) < len(tasks) { // what only takes away may go on
				failAll(larger(tasks), err)
				tasks = rest
				continue
			}
			failAll(tasks, err)
			return
		}
		text = config.Render(next, p.settings)
		if next.Map != "" {
			if err := p.files.WriteMap(next.Map, config.MapText(next.Routes())); err != nil {
				failAll(tasks, fail(providers.Misconfigured, "writing "+p.files.MapPath(next.Map), err))
				return
			}
		}
		if candidate, err = p.files.WriteCandidate(text); err != nil {
			failAll(tasks, fail(providers.Misconfigured, "writing "+candidate, err))
			return
		}
		err = p.files.Check(ctx, p.cfg.Binary, candidate)
		p.files.RemoveCandidate()
		if err == nil {
			break
		}
		rest := blame(tasks, text, err)
		if len(rest) == len(tasks) {
			kind := providers.Misconfigured // nothing of ours is named: the administrator's files are wrong
			if _, judged := errors.AsType[*process.CheckError](err); !judged && ctx.Err() != nil {
				kind = providers.Unavailable
			}
			failAll(tasks, fail(kind, "haproxy refuses the configuration", err))
			return
		}
		tasks = rest
	}
	if err := p.switchTo(ctx, next, text); err != nil {
		failAll(tasks, err)
		return
	}
	p.settle(ctx)
	p.shutdownInOldWorkers(ctx, smaller(tasks), func(*task, string) bool { return true })
}

// reloadInterval is the least time between two reloads. A worker gives its tables of clients to the next one only when it has
// waited for those of its predecessor and of other peers, five seconds each (PEER_RESYNC_TIMEOUT in HAProxy's peers.c; tried with 2.6).
func (p *Provider) reloadInterval() time.Duration {
	if p.model.Persistent() {
		return max(p.cfg.MinReloadInterval, p.tableSync)
	}
	return p.cfg.MinReloadInterval
}

// smaller returns the tasks that take a Service away, larger the others.
func smaller(tasks []*task) []*task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return t.next != nil })
}

func larger(tasks []*task) []*task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return t.next == nil })
}

func failAll(tasks []*task, err error) {
	for _, t := range tasks {
		t.err = err
	}
}

// nextFile returns the model with the tasks fulfilled, under a new generation.
func (p *Provider) nextFile(tasks []*task, bindable []config.Bind) config.File {
	next := p.model.Clone()
	for _, t := range tasks {
		if t.next == nil {
			next.Delete(t.key)
		} else {
			next.Set(*t.next)
		}
	}
	p.arrange(&next, bindable)
	next.Map = ""
	if _, current, err := p.readFile(p.files.Current); len(next.Open) > 0 {
		next.Map = config.MapNames[0]
		if err == nil {
			next.Map = config.OtherMap(current.Map)
		}
	}
	number := next.Generation.Number
	if running, err := config.ParseGeneration(p.generation); err == nil {
		number = max(number, running.Number)
	}
	for _, read := range []func() ([]byte, error){p.files.Current, p.files.Backup} {
		if _, f, err := p.readFile(read); err == nil {
			number = max(number, f.Generation.Number)
		}
	}
	next.Generation = config.Generation{Number: number + 1, Hash: config.Hash(next, p.settings)}
	return next
}

// bindRetry is how long an address that somebody else has, or no interface, is left alone at most. Nobody tells when it is free; to ask costs a
// reading of the worker and a bind, and no reload.
const bindRetry = 30 * time.Second

// testBinds fails the tasks that want an address which HAProxy does not hold yet and cannot have.
func (p *Provider) testBinds(ctx context.Context, tasks []*task) []*task {
	for _, t := range tasks {
		if t.next == nil {
			continue
		}
		for _, bind := range t.next.Binds() {
			if p.holds(bind) {
				continue
			}
			if err := process.TestBind(ctx, bind); err != nil {
				t.err = &providers.Error{Kind: providers.Rejected, What: "haproxy: " + t.key.String(), Err: err, RetryWithin: bindRetry}
				break
			}
		}
	}
	return open(tasks)
}

// claim fails the tasks that want an address and port which another Service has. Those that stay as they are come
// first, then the order of Keys decides. A task that fails keeps what it had, so the rest is judged again.
func (p *Provider) claim(tasks []*task) []*task {
	for {
		changing := map[providers.Key]bool{}
		for _, t := range tasks {
			changing[t.key] = true
		}
		taken := map[netip.AddrPort]providers.Key{}
		for _, s := range p.model.Services {
			for _, bind := range s.Binds() {
				if !changing[s.Key] {
					taken[bind] = s.Key
				}
			}
		}
		for _, t := range tasks {
			if t.next == nil {
				continue
			}
			for _, bind := range t.next.Binds() {
				if other, ok := taken[bind]; ok {
					t.err = fail(providers.Rejected, t.key.String(), fmt.Errorf("%s already belongs to %s; choose another address or port", bind, other))
					break
				}
			}
			if t.err != nil {
				break
			}
			for _, bind := range t.next.Binds() {
				taken[bind] = t.key
			}
		}
		rest := open(tasks)
		if len(rest) == len(tasks) {
			return tasks
		}
		tasks = rest
	}
}

// blame gives each task the alerts on its lines of text and returns the tasks without any.
func blame(tasks []*task, text []byte, err error) []*task {
	var check *process.CheckError
	if !errors.As(err, &check) {
		return tasks
	}
	for _, alert := range check.Alerts {
		key, ok := config.KeyAtLine(text, alert.Line)
		for _, t := range tasks {
			if ok && t.key == key {
				t.err = fail(providers.Rejected, key.String(), errors.New(alert.Text))
			}
		}
	}
	return open(tasks)
}

// switchTo makes HAProxy load next. When it does not, the files are put back and HAProxy continues as it was.
func (p *Provider) switchTo(ctx context.Context, next config.File, text []byte) error {
	before, err := p.files.Current()
	if err != nil {
		return fail(providers.Misconfigured, "reading "+p.files.Path(), err)
	}
	if p.generation == p.model.Generation.String() {
		// The backup describes the worker until the new one runs, also when the current file does not.
		if err := p.files.WriteBackup(config.Render(p.model, p.settings)); err != nil {
			return fail(providers.Misconfigured, "writing "+p.files.BackupPath(), err)
		}
	}
	carried, err := p.saveState(ctx)
	if err != nil {
		return err
	}
	if err := p.files.WriteCurrent(text); err != nil {
		return fail(providers.Misconfigured, "writing "+p.files.Path(), err)
	}
	p.lastReload, p.alone = time.Now(), runtime.Worker{}
	err = p.reloader.Reload(ctx, next.Generation)
	if clearing := p.files.WriteState(emptyState); clearing != nil {
		// A later restart would bring back states of now.
		p.log.Error("the server state file could not be emptied", zap.String("file", p.files.State), zap.Error(clearing))
	}
	if err != nil {
		p.known = false
		if before != nil {
			if back := p.files.WriteCurrent(before); back != nil {
				err = errors.Join(err, fmt.Errorf("putting %s back: %w", p.files.Path(), back))
			}
		}
		what := fmt.Sprintf("reload to generation %s (taken back)", next.Generation)
		switch {
		case errors.Is(err, process.ErrNoMaster):
			return fail(providers.Misconfigured, "reload", err)
		case errors.Is(err, process.ErrWrongGeneration):
			return fail(providers.Misconfigured, what+fmt.Sprintf("; start haproxy with -f %s", p.cfg.Dir), err)
		case errors.Is(err, process.ErrReloadFailed):
			return fail(providers.Rejected, what, err)
		}
		return p.classify(what, err)
	}
	p.log.Info("haproxy runs a new structure", zap.Stringer("generation", next.Generation), zap.Int("services", len(next.Services)),
		zap.Duration("took", time.Since(p.lastReload)))
	p.carried = carried
	p.model, p.generation, p.inForce = next, next.Generation.String(), true
	return nil
}

// saveState lets the servers' health survive the reload, and returns our servers in backends of others, which do not.
func (p *Provider) saveState(ctx context.Context) (ours map[string][]runtime.Server, err error) {
	err = p.withWorker(ctx, func(s *runtime.Session) error {
		results, err := s.Run(ctx, []runtime.Command{runtime.Ask("show servers state")})
		if err != nil {
			return err
		}
		if results[0].Err != nil {
			return results[0].Err
		}
		if err := p.files.WriteState(results[0].Text + "\n"); err != nil {
			return fail(providers.Misconfigured, "writing "+p.files.State, err)
		}
		servers, err := p.serversIn(results[0])
		ours = p.attachedServers(servers)
		return err
	})
	return ours, err
}

// settle makes the new worker agree with the model: the state file may have brought back what the file no longer says.
// What fails here the next Observe finds.
func (p *Provider) settle(ctx context.Context) {
	want := p.model.Clone()
	var worker runtime.Worker
	err := p.withWorker(ctx, func(s *runtime.Session) error {
		worker = s.Info().Worker
		live, err := p.load(ctx, s)
		if err != nil {
			return err
		}
		var commands []runtime.Command
		for _, service := range want.Services {
			backend := service.Backend()
			pool := providers.Pool{Key: service.Key, Settings: service.Pool}
			for _, server := range service.Servers {
				id, _ := config.ParseServerName(server.Name)
				m := providers.Member{UID: id.UID, Address: id.Address, State: providers.Enabled, Weight: uint8(server.Weight)}
				if server.Drained {
					m.State = providers.Draining
				}
				pool.Members = append(pool.Members, m)
			}
			plan, err := mark("").planMembers(backend, p.settings, live.servers[backend], providers.PoolChange{New: &pool})
			if err != nil {
				return err
			}
			p.park(backend, plan.parked)
			commands = append(commands, plan.commands...)
		}
		again, err := p.attachAgain(live)
		if err != nil {
			return err
		}
		commands = append(commands, again...)
		if len(commands) == 0 {
			return nil
		}
		if _, err := s.Run(ctx, commands); err != nil {
			return err
		}
		_, err = p.load(ctx, s)
		return err
	})
	if err != nil {
		p.known = false
		p.log.Warn("the new worker could not be compared with the file", zap.Error(err))
		return // with a worker that the caller does not know: the keeper tells
	}
	p.worker = worker
}
