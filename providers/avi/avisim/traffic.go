package avisim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// Listener is a port of a VIP that a virtual service serves.
type Listener struct {
	Address        netip.AddrPort
	Protocol       string // TCP, UDP or SCTP
	VirtualService string // its name
	Pool           *Pool  // nil: connections are closed
}

// Pool is where traffic goes.
type Pool struct {
	UUID, Name string
	Algorithm  string // as LB_ALGORITHM_ROUND_ROBIN
	Servers    []PoolServer
	Monitors   []Monitor
	// GracefulDisable is how long a connection may stay on a server that was disabled; below 0: for ever.
	GracefulDisable time.Duration
}

// PoolServer is one server of a pool.
type PoolServer struct {
	Address netip.AddrPort
	Enabled bool
	Ratio   int
}

// Monitor is a health monitor.
type Monitor struct {
	Type              string // as HEALTH_MONITOR_TCP
	Interval, Timeout time.Duration
	Rise, Fall        int
	Port              uint16 // 0: the server's own
}

// Traffic returns what the virtual services that are enabled are to serve, by address and protocol, and a channel that is closed at the next change of any object.
func (s *Server) Traffic() ([]Listener, <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pools := map[string]*Pool{}
	var out []Listener
	for _, vs := range s.store.of("virtualservice") {
		vip := s.store.objects[vs.ref("vsvip_ref")]
		if vip == nil || vs.body["enabled"] == false || vs.body["traffic_enabled"] == false {
			continue
		}
		for _, v := range messages(vip.body, "vip") {
			for _, family := range families {
				if a, err := netip.ParseAddr(addr(v[family.field])); err == nil && v["enabled"] != false {
					out = append(out, s.listeners(vs, a, pools)...)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Listener) int { return a.Address.Compare(b.Address) })
	return out, s.watch
}

// listeners returns the ports of a virtual service on one address. pools has those that were made already.
func (s *Server) listeners(vs *object, a netip.Addr, pools map[string]*Pool) []Listener {
	var out []Listener
	for _, service := range s.servicesOf(vs) {
		for port := service.from; port <= service.to; port++ {
			l := Listener{Address: netip.AddrPortFrom(a, uint16(port)), Protocol: service.protocol, VirtualService: vs.name()} //nolint:gosec // 65535 at most
			if p := s.poolFor(vs, port, service.protocol); p != nil && p.body["enabled"] != false {
				if pools[p.uuid] == nil {
					pools[p.uuid] = s.poolOf(p)
				}
				l.Pool = pools[p.uuid]
			}
			out = append(out, l)
		}
	}
	return out
}

// poolFor follows the rules of the L4 policies by their index, then the virtual service's own pool.
func (s *Server) poolFor(vs *object, port int64, protocol string) *object {
	policies := messages(vs.body, "l4_policies")
	slices.SortStableFunc(policies, byIndex)
	for _, policy := range policies {
		set, _ := policy["l4_policy_set_ref"].(schema.Reference)
		rules := slices.Clone(rulesOf(s.store.objects[set]))
		slices.SortStableFunc(rules, byIndex)
		for _, rule := range rules {
			if rule["enable"] == false || !matches(at(rule, "match"), port, protocol) {
				continue
			}
			if to, ok := at(rule, "action", "select_pool", "pool_ref").(schema.Reference); ok {
				return s.store.objects[to]
			}
		}
	}
	return s.store.objects[vs.ref("pool_ref")]
}

func byIndex(a, b map[string]any) int {
	x, _ := a["index"].(int64)
	y, _ := b["index"].(int64)
	return int(x - y)
}

func matches(match any, port int64, protocol string) bool {
	if m := at(match, "port"); m != nil {
		ports, _ := at(m, "ports").([]any)
		if slices.Contains(ports, any(port)) != (at(m, "match_criteria") == "IS_IN") {
			return false
		}
	}
	if m := at(match, "protocol"); m != nil {
		if (at(m, "protocol") == "PROTOCOL_"+protocol) != (at(m, "match_criteria") == "IS_IN") {
			return false
		}
	}
	return true
}

func (s *Server) poolOf(o *object) *Pool {
	algorithm, _ := o.body["lb_algorithm"].(string)
	seconds, _ := o.body["graceful_disable_timeout_sec"].(int64)
	p := &Pool{UUID: o.uuid, Name: o.name(), Algorithm: algorithm, GracefulDisable: time.Duration(seconds) * time.Second}
	for _, server := range messages(o.body, "servers") {
		address, err := netip.ParseAddrPort(s.serverAddress(o, server))
		if err != nil {
			continue // a name, which nobody resolves here
		}
		ratio, _ := server["ratio"].(int64)
		p.Servers = append(p.Servers, PoolServer{address, server["enabled"] != false, int(ratio)})
	}
	refs, _ := o.body["health_monitor_refs"].([]any)
	for _, ref := range refs {
		to, _ := ref.(schema.Reference)
		if m := s.store.objects[to]; m != nil {
			p.Monitors = append(p.Monitors, monitorOf(m.body))
		}
	}
	return p
}

func monitorOf(body map[string]any) Monitor {
	whole := func(field string) int { n, _ := body[field].(int64); return int(n) }
	kind, _ := body["type"].(string)
	return Monitor{
		Type: kind, Interval: time.Duration(whole("send_interval")) * time.Second, Timeout: time.Duration(whole("receive_timeout")) * time.Second,
		Rise: whole("successful_checks"), Fall: whole("failed_checks"), Port: uint16(whole("monitor_port")), //nolint:gosec // 65535 at most
	}
}
