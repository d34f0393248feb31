package haproxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// lbsync drains by `state maint`, and an operator takes a server out by the same command. Nothing in the worker tells the two apart, so lbsync remembers
// which servers it has put into maintenance itself: parked ones. What it cannot remember, because it was restarted, the file tells: that lists
// what lbsync drained as disabled, and so did the one before it, with which a worker may have begun. The file is written behind, so a list of drains is written ahead of the commands, and goes when the file tells as
// much. Everything else that is found in maintenance is the operator's.

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

// recall tells apart all servers of a worker. Of one that is new to this Provider our files are asked who drained what. Later the memory is better: the
// file comes after it, and a command that was never answered may still take effect after the next look.
func (p *Provider) recall(worker runtime.Worker, servers []runtime.Server) {
	if worker != p.recalled {
		enabled, noted := sync.OnceValue(p.enabledInFile), p.readDrains(worker)
		parked := map[ref]bool{}
		for _, s := range servers {
			if r := (ref{s.Backend, s.Name}); inMaintenance(s) && (p.parked[r] || noted[r] || p.replaced[r] || !enabled()[r]) {
				parked[r] = true
			}
		}
		p.parked, p.recalled = parked, worker
	}
	p.replaced = nil
	p.tellApart(servers)
}

// replace notes what a file tells as drained that another one takes the place of.
func (p *Provider) replace(old config.File) {
	for _, service := range old.Services {
		for _, server := range service.Servers {
			if server.Drained {
				if p.replaced == nil {
					p.replaced = map[ref]bool{}
				}
				p.replaced[ref{service.Backend(), server.Name}] = true
			}
		}
	}
}

// note adds the drains that the tasks are about to begin to the list. Without one they are begun all the same: a full disk stops no rolling update. What is in a
// backend of the administrator no file tells of, so the list does not either; an HAProxy on another host has nothing else.
func (p *Provider) note(worker runtime.Worker, tasks []*task) {
	next := maps.Clone(p.noted)
	for _, t := range tasks {
		if t.attached {
			continue
		}
		for _, name := range t.plan.drained {
			if next == nil {
				next = map[ref]bool{}
			}
			next[ref{t.backend, name}] = true
		}
	}
	if len(next) == len(p.noted) {
		return
	}
	if err := p.files.WriteDrains(drainsText(worker, next)); err != nil {
		p.log.Warn("an lbsync that is killed now would take these drains for an operator's", zap.Error(err))
		return
	}
	p.noted = next
}

// readDrains takes over the list that the lbsync before us left behind, and returns its servers. One of another worker tells nothing of this one.
func (p *Provider) readDrains(worker runtime.Worker) map[ref]bool {
	p.noted = nil
	if p.cfg.Remote() {
		return nil
	}
	text, err := p.files.Drains()
	if err != nil {
		p.log.Warn("drains that our file does not tell of count as an operator's", zap.Error(err))
	}
	if text == nil {
		return nil
	}
	p.noted = parseDrains(worker, text)
	return p.noted
}

// forgetDrains removes the list when the file tells of all that is in it.
func (p *Provider) forgetDrains() {
	if p.noted == nil {
		return
	}
	if err := p.files.RemoveDrains(); err != nil {
		p.log.Warn("a list of drains stays behind", zap.Error(err))
		return
	}
	p.noted = nil
}

// drainsHead is the first line of the list: of which worker it is.
func drainsHead(worker runtime.Worker) string {
	return fmt.Sprintf("worker %d %d", worker.PID, worker.Started)
}

// drainsText returns the list: a line for each server, backend/server as in HAProxy's commands.
func drainsText(worker runtime.Worker, drains map[ref]bool) []byte {
	lines := make([]string, 0, len(drains))
	for r := range drains {
		lines = append(lines, r.backend+"/"+r.server+"\n")
	}
	slices.Sort(lines)
	return []byte(drainsHead(worker) + "\n" + strings.Join(lines, ""))
}

// parseDrains reads what drainsText wrote, never nil; it is empty for another worker's list.
func parseDrains(worker runtime.Worker, text []byte) map[ref]bool {
	drains := map[ref]bool{}
	head, lines, _ := strings.Cut(string(text), "\n")
	if head != drainsHead(worker) {
		return drains
	}
	for line := range strings.Lines(lines) {
		if backend, server, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "/"); ok {
			drains[ref{backend, server}] = true
		}
	}
	return drains
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
