package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// settings returns what the load balancer can do of what the Service asks for, and notes the rest. ok is false when the port cannot be
// served at all: for its protocol, or because somebody would be let in whom the Service keeps out.
func (b *builder) settings() (pool providers.PoolSettings, virtual providers.VirtualServerSettings, ok bool) {
	if !b.can(providers.Pool{Key: b.key, Attached: b.attached}) {
		return pool, virtual, false
	}
	if b.attached != "" {
		return pool, virtual, b.leaveSettings()
	}
	pool = b.poolSettings()
	virtual, ok = b.virtualSettings()
	b.options(&pool, &virtual)
	if b.in.Service.Wishes.Kept.Pool && b.current != nil {
		pool = b.current.Settings
	}
	if there := b.in.CurrentVS[b.key]; b.in.Service.Wishes.Kept.Virtual && there != nil {
		ranges := virtual.SourceRanges // they can be read, or the Service would not be served
		virtual = there.Settings
		virtual.SourceRanges = ranges
	}
	if !b.in.Capabilities.Has(providers.Weights) && slices.ContainsFunc(b.in.Endpoints, func(e Endpoint) bool { return e.Pod.Weight > 1 }) {
		b.note("%s cannot weigh members", b.in.Capabilities.Name)
	}
	return pool, virtual, ok
}

// can reports whether the load balancer can have a pool, and notes what it cannot.
func (b *builder) can(p providers.Pool) bool { return b.noteError(b.in.Capabilities.CheckPool(p)) }

func (b *builder) canVirtual(v providers.VirtualServer) bool {
	return b.noteError(b.in.Capabilities.CheckVirtualServer(v))
}

func (b *builder) noteError(err error) bool {
	if err != nil {
		b.note("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err == nil
}

// leaveSettings says that a pool of somebody else has the settings that it has.
func (b *builder) leaveSettings() (ok bool) {
	wishes := b.in.Service.Wishes
	if ranges := wishes.Virtual.SourceRanges; len(ranges) > 0 {
		b.note("clients cannot be restricted to %s in front of pool %q, which is somebody else's; restrict them there and remove the field from the Service",
			join(ranges), b.attached)
		return false
	}
	if !wishes.Pool.Equal(providers.PoolSettings{}) || !wishes.Virtual.Equal(providers.VirtualServerSettings{}) || len(wishes.Options[b.in.Capabilities.Name]) > 0 {
		b.note("settings are for pools of our own, so pool %q keeps those that it has", b.attached)
	}
	return true
}

// poolSettings tries each setting on its own, so that one that cannot be had takes no other with it.
func (b *builder) poolSettings() (out providers.PoolSettings) {
	s := b.in.Service.Wishes.Pool
	try := func(one providers.PoolSettings) bool { return b.can(providers.Pool{Key: b.key, Settings: one}) }
	if try(providers.PoolSettings{Algorithm: s.Algorithm}) {
		out.Algorithm = s.Algorithm
	}
	if try(providers.PoolSettings{Persistence: s.Persistence}) {
		out.Persistence = s.Persistence
	}
	if try(providers.PoolSettings{Monitor: s.Monitor}) {
		out.Monitor = s.Monitor
	}
	if try(providers.PoolSettings{ProxyProtocol: s.ProxyProtocol}) {
		out.ProxyProtocol = s.ProxyProtocol
	}
	if try(providers.PoolSettings{SlowStart: s.SlowStart}) {
		out.SlowStart = s.SlowStart
	}
	if try(providers.PoolSettings{MemberConnections: s.MemberConnections}) {
		out.MemberConnections = s.MemberConnections
	}
	if out.Algorithm == "" {
		out.Algorithm = providers.RoundRobin
	}
	return out
}

func (b *builder) virtualSettings() (out providers.VirtualServerSettings, ok bool) {
	s := b.in.Service.Wishes.Virtual
	try := func(one providers.VirtualServerSettings) bool {
		return b.canVirtual(providers.VirtualServer{Key: b.key, Settings: one})
	}
	if try(providers.VirtualServerSettings{IdleTimeout: s.IdleTimeout}) {
		out.IdleTimeout = s.IdleTimeout
	}
	if try(providers.VirtualServerSettings{AcceptProxyProtocol: s.AcceptProxyProtocol}) {
		out.AcceptProxyProtocol = s.AcceptProxyProtocol
	}
	out.SourceRanges = s.SourceRanges
	return out, try(providers.VirtualServerSettings{SourceRanges: s.SourceRanges})
}

// options gives the options of this kind of load balancer to what each is about.
func (b *builder) options(pool *providers.PoolSettings, virtual *providers.VirtualServerSettings) {
	asked := b.in.Service.Wishes.Options[b.in.Capabilities.Name]
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		one := map[string]string{name: asked[name]}
		about := slices.ContainsFunc(b.in.Capabilities.Options, func(o providers.Option) bool { return o.Name == name && o.Virtual })
		switch {
		case about && b.canVirtual(providers.VirtualServer{Key: b.key, Settings: providers.VirtualServerSettings{Options: one}}):
			virtual.Options = with(virtual.Options, name, asked[name])
		case !about && b.can(providers.Pool{Key: b.key, Settings: providers.PoolSettings{Options: one}}):
			pool.Options = with(pool.Options, name, asked[name])
		}
	}
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// virtualServer returns what clients connect to. Other addresses come as one change of the virtual server that is there: a provider that
// can listen on both meanwhile does, and none stops listening on the old ones before it can take the new ones. What is there stays while
// the assignment or the finalizer is missing: the Lease holder is about to restore them.
func (b *builder) virtualServer(settings providers.VirtualServerSettings) (_ providers.VirtualServer, ok bool) {
	s := b.in.Service
	if b.attached != "" {
		return providers.VirtualServer{}, false
	}
	vips := b.vips()
	if s.Admitted && len(vips) > 0 {
		vs := providers.VirtualServer{Key: b.key, VIPs: vips, Port: b.key.Port, Settings: settings}
		if group := s.group(); group != "" && b.canVirtual(providers.VirtualServer{Key: b.key, Shared: group}) {
			vs.Shared = group
		}
		return vs, true
	}
	if there := b.in.CurrentVS[b.key]; there != nil {
		return *there, true
	}
	return providers.VirtualServer{}, false
}

// group returns the Services that this one shares its addresses with, as VirtualServer.Shared does.
func (s Service) group() string {
	if s.Wishes.SharedVIP == "" {
		return ""
	}
	return s.Namespace + "/" + s.Wishes.SharedVIP
}
