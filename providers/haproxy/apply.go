package haproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// task is all that one Apply does to one Key.
type task struct {
	key     providers.Key
	backend string
	// attached is true when the backend is the administrator's, and only servers with our mark in it are ours.
	attached bool
	pool     *providers.PoolChange
	virtual  *providers.VirtualServerChange
	use      spareUse

	live bool // the worker has the backend
	plan memberPlan
	next *config.Service // what the file shall say; nil: nothing
	err  error
}

// Apply implements providers.Provider. Members of pools that the worker has are changed first, in one batch; then what
// needs a reload, if anything does, in one reload. When another worker serves than was observed or applied to last, nothing
// is changed and every Key is a Conflict: the changes were planned for what that worker need not have.
func (p *Provider) Apply(ctx context.Context, changes providers.Changes) providers.Results {
	p.mu.Lock()
	defer p.mu.Unlock()
	tasks := group(changes)
	for _, t := range tasks {
		t.validate(p.Capabilities())
	}
	err := p.changeMembers(ctx, open(tasks))
	if err != nil {
		p.known = false
		failAll(open(tasks), err)
	}
	p.adopt(open(tasks))
	p.shutdownInOldWorkers(ctx, smallerPools(tasks), func(t *task, server string) bool { return slices.Contains(t.plan.removed, server) })
	if structural := p.structural(open(tasks)); len(structural) > 0 {
		p.restructure(ctx, structural)
	}
	p.fileLater()

	results := providers.Results{}
	for _, t := range tasks {
		results[t.key] = t.err
	}
	return results
}

// group collects the changes by Key, in the order of Keys.
func group(changes providers.Changes) []*task {
	byKey := map[providers.Key]*task{}
	at := func(key providers.Key) *task {
		if byKey[key] == nil {
			byKey[key] = &task{key: key, backend: config.BackendName(key)}
		}
		return byKey[key]
	}
	for i := range changes.Pools {
		at(changes.Pools[i].Key).pool = &changes.Pools[i]
	}
	for i := range changes.VirtualServers {
		at(changes.VirtualServers[i].Key).virtual = &changes.VirtualServers[i]
	}
	tasks := make([]*task, 0, len(byKey))
	for _, t := range byKey {
		t.attach()
		tasks = append(tasks, t)
	}
	slices.SortFunc(tasks, func(a, b *task) int { return a.key.Compare(b.key) })
	return tasks
}

// open returns the tasks that have not failed.
func open(tasks []*task) []*task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return t.err != nil })
}

// validate fails a task whose Key or size no backend can have.
func (t *task) validate(can providers.Capabilities) {
	err := (config.Service{Key: t.key}).Validate()
	if t.attached {
		err = errors.Join(err, t.checkAttached())
	} else if !can.Local {
		err = errors.Join(err, errRemote)
	}
	if t.pool != nil && t.pool.New != nil {
		err = errors.Join(err, can.CheckPool(*t.pool.New))
	}
	if t.virtual != nil && t.virtual.New != nil {
		err = errors.Join(err, can.CheckVirtualServer(*t.virtual.New))
	}
	if err != nil {
		t.err = fail(providers.Rejected, t.key.String(), err)
	}
}

// reset forgets what an attempt found out.
func (t *task) reset() { t.live, t.plan, t.next = false, memberPlan{}, nil }

// changeMembers makes the members of all pools that the worker has what they should be, and works out each task's
// next: one round trip to read their backends, one for the commands. An error is one of the connection; what HAProxy refuses is the task's own.
func (p *Provider) changeMembers(ctx context.Context, tasks []*task) error {
	p.place(tasks)
	reads := make([]runtime.Command, len(tasks))
	for i, t := range tasks {
		reads[i] = runtime.Ask("show servers state " + t.backend)
	}
	return p.withReads(ctx, reads, func(s *runtime.Session, answers []runtime.Result) error {
		if err := p.refresh(ctx, s); err != nil {
			return err
		}
		answers, err := p.placeAgain(ctx, s, tasks, reads, answers)
		if err != nil {
			return err
		}
		if err := p.learn(ctx, s); err != nil {
			return err
		}
		return p.obtain(ctx, s, tasks, answers)
	})
}

// obtain plans the tasks from what the worker has of their backends and carries the plans out.
func (p *Provider) obtain(ctx context.Context, s *runtime.Session, tasks []*task, answers []runtime.Result) error {
	var change, leave batch // a Service without a reload leaves when its clients are sent nowhere
	for i, t := range tasks {
		t.reset()
		if t.err = p.prepareTask(t, answers[i]); t.err != nil {
			continue
		}
		p.park(t.backend, t.plan.parked)
		if t.use.is && t.next == nil {
			leave.add(t)
		} else {
			change.add(t)
		}
	}
	p.note(s.Info().Worker, tasks)
	if err := p.reach(ctx, s, taken, tasks); err != nil {
		return err
	}
	if err := p.run(ctx, s, change); err != nil {
		return err
	}
	if err := p.reach(ctx, s, routed, tasks); err != nil {
		return err
	}
	if err := p.run(ctx, s, leave); err != nil {
		return err
	}
	return p.reach(ctx, s, left, tasks)
}

// batch is the commands of several tasks, and whose each is.
type batch struct {
	commands []runtime.Command
	owners   []*task
}

func (b *batch) add(t *task) {
	for _, c := range t.plan.commands {
		b.commands, b.owners = append(b.commands, c), append(b.owners, t)
	}
}

// run carries a batch out. What HAProxy refuses is an error of the task.
func (p *Provider) run(ctx context.Context, s *runtime.Session, b batch) error {
	if len(b.commands) == 0 {
		return nil
	}
	results, err := s.Run(ctx, b.commands)
	for i, r := range results {
		if t := b.owners[i]; r.Err != nil && t.err == nil {
			t.err = fail(refusalKind(r.Err), t.key.String(), t.explain(r.Err))
			p.known = false // the rest of its commands had their effect: look again before trusting anything
		}
	}
	return err
}

// refresh loads everything anew when what we know may not hold any more. Of a worker that the caller does not know it
// loads nothing: its members, taken for what is wanted, would become so with the next reload.
func (p *Provider) refresh(ctx context.Context, s *runtime.Session) error {
	worker := s.Info().Worker
	if p.stranger(worker) {
		return fail(providers.Conflict, fmt.Sprintf("worker %d", worker.PID),
			fmt.Errorf("haproxy was restarted, or reloaded by somebody else; changes were planned for worker %d", p.worker.PID))
	}
	if !p.known {
		if _, err := p.load(ctx, s); err != nil {
			return err
		}
	}
	p.worker = worker
	return nil
}

// prepareTask works out the commands and the next of one task from what the worker has of its backend.
func (p *Provider) prepareTask(t *task, answer runtime.Result) error {
	var refused *runtime.RefusedError
	if answer.Err != nil && !(errors.As(answer.Err, &refused) && strings.Contains(refused.Answer, "Can't find backend")) {
		return fail(providers.Conflict, t.key.String(), answer.Err)
	}
	if t.attached {
		return p.prepareAttached(t, answer)
	}
	current := p.model.Get(t.key)
	// A backend of this name that our file does not list is not ours to touch. If it is in the administrator's files,
	// the check of the next file says so.
	t.live = answer.Err == nil && current != nil && (current.Spare == "" || p.spares.path != "") || t.use.fresh
	next := config.Service{Key: t.key, Pool: providers.PoolSettings{Algorithm: providers.RoundRobin}}
	pool := current != nil
	if pool {
		next = *current
	}
	if t.use.fresh {
		next.Spare = t.backend
	}
	if v := t.virtual; v != nil {
		setVirtual(&next, v.New)
		if v.New != nil && len(next.VIPs) == 0 {
			return fail(providers.Rejected, t.key.String(), errors.New("the virtual server has no address"))
		}
	}
	if t.pool != nil {
		pool = t.pool.New != nil
		if pool {
			next.Pool = t.pool.New.Settings
		}
	}
	if !pool {
		if next.HasFrontend() {
			return fail(providers.Rejected, t.key.String(), errors.New("a virtual server needs the pool of its key"))
		}
		return p.planLeave(t, answer)
	}
	if !next.CanBeSpare() {
		next.Spare = ""
	}
	if err := next.Validate(); err != nil {
		return fail(providers.Rejected, t.key.String(), err)
	}
	if t.pool != nil && t.pool.New != nil {
		var err error
		if t.live {
			var servers []runtime.Server
			if servers, err = p.serversOf(t, answer); err == nil {
				t.plan, err = mark("").planMembers(t.backend, p.settings, servers, *t.pool)
				next.Servers = t.plan.servers
			}
		} else {
			next.Servers, err = newServers(t.pool.New.Members, next.Servers)
		}
		if err != nil {
			return fail(providers.Rejected, t.key.String(), err)
		}
	}
	if t.use.fresh && len(t.plan.removed) > 0 {
		return fail(providers.Conflict, t.key.String(), fmt.Errorf("the spare backend %s has servers that nobody knows", t.backend))
	}
	t.next = &next
	return nil
}

// refusalKind classifies what HAProxy answered to a command on a server. A server or backend that is unexpectedly
// there, or not there, means that somebody else changed it.
func refusalKind(err error) providers.Kind {
	for _, text := range []string{"No such", "Can't find", "already used", "Already exists", "already exists", "not found"} {
		if strings.Contains(err.Error(), text) {
			return providers.Conflict
		}
	}
	return providers.Rejected
}

// adopt notes in the model the members that are in force now.
func (p *Provider) adopt(tasks []*task) {
	for _, t := range tasks {
		if !t.live || t.next == nil && !t.attached && !t.use.is {
			continue
		}
		for _, name := range t.plan.removed {
			p.leaving[ref{t.backend, name}] = time.Time{}
			p.unpark(t.backend, name)
		}
		for _, server := range t.plan.servers {
			delete(p.leaving, ref{t.backend, server.Name})
			if !server.Drained {
				p.unpark(t.backend, server.Name)
			}
		}
		if t.use.is {
			p.adoptSpare(t)
		}
		if t.attached || t.use.is || t.pool == nil {
			continue
		}
		current := *p.model.Get(t.key)
		current.Servers = t.next.Servers
		p.model.Set(current)
	}
}

// structural returns the tasks that only a reload can fulfil.
func (p *Provider) structural(tasks []*task) []*task {
	return slices.DeleteFunc(tasks, func(t *task) bool {
		if t.attached || t.use.is {
			return true
		}
		current := p.model.Get(t.key)
		if current == nil || t.next == nil {
			return current == nil && t.next == nil
		}
		return t.live && (p.inForce || t.virtual == nil) && current.SameStructure(*t.next)
	})
}
