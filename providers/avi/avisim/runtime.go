package avisim

import (
	"net/http"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// Health is the state of a server of a pool, as its health monitors see it.
type Health struct {
	State  string // OPER_UP, OPER_DOWN or OPER_UNKNOWN
	Reason string // of OPER_DOWN
	Since  time.Time
}

// The states of an oper_status.
const (
	OperUp       = "OPER_UP"
	OperDown     = "OPER_DOWN"
	OperDisabled = "OPER_DISABLED"
)

// SetHealth says how a server, "10.0.0.1:61000", of a pool is. Until somebody says so a server is up when it is enabled.
func (s *Server) SetHealth(poolUUID, server string, h Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health[poolUUID] == nil {
		s.health[poolUUID] = map[string]Health{}
	}
	s.health[poolUUID][server] = h
}

// runtime answers /api/<type>/<uuid>/runtime and, for pools, /runtime/server and /runtime/server/detail.
func (s *Server) runtime(r *request, k *schema.Kind) (*reply, *refusal) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, err := s.find(r, k)
	if err != nil {
		return nil, err
	}
	what := joined(r.path[2:])
	servers := k.Name == "pool" && (what == "runtime/server" || what == "runtime/server/detail")
	if runtime := s.runtimeOf(o); what == "runtime" && runtime != nil {
		if r.Method != http.MethodGet {
			return nil, notAllowed(r.Method, "GET")
		}
		return jsonReply(http.StatusOK, runtime), nil
	}
	switch {
	case !servers:
		return nil, &refusal{htmlReply(http.StatusNotFound, "Not Found")}
	case r.Method != http.MethodGet:
		return nil, notAllowed(r.Method, "GET")
	}
	list := []any{}
	for _, server := range messages(o.body, "servers") {
		h := s.serverHealth(o, server)
		port := server["port"]
		if port == nil {
			port = o.body["default_server_port"]
		}
		list = append(list, map[string]any{"ip_addr": server["ip"], "port": port, "hostname": server["hostname"], "oper_status": operStatus(h), "is_standby": false})
	}
	if s.cfg.Rules.WrappedRuntime {
		return jsonReply(http.StatusOK, map[string]any{"count": len(list), "results": list}), nil
	}
	return jsonReply(http.StatusOK, list), nil
}

func operStatus(h Health) map[string]any {
	out := map[string]any{"state": h.State}
	if !h.Since.IsZero() {
		out["last_changed_time"] = map[string]any{"secs": h.Since.Unix(), "usecs": h.Since.Nanosecond() / 1000}
	}
	if h.Reason != "" {
		out["reason"] = []string{h.Reason}
	}
	return out
}

// runtimeOf is the runtime of a pool or virtual service; nil for others.
func (s *Server) runtimeOf(o *object) map[string]any {
	switch o.kind.Name {
	case "pool":
		up, enabled := s.count(o)
		return map[string]any{
			"oper_status": operStatus(s.poolHealth(o)), "num_servers": len(messages(o.body, "servers")), "num_servers_enabled": enabled, "num_servers_up": up,
		}
	case "virtualservice":
		return map[string]any{"oper_status": operStatus(s.virtualServiceHealth(o)), "percent_ses_up": 100, "vip_summary": []any{}}
	}
	return nil
}

func (s *Server) serverHealth(pool *object, server map[string]any) Health {
	if server["enabled"] == false || pool.body["enabled"] == false {
		return Health{State: OperDisabled}
	}
	if h, ok := s.health[pool.uuid][s.serverAddress(pool, server)]; ok {
		return h
	}
	return Health{State: OperUp}
}

// serverAddress is where a server is reached: its own port or the pool's.
func (s *Server) serverAddress(pool *object, server map[string]any) string {
	port, _ := server["port"].(int64)
	if port == 0 {
		port, _ = pool.body["default_server_port"].(int64)
	}
	return addressPort(addr(server["ip"]), port)
}

func (s *Server) count(pool *object) (up, enabled int) {
	for _, server := range messages(pool.body, "servers") {
		switch s.serverHealth(pool, server).State {
		case OperUp:
			up++
			enabled++
		case OperDisabled:
		default:
			enabled++
		}
	}
	return up, enabled
}

func (s *Server) poolHealth(pool *object) Health {
	up, enabled := s.count(pool)
	switch {
	case pool.body["enabled"] == false:
		return Health{State: OperDisabled}
	case up > 0:
		return Health{State: OperUp}
	case enabled == 0:
		return Health{State: OperDown, Reason: "No enabled servers"}
	}
	return Health{State: OperDown, Reason: "All servers are down"}
}

func (s *Server) virtualServiceHealth(vs *object) Health {
	if vs.body["enabled"] == false {
		return Health{State: OperDisabled}
	}
	var down []string
	for _, pool := range s.poolsBehind(vs) {
		if h := s.poolHealth(pool); h.State != OperUp {
			down = append(down, pool.name())
			continue
		}
		return Health{State: OperUp}
	}
	return Health{State: OperDown, Reason: "No pool is up: " + strings.Join(down, ", ")}
}

// poolsBehind returns every pool that a virtual service leads to.
func (s *Server) poolsBehind(vs *object) []*object {
	var out []*object
	if p := s.store.objects[vs.ref("pool_ref")]; p != nil {
		out = append(out, p)
	}
	for _, policy := range messages(vs.body, "l4_policies") {
		set, _ := policy["l4_policy_set_ref"].(schema.Reference)
		out = append(out, s.poolsOf(s.store.objects[set])...)
	}
	return out
}
