package haproxy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// Services on open ports come and go without a reload: they take a spare backend of the worker, and a map of the worker says which Service took which and
// which connections go to it. So the worker itself tells all of them to an lbsync that starts anew, as it does for members; the file, written
// behind, tells it to the next worker.

// spares is what a worker has for Services that come without a reload. The zero value is nothing.
type spares struct {
	path    string            // of the map, as the worker loaded it; empty: nothing comes without a reload
	entries map[string]string // of the map
	// there are the spare backends of the worker; true for those that have servers and yet no Service, other than ones that leave.
	there map[string]bool
	grow  bool // none is free, and more can be added at run time
	stray bool // the map has entries that are no Service's
}

// readSpares takes the model's Services in spare backends from the worker's map, of which answers are. The spare backends of a worker that did
// not load the model's structure may belong to other Services: nothing is known of them, as if they were not there.
func (p *Provider) readSpares(live liveState, answers []runtime.Result) {
	p.spares = spares{}
	at := slices.IndexFunc(answers, func(r runtime.Result) bool { return r.Err == nil })
	if at < 0 || len(p.model.Open) == 0 || p.generation != p.model.Generation.String() {
		maps.DeleteFunc(live.backends, func(name string, _ bool) bool { return strings.HasPrefix(name, config.SparePrefix) })
		return
	}
	p.spares = spares{path: p.files.MapPath(config.MapNames[at]), entries: runtime.ParseMap(answers[at].Text), there: map[string]bool{}}
	p.model.Services = slices.DeleteFunc(p.model.Services, func(s config.Service) bool { return s.Spare != "" })
	for _, service := range config.ParseRoutes(p.spares.entries) {
		if p.model.Get(service.Key) == nil && live.backends[service.Spare] {
			p.model.Set(service)
		}
	}
	p.spares.stray = !maps.Equal(p.spares.entries, p.model.Routes())
	taken := p.takenSpares()
	odd := func(s runtime.Server) bool { _, ours, _ := mark("").identify(s); return !ours || !isLeaving(s) }
	for name := range live.backends {
		if strings.HasPrefix(name, config.SparePrefix) {
			p.spares.there[name] = !taken[name] && slices.ContainsFunc(live.servers[name], odd)
		}
	}
	p.model.Spares = slices.Sorted(maps.Keys(p.spares.there))
}

// takenSpares are the spare backends that Services of the model have.
func (p *Provider) takenSpares() map[string]bool {
	taken := map[string]bool{}
	for _, service := range p.model.Services {
		if service.Spare != "" {
			taken[service.Spare] = true
		}
	}
	return taken
}

// freeSpares are the worker's spare backends that a Service can take: without a Service, and without servers of the one before.
func (p *Provider) freeSpares() []string {
	taken := p.takenSpares()
	for r := range p.leaving {
		taken[r.backend] = true
	}
	var free []string
	for _, name := range slices.Sorted(maps.Keys(p.spares.there)) {
		if !taken[name] && !p.spares.there[name] {
			free = append(free, name)
		}
	}
	return free
}

// spareUse is what a task does with a spare backend.
type spareUse struct {
	is    bool // it needs no reload
	fresh bool // the Service takes its backend now
	made  bool // which has to be added to the worker first
	taken bool // the worker knows that
}

// place finds each task's backend: the Service's own, or a spare one, which a new Service takes if that gives all that it asks for.
func (p *Provider) place(tasks []*task) {
	var free []string
	var owners map[netip.AddrPort]providers.Key
	if p.spares.path != "" {
		free = p.freeSpares()
	}
	for _, t := range tasks {
		t.use = spareUse{}
		if t.attached {
			continue
		}
		t.backend = config.BackendName(t.key)
		current := p.model.Get(t.key)
		if current != nil {
			t.backend = current.Backend()
		}
		if p.spares.path == "" || !p.inForce || current != nil && current.Spare == "" {
			continue
		}
		wish := t.wish(current)
		if wish != nil {
			if !p.model.Suits(*wish) {
				continue
			}
			if current == nil || !current.SameStructure(*wish) {
				if owners == nil {
					owners = p.owners(tasks)
				}
				if slices.ContainsFunc(wish.Binds(), func(at netip.AddrPort) bool { return owners[at] != t.key }) {
					continue
				}
			}
			if current == nil {
				t.use.fresh = true
				switch {
				case len(free) > 0:
					t.backend, free = free[0], free[1:]
				case p.spares.grow:
					t.backend, t.use.made = p.newSpare(tasks), true
				default:
					t.use.fresh = false
					continue
				}
			}
		}
		t.use.is = wish != nil || current != nil
	}
}

// placeAgain places the tasks by what the worker turned out to have. Reads are what answers are of; it returns those of the backends of now.
func (p *Provider) placeAgain(ctx context.Context, s *runtime.Session, tasks []*task, reads []runtime.Command, answers []runtime.Result) ([]runtime.Result, error) {
	if p.spares.path != "" && len(p.freeSpares()) == 0 && s.Info().Version.AtLeast(3, 4) {
		features, err := s.Features(ctx)
		if err != nil {
			return nil, err
		}
		p.spares.grow = features.AddBackend
	}
	p.place(tasks)
	same := true
	now := make([]runtime.Command, len(tasks))
	for i, t := range tasks {
		now[i] = runtime.Ask("show servers state " + t.backend)
		same = same && now[i] == reads[i]
	}
	if same {
		return answers, nil
	}
	return s.Run(ctx, now)
}

// serversOf returns the servers of a task's backend, of which answer is.
func (p *Provider) serversOf(t *task, answer runtime.Result) ([]runtime.Server, error) {
	if t.use.made {
		return nil, nil
	}
	return p.serversIn(answer)
}

// planLeave plans that the servers of a Service in a spare backend leave.
func (p *Provider) planLeave(t *task, answer runtime.Result) error {
	if !t.use.is {
		return nil
	}
	t.live = true
	servers, err := p.serversOf(t, answer)
	if err == nil {
		t.plan, err = mark("").planMembers(t.backend, p.settings, servers, providers.PoolChange{New: &providers.Pool{Key: t.key}})
	}
	if err != nil {
		return fail(providers.Rejected, t.key.String(), err)
	}
	return nil
}

// newSpare returns the name of a spare backend that neither the worker nor a task has.
func (p *Provider) newSpare(tasks []*task) string {
	for n := 1; ; n++ {
		name := config.SpareName(n)
		if _, there := p.spares.there[name]; !there && !slices.ContainsFunc(tasks, func(t *task) bool { return t.backend == name }) {
			return name
		}
	}
}

// owners returns which Service has each address and port when the tasks are done. Who has it already comes first, then the order of Keys.
func (p *Provider) owners(tasks []*task) map[netip.AddrPort]providers.Key {
	owners, changing := map[netip.AddrPort]providers.Key{}, map[providers.Key]bool{}
	for _, t := range tasks {
		changing[t.key] = true
	}
	add := func(s *config.Service) {
		if s == nil {
			return
		}
		for _, at := range s.Binds() {
			if _, has := owners[at]; !has {
				owners[at] = s.Key
			}
		}
	}
	for i := range p.model.Services {
		if !changing[p.model.Services[i].Key] {
			add(&p.model.Services[i])
		}
	}
	for _, t := range tasks {
		add(t.wish(p.model.Get(t.key)))
	}
	return owners
}

// wish returns the Service that the task is to make of the current one, without servers; nil is none.
func (t *task) wish(current *config.Service) *config.Service {
	if t.attached {
		return nil
	}
	wish, pool := config.Service{Key: t.key}, current != nil
	if pool {
		wish = *current
	}
	if t.virtual != nil {
		setVirtual(&wish, t.virtual.New)
	}
	if t.pool != nil {
		if pool = t.pool.New != nil; pool {
			wish.Pool = t.pool.New.Settings
		}
	}
	if !pool {
		return nil
	}
	return &wish
}

// setVirtual gives a Service a virtual server, or none.
func setVirtual(s *config.Service, v *providers.VirtualServer) {
	s.VIPs, s.Port, s.Shared, s.Virtual = nil, 0, "", providers.VirtualServerSettings{}
	if v != nil {
		s.VIPs, s.Port, s.Shared, s.Virtual = v.VIPs, v.Port, v.Shared, v.Settings
	}
}

// reroute makes the worker's map say what it has to of these Services; what only others have stays.
func (p *Provider) reroute(ctx context.Context, s *runtime.Session, want config.File) error {
	entries := want.Routes()
	var commands []runtime.Command
	var sets, gone []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		switch value, has := p.spares.entries[key]; {
		case !has:
			commands = append(commands, runtime.AddRoute(p.spares.path, key, entries[key]))
		case value != entries[key]:
			commands = append(commands, runtime.SetRoute(p.spares.path, key, entries[key]))
		default:
			continue
		}
		sets = append(sets, key)
	}
	for _, key := range slices.Sorted(maps.Keys(p.spares.entries)) {
		if _, stays := entries[key]; !stays {
			commands, gone = append(commands, runtime.DeleteRoute(p.spares.path, key)), append(gone, key)
		}
	}
	if len(commands) == 0 {
		return nil
	}
	results, err := s.Run(ctx, commands)
	if err != nil {
		return err
	}
	var refused []error
	for _, r := range results {
		refused = append(refused, r.Err)
	}
	if err := errors.Join(refused...); err != nil {
		return fail(providers.Conflict, "map "+p.spares.path, err)
	}
	for _, key := range sets {
		p.spares.entries[key] = entries[key]
	}
	for _, key := range gone {
		delete(p.spares.entries, key)
	}
	return nil
}

// stage is how far the Services that need no reload have come.
type stage int

const (
	taken  stage = iota // new ones have their backend
	routed              // clients go where they are to go
	left                // those that are gone have no backend any more
)

// at returns the model as it is to be at a stage, and whether the stage is any work. A Service whose task fails stays where it came to.
func (p *Provider) at(now stage, tasks []*task) (next config.File, work bool) {
	next = p.model.Clone()
	for _, t := range tasks {
		bare := config.Service{Key: t.key, Spare: t.backend, Pool: config.SpareSettings}
		switch {
		case !t.use.is:
		case t.err != nil:
			if t.use.taken {
				next.Set(bare)
			}
		case now == taken:
			if t.use.fresh {
				next.Set(bare)
				work, t.use.taken = true, true
			}
		case t.next != nil:
			current := p.model.Get(t.key)
			work = work || now == routed && (current == nil || !current.SameStructure(*t.next))
			next.Set(*t.next)
		case now == routed:
			next.Set(bare)
			work = true
		default:
			next.Delete(t.key)
			work = true
		}
	}
	return next, work
}

// reach brings the worker's map to a stage.
func (p *Provider) reach(ctx context.Context, s *runtime.Session, now stage, tasks []*task) error {
	if !slices.ContainsFunc(tasks, func(t *task) bool { return t.use.is }) {
		return nil
	}
	next, work := p.at(now, tasks)
	if !work {
		return nil
	}
	if now == taken {
		if err := p.makeSpares(ctx, s, tasks); err != nil {
			return err
		}
	}
	return p.reroute(ctx, s, next)
}

// makeSpares adds backends to a worker that has none left.
func (p *Provider) makeSpares(ctx context.Context, s *runtime.Session, tasks []*task) error {
	var commands []runtime.Command
	for _, t := range tasks {
		if t.use.made && t.err == nil {
			commands = append(commands, runtime.AddBackend(t.backend, config.DefaultsName), runtime.PublishBackend(t.backend))
		}
	}
	results, err := s.Run(ctx, commands)
	for _, r := range results {
		if err == nil && r.Err != nil {
			err = fail(providers.Rejected, "a spare backend", r.Err)
		}
	}
	return err
}

// adoptSpare notes in the model what a task has done to its Service.
func (p *Provider) adoptSpare(t *task) {
	if t.next == nil {
		p.model.Delete(t.key)
		return
	}
	p.model.Set(*t.next)
	if t.use.made {
		p.spares.there[t.backend] = false
		p.model.Spares = slices.Sorted(maps.Keys(p.spares.there))
	}
}

// bindable returns what of the open ports HAProxy can listen on: what it holds already, and what nobody else does. The rest is tried again
// with the next reload.
func (p *Provider) bindable(ctx context.Context) []config.Bind {
	var closed []string
	binds := config.Without(p.settings.OpenPorts, func(at netip.AddrPort) bool {
		if p.holds(at) {
			return false
		}
		err := process.TestBind(ctx, at)
		if err != nil {
			closed = append(closed, err.Error())
		}
		return err != nil
	})
	if len(closed) > 0 {
		p.log.Warn("some open ports stay closed; a Service there is told why", zap.Int("ports", len(closed)), zap.String("first", closed[0]))
	}
	return binds
}

// arrange decides which Services of the next file are in spare backends, and adds spare ones for those to come.
func (p *Provider) arrange(next *config.File, bindable []config.Bind) {
	next.Open, next.Spares = bindable, nil
	own := map[netip.AddrPort]bool{}
	used := map[string]bool{}
	for i := range next.Services {
		s := &next.Services[i]
		if next.Suits(*s) {
			used[s.Spare] = true
			continue
		}
		s.Spare = ""
		for _, at := range s.Binds() {
			own[at] = true
		}
	}
	next.Open = config.Without(bindable, func(at netip.AddrPort) bool { return own[at] })
	if len(next.Open) == 0 {
		for i := range next.Services {
			next.Services[i].Spare = ""
		}
		return
	}
	n := 0
	another := func() string {
		for n++; used[config.SpareName(n)]; n++ {
		}
		return config.SpareName(n)
	}
	for i := range next.Services {
		s := &next.Services[i]
		if s.Spare == "" && next.Suits(*s) {
			s.Spare = another()
			used[s.Spare] = true
		}
	}
	delete(used, "")
	for range p.cfg.SpareBackends {
		used[another()] = true
	}
	next.Spares = slices.Sorted(maps.Keys(used))
}

// holds reports whether the worker may listen there for us, as far as our files tell.
func (p *Provider) holds(at netip.AddrPort) bool {
	return p.held[at] || slices.ContainsFunc(p.heldOpen, func(b config.Bind) bool { return b.Has(at) })
}

// tidy removes from the map what somebody put there by hand, or lbsync before it died.
func (p *Provider) tidy(ctx context.Context) {
	err := p.withWorker(ctx, func(s *runtime.Session) error {
		if !p.known || p.stranger(s.Info().Worker) {
			return nil // the next Observe reads the map
		}
		return p.reroute(ctx, s, p.model)
	})
	if err != nil {
		p.known = false
	}
	p.spares.stray = false // until it is read again
}
