package main

import (
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy"
)

// builder makes a provider for an owner. It has no side effects before it is called.
type builder func(providers.Owner, *zap.Logger) (providers.Provider, error)

// kinds are the load balancers lbsync can drive, each with what turns settings into its builder.
var kinds = map[string]func(*settings.Values) (builder, error){
	"avi":     newAvi,
	"haproxy": newHAProxy,
}

// provider returns the builder of the provider that the settings name.
func provider(v *settings.Values) (builder, error) {
	if kind, ok := kinds[v.String("provider")]; ok {
		return kind(v)
	}
	return nil, v.Reject("provider", "unknown provider; known: "+known())
}

// known lists the load balancers, for people.
func known() string { return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") }

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
			Doc: "socket of haproxy's worker, `stats socket <path> level admin` in its configuration",
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
			Key: "haproxy.deleteServers", Kind: settings.Bool, Default: d.DeleteServers, Example: "false",
			Doc: "delete removed servers from the running HAProxy once their last connection has ended; false leaves them in maintenance until the next reload",
		},
	}
}

func newHAProxy(v *settings.Values) (builder, error) {
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
	}
	if err := cfg.Validate(); err != nil {
		return nil, v.Invalid(err)
	}
	return func(owner providers.Owner, log *zap.Logger) (providers.Provider, error) {
		p, err := haproxy.New(cfg, owner, log)
		if err != nil {
			return nil, err // not a nil *Provider inside an interface
		}
		return p, nil
	}, nil
}
