package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/lbsync"
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
			Key: "haproxy.nodeAddresses", Kind: settings.Bool, Default: false, Example: "true",
			Doc: "this HAProxy runs on the Node nodeName, and Services that ask for no address are served at the addresses of that Node; address pools are then for those that ask",
		},
		{
			Key: "haproxy.announce", Default: announceRouted, Example: announceInterface, Want: wantAnnounce,
			Doc: "how clients get to an address of a pool: routed (the network leads them to every HAProxy of this name) or interface (to the host that has it on an interface, as keepalived arranges; one that no host has is not published)",
		},
		{
			Key: "haproxy.openPorts", Kind: settings.List, Example: "[\"192.0.2.0/28:80\", \"192.0.2.0/28:443\"]",
			Doc: "addresses and ports, <address or prefix>:<port or first-last>, on which HAProxy listens before a Service is there, so that those that come and go there need no reload; at most 10,000 ports; empty means that each new Service needs one",
		},
		{
			Key: "haproxy.spareBackends", Default: strconv.Itoa(d.SpareBackends), Example: "200", Want: wantNumber,
			Doc: "how many backends wait for such Services, 1 to 1000; when they are used up, the next Service costs a reload that makes as many again",
		},
		{
			Key: "haproxy.startDown", Kind: settings.Bool, Default: d.StartDown, Example: "true",
			Doc: "a member that comes gets no connection until its check has succeeded twice, or as often as the monitor of its Service says; false believes the Pod, which is ready",
		},
		{
			Key: "haproxy.deleteServers", Kind: settings.Bool, Default: d.DeleteServers, Example: "false",
			Doc: "delete removed servers from the running HAProxy once their last connection has ended; false leaves them in maintenance until the next reload",
		},
	}
}

// The values of haproxy.announce.
const (
	announceRouted    = "routed"
	announceInterface = "interface"
)

func wantAnnounce(value any) string {
	if v := value.(string); v != announceRouted && v != announceInterface {
		return "write " + announceRouted + " or " + announceInterface
	}
	return ""
}

// haproxyPlaces enters in the configuration what the settings of one load balancer say about the host that it is on.
func haproxyPlaces(c *lbsync.Config, name string, v *settings.Values) error {
	remote := haproxy.Config{AdminSocket: v.String("haproxy.adminSocket")}.Remote()
	if v.Bool("haproxy.nodeAddresses") {
		if remote {
			return v.Reject("haproxy.nodeAddresses", "haproxy.adminSocket is on another host; only an HAProxy beside lbsync is on its Node")
		}
		c.NodeAddresses = append(c.NodeAddresses, name)
	}
	if v.String("haproxy.announce") == announceInterface {
		if remote {
			return v.Reject("haproxy.announce", "haproxy.adminSocket is on another host, whose interfaces lbsync does not see; write "+announceRouted)
		}
		c.AnnounceByInterface = append(c.AnnounceByInterface, name)
	}
	return nil
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
		StartDown:         v.Bool("haproxy.startDown"),
		DeleteServers:     v.Bool("haproxy.deleteServers"),
		CAFile:            v.String("haproxy.caFile"),
		CertFile:          v.String("haproxy.certFile"),
		KeyFile:           v.String("haproxy.keyFile"),
		ServerName:        v.String("haproxy.serverName"),
		OpenPorts:         v.List("haproxy.openPorts"),
	}
	cfg.SpareBackends, _ = strconv.Atoi(v.String("haproxy.spareBackends"))    // wantNumber has looked at it
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
	return func(owner providers.Owner, log *zap.Logger, _ observer) (providers.Provider, error) {
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

func haproxyCommand(by caller) *cobra.Command {
	command := &cobra.Command{
		Use:   "haproxy",
		Short: "Look at an HAProxy: what is wrong with it, what it has, what it lacks",
		Long: `Looks at the HAProxies of the settings, from beside them, as lbsync itself does. Asks neither the cluster nor a running lbsync, and
changes nothing.`,
		Example: by.lines("  lbsync haproxy doctor --config /etc/nplbridge/lbsync.yaml\n  lbsync haproxy diff"),
	}
	command.AddCommand(haproxyDoctor(by), haproxyDump(by), haproxyDiff(by))
	return command
}

// haproxyLimit bounds looking at one HAProxy.
const haproxyLimit = 30 * time.Second

// haproxies calls look for each HAProxy of the settings.
func haproxies(c *cobra.Command, table settings.Table, look func(ctx context.Context, name string, cfg haproxy.Config) error) error {
	values, err := table.Load(c.Flags())
	if err != nil {
		return err
	}
	all := map[string]*settings.Values{}
	for _, record := range values.Records("providers") {
		if record.String("kind") == kindHAProxy {
			all[record.String("name")] = record
		}
	}
	if len(values.Records("providers")) == 0 && values.String("provider") == kindHAProxy {
		all[values.String("providerName")] = values
	}
	if len(all) == 0 {
		return values.Reject("provider", "the settings name no HAProxy")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		cfg, err := haproxyConfig(all[name])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), haproxyLimit)
		err = look(ctx, name, cfg)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func haproxyDoctor(by caller) *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with an HAProxy, and what to do",
		Long: `Examines program, files, sockets and rights, versions, the master process, the generation, leftovers, listeners, limits and members.
Exits 0 without a failure, 1 with one; warnings are none.`,
		Example: by.lines("  lbsync haproxy doctor --config /etc/nplbridge/lbsync.yaml\n  lbsync haproxy doctor -o json"),
		Args:    cobra.NoArgs,
	}
	output := program.OutputFlag(command, "table", "json", "yaml")
	table.AddFlags(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		type row struct {
			On string `json:"on"`
			haproxy.Finding
		}
		found := struct {
			Findings []row `json:"findings"`
		}{[]row{}}
		failed := false
		err := haproxies(c, table, func(ctx context.Context, name string, cfg haproxy.Config) error {
			for _, f := range haproxy.Doctor(ctx, cfg) {
				found.Findings = append(found.Findings, row{name, f})
				failed = failed || f.Level == haproxy.Failure
			}
			return nil
		})
		if err == nil {
			err = printView(c.OutOrStdout(), *output, found)
		}
		if err == nil && failed {
			err = program.ErrReported
		}
		return err
	}
	return command
}

func haproxyDump(by caller) *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:     "dump",
		Short:   "Print what an HAProxy has, beside what lbsync's file wants",
		Long:    "Prints worker, generation and limits, and each backend that is ours or has members of ours with its servers: as the file wants them and as the worker has them.",
		Example: by.lines("  lbsync haproxy dump\n  lbsync haproxy dump -o yaml"),
		Args:    cobra.NoArgs,
	}
	output := program.OutputFlag(command, "table", "json", "yaml")
	table.AddFlags(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		return haproxies(c, table, func(ctx context.Context, name string, cfg haproxy.Config) error {
			i, err := haproxy.Inspect(ctx, cfg)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", name, i.Socket, err)
			}
			return printView(c.OutOrStdout(), *output, i)
		})
	}
	return command
}

func haproxyDiff(by caller) *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:   "diff",
		Short: "Show what an HAProxy has otherwise than lbsync's file",
		Long: `Compares the worker with 50-npl.cfg. lbsync diff compares with the cluster instead.

Exits 0 without a difference, 1 with one, 2 if it cannot tell.`,
		Example: by.lines("  lbsync haproxy diff\n  lbsync haproxy diff -o json"),
		Args:    cobra.NoArgs,
	}
	output := program.OutputFlag(command, "table", "json", "yaml")
	table.AddFlags(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		type row struct {
			On string `json:"on"`
			haproxy.Difference
		}
		found := struct {
			Differences []row `json:"differences"`
		}{[]row{}}
		err := haproxies(c, table, func(ctx context.Context, name string, cfg haproxy.Config) error {
			i, err := haproxy.Inspect(ctx, cfg)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", name, i.Socket, err)
			}
			for _, d := range i.Differences() {
				found.Differences = append(found.Differences, row{name, d})
			}
			return nil
		})
		if err == nil {
			err = printView(c.OutOrStdout(), *output, found)
		}
		switch {
		case err != nil:
			return &program.ExitError{Code: exitFailed, Err: err}
		case len(found.Differences) > 0:
			return &program.ExitError{Code: exitDifferent, Err: program.ErrReported}
		default:
			return nil
		}
	}
	return command
}
