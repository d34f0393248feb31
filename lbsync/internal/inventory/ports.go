package inventory

import (
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// nodePort is a port of all Nodes on which load balancers of a provider instance stand. One Service can have it.
type nodePort struct {
	instance string
	port     uint16
	protocol providers.Protocol
}

// nodePorts returns the ports that a Service is to have on Nodes. It depends on nothing but the record.
func (x *Index) nodePorts(s *service) (out []nodePort) {
	if !s.AtNodes() {
		return nil
	}
	for _, instance := range x.atNodes {
		if !s.Wanted(instance) {
			continue
		}
		for _, p := range s.Ports {
			out = append(out, nodePort{instance, p.Port, p.Protocol})
		}
	}
	return out
}

func (x *Index) addPorts(s *service, now time.Time) {
	for _, p := range x.nodePorts(s) {
		x.ports.add(p, s)
		x.touchRivals(p, now)
	}
}

func (x *Index) dropPorts(s *service, now time.Time) {
	for _, p := range x.nodePorts(s) {
		x.ports.remove(p, s)
		x.touchRivals(p, now)
	}
}

func (x *Index) touchRivals(p nodePort, now time.Time) {
	for s := range x.ports.of(p) {
		x.touch(s, now)
	}
}

// PortOwner returns the oldest Service that is to have a port on the Nodes of a provider instance, by its creation and then its UID, unless
// that is the Service which asks.
func (x *Index) PortOwner(instance string, asks model.ServiceKey, port uint16, protocol providers.Protocol) (owner model.ServiceKey, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var oldest *service
	for s := range x.ports.of(nodePort{instance, port, protocol}) {
		if oldest == nil || older(s, oldest) {
			oldest = s
		}
	}
	if oldest == nil || oldest.ServiceKey == asks {
		return model.ServiceKey{}, false
	}
	return oldest.ServiceKey, true
}
