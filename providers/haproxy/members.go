package haproxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// A removed server stays in the worker until its last connection has ended: in maintenance, with weight 0. Both together
// are its mark, kept in the worker itself, so a removal outlives lbsync without a word on disk.
func isLeaving(s runtime.Server) bool {
	return s.Admin&runtime.AdminForcedMaint != 0 && s.Weight == 0
}

// stateOf returns what lbsync lets a server that is not leaving receive. What an operator takes from it beside that is not
// looked at, see isBlocked.
func stateOf(s runtime.Server) providers.MemberState {
	if s.Admin&runtime.AdminForcedMaint != 0 || s.Weight == 0 {
		return providers.Draining
	}
	return providers.Enabled
}

// isBlocked reports whether an operator took a server out, with `state drain`, which lbsync itself never uses, or with `state maint`.
func isBlocked(s runtime.Server) bool { return s.Admin&(runtime.AdminForcedDrain|adminByHand) != 0 }

// healthOf returns what the checks of a server found. In maintenance they are paused, and before the first one has ended
// HAProxy believes that the server is up.
func healthOf(s runtime.Server) providers.Health {
	switch {
	case s.Check&runtime.CheckEnabled == 0 || s.Admin&(runtime.AdminForcedMaint|adminByHand) != 0 || s.Result == runtime.ResultUnknown:
		return providers.HealthUnknown
	case s.Operation == runtime.OperationStopped:
		return providers.HealthDown
	}
	return providers.HealthUp
}

// weightOf returns a server's weight as lbsync wrote it: the common one is not said.
func weightOf(s runtime.Server) uint8 {
	if s.Weight <= 1 || s.Weight > 255 {
		return 0
	}
	return uint8(s.Weight)
}

// serverWeight is the weight of the server for a member.
func serverWeight(m providers.Member) int { return int(max(m.Weight, 1)) }

// mark is what the names of our servers begin with in a backend that is the administrator's. In a backend of our own every server is
// ours, and the mark is empty.
type mark string

// markPrefix is what the marks of all lbsync begin with.
const markPrefix = "npl-"

// markOf returns the mark of an owner: no other lbsync has it, so that several may have members in one backend.
func markOf(owner providers.Owner) mark {
	sum := sha256.Sum256([]byte(owner.String()))
	return mark(markPrefix + hex.EncodeToString(sum[:8]) + "_")
}

// name returns the name of a member's server.
func (k mark) name(id providers.MemberID) (string, error) {
	name, err := config.ServerName(id)
	return string(k) + name, err
}

// identify returns which member a server is. A server in a backend of our own that somebody added by hand has no Pod UID; ok is false
// for one that cannot be a member at all, and for one that is somebody else's in a backend of theirs.
func (k mark) identify(s runtime.Server) (id providers.MemberID, ours, ok bool) {
	if name, marked := strings.CutPrefix(s.Name, string(k)); marked {
		if id, ours = config.ParseServerName(name); ours {
			return id, true, true
		}
	}
	return providers.MemberID{Address: s.Address}, false, k == "" && s.Address.IsValid()
}

// isMoved reports whether somebody gave the server of a member another address by `set server ... addr`.
func isMoved(s runtime.Server, id providers.MemberID) bool {
	return s.Address.IsValid() && s.Address != id.Address
}

// membersOf returns the members that a backend's servers are, sorted. One that was moved is not the member that its name tells.
func (k mark) membersOf(servers []runtime.Server) []providers.Member {
	members := make([]providers.Member, 0, len(servers))
	for _, s := range servers {
		if isLeaving(s) {
			continue
		}
		if id, _, ok := k.identify(s); ok {
			if isMoved(s, id) {
				id = providers.MemberID{Address: s.Address}
			}
			members = append(members, providers.Member{UID: id.UID, Address: id.Address, State: stateOf(s), Weight: weightOf(s)})
		}
	}
	slices.SortFunc(members, providers.CompareMembers)
	return slices.CompactFunc(members, func(a, b providers.Member) bool { return a.ID() == b.ID() })
}

// fileServers returns how the file lists a backend's servers: without those that leave or that are not ours.
func fileServers(servers []runtime.Server) []config.Server {
	out := make([]config.Server, 0, len(servers))
	for _, s := range servers {
		if isLeaving(s) {
			continue
		}
		if id, ours, _ := mark("").identify(s); ours {
			out = append(out, config.Server{
				Name: s.Name, ID: s.ID, Address: id.Address, Weight: max(s.Weight, 1), Drained: stateOf(s) == providers.Draining,
			})
		}
	}
	slices.SortFunc(out, config.CompareServers)
	return out
}

// newServers returns how the file lists the members of a pool that the worker does not have yet. Members that
// known lists keep their ids.
func newServers(members []providers.Member, known []config.Server) ([]config.Server, error) {
	ids, taken := map[string]int{}, map[int]bool{}
	for _, s := range known {
		ids[s.Name], taken[s.ID] = s.ID, true
	}
	out := make([]config.Server, 0, len(members))
	for _, m := range members {
		name, err := config.ServerName(m.ID())
		if err != nil {
			return nil, err
		}
		id, ok := ids[name]
		if !ok {
			id = config.NewServerID(m.Address, func(id int) bool { return taken[id] })
			ids[name], taken[id] = id, true
		}
		out = append(out, config.Server{Name: name, ID: id, Address: m.Address, Weight: serverWeight(m), Drained: m.State == providers.Draining})
	}
	slices.SortFunc(out, config.CompareServers)
	return slices.CompactFunc(out, func(a, b config.Server) bool { return a.Name == b.Name }), nil
}

// memberPlan is what takes one backend from the servers it has to the members it should have.
type memberPlan struct {
	commands []runtime.Command
	servers  []config.Server // of the file, when the commands have been carried out
	removed  []string        // names of servers that the commands send away
	parked   []string        // and of those that they put into maintenance, or add, which begins there
	drained  []string        // of parked those that were there and not in maintenance
}

// planMembers compares a backend's live servers with the pool that is wanted. The steps come in the order of the
// change's Members; what differs beyond them (somebody changed it by hand) follows.
func (k mark) planMembers(backend string, settings config.Settings, live []runtime.Server, change providers.PoolChange) (memberPlan, error) {
	options := config.ServerOptions(settings, change.New.Settings)
	monitored := change.New.Settings.Monitor.Type != providers.MonitorNone
	if monitored && settings.StartDown && settings.InitState {
		options += " init-state down"
	}
	servers := map[providers.MemberID]runtime.Server{}
	taken := map[int]bool{}
	for _, s := range live {
		taken[s.ID] = true
		if id, _, ok := k.identify(s); ok {
			if known, twice := servers[id]; !twice || isLeaving(known) {
				servers[id] = s
			}
		}
	}
	wanted := map[providers.MemberID]providers.Member{}
	var order []providers.MemberID
	for _, step := range change.Members {
		order = append(order, step.Member.ID())
	}
	for _, m := range change.New.Members {
		wanted[m.ID()] = m
		order = append(order, m.ID())
	}
	for _, m := range k.membersOf(live) {
		order = append(order, m.ID())
	}

	var plan memberPlan
	do := func(c ...runtime.Command) { plan.commands = append(plan.commands, c...) }
	done := map[providers.MemberID]bool{}
	for _, id := range order {
		if done[id] {
			continue
		}
		done[id] = true
		server, exists := servers[id]
		member, want := wanted[id]
		if !want {
			if exists && !isLeaving(server) {
				do(runtime.Weigh(backend, server.Name, 0), runtime.Maintain(backend, server.Name),
					runtime.ShutdownSessions(backend, server.Name))
				plan.removed = append(plan.removed, server.Name)
			}
			continue
		}
		if !exists {
			name, err := k.name(id)
			if err != nil {
				return memberPlan{}, err
			}
			server = runtime.Server{
				Backend: backend, Name: name, Address: id.Address, Weight: serverWeight(member), Admin: runtime.AdminForcedMaint,
				ID: config.NewServerID(id.Address, func(id int) bool { return taken[id] }),
			}
			if monitored {
				server.Check = runtime.CheckConfigured
			}
			taken[server.ID] = true
			plan.parked = append(plan.parked, name)
			do(runtime.AddServer(backend, name, id.Address, fmt.Sprintf("id %d weight %d %s", server.ID, server.Weight, options)))
		}
		if server.Check&(runtime.CheckConfigured|runtime.CheckEnabled) == runtime.CheckConfigured {
			do(runtime.EnableHealth(backend, server.Name))
		}
		if isMoved(server, id) {
			if _, ours, _ := k.identify(server); ours {
				do(runtime.Move(backend, server.Name, id.Address))
			}
		}
		drained := member.State == providers.Draining
		maintained := server.Admin&runtime.AdminForcedMaint != 0
		if drained && !maintained {
			plan.parked, plan.drained = append(plan.parked, server.Name), append(plan.drained, server.Name)
			do(runtime.Maintain(backend, server.Name))
		}
		if server.Weight != serverWeight(member) {
			do(runtime.Weigh(backend, server.Name, serverWeight(member)))
		}
		if !drained && maintained { // what an operator took out is left
			do(runtime.Ready(backend, server.Name))
			if !exists && monitored && settings.StartDown && !settings.InitState {
				do(runtime.Fail(backend, server.Name)) // in the same write; before Ready it has no effect
			}
		}
		if _, ours, _ := k.identify(server); ours {
			plan.servers = append(plan.servers, config.Server{Name: server.Name, ID: server.ID, Address: id.Address, Weight: serverWeight(member), Drained: drained})
		}
	}
	slices.SortFunc(plan.servers, config.CompareServers)
	return plan, nil
}
