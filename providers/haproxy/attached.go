package haproxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// Members in backends of the administrator are servers that exist in the worker only, since the backend is in a file that is not ours.
// Their names carry our mark, so what is ours is known wherever lbsync starts anew. A reload forgets them: after our own they are
// added again at once, after anybody else's the caller is told of another worker, finds them missing and adds them.

// errRemote says what lbsync cannot do to an HAProxy on another host.
var errRemote = errors.New("this haproxy is reached over the network, where lbsync can change members only; name a backend of its haproxy.cfg " +
	"with nplbridge.io/pool, or run lbsync beside it")

// attach notes which backend the task is about.
func (t *task) attach() {
	if t.pool == nil {
		return
	}
	for _, pool := range []*providers.Pool{t.pool.Old, t.pool.New} {
		if pool != nil && pool.Attached != "" {
			t.backend, t.attached = pool.Attached, true
		}
	}
}

// checkAttached reports what cannot be asked of a backend of somebody else.
func (t *task) checkAttached() error {
	if t.virtual != nil && t.virtual.New != nil {
		return errors.New("a backend of the administrator has no virtual server of ours")
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:-", r)
	}
	if t.backend == "" || strings.ContainsFunc(t.backend, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("%q is not a name that a backend of haproxy can have", t.backend)
	}
	return nil
}

// prepareAttached is prepareTask for a backend of the administrator.
func (p *Provider) prepareAttached(t *task, answer runtime.Result) error {
	if strings.HasPrefix(t.backend, config.SparePrefix) {
		return fail(providers.Rejected, t.key.String(), fmt.Errorf("backend %s is lbsync's own; name one of your haproxy.cfg", t.backend))
	}
	if key, own := p.ownBackends()[t.backend]; own {
		return fail(providers.Rejected, t.key.String(), fmt.Errorf("backend %s is lbsync's own, of %s; name one of your haproxy.cfg", t.backend, key))
	}
	pool := providers.Pool{Key: t.key}
	if t.pool.New != nil {
		pool = *t.pool.New
	}
	if answer.Err != nil {
		if t.pool.New == nil {
			return nil
		}
		return fail(providers.Rejected, t.key.String(), fmt.Errorf("haproxy has no backend %q; make it in haproxy.cfg or name another", t.backend))
	}
	t.live = true
	servers, err := p.serversIn(answer)
	if err != nil {
		return fail(providers.Rejected, t.key.String(), err)
	}
	step := *t.pool
	step.New = &pool
	if t.plan, err = markOf(p.owner).planMembers(t.backend, p.settings, servers, step); err != nil {
		return fail(providers.Rejected, t.key.String(), err)
	}
	return nil
}

// explain says what to do about a refusal that only backends of the administrator can have.
func (t *task) explain(err error) error {
	if t.attached && strings.Contains(err.Error(), "dynamic load balancing") {
		return fmt.Errorf("backend %s takes no servers at run time; give it balance roundrobin, leastconn, first or random, or a hash with "+
			"hash-type consistent: %w", t.backend, err)
	}
	return err
}

// ownBackends returns the Services by the name of their backend.
func (p *Provider) ownBackends() map[string]providers.Key {
	own := map[string]providers.Key{}
	for _, service := range p.model.Services {
		own[service.Backend()] = service.Key
	}
	return own
}

// backendOf returns the name of the backend that a pool is.
func (p *Provider) backendOf(pool providers.Pool) string {
	if pool.Attached != "" {
		return pool.Attached
	}
	if service := p.model.Get(pool.Key); service != nil {
		return service.Backend()
	}
	return config.BackendName(pool.Key)
}

// markIn returns the mark of our servers in a pool.
func (p *Provider) markIn(pool providers.Pool) mark {
	if pool.Attached != "" {
		return markOf(p.owner)
	}
	return ""
}

// addAttached adds the backends of the administrator that Services name. A Key that still has a pool of our own is left out: that
// one has to go first.
func (p *Provider) addAttached(state *providers.State, live liveState, scope providers.Scope) {
	own := p.ownBackends()
	for key, backend := range scope.Attached {
		if _, taken := own[backend]; taken || !live.backends[backend] || p.model.Get(key) != nil {
			continue
		}
		state.Pools = append(state.Pools, providers.Pool{Key: key, Attached: backend, Members: markOf(p.owner).membersOf(live.servers[backend])})
	}
	slices.SortFunc(state.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
}

// attachedServers returns our servers in backends of others, by backend.
func (p *Provider) attachedServers(servers []runtime.Server) map[string][]runtime.Server {
	ours, k := map[string][]runtime.Server{}, markOf(p.owner)
	for _, server := range servers {
		if !strings.HasPrefix(server.Name, string(k)) {
			continue
		}
		if _, is, _ := k.identify(server); is {
			ours[server.Backend] = append(ours[server.Backend], server)
		}
	}
	return ours
}

// attachAgain returns what brings our servers back into the backends of others after a reload.
func (p *Provider) attachAgain(live liveState) ([]runtime.Command, error) {
	var commands []runtime.Command
	k := markOf(p.owner)
	for _, backend := range slices.Sorted(maps.Keys(p.carried)) {
		if !live.backends[backend] {
			continue
		}
		pool := providers.Pool{Members: k.membersOf(p.carried[backend])}
		plan, err := k.planMembers(backend, p.settings, live.servers[backend], providers.PoolChange{New: &pool})
		if err != nil {
			return nil, err
		}
		p.park(backend, plan.parked)
		commands = append(commands, plan.commands...)
		for _, server := range p.carried[backend] {
			if !isBlocked(server) {
				continue
			}
			out := runtime.Drain
			if server.Admin&adminByHand != 0 {
				out = runtime.Maintain
			}
			commands = append(commands, out(backend, server.Name))
			p.unpark(backend, server.Name)
		}
	}
	return commands, nil
}

// foreign names the backends that are called as ours would be and are not ours.
func (p *Provider) foreign(live liveState) []string {
	own := p.ownBackends()
	var out []string
	for backend := range live.backends {
		if _, ours := own[backend]; !ours && strings.HasPrefix(backend, config.BackendPrefix) {
			out = append(out, "backend "+backend)
		}
	}
	slices.Sort(out)
	return out
}
