package model

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// key returns the key of one port.
func (s Service) key(port ServicePort) providers.Key {
	return providers.Key{Namespace: s.Namespace, Service: s.Name, Port: port.Port, Protocol: port.Protocol}
}

// attachment returns the pool of somebody else that a port's members are put into on a provider instance; empty is a pool of our own.
// here is false when the port is not to be on the instance: a Service that names pools of others is only in those.
func (s Service) attachment(instance string, port ServicePort) (pool string, here bool) {
	if len(s.Wishes.Attachments) == 0 {
		return "", true
	}
	for _, a := range s.Wishes.Attachments {
		if at := s.named(a.Port); a.Instance == instance && at >= 0 && s.Ports[at].key() == port.key() {
			return a.Pool, true
		}
	}
	return "", false
}

// Pools returns the keys of the pools that the Service is to have or to be in on a provider instance, if it is wanted there.
func (s Service) Pools(instance string) (out []providers.Key) {
	for _, port := range s.Ports {
		if _, here := s.attachment(instance, port); here {
			out = append(out, s.key(port))
		}
	}
	return out
}

// named returns the index of the port that a name or a number means, or -1. A number that is there with two protocols means the first.
func (s Service) named(port string) int {
	if at := slices.IndexFunc(s.Ports, func(p ServicePort) bool { return p.Name != "" && p.Name == port }); at >= 0 {
		return at
	}
	return slices.IndexFunc(s.Ports, func(p ServicePort) bool { return strconv.Itoa(int(p.Port)) == port })
}

type portKey struct {
	port     uint16
	protocol providers.Protocol
}

func (p ServicePort) key() portKey { return portKey{p.Port, p.Protocol} }

// Misattached returns the attachments that mean no port of the Service, or one that has an attachment on the same instance already. They
// are left out; only someone who knows the ports can tell.
func (s Service) Misattached() []annotations.Problem {
	type place struct {
		instance string
		port     portKey
	}
	var out []annotations.Problem
	taken := map[place]string{}
	for _, a := range s.Wishes.Attachments {
		problem := annotations.Problem{Key: annotations.Pool, Value: fmt.Sprintf("%s=%s:%s", a.Port, a.Instance, a.Pool)}
		at := s.named(a.Port)
		if at < 0 {
			problem.Message = fmt.Sprintf("the Service has no port %q; write the number or the name of one of its ports", a.Port)
			out = append(out, problem)
			continue
		}
		where := place{a.Instance, s.Ports[at].key()}
		if first, is := taken[where]; is {
			problem.Message = fmt.Sprintf("port %d/%s is put into %s on %s already; write one pool for each port and provider, and names instead of numbers "+
				"where two ports have the same number", where.port.port, where.port.protocol, first, a.Instance)
			out = append(out, problem)
			continue
		}
		taken[where] = a.Pool
	}
	return out
}
