package haproxy

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// attempts is how often a batch is begun again when somebody reloads HAProxy in the middle of it.
const attempts = 3

// Observe implements providers.Provider. Members are read from the worker; which Services its backends belong to is
// read from our file of the generation that the worker reports. A virtual server is reported only while the worker runs
// exactly the structure that this file has under today's settings, so anything else is planned, and loaded, again.
func (p *Provider) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var observed providers.Observed
	var worker runtime.Worker
	err := p.withReads(ctx, p.stateReads(), func(s *runtime.Session, answers []runtime.Result) error {
		live, err := p.take(s.Info().Worker, answers)
		if err != nil {
			return err
		}
		observed = providers.Observed{State: p.stateOf(live), Foreign: p.foreign(live)}
		p.addAttached(&observed.State, live, scope)
		if observed.Members, err = p.connections(ctx, s, observed.State.Pools); err != nil {
			return err
		}
		p.addHealth(observed.Members, observed.State.Pools, live)
		worker = s.Info().Worker
		return nil
	})
	if err != nil {
		p.known = false
		return providers.Observed{}, err
	}
	if observed.Restarted = p.stranger(worker); observed.Restarted {
		p.log.Info("haproxy was restarted, or reloaded by somebody else", zap.Int("worker", worker.PID))
	}
	p.worker = worker
	return observed, nil
}

// withWorker runs a batch on a session of its own. When a reload overtook it, it runs again, on the new worker. Errors come back classified.
func (p *Provider) withWorker(ctx context.Context, batch func(*runtime.Session) error) error {
	return p.withReads(ctx, nil, func(s *runtime.Session, _ []runtime.Result) error { return batch(s) })
}

// withReads is withWorker for a batch that begins with these reads: they cost no round trip of their own.
func (p *Provider) withReads(ctx context.Context, reads []runtime.Command, batch func(*runtime.Session, []runtime.Result) error) error {
	var err error
	for range attempts {
		if err = p.onWorker(ctx, reads, batch); !errors.Is(err, runtime.ErrStale) {
			break
		}
		p.known = false
	}
	if _, classified := errors.AsType[*providers.Error](err); err != nil && !classified {
		err = p.classify("admin socket "+p.cfg.AdminSocket, err)
	}
	return err
}

func (p *Provider) onWorker(ctx context.Context, reads []runtime.Command, batch func(*runtime.Session, []runtime.Result) error) error {
	s, answers, err := runtime.Begin(ctx, p.admin, reads)
	if s != nil {
		defer s.Close()
	}
	if err != nil {
		return err
	}
	return batch(s, answers)
}

// liveState is what a worker says of all its backends.
type liveState struct {
	backends map[string]bool
	servers  map[string][]runtime.Server
}

// stranger reports whether the caller knows another worker than this one.
func (p *Provider) stranger(worker runtime.Worker) bool {
	return p.worker != (runtime.Worker{}) && worker != p.worker
}

// workerReads is what take is made from.
var workerReads = []runtime.Command{
	runtime.AskVariable(config.GenerationVariable), runtime.Ask("show backend"), runtime.Ask("show servers state"),
}

// stateReads are those, what we may do, and the maps of which a worker has one or none.
func (p *Provider) stateReads() []runtime.Command {
	reads := append(slices.Clone(workerReads), runtime.Ask("show cli level"))
	if !p.cfg.Remote() {
		for _, name := range config.MapNames {
			reads = append(reads, runtime.Ask("show map "+p.files.MapPath(name)))
		}
	}
	return reads
}

// load reads the worker and takes what it says.
func (p *Provider) load(ctx context.Context, s *runtime.Session) (liveState, error) {
	answers, err := s.Run(ctx, p.stateReads())
	if err != nil {
		return liveState{}, err
	}
	return p.take(s.Info().Worker, answers)
}

// take sets all that the Provider knows, except which worker the caller knows, from a worker's answers to stateReads and from our files.
func (p *Provider) take(worker runtime.Worker, answers []runtime.Result) (liveState, error) {
	generation, err := runtime.Variable(config.GenerationVariable, answers[0])
	if err = cmp.Or(err, answers[1].Err, answers[2].Err, allowed(answers[len(workerReads)])); err != nil {
		return liveState{}, err
	}
	servers, err := runtime.ParseServers(answers[2].Text)
	if err != nil {
		return liveState{}, err
	}
	behind, err := p.base(generation)
	if err != nil {
		return liveState{}, err
	}
	p.generation = generation
	p.recall(worker, servers)
	live := liveState{backends: runtime.ParseBackends(answers[1].Text), servers: byBackend(servers)}
	p.readSpares(live, answers[len(workerReads)+1:])

	leaving := map[ref]time.Time{}
	for spare := range p.spares.there {
		for _, server := range live.servers[spare] {
			if r := (ref{spare, server.Name}); isLeaving(server) {
				leaving[r] = p.leaving[r]
			}
		}
	}
	for i := range p.model.Services {
		backend := p.model.Services[i].Backend()
		if !live.backends[backend] {
			continue
		}
		listed := p.model.Services[i].Servers
		p.model.Services[i].Servers = fileServers(live.servers[backend])
		behind = behind || !slices.Equal(listed, p.model.Services[i].Servers)
		for _, server := range live.servers[backend] {
			if !isLeaving(server) {
				continue
			}
			if _, ours, _ := mark("").identify(server); ours {
				r := ref{backend, server.Name}
				leaving[r] = p.leaving[r]
			}
		}
	}
	for backend, servers := range p.attachedServers(servers) {
		for _, server := range servers {
			if r := (ref{backend, server.Name}); isLeaving(server) {
				leaving[r] = p.leaving[r]
			}
		}
	}
	p.leaving = leaving
	p.known = true
	if behind || p.noted != nil || len(p.model.Open) > 0 { // Services without a reload come and go by the map
		p.fileLater()
	}
	return live, nil
}

// base chooses the file that describes the worker: the current one, or the backup when the worker still runs that
// (a crash between writing and reloading), or, when neither has the worker's generation, the current one as a wish.
//
// It returns whether the current file has to be written anew, whatever the members are.
func (p *Provider) base(generation string) (behind bool, err error) {
	if p.cfg.Remote() {
		p.model, p.inForce = config.File{Owner: p.owner}, false
		return false, nil
	}
	text, current, err := p.readFile(p.files.Current)
	if err != nil {
		return false, err
	}
	model, loaded := current, text != nil && current.Generation.String() == generation
	behind = !loaded || !p.isCurrent(text, current)
	var backupText []byte
	var backup config.File
	if behind {
		if backupText, backup, err = p.readFile(p.files.Backup); err != nil {
			p.log.Warn("the backup is ignored", zap.String("file", p.files.BackupPath()), zap.Error(err))
			backup = config.File{}
		}
	}
	if !loaded && backup.Owner == p.owner && backup.Generation.String() == generation {
		model, loaded, text = backup, true, backupText
	}
	if !loaded && p.generation != "" && generation != p.generation {
		p.log.Warn("haproxy runs a configuration that we do not know; it will be written and loaded again",
			zap.String("generation", generation), zap.String("file", p.files.Path()))
	}
	model = model.Clone() // what was read may be kept
	model.Owner = p.owner
	p.model = model
	p.inForce = loaded && p.isCurrent(text, model)
	p.held, p.heldOpen = map[netip.AddrPort]bool{}, nil
	files := []config.File{model}
	if !p.inForce {
		files = append(files, current, backup)
	}
	for _, f := range files {
		p.heldOpen = append(p.heldOpen, f.Open...)
		for _, service := range f.Services {
			for _, bind := range service.Binds() {
				p.held[bind] = true
			}
		}
	}
	return behind, nil
}

// stateOf translates what was loaded.
func (p *Provider) stateOf(live liveState) providers.State {
	state := providers.State{
		Pools: make([]providers.Pool, 0, len(p.model.Services)), VirtualServers: make([]providers.VirtualServer, 0, len(p.model.Services)),
	}
	for _, service := range p.model.Services {
		backend := service.Backend()
		if !live.backends[backend] {
			continue
		}
		state.Pools = append(state.Pools, providers.Pool{
			Key: service.Key, Settings: service.Pool, Members: mark("").membersOf(live.servers[backend]),
		})
		if p.inForce && service.HasFrontend() {
			state.VirtualServers = append(state.VirtualServers, providers.VirtualServer{
				Key: service.Key, VIPs: service.VIPs, Port: service.Port, Shared: service.Shared, Settings: service.Virtual,
			})
		}
	}
	return state
}

// connections counts the connections of the Draining members, those that old workers still carry included.
func (p *Provider) connections(ctx context.Context, s *runtime.Session, pools []providers.Pool) (map[providers.Key]map[providers.MemberID]providers.MemberStatus, error) {
	counts := map[providers.Key]map[providers.MemberID]providers.MemberStatus{}
	var asked []providers.Pool
	var draining []map[string]providers.MemberID // of each of asked, by the name of the server
	var asks []runtime.Command
	for _, pool := range pools {
		names := map[string]providers.MemberID{}
		for _, m := range pool.Members {
			if m.State != providers.Draining {
				continue
			}
			if name, err := p.markIn(pool).name(m.ID()); err == nil {
				names[name] = m.ID()
			}
		}
		if len(names) > 0 {
			asked, draining = append(asked, pool), append(draining, names)
			asks = append(asks, askSessions(p.backendOf(pool)))
		}
	}
	if len(asked) == 0 {
		return counts, nil
	}
	answers, err := s.Run(ctx, asks)
	if err != nil {
		return nil, err
	}
	sessions := make([]map[string]int, len(asked))
	for i := range asked {
		if sessions[i], err = sessionsIn(answers[i]); err != nil {
			return nil, err
		}
	}
	if err := p.addFormer(ctx, asked, sessions); err != nil {
		return nil, p.classify("master socket "+p.cfg.MasterSocket, err)
	}
	for i, pool := range asked {
		counts[pool.Key] = map[providers.MemberID]providers.MemberStatus{}
		for name, id := range draining[i] {
			counts[pool.Key][id] = providers.MemberStatus{Connections: sessions[i][name]}
		}
	}
	return counts, nil
}

// addHealth tells what the checks and an operator say of the members.
func (p *Provider) addHealth(statuses map[providers.Key]map[providers.MemberID]providers.MemberStatus, pools []providers.Pool, live liveState) {
	for _, pool := range pools {
		servers, k := live.servers[p.backendOf(pool)], p.markIn(pool)
		for _, server := range servers {
			health, blocked := healthOf(server), isBlocked(server)
			if isLeaving(server) || health == providers.HealthUnknown && !blocked {
				continue
			}
			id, _, ok := k.identify(server)
			if !ok {
				continue
			}
			if statuses[pool.Key] == nil {
				statuses[pool.Key] = make(map[providers.MemberID]providers.MemberStatus, len(servers))
			}
			status, known := statuses[pool.Key][id]
			if !known {
				status.Connections = -1
			}
			status.Health, status.Blocked = health, blocked
			statuses[pool.Key][id] = status
		}
	}
}

// askSessions asks for the current sessions of each server of a backend; sessionsIn reads the answer.
func askSessions(backend string) runtime.Command {
	return runtime.Ask("show stat " + backend + " 4 -1")
}

func sessionsIn(answer runtime.Result) (map[string]int, error) {
	if answer.Err != nil {
		return nil, answer.Err
	}
	return runtime.ParseSessions(answer.Text)
}
