// Package dataplane carries traffic along the pools of a simulated Controller, as Service Engines would: it listens on the VIPs, connects to the servers that
// are enabled and up, and tells the Controller how they are. So a wrong server shows as failed requests.
//
// It serves TCP and UDP; a connection is carried as it is, whatever the application profile says.
package dataplane

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/internal/simproxy"
)

// Controller is what tells the data plane what to do, and is told how servers are; an *avisim.Server.
type Controller interface {
	Traffic() (listeners []avisim.Listener, changed <-chan struct{})
	SetHealth(poolUUID, server string, h avisim.Health)
}

// Options are what a Controller does not say.
type Options = simproxy.Options

// Run carries traffic until ctx ends, then closes every connection.
func Run(ctx context.Context, c Controller, o Options) { simproxy.Run(ctx, source{c}, o) }

// source is a Controller in the words of the proxy.
type source struct{ controller Controller }

// Traffic returns what the Controller says.
func (s source) Traffic() ([]simproxy.Listener, <-chan struct{}) {
	listeners, changed := s.controller.Traffic()
	pools := map[*avisim.Pool]*simproxy.Pool{}
	out := make([]simproxy.Listener, 0, len(listeners))
	for _, l := range listeners {
		if l.Pool != nil && pools[l.Pool] == nil {
			pools[l.Pool] = pool(l.Pool)
		}
		out = append(out, simproxy.Listener{Address: l.Address, Protocol: l.Protocol, Name: "virtual service " + l.VirtualService, Pool: pools[l.Pool]})
	}
	return out, changed
}

// SetHealth tells the Controller what a monitor found.
func (s source) SetHealth(pool, server string, up bool, why string) {
	h := avisim.Health{State: avisim.OperUp, Since: time.Now()}
	if !up {
		h.State, h.Reason = avisim.OperDown, why
	}
	s.controller.SetHealth(pool, server, h)
}

// SetConnections does nothing: a Controller is not asked for them.
func (source) SetConnections(string, string, int) {}

func pool(p *avisim.Pool) *simproxy.Pool {
	out := &simproxy.Pool{ID: p.UUID, GracefulDisable: p.GracefulDisable}
	switch p.Algorithm {
	case "LB_ALGORITHM_ROUND_ROBIN":
		out.Algorithm = simproxy.RoundRobin
	case "LB_ALGORITHM_CONSISTENT_HASH":
		out.Algorithm = simproxy.SourceHash
	}
	at := slices.IndexFunc(p.Monitors, func(m avisim.Monitor) bool {
		return slices.Contains([]string{"HEALTH_MONITOR_TCP", "HEALTH_MONITOR_HTTP", "HEALTH_MONITOR_HTTPS"}, m.Type)
	})
	var monitor *simproxy.Monitor
	if at >= 0 {
		m := p.Monitors[at]
		monitor = &simproxy.Monitor{Interval: m.Interval, Timeout: m.Timeout, Rise: m.Rise, Fall: m.Fall, Port: m.Port}
	}
	for _, s := range p.Servers {
		id := net.JoinHostPort(s.Address.Addr().String(), strconv.Itoa(int(s.Address.Port())))
		out.Servers = append(out.Servers, simproxy.Server{ID: id, Address: s.Address, Enabled: s.Enabled, Ratio: s.Ratio, Monitor: monitor})
	}
	return out
}
