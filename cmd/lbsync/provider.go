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
	"avi":       newAvi,
	"bigip":     newBigIP,
	kindHAProxy: newHAProxy,
}

const kindHAProxy = "haproxy"

// balancer is one load balancer as the settings describe it.
type balancer struct {
	name, kind string
	build      builder
}

// balancers returns the load balancers that the settings name, in their order, at least one.
func balancers(v *settings.Values) ([]balancer, error) {
	records := v.Records("providers")
	if len(records) == 0 {
		b, err := newBalancer(v, "providerName", "provider")
		return []balancer{b}, err
	}
	for _, key := range []string{"provider", "providerName"} {
		if !v.Defaulted(key) {
			return nil, v.Reject(key, "providers is set as well; name each load balancer once, in providers")
		}
	}
	var out []balancer
	places := map[string]string{} // of the files of each HAProxy, by directory
	for _, record := range records {
		for _, key := range []string{"name", "kind"} {
			if record.String(key) == "" {
				return nil, record.Reject(key, "missing")
			}
		}
		b, err := newBalancer(record, "name", "kind")
		if err != nil {
			return nil, err
		}
		if b.kind == kindHAProxy {
			dir := record.String("haproxy.dir")
			if other, taken := places[dir]; taken {
				return nil, record.Reject("haproxy.dir", "is that of "+other+" too; give each HAProxy a directory and sockets of its own")
			}
			places[dir] = b.name
		}
		out = append(out, b)
	}
	return out, nil
}

func newBalancer(v *settings.Values, nameKey, kindKey string) (balancer, error) {
	b := balancer{name: v.String(nameKey), kind: v.String(kindKey)}
	kind, ok := kinds[b.kind]
	if !ok {
		return b, v.Reject(kindKey, "unknown provider; known: "+known())
	}
	var err error
	b.build, err = kind(v)
	return b, err
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
