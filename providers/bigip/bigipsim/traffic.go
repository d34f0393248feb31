package bigipsim

import (
	"context"
	"net/netip"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
	"github.com/nplbridge/nplbridge/providers/internal/simproxy"
)

// TrafficOptions are what a device does not say.
type TrafficOptions = simproxy.Options

// CarryTraffic listens on the destinations of virtual servers and carries TCP and UDP to the members, until ctx ends. What monitors find and how many
// connections members have is then true. A device that is on standby carries nothing.
func (s *Sim) CarryTraffic(ctx context.Context, o TrafficOptions) { simproxy.Run(ctx, source{s}, o) }

// source is a device in the words of the proxy.
type source struct{ *Sim }

// SetHealth tells the device what a monitor found.
func (s source) SetHealth(pool, member string, up bool, why string) {
	health := Healthy
	if !up {
		health = Unwell
	}
	s.Sim.SetHealth(pool, member, health, why) //nolint:errcheck // a member that is gone needs no health
}

// SetConnections tells the device how many connections a member has.
func (s source) SetConnections(pool, member string, n int) {
	s.Sim.SetConnections(pool, member, n) //nolint:errcheck // as above
}

// Traffic returns what the device serves.
func (s source) Traffic() ([]simproxy.Listener, <-chan struct{}) {
	s.mu.RLock()
	changed := s.watch
	virtuals := s.config.List("ltm/virtual")
	groups := map[string]string{}
	for _, a := range s.config.List("ltm/virtual-address") {
		groups[a.FullPath()] = a.Text("trafficGroup")
	}
	s.mu.RUnlock()
	active := map[string]bool{}
	for address, group := range groups {
		active[address] = s.cluster.isActive(s.Sim, group)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	pools := map[string]*simproxy.Pool{}
	var out []simproxy.Listener
	for _, v := range virtuals {
		to := s.config.DestinationOf(v)
		if v.Properties["enabled"] != true || to.Port == 0 || !active[to.Path.String()] {
			continue
		}
		l := simproxy.Listener{Address: netip.AddrPortFrom(to.Address.IP, to.Port), Name: "virtual server " + v.FullPath()}
		if p := s.config.Find("ltm/pool", v.Text("pool")); p != nil {
			if pools[p.FullPath()] == nil {
				pools[p.FullPath()] = s.proxied(p)
			}
			l.Pool = pools[p.FullPath()]
		}
		for protocol, served := range map[string][]string{"tcp": {"TCP"}, "udp": {"UDP"}, "any": {"TCP", "UDP"}} {
			for _, one := range served {
				if v.Text("ipProtocol") == protocol {
					l.Protocol = one
					out = append(out, l)
				}
			}
		}
	}
	return out, changed
}

// proxied is a pool in the words of the proxy. Members that are disabled keep the connections that they have.
func (s *Sim) proxied(p *mcp.Object) *simproxy.Pool {
	mode := p.Text("loadBalancingMode")
	out := &simproxy.Pool{ID: p.FullPath(), GracefulDisable: -1}
	if mode == "round-robin" || mode == "ratio-member" || mode == "ratio-node" {
		out.Algorithm = simproxy.RoundRobin
	}
	for _, m := range p.Children {
		a := s.config.AddressOf(m)
		if !a.IP.IsValid() {
			continue
		}
		session, state := s.readBack(p, m)
		ratio := 1
		if mode == "ratio-member" {
			ratio = int(m.Number("ratio"))
		}
		server := simproxy.Server{ID: m.FullPath(), Address: netip.AddrPortFrom(a.IP, mcp.PortOf(m)), Ratio: ratio}
		server.Enabled = (session == "user-enabled" || session == "monitor-enabled") && state != "user-down" && state != "addr-down"
		if monitors := s.config.MonitorsOf(p, m); len(monitors) > 0 {
			server.Monitor = monitor(monitors[0])
		}
		out.Servers = append(out.Servers, server)
	}
	return out
}

// monitor is the first of a member's, as a TCP connect: a member is down when nothing succeeded for the timeout.
func monitor(m *mcp.Object) *simproxy.Monitor {
	interval := time.Duration(m.Number("interval")) * time.Second
	timeout := time.Duration(m.Number("timeout")) * time.Second
	return &simproxy.Monitor{Interval: interval, Timeout: interval, Rise: 1, Fall: max(1, int((timeout+interval-1)/interval))}
}
