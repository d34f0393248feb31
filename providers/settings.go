package providers

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// PoolSettings are what a Service may say about its pool beside the members. The zero value of each field leaves it to the provider.
//
// A provider returns from Observe the settings that were applied as long as the load balancer still has what they mean, and otherwise
// settings that differ in what does not match. So what a provider fills in by itself is never a difference.
type PoolSettings struct {
	Algorithm   Algorithm   `json:"algorithm,omitempty"`
	Persistence Persistence `json:"persistence,omitzero"`
	Monitor     Monitor     `json:"monitor,omitzero"`
	// ProxyProtocol is what members are told about the client, ahead of its data. It wants members that expect it.
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty"`
	// SlowStart is over how long a new member's share grows to its full size; whole seconds.
	SlowStart time.Duration `json:"slowStart,omitzero"`
	// MemberConnections is the most connections one member gets at once; more wait or are refused.
	MemberConnections uint32 `json:"memberConnections,omitempty"`
	// Options are settings of this provider alone, see Capabilities.Options.
	Options map[string]string `json:"options,omitempty"`
}

// Equal reports whether the settings mean the same.
func (s PoolSettings) Equal(o PoolSettings) bool {
	return s.Algorithm == o.Algorithm && s.Persistence == o.Persistence && s.Monitor == o.Monitor && s.ProxyProtocol == o.ProxyProtocol &&
		s.SlowStart == o.SlowStart && s.MemberConnections == o.MemberConnections && maps.Equal(s.Options, o.Options)
}

// VirtualServerSettings are what a Service may say about what clients connect to. The zero value of each field leaves it to the
// provider. What PoolSettings says about Observe holds here too.
type VirtualServerSettings struct {
	// SourceRanges are whom connections are taken from; sorted, none overlapping; empty is everybody.
	SourceRanges []netip.Prefix `json:"sourceRanges,omitempty"`
	// IdleTimeout closes connections on which nothing was sent for so long; whole seconds.
	IdleTimeout time.Duration `json:"idleTimeout,omitzero"`
	// AcceptProxyProtocol expects the PROXY protocol from clients, which are other load balancers then.
	AcceptProxyProtocol bool              `json:"acceptProxyProtocol,omitempty"`
	Options             map[string]string `json:"options,omitempty"`
}

// Equal reports whether the settings mean the same.
func (s VirtualServerSettings) Equal(o VirtualServerSettings) bool {
	return slices.Equal(s.SourceRanges, o.SourceRanges) && s.IdleTimeout == o.IdleTimeout && s.AcceptProxyProtocol == o.AcceptProxyProtocol &&
		maps.Equal(s.Options, o.Options)
}

// Algorithm is how a pool chooses among its Enabled members.
type Algorithm string

// The algorithms. Empty stands for RoundRobin, which every provider has.
const (
	RoundRobin       Algorithm = "RoundRobin"
	LeastConnections Algorithm = "LeastConnections"
	// SourceHash gives a client address the same member while the members stay, and moves few clients when they change.
	SourceHash Algorithm = "SourceHash"
)

// Persistence sends a client to the member it had before.
type Persistence struct {
	Kind    PersistenceKind `json:"kind,omitempty"`   // empty is none
	Timeout time.Duration   `json:"timeout,omitzero"` // since the client's last connection; whole seconds; 0 is three hours, as in core/v1 ClientIPConfig
}

// PersistenceKind is what a client is recognised by.
type PersistenceKind string

// SourceAddress recognises a client by its address.
const SourceAddress PersistenceKind = "SourceAddress"

// Monitor is how the load balancer itself finds out whether a member answers. Readiness is known from Kubernetes; a monitor sees the
// way to the Pod as well.
type Monitor struct {
	Type MonitorType `json:"type,omitempty"`
	// Name is of a monitor that exists on the load balancer, in its own spelling; only with MonitorExisting.
	Name string `json:"name,omitempty"`
	// Path and Host of the request; only with MonitorHTTP and MonitorHTTPS. Path begins with "/"; empty is "/".
	Path string `json:"path,omitempty"`
	Host string `json:"host,omitempty"`
	// Interval between two looks and Timeout of each; whole seconds; 0 leaves it to the provider.
	Interval time.Duration `json:"interval,omitzero"`
	Timeout  time.Duration `json:"timeout,omitzero"`
	// Rise and Fall are how many good or bad looks in a row change the member's health; 0 leaves it to the provider.
	Rise uint8 `json:"rise,omitempty"`
	Fall uint8 `json:"fall,omitempty"`
}

// MonitorType is what a monitor does. Empty leaves it to the provider, which connects to the port.
type MonitorType string

// The kinds of monitor.
const (
	MonitorNone     MonitorType = "None" // every member counts as up
	MonitorTCP      MonitorType = "TCP"
	MonitorHTTP     MonitorType = "HTTP" // any answer from 200 to 399 is good
	MonitorHTTPS    MonitorType = "HTTPS"
	MonitorUDP      MonitorType = "UDP"
	MonitorExisting MonitorType = "Existing" // Name says which
)

// ProxyProtocol is a version of HAProxy's PROXY protocol; empty is none.
type ProxyProtocol string

// The versions of the PROXY protocol.
const (
	ProxyV1 ProxyProtocol = "v1"
	ProxyV2 ProxyProtocol = "v2"
)
