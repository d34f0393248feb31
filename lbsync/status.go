package lbsync

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Check is one named condition of readiness; nil is good.
type Check struct {
	Name  string
	Check func() error
}

// Checks returns what readiness depends on: the caches, and the load balancer where this process is the one to write it.
// Whoever waits for the Lease of a remote load balancer is ready.
func (s *Syncer) Checks() []Check {
	return []Check{
		{"caches", func() error {
			if !s.watch.Synced() {
				return errors.New("waiting for the API server's first answer")
			}
			return nil
		}},
		{"load-balancer", func() error {
			l := s.balancers[0].loop.Load()
			switch {
			case l == nil && !s.balancers[0].local:
				return nil
			case l == nil:
				return errors.New("waiting for the caches")
			}
			h := l.Health()
			if h.Observe != nil {
				return fmt.Errorf("cannot read the load balancer: %w", h.Observe)
			}
			if !h.Ready {
				return errors.New("waiting for the first sync")
			}
			return nil
		}},
	}
}

// Document is what Status returns; its JSON form is stable.
type Document struct {
	Instance    string          `json:"instance"`
	Identity    string          `json:"identity"`
	Provider    string          `json:"provider"`
	Kind        string          `json:"kind"` // of load balancer
	Leading     bool            `json:"leading"`
	Writing     bool            `json:"writing"` // this process writes the load balancer
	LastObserve *time.Time      `json:"lastObserve,omitempty"`
	Problem     string          `json:"problem,omitempty"`
	Held        bool            `json:"removalsHeld"`
	Services    []ServiceStatus `json:"services"`
}

// ServiceStatus is one Service on the load balancer.
type ServiceStatus struct {
	Service  string          `json:"service"` // "namespace/name"
	Wanted   bool            `json:"wanted"`
	Ports    []PortStatus    `json:"ports"`
	Refusals []model.Refusal `json:"refusals,omitempty"`
}

// PortStatus is one port of a Service: its virtual server and its pool, as acknowledged by the load balancer.
type PortStatus struct {
	Port       uint16         `json:"port"`
	Protocol   string         `json:"protocol"`
	VIPs       []string       `json:"vips,omitempty"`
	Programmed bool           `json:"programmed"`
	Problem    string         `json:"problem,omitempty"`
	Members    []MemberStatus `json:"members"`
}

// MemberStatus is one member.
type MemberStatus struct {
	Pod     string `json:"pod,omitempty"` // "namespace/name"; empty until the Pod has been matched after a restart
	PodUID  string `json:"podUID"`
	Address string `json:"address"`
	State   string `json:"state"`
}

// Status returns a Document.
func (s *Syncer) Status() any {
	d := Document{
		Instance: s.cfg.Instance, Identity: s.cfg.Identity, Provider: s.balancers[0].name,
		Kind: s.balancers[0].provider.Capabilities().Name, Leading: s.leading.Load(), Services: []ServiceStatus{},
	}
	l := s.balancers[0].loop.Load()
	if l == nil {
		return d
	}
	h := l.Health()
	d.Writing, d.Held = true, h.Held
	if !h.LastObserve.IsZero() {
		d.LastObserve = &h.LastObserve
	}
	if h.Observe != nil {
		d.Problem = h.Observe.Error()
	}
	for key, r := range l.Reports() {
		d.Services = append(d.Services, serviceStatus(key, r))
	}
	slices.SortFunc(d.Services, func(a, b ServiceStatus) int { return strings.Compare(a.Service, b.Service) })
	return d
}

func serviceStatus(key model.ServiceKey, r loop.Report) ServiceStatus {
	out := ServiceStatus{Service: key.String(), Wanted: r.Wanted, Ports: []PortStatus{}, Refusals: r.Refusals}
	for _, p := range r.Ports {
		port := PortStatus{
			Port: p.Key.Port, Protocol: string(p.Key.Protocol), Programmed: p.Programmed, Problem: p.Problem, Members: []MemberStatus{},
		}
		if p.Unsupported {
			port.Problem = "the load balancer cannot balance " + port.Protocol
		}
		for _, vip := range p.VIPs {
			port.VIPs = append(port.VIPs, vip.String())
		}
		for _, pool := range r.Pools {
			if pool.Key != p.Key {
				continue
			}
			for _, m := range pool.Members {
				port.Members = append(port.Members, MemberStatus{Pod: m.Name, PodUID: m.UID, Address: m.Address.String(), State: string(m.State)})
			}
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}
