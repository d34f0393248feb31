// Package config is the text of the one configuration file that nplbridge owns: from a model of it to the text, and
// back. It is pure. The text is deterministic, so equal models are equal files, and it always lists every
// current member, so that a restart or reload by anyone restores the truth without lbsync.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// File is what one generated file says.
type File struct {
	Owner      providers.Owner
	Generation Generation
	Services   []Service // sorted by Key
	// Open is where Services are served without a reload, Map the ending of the map file that goes with this text; both empty, or none.
	Open []Bind
	Map  string
	// Spares names the backends for such Services, those that have one included; sorted.
	Spares []string
}

// Generation names one structure: everything in a file except the servers. The worker reports it (`show env
// NPL_GENERATION`), which tells the file that it loaded. Number grows with every structure; Hash is the structure's.
type Generation struct {
	Number uint64
	Hash   string
}

// GenerationVariable is the environment variable that carries the generation.
const GenerationVariable = "NPL_GENERATION"

// String returns "<number>-<hash>".
func (g Generation) String() string { return strconv.FormatUint(g.Number, 10) + "-" + g.Hash }

// ParseGeneration reads what String wrote.
func ParseGeneration(text string) (Generation, error) {
	number, hash, ok := strings.Cut(text, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || !IsToken(hash) {
		return Generation{}, fmt.Errorf("not a generation <number>-<hash>: %.80q", text)
	}
	return Generation{Number: n, Hash: hash}, nil
}

// Service is one Service port: a backend, and the frontend before it unless it has none.
type Service struct {
	Key     providers.Key
	Pool    providers.PoolSettings
	Servers []Server // sorted by Address, then Name
	Virtual providers.VirtualServerSettings
	VIPs    []netip.Addr
	Port    uint16 // of the VIPs; 0 when there is no frontend
	Shared  string // see providers.VirtualServer; HAProxy itself has no use for it
	// Spare names the spare backend that the Service has instead of one of its own, with its addresses in the map instead of a frontend.
	Spare string
}

// SameStructure reports whether the two differ in nothing but their servers.
func (s Service) SameStructure(o Service) bool {
	return s.Key == o.Key && s.Pool.Equal(o.Pool) && s.Virtual.Equal(o.Virtual) && slices.Equal(s.VIPs, o.VIPs) && s.Port == o.Port &&
		s.Shared == o.Shared && s.Spare == o.Spare
}

// Backend returns the name of the Service's backend.
func (s Service) Backend() string {
	if s.Spare != "" {
		return s.Spare
	}
	return BackendName(s.Key)
}

// HasFrontend reports whether the Service port is served.
func (s Service) HasFrontend() bool { return len(s.VIPs) > 0 }

// Binds returns the addresses that the frontend listens on.
func (s Service) Binds() []netip.AddrPort {
	var binds []netip.AddrPort
	for _, vip := range s.VIPs {
		binds = append(binds, netip.AddrPortFrom(vip, s.Port))
	}
	return binds
}

// Server is one member as HAProxy knows it.
type Server struct {
	Name    string // see ServerName
	ID      int    // 1..2147483647, unique in the backend
	Address netip.AddrPort
	Weight  int  // 1..256
	Drained bool // in maintenance: established connections go on, new ones go elsewhere
}

// CompareServers orders servers by Address, then Name.
func CompareServers(a, b Server) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Name, b.Name))
}

// Settings are the values that all generated sections share.
type Settings struct {
	StateFile      string // absolute path
	StartDown      bool   // servers that are added at run time wait for their check; the file says nothing of it
	InitState      bool   // they can be told so as they are added, see runtime.Features
	CheckInterval  time.Duration
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration
	// Peers is where this HAProxy tells itself, over a reload, and the other of a pair which client has which member.
	Peers Peers
	// OpenPorts is where Services are to be served without a reload, tidy; MapFile is the absolute path of the map files without their endings.
	OpenPorts []Bind
	MapFile   string
}

// Peers are the HAProxies that share the tables of clients. The local one names itself.
type Peers struct {
	Bind   netip.AddrPort
	Others []Peer // sorted by Name
}

// Peer is another HAProxy.
type Peer struct {
	Name    string // what that HAProxy calls itself: its host's name, or what -L says
	Address netip.AddrPort
}

// Find returns the index of key in the file's Services and whether it is there.
func (f *File) Find(key providers.Key) (int, bool) {
	return slices.BinarySearchFunc(f.Services, key, func(s Service, k providers.Key) int { return s.Key.Compare(k) })
}

// Get returns the Service with this key, or nil. The pointer is valid until Set or Delete.
func (f *File) Get(key providers.Key) *Service {
	if i, ok := f.Find(key); ok {
		return &f.Services[i]
	}
	return nil
}

// Set inserts or replaces a Service.
func (f *File) Set(s Service) {
	if i, ok := f.Find(s.Key); ok {
		f.Services[i] = s
	} else {
		f.Services = slices.Insert(f.Services, i, s)
	}
}

// Delete removes a Service, if it is there.
func (f *File) Delete(key providers.Key) {
	if i, ok := f.Find(key); ok {
		f.Services = slices.Delete(f.Services, i, i+1)
	}
}

// Clone returns a copy that shares nothing which Set or Delete change.
func (f File) Clone() File {
	f.Services, f.Open, f.Spares = slices.Clone(f.Services), slices.Clone(f.Open), slices.Clone(f.Spares)
	return f
}

// Validate reports the first thing in a Service that the file cannot say.
func (s Service) Validate() error {
	if s.Key.Protocol != providers.TCP {
		return fmt.Errorf("haproxy cannot balance %s; only TCP ports can be served", s.Key.Protocol)
	}
	if !IsToken(s.Key.Namespace) || !IsToken(s.Key.Service) || s.Key.Port == 0 {
		return errors.New("namespace, Service and port must be a Kubernetes Service port")
	}
	if s.Spare != "" && !(isSpareName(s.Spare) && s.CanBeSpare()) {
		return fmt.Errorf("%.40q is not a spare backend that can be this Service's", s.Spare)
	}
	if err := checkMonitor(s.Pool.Monitor); err != nil {
		return err
	}
	if s.HasFrontend() == (s.Port == 0) {
		return errors.New("a virtual server needs at least one address and a port from 1 to 65535")
	}
	for _, vip := range s.VIPs {
		if !vip.IsValid() || vip.Zone() != "" || vip.IsUnspecified() {
			return fmt.Errorf("%s is not an address that a virtual server can have", vip)
		}
	}
	return nil
}

// IsToken reports whether text can stand in a HAProxy name as it is.
func IsToken(text string) bool {
	for i := range len(text) {
		if !isPlain(text[i]) {
			return false
		}
	}
	return text != "" && len(text) <= 253
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.'
}
