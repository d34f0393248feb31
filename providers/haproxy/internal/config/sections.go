package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// peersName names the section of the HAProxies that share tables.
const peersName = "npl_peers"

// tableSize is how many clients a backend remembers; the longest unseen are forgotten first. One takes about 150 bytes.
const tableSize = "100k"

// defaultAffinity is how long a client is remembered when nobody says (core/v1 ClientIPConfig).
const defaultAffinity = 3 * time.Hour

// Persistent reports whether any Service remembers its clients.
func (f File) Persistent() bool { return slices.ContainsFunc(f.Services, Service.persistent) }

func (s Service) persistent() bool { return s.Pool.Persistence.Kind != "" }

func (s Service) renderFrontend(line func(string, ...any)) {
	line("frontend %s from npl-tcp", FrontendName(s.Key))
	accept := ""
	if s.Virtual.AcceptProxyProtocol {
		accept = " accept-proxy"
	}
	for _, bind := range s.Binds() {
		line("    bind %s%s", bind, accept)
	}
	if t := s.Virtual.IdleTimeout; t > 0 {
		line("    timeout client %s", duration(t))
	}
	for _, prefix := range s.Virtual.SourceRanges {
		line("    acl npl_allowed src %s", prefix)
	}
	if len(s.Virtual.SourceRanges) > 0 {
		stage := "connection"
		if s.Virtual.AcceptProxyProtocol {
			stage = "session" // before it, the address is that of the load balancer ahead of us
		}
		line("    tcp-request %s reject unless npl_allowed", stage)
	}
	line("    default_backend %s", BackendName(s.Key))
}

func (s Service) renderBackend(line func(string, ...any), settings Settings) {
	line("backend %s from npl-tcp", s.Backend())
	switch s.Pool.Algorithm {
	case providers.LeastConnections:
		line("    balance leastconn")
	case providers.SourceHash:
		line("    balance source")
		line("    hash-type consistent") // the other kind takes no servers at run time, and moves most clients when one comes
	default:
		line("    balance roundrobin")
	}
	if s.persistent() {
		timeout := s.Pool.Persistence.Timeout
		if timeout == 0 {
			timeout = defaultAffinity
		}
		line("    stick-table type ipv6 size %s expire %s peers %s", tableSize, duration(timeout), peersName)
		line("    stick on src")
	}
	if t := s.Virtual.IdleTimeout; t > 0 {
		line("    timeout server %s", duration(t))
	}
	m := s.Pool.Monitor
	if m.Timeout > 0 {
		line("    timeout check %s", duration(m.Timeout))
	}
	if m.Type == providers.MonitorHTTP || m.Type == providers.MonitorHTTPS {
		line("    option httpchk")
		version, host := "HTTP/1.0", "" // which needs no Host
		if m.Host != "" {
			version, host = "HTTP/1.1", " hdr Host "+quote(m.Host)+" hdr Connection close"
		}
		line("    http-check send meth GET uri %s ver %s%s", quote(cmp.Or(m.Path, "/")), version, host)
		line("    http-check expect status 200-399")
	}
	options := ServerOptions(settings, s.Pool)
	for _, server := range s.Servers {
		disabled := ""
		if server.Drained {
			disabled = drainedMark
		}
		line("%s%s %s id %d weight %d %s%s", serverMark, server.Name, server.Address, server.ID, server.Weight, options, disabled)
	}
}

// ServerOptions returns the keywords of every server of a pool, in the file and in `add server` alike. A server added at run
// time inherits no default-server, so all is said; without the pool keywords 2.6 would never reuse a connection.
func ServerOptions(s Settings, p providers.PoolSettings) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m := p.Monitor; m.Type != providers.MonitorNone {
		interval := cmp.Or(m.Interval, s.CheckInterval)
		fast := duration(min(interval, time.Second))
		add("check inter %s fastinter %s downinter %s", duration(interval), fast, fast)
		add("rise %d fall %d", cmp.Or(m.Rise, 2), cmp.Or(m.Fall, 2))
		add("observe layer4 error-limit 2 on-error mark-down")
		if m.Type == providers.MonitorHTTPS {
			add("check-ssl verify none") // a Pod's certificate seldom names the Node
		}
		if p.ProxyProtocol != "" {
			add("check-send-proxy")
		}
	}
	switch p.ProxyProtocol {
	case providers.ProxyV1:
		add("send-proxy")
	case providers.ProxyV2:
		add("send-proxy-v2")
	}
	if p.SlowStart > 0 {
		add("slowstart %s", duration(p.SlowStart))
	}
	if p.MemberConnections > 0 {
		add("maxconn %d", p.MemberConnections)
	}
	add("pool-max-conn -1 pool-purge-delay 1s")
	return strings.Join(out, " ")
}

// checkMonitor reports what of a monitor the file cannot say.
func checkMonitor(m providers.Monitor) error {
	if m.Path != "" && !strings.HasPrefix(m.Path, "/") {
		return fmt.Errorf("monitor path %q does not begin with /", m.Path)
	}
	for _, text := range []string{m.Path, m.Host} {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`'"\`, r) }) || len(text) > maxRequest {
			return fmt.Errorf("monitor path or host %.80q has blanks, quotes, backslashes or other than ASCII, or is longer than %d", text, maxRequest)
		}
	}
	if m.Timeout > 0 && m.Interval > 0 && m.Timeout > m.Interval {
		return errors.New("monitor timeout is longer than its interval")
	}
	return nil
}

// maxRequest bounds a monitor's path and host; a line of the file has a limit.
const maxRequest = 1024

// quote makes one word of text, in which nothing is expanded.
func quote(text string) string { return "'" + text + "'" }
