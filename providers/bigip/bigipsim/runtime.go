package bigipsim

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// Health is what the monitors say of a member.
type Health string

// The states of health.
const (
	Checking Health = "checking"
	Healthy  Health = "up"
	Unwell   Health = "down"
)

// poolRuntime is what a device knows of a pool beside its configuration.
type poolRuntime struct {
	as      *mcp.Object // how the pool was when its members were looked at
	members map[string]memberRuntime
}

// memberRuntime is what a device knows of a member beside its configuration.
type memberRuntime struct {
	since       time.Time // when it came, or was given other monitors
	monitors    string
	health      Health // empty: nobody said
	reason      string
	connections int
}

// settle begins the runtime of members that are new and forgets that of those that are gone. The caller holds the lock.
func (s *Sim) settle() {
	now := s.cfg.Clock.Now()
	for pool := range s.config.All("ltm/pool") {
		before := s.runtime[pool.FullPath()]
		if before.as == pool {
			continue
		}
		after := poolRuntime{pool, make(map[string]memberRuntime, len(pool.Children))}
		for _, m := range pool.Children {
			have, known := before.members[m.FullPath()]
			if monitors := m.Text("monitor") + "|" + pool.Text("monitor"); !known || have.monitors != monitors {
				made := memberRuntime{since: now, monitors: monitors, connections: have.connections}
				if m.Text("state") == "user-up" && !known {
					made.health = Healthy // a member that is made with a state skips its first check
				}
				have = made
			}
			after.members[m.FullPath()] = have
		}
		s.runtime[pool.FullPath()] = after
	}
	for path := range s.runtime {
		if s.config.Find("ltm/pool", path) == nil {
			delete(s.runtime, path)
		}
	}
}

// runtimeOf is what is known of a member.
func (s *Sim) runtimeOf(pool, m *mcp.Object) memberRuntime {
	return s.runtime[pool.FullPath()].members[m.FullPath()]
}

// health is that of a member with monitors.
func (s *Sim) health(pool, m *mcp.Object, monitors []*mcp.Object) Health {
	r := s.runtimeOf(pool, m)
	if r.health != "" {
		return r.health
	}
	first := time.Duration(monitors[0].Number("interval")) * time.Second
	if s.cfg.Rules.HealthyAtOnce || s.cfg.Clock.Since(r.since) >= first {
		return Healthy
	}
	return Checking
}

// showMember replaces what was set of session and state by what is read back.
func (s *Sim) showMember(pool, m *mcp.Object, out map[string]any) {
	out["session"], out["state"] = s.readBack(pool, m)
}

// readBack is session and state of a member: what a user set, what its node is set to, what its monitors say.
func (s *Sim) readBack(pool, m *mcp.Object) (session, state string) {
	monitors := s.config.MonitorsOf(pool, m)
	session, state = "user-enabled", "unchecked"
	if len(monitors) > 0 {
		session, state = "monitor-enabled", string(s.health(pool, m, monitors))
	}
	node := s.config.Find("ltm/node", mcp.NodeOf(m))
	switch {
	case m.Text("session") == "user-disabled":
		session = "user-disabled"
	case node != nil && node.Text("session") == "user-disabled":
		session = "addr-disabled"
	}
	switch {
	case m.Text("state") == "user-down":
		state = "user-down"
	case node != nil && node.Text("state") == "user-down":
		state = "addr-down"
	}
	return session, state
}

func (s *Sim) showNode(o *mcp.Object, out map[string]any) {
	out["session"] = cmp.Or(o.Text("session"), "user-enabled")
	out["state"] = "unchecked"
	if o.Text("state") == "user-down" {
		out["state"] = "user-down"
	}
}

// SetHealth says what the monitors find of a member, "/p/10.0.0.1:61000" of pool "/p/web". Until somebody says so a member with a monitor is checking
// for the monitor's interval and then up.
func (s *Sim) SetHealth(pool, member string, h Health, reason string) error {
	return s.setRuntime(pool, member, func(r *memberRuntime) { r.health, r.reason = h, reason })
}

// SetConnections says how many connections a member has.
func (s *Sim) SetConnections(pool, member string, n int) error {
	return s.setRuntime(pool, member, func(r *memberRuntime) { r.connections = n })
}

func (s *Sim) setRuntime(pool, member string, change func(*memberRuntime)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, known := s.runtime[pool].members[member]
	if !known {
		return fmt.Errorf("no member %s in pool %s", member, pool)
	}
	change(&r)
	s.runtime[pool].members[member] = r
	return nil
}

// objectStats answers /mgmt/tm/.../stats of one object.
func (v view) objectStats(o *mcp.Object) map[string]any {
	return v.stats(place(o)+"/stats", o.Kind, map[string]any{v.link(place(o) + "/stats"): v.nested(o.Kind, place(o)+"/stats", v.entries(nil, o))})
}

// collectionStats are those of every object of a kind.
func (v view) collectionStats(k *mcp.Kind) map[string]any {
	entries := map[string]any{}
	for _, o := range v.s.config.List(k.Path) {
		entries[v.link(place(o)+"/stats")] = v.nested(k, place(o)+"/stats", v.entries(nil, o))
	}
	return v.stats(k.Path+"/stats", k, entries)
}

// childStats are those of the members of a pool.
func (v view) childStats(o *mcp.Object) map[string]any {
	path := place(o) + "/" + o.Kind.Child.Element()
	entries := map[string]any{}
	for _, c := range o.Children {
		at := path + "/" + naming.Escape(c.FullPath()) + "/stats"
		entries[v.link(at)] = v.nested(c.Kind, at, v.entries(o, c))
	}
	return v.stats(path+"/stats", o.Kind.Child, entries)
}

// link is a key of entries: an address without a query.
func (v view) link(path string) string { return "https://localhost/mgmt/tm/" + path }

func (v view) stats(path string, k *mcp.Kind, entries map[string]any) map[string]any {
	out := map[string]any{"kind": k.Type() + "collectionstats", "generation": 1, "selfLink": v.self(path)}
	if len(entries) > 0 {
		out["entries"] = entries
	}
	return out
}

func (v view) nested(k *mcp.Kind, path string, entries map[string]any) map[string]any {
	return map[string]any{"nestedStats": map[string]any{"kind": k.Type() + "stats", "selfLink": v.url(path), "entries": entries}}
}

func description(text string) map[string]any { return map[string]any{"description": text} }
func value(n int) map[string]any             { return map[string]any{"value": n} }

// entries are what stats say of a member, of a pool, or of anything else.
func (v view) entries(owner, o *mcp.Object) map[string]any {
	switch {
	case owner != nil && owner.Kind.Path == "ltm/pool":
		return v.memberEntries(owner, o)
	case o.Kind.Path == "ltm/pool":
		up, total := 0, 0
		for _, m := range o.Children {
			if available, _ := v.s.availability(o, m); available == "available" {
				up++
			}
			total += v.s.runtimeOf(o, m).connections
		}
		state := "unknown"
		switch {
		case up > 0:
			state = "available"
		case len(o.Children) > 0 && o.Text("monitor") != "":
			state = "offline"
		}
		return map[string]any{
			"tmName": description(o.FullPath()), "activeMemberCnt": value(up), "memberCnt": value(len(o.Children)), "serverside.curConns": value(total),
			"status.availabilityState": description(state), "status.enabledState": description("enabled"), "monitorRule": description(o.Text("monitor")),
		}
	}
	return map[string]any{"tmName": description(o.FullPath()), "status.availabilityState": description("unknown"), "status.enabledState": description("enabled")}
}

func (v view) memberEntries(pool, m *mcp.Object) map[string]any {
	_, state := v.s.readBack(pool, m)
	available, enabled := v.s.availability(pool, m)
	r := v.s.runtimeOf(pool, m)
	session := "enabled"
	if enabled != "enabled" {
		session = "user-disabled"
	}
	return map[string]any{
		"addr": description(m.Text("address")), "port": value(int(mcp.PortOf(m))), "nodeName": description(mcp.NodeOf(m)), "poolName": description(pool.FullPath()),
		"monitorStatus": description(state), "sessionStatus": description(session), "monitorRule": description("none"),
		"status.availabilityState": description(available), "status.enabledState": description(enabled), "status.statusReason": description(r.reason),
		"serverside.curConns": value(r.connections), "serverside.maxConns": value(r.connections), "serverside.totConns": value(r.connections), "curSessions": value(0), "connq.depth": value(0),
	}
}

// availability is what a member's status comes to.
func (s *Sim) availability(pool, m *mcp.Object) (available, enabled string) {
	session, state := s.readBack(pool, m)
	available, enabled = "unknown", "enabled"
	if strings.HasSuffix(session, "-disabled") {
		enabled = "disabled"
	}
	switch state {
	case "up":
		available = "available"
	case "down", "user-down", "addr-down":
		available = "offline"
	}
	return available, enabled
}

// Admin carries out one call as an administrator would by hand: without login, delay, faults and counters. It returns the answer's status and body.
func (s *Sim) Admin(method, path, body string) (int, []byte) {
	in, err := http.NewRequest(method, "https://localhost"+path, nil) //nolint:noctx // it goes nowhere
	if err != nil {
		return http.StatusBadRequest, []byte(err.Error())
	}
	r := &request{Request: in, path: elements(in.URL), query: in.URL.Query(), body: []byte(body)}
	if len(r.path) < 2 || r.path[0] != "tm" {
		return http.StatusNotFound, nil
	}
	answer := s.tm(r)
	return answer.status, answer.body
}
