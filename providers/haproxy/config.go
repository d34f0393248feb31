package haproxy

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// Config locates one HAProxy and says how to drive it. The zero value is not valid: start from DefaultConfig.
type Config struct {
	// ConfigFiles are the administrator's files in the order haproxy loads them; required for the check of a
	// generated file. They are only read, and only by `haproxy -c`.
	ConfigFiles []string
	// Dir is the directory that haproxy loads after ConfigFiles (-f <Dir>). 50-npl.cfg in it is ours; New creates both.
	Dir string
	// MasterSocket is the path of the master's socket (haproxy -W -S <path>).
	MasterSocket string
	// AdminSocket is the path of the worker's socket (`stats socket <path> level admin`); or host:port of a frontend with TLS in front of it,
	// for an HAProxy on another host. Of that one only members of its own backends can be changed, and of the other fields only
	// CheckInterval, DeleteServers and the three files below count.
	AdminSocket string
	// CAFile has the certificates that such a frontend's is checked against; CertFile and KeyFile are what lbsync shows. All are PEM,
	// and are read again with every connection.
	CAFile, CertFile, KeyFile string
	// ServerName is the name in that frontend's certificate; empty is the host in AdminSocket.
	ServerName string
	// Binary is the haproxy program that checks a file before it is loaded, a name or a path. Empty skips the check,
	// where lbsync's container has no haproxy; a failing reload is then found only by trying.
	Binary string
	// StateFile is where server states are kept across a reload; haproxy must be able to read it. Empty means
	// 50-npl.state in Dir.
	StateFile string
	// MinReloadInterval is the least time between two reloads; 0 to 10m. A change of structure that comes earlier is
	// answered with Throttled. Members never wait for it.
	MinReloadInterval time.Duration
	// WriteDelay is how long changes of members are collected before the file is rewritten, without a reload; 0 to 1m.
	WriteDelay time.Duration
	// CheckInterval is the time between two health checks (TCP connects) of a member; 100ms to 1h.
	CheckInterval time.Duration
	// ConnectTimeout bounds connecting to a member; 10ms to 1h.
	ConnectTimeout time.Duration
	// IdleTimeout closes connections on which nobody sends; 1s to 240h.
	IdleTimeout time.Duration
	// PeerAddress is where this HAProxy listens for the tables of clients, over a reload its own and those of the other of a pair.
	// The zero value is DefaultConfig's.
	PeerAddress netip.AddrPort
	// Peers are the other HAProxies that share these tables: the name each has for itself (its host's, or haproxy -L) and its PeerAddress.
	Peers map[string]netip.AddrPort
	// OpenPorts are the addresses and ports on which HAProxy listens although no Service is there yet, "<address or prefix>:<port or first-last>" each.
	// A Service that comes there, and asks for no more than a spare backend gives, needs no reload. Empty: every new Service needs one.
	OpenPorts []string
	// SpareBackends is how many backends there are beyond those that such Services have; 1 to 1000. Counts only with OpenPorts.
	SpareBackends int
	// StartDown keeps connections from a member that comes while HAProxy runs until its check has succeeded. False believes the Pod, which is ready.
	StartDown bool
	// DeleteServers deletes removed servers from the running HAProxy once their last connection has ended. False
	// leaves them in maintenance until the next reload; 2.6.12 lacks two upstream fixes in this place.
	DeleteServers bool
}

// DefaultConfig returns the values for Debian's haproxy package. Debian's unit starts the master with this socket;
// /etc/default/haproxy must add the directory (docs/how-to/haproxy.md).
func DefaultConfig() Config {
	return Config{
		ConfigFiles:       []string{"/etc/haproxy/haproxy.cfg"},
		Dir:               "/etc/haproxy/npl.d",
		MasterSocket:      "/run/haproxy-master.sock",
		AdminSocket:       "/run/haproxy/admin.sock",
		Binary:            "haproxy",
		MinReloadInterval: 2 * time.Second,
		WriteDelay:        time.Second,
		CheckInterval:     5 * time.Second,
		ConnectTimeout:    5 * time.Second,
		IdleTimeout:       time.Hour,
		PeerAddress:       netip.MustParseAddrPort("127.0.0.1:10363"),
		SpareBackends:     50,
		DeleteServers:     true,
	}
}

// Validate reports every setting that cannot be used, with its value and what would do.
func (c Config) Validate() error {
	var errs []error
	path := func(name, value string) {
		if !filepath.IsAbs(value) || strings.ContainsAny(value, " \t\r\n\"'\\#$") {
			errs = append(errs, fmt.Errorf("haproxy %s: %q is not an absolute path without blanks, quotes, #, $ and \\", name, value))
		}
	}
	for _, file := range c.ConfigFiles {
		path("configFiles", file)
	}
	path("dir", c.Dir)
	path("masterSocket", c.MasterSocket)
	if !c.Remote() {
		path("adminSocket", c.AdminSocket)
	} else {
		for _, f := range []struct{ name, value string }{{"caFile", c.CAFile}, {"certFile", c.CertFile}, {"keyFile", c.KeyFile}} {
			if f.value == "" {
				errs = append(errs, fmt.Errorf("haproxy %s: empty; adminSocket %s is on the network, where only TLS with certificates of both sides will do", f.name, c.AdminSocket))
			} else {
				path(f.name, f.value)
			}
		}
	}
	if c.StateFile != "" {
		path("stateFile", c.StateFile)
	}
	if strings.HasSuffix(c.StateFile, ".cfg") {
		errs = append(errs, fmt.Errorf("haproxy stateFile: %q ends in .cfg, haproxy would load it; use another ending", c.StateFile))
	}
	if c.Binary != "" && len(c.ConfigFiles) == 0 {
		errs = append(errs, errors.New("haproxy configFiles: empty; name the files haproxy is started with, or set binary to \"\""))
	}
	within := func(name string, value, low, high time.Duration) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("haproxy %s: %s is not within %s and %s", name, value, low, high))
		}
	}
	within("minReloadInterval", c.MinReloadInterval, 0, 10*time.Minute)
	within("writeDelay", c.WriteDelay, 0, time.Minute)
	within("checkInterval", c.CheckInterval, 100*time.Millisecond, time.Hour)
	within("connectTimeout", c.ConnectTimeout, 10*time.Millisecond, time.Hour)
	within("idleTimeout", c.IdleTimeout, time.Second, 240*time.Hour)
	if _, err := config.ParseOpenPorts(c.OpenPorts); err != nil {
		errs = append(errs, fmt.Errorf("haproxy openPorts: %w", err))
	}
	if len(c.OpenPorts) > 0 {
		if c.SpareBackends < 1 || c.SpareBackends > 1000 {
			errs = append(errs, fmt.Errorf("haproxy spareBackends: %d is not within 1 and 1000", c.SpareBackends))
		}
		if c.Remote() {
			errs = append(errs, fmt.Errorf("haproxy openPorts: of an haproxy on another host, %s, lbsync changes members only; remove them", c.AdminSocket))
		}
		if strings.ContainsAny(c.Dir, ",()") {
			errs = append(errs, fmt.Errorf("haproxy dir: %q has a comma or parentheses, which openPorts does not take", c.Dir))
		}
	}
	if c.PeerAddress != (netip.AddrPort{}) && (c.PeerAddress.Port() == 0 || c.PeerAddress.Addr().Zone() != "") {
		errs = append(errs, fmt.Errorf("haproxy peerAddress: %q is not an address and a port", c.PeerAddress))
	}
	for name, address := range c.Peers {
		if !config.IsToken(name) || !address.IsValid() || address.Port() == 0 {
			errs = append(errs, fmt.Errorf("haproxy peers: %q at %q is not a host's name with an address and a port", name, address))
		}
	}
	return errors.Join(errs...)
}

// Remote reports whether the HAProxy is on another host.
func (c Config) Remote() bool {
	_, port, err := net.SplitHostPort(c.AdminSocket)
	return err == nil && port != "" && !strings.HasPrefix(c.AdminSocket, "/")
}

// endpoint returns where the worker's command line is.
func (c Config) endpoint() runtime.Endpoint {
	if c.Remote() {
		return runtime.TLS{Address: c.AdminSocket, ServerName: c.ServerName, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}
	}
	return runtime.Unix(c.AdminSocket)
}

// peers returns what the file says of peers, in a fixed order.
func (c Config) peers() config.Peers {
	p := config.Peers{Bind: c.PeerAddress}
	if !p.Bind.IsValid() {
		p.Bind = DefaultConfig().PeerAddress
	}
	for _, name := range slices.Sorted(maps.Keys(c.Peers)) {
		p.Others = append(p.Others, config.Peer{Name: name, Address: c.Peers[name]})
	}
	return p
}

// stateFile returns StateFile or its default.
func (c Config) stateFile() string {
	if c.StateFile != "" {
		return c.StateFile
	}
	return filepath.Join(c.Dir, "50-npl.state")
}
