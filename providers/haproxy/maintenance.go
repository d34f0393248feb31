package haproxy

import (
	"sync"

	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// lbsync drains by `state maint`, and an operator takes a server out by the same command. Nothing in the worker tells the two apart, so lbsync remembers
// which servers it has put into maintenance itself: parked ones. What it cannot remember, because it was restarted, the file tells: that lists
// what lbsync drained as disabled. Everything else that is found in maintenance is the operator's.

// adminByHand is a bit of Server.Admin of our own, in place of AdminForcedMaint: the maintenance is an operator's.
const adminByHand = 1 << 16

// park notes servers before lbsync puts them into maintenance, or adds them, which begins there: a batch may break in between.
func (p *Provider) park(backend string, names []string) {
	for _, name := range names {
		p.parked[ref{backend, name}] = true
	}
}

// unpark forgets a server that lbsync has sent away, or that is in maintenance no more.
func (p *Provider) unpark(backend, name string) { delete(p.parked, ref{backend, name}) }

// recall tells apart all servers of a worker. Of one that is new to this Provider our file is asked who drained what. Later the memory is better: the
// file comes after it, and a command that was never answered may still take effect after the next look.
func (p *Provider) recall(worker runtime.Worker, servers []runtime.Server) {
	if worker != p.recalled {
		enabled := sync.OnceValue(p.enabledInFile)
		parked := map[ref]bool{}
		for _, s := range servers {
			if r := (ref{s.Backend, s.Name}); inMaintenance(s) && (p.parked[r] || !enabled()[r]) {
				parked[r] = true
			}
		}
		p.parked, p.recalled = parked, worker
	}
	p.tellApart(servers)
}

// enabledInFile returns the servers that our file has and that lbsync did not drain when it wrote it. One that it does not have at all is one that
// lbsync was just adding, or one in a backend of the administrator, of which no file tells.
func (p *Provider) enabledInFile() map[ref]bool {
	enabled := map[ref]bool{}
	for _, service := range p.model.Services {
		backend := service.Backend()
		for _, server := range service.Servers {
			enabled[ref{backend, server.Name}] = !server.Drained
		}
	}
	return enabled
}

// tellApart marks the servers in maintenance that lbsync did not put there.
func (p *Provider) tellApart(servers []runtime.Server) {
	for i, s := range servers {
		if inMaintenance(s) && !p.parked[ref{s.Backend, s.Name}] {
			servers[i].Admin = s.Admin&^runtime.AdminForcedMaint | adminByHand
		}
	}
}

// inMaintenance reports whether a server that is not leaving is in maintenance, whoever began it.
func inMaintenance(s runtime.Server) bool {
	return s.Admin&runtime.AdminForcedMaint != 0 && !isLeaving(s)
}

// serversIn reads the answer to `show servers state`, and tells who put which server into maintenance.
func (p *Provider) serversIn(answer runtime.Result) ([]runtime.Server, error) {
	servers, err := runtime.ParseServers(answer.Text)
	p.tellApart(servers)
	return servers, err
}

// byBackend divides servers by their backends.
func byBackend(servers []runtime.Server) map[string][]runtime.Server {
	parts := map[string][]runtime.Server{}
	for from, to := 0, 0; from < len(servers); from = to {
		backend := servers[from].Backend
		for to < len(servers) && servers[to].Backend == backend {
			to++
		}
		if part := servers[from:to:to]; parts[backend] == nil {
			parts[backend] = part
		} else {
			parts[backend] = append(parts[backend], part...)
		}
	}
	return parts
}
