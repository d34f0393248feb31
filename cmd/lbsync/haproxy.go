package main

import (
	"fmt"
	"net/netip"
	"strings"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy"
)

func haproxySettings() []settings.Setting {
	d := haproxy.DefaultConfig()
	return []settings.Setting{
		{
			Key: "haproxy.configFiles", Kind: settings.List, Default: d.ConfigFiles, Example: "[/etc/haproxy/haproxy.cfg]",
			Doc: "the administrator's files, in the order haproxy loads them; only read, to check a new file of ours together with them",
		},
		{
			Key: "haproxy.dir", Default: d.Dir, Example: "/etc/haproxy/npl.d",
			Doc: "directory that haproxy loads after those files; 50-npl.cfg in it is ours",
		},
		{
			Key: "haproxy.masterSocket", Default: d.MasterSocket, Example: "/run/haproxy-master.sock",
			Doc: "socket of haproxy's master process, haproxy -W -S <path>",
		},
		{
			Key: "haproxy.adminSocket", Default: d.AdminSocket, Example: "/run/haproxy/admin.sock",
			Doc: "socket of haproxy's worker, `stats socket <path> level admin` in its configuration; or host:port of a frontend with TLS in front of it, on an HAProxy where lbsync is to change members only",
		},
		{
			Key: "haproxy.caFile", Example: "/etc/nplbridge/haproxy/ca.crt",
			Doc: "PEM file with the certificates that such a frontend's is checked against, read again when it changes",
		},
		{
			Key: "haproxy.certFile", Example: "/etc/nplbridge/haproxy/tls.crt",
			Doc: "PEM file with the certificate that lbsync shows to such a frontend, read again when it changes",
		},
		{
			Key: "haproxy.keyFile", Example: "/etc/nplbridge/haproxy/tls.key",
			Doc: "PEM file with that certificate's key",
		},
		{
			Key: "haproxy.serverName", Example: "lb.example.com",
			Doc: "name that such a frontend's certificate must have; empty means the host in haproxy.adminSocket",
		},
		{
			Key: "haproxy.binary", Default: d.Binary, Example: "/usr/sbin/haproxy",
			Doc: "haproxy program that checks a file before it is loaded; set to nothing in file or flag where there is none beside lbsync, a file is then found bad only by loading it",
		},
		{
			Key: "haproxy.stateFile", Default: d.StateFile, Example: "/var/lib/haproxy/npl.state",
			Doc: "where the servers' states are kept over a reload; empty means 50-npl.state in the directory",
		},
		{
			Key: "haproxy.minReloadInterval", Kind: settings.Duration, Default: d.MinReloadInterval, Example: "10s",
			Doc: "least time between two reloads, 0s to 10m; changes of members need none and never wait",
		},
		{
			Key: "haproxy.writeDelay", Kind: settings.Duration, Default: d.WriteDelay, Example: "5s",
			Doc: "how long changes of members are collected before the file is written again, 0s to 1m",
		},
		{
			Key: "haproxy.checkInterval", Kind: settings.Duration, Default: d.CheckInterval, Example: "2s",
			Doc: "time between two health checks of a member, 100ms to 1h",
		},
		{
			Key: "haproxy.connectTimeout", Kind: settings.Duration, Default: d.ConnectTimeout, Example: "2s",
			Doc: "how long connecting to a member may take, 10ms to 1h",
		},
		{
			Key: "haproxy.idleTimeout", Kind: settings.Duration, Default: d.IdleTimeout, Example: "30m",
			Doc: "connections on which nobody sends are closed after this, 1s to 240h",
		},
		{
			Key: "haproxy.peerAddress", Default: d.PeerAddress.String(), Example: "192.0.2.11:10363", Want: wantAddressPort,
			Doc: "address and port where this HAProxy listens for the tables of clients, its own over a reload and those of haproxy.peers; only while a Service asks for persistence",
		},
		{
			Key: "haproxy.peers", Kind: settings.List, Example: "[lb-2=192.0.2.12:10363]",
			Doc: "the other HAProxies that share these tables, each name=address:port: the name that it has for itself, its host's, and its haproxy.peerAddress",
		},
		{
			Key: "haproxy.deleteServers", Kind: settings.Bool, Default: d.DeleteServers, Example: "false",
			Doc: "delete removed servers from the running HAProxy once their last connection has ended; false leaves them in maintenance until the next reload",
		},
	}
}

// haproxyConfig returns the settings of one HAProxy.
func haproxyConfig(v *settings.Values) (haproxy.Config, error) {
	cfg := haproxy.Config{
		ConfigFiles:       v.List("haproxy.configFiles"),
		Dir:               v.String("haproxy.dir"),
		MasterSocket:      v.String("haproxy.masterSocket"),
		AdminSocket:       v.String("haproxy.adminSocket"),
		Binary:            v.String("haproxy.binary"),
		StateFile:         v.String("haproxy.stateFile"),
		MinReloadInterval: v.Duration("haproxy.minReloadInterval"),
		WriteDelay:        v.Duration("haproxy.writeDelay"),
		CheckInterval:     v.Duration("haproxy.checkInterval"),
		ConnectTimeout:    v.Duration("haproxy.connectTimeout"),
		IdleTimeout:       v.Duration("haproxy.idleTimeout"),
		DeleteServers:     v.Bool("haproxy.deleteServers"),
		CAFile:            v.String("haproxy.caFile"),
		CertFile:          v.String("haproxy.certFile"),
		KeyFile:           v.String("haproxy.keyFile"),
		ServerName:        v.String("haproxy.serverName"),
	}
	cfg.PeerAddress, _ = netip.ParseAddrPort(v.String("haproxy.peerAddress")) // wantAddressPort has looked at it
	for _, text := range v.List("haproxy.peers") {
		name, at, _ := strings.Cut(text, "=")
		address, err := netip.ParseAddrPort(at)
		if _, twice := cfg.Peers[name]; err != nil || twice {
			return cfg, v.Reject("haproxy.peers", fmt.Sprintf("%q is not a name=address:port, or its name is there twice", text))
		}
		if cfg.Peers == nil {
			cfg.Peers = map[string]netip.AddrPort{}
		}
		cfg.Peers[name] = address
	}
	if err := cfg.Validate(); err != nil {
		return cfg, v.Invalid(err)
	}
	return cfg, nil
}

// haproxyPlace returns what no two HAProxies may share: the directory, or where one on another host is reached.
func haproxyPlace(v *settings.Values) string {
	if at := v.String("haproxy.adminSocket"); (haproxy.Config{AdminSocket: at}).Remote() {
		return at
	}
	return v.String("haproxy.dir")
}

func newHAProxy(v *settings.Values) (builder, error) {
	cfg, err := haproxyConfig(v)
	if err != nil {
		return nil, err
	}
	return func(owner providers.Owner, log *zap.Logger) (providers.Provider, error) {
		p, err := haproxy.New(cfg, owner, log)
		if err != nil {
			return nil, err // not a nil *Provider inside an interface
		}
		return p, nil
	}, nil
}

func wantAddressPort(value any) string {
	if at, err := netip.ParseAddrPort(value.(string)); err != nil || at.Port() == 0 {
		return "write an address and a port"
	}
	return ""
}
