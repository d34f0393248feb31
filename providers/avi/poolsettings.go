package avi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// encodeSettings writes settings as the values of a marker, "name=value" each and sorted, so that they can be read on the Controller.
func encodeSettings(s providers.PoolSettings) []string {
	var out []string
	put := func(name, value string) {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			put(name, strconv.Itoa(n))
		}
	}
	seconds := func(name string, d time.Duration) { number(name, int(d/time.Second)) }
	put("algorithm", string(s.Algorithm))
	put("persistence", string(s.Persistence.Kind))
	seconds("persistence-timeout", s.Persistence.Timeout)
	put("monitor", string(s.Monitor.Type))
	put("monitor-name", s.Monitor.Name)
	put("monitor-path", s.Monitor.Path)
	put("monitor-host", s.Monitor.Host)
	seconds("monitor-interval", s.Monitor.Interval)
	seconds("monitor-timeout", s.Monitor.Timeout)
	number("monitor-rise", int(s.Monitor.Rise))
	number("monitor-fall", int(s.Monitor.Fall))
	seconds("slow-start", s.SlowStart)
	slices.Sort(out)
	return out
}

// decodeSettings reads encodeSettings' form. What it does not know is an error: the marker was edited.
func decodeSettings(values []string) (s providers.PoolSettings, err error) {
	seen := map[string]bool{}
	for _, pair := range values {
		name, value, _ := strings.Cut(pair, "=")
		seconds := func(d *time.Duration) {
			var n int
			if n, err = strconv.Atoi(value); err == nil && (n <= 0 || n > int(maxSetting/time.Second)) {
				err = strconv.ErrRange
			}
			*d = time.Duration(n) * time.Second
		}
		small := func(to *uint8) {
			var n uint64
			n, err = strconv.ParseUint(value, 10, 8)
			*to = uint8(n)
		}
		switch name {
		case "algorithm":
			s.Algorithm = providers.Algorithm(value)
		case "persistence":
			s.Persistence.Kind = providers.PersistenceKind(value)
		case "persistence-timeout":
			seconds(&s.Persistence.Timeout)
		case "monitor":
			s.Monitor.Type = providers.MonitorType(value)
		case "monitor-name":
			s.Monitor.Name = value
		case "monitor-path":
			s.Monitor.Path = value
		case "monitor-host":
			s.Monitor.Host = value
		case "monitor-interval":
			seconds(&s.Monitor.Interval)
		case "monitor-timeout":
			seconds(&s.Monitor.Timeout)
		case "monitor-rise":
			small(&s.Monitor.Rise)
		case "monitor-fall":
			small(&s.Monitor.Fall)
		case "slow-start":
			seconds(&s.SlowStart)
		default:
			err = fmt.Errorf("unknown")
		}
		if err != nil || seen[name] {
			return providers.PoolSettings{}, fmt.Errorf("setting %q: %w", pair, cmp.Or(err, fmt.Errorf("twice")))
		}
		seen[name] = true
	}
	return s, nil
}

// maxSetting is more than any setting's limit.
const maxSetting = 1000 * time.Hour

// helper is an object that a pool needs beside it.
type helper struct {
	typ, name string
	fields    map[string]any // without markers
}

// blueprint is what settings mean on a Controller.
type blueprint struct {
	algorithm, hash string
	monitors        []string // refs by name; a helper's is among them
	persistence     string   // ref by name, or empty
	ramp            int64    // minutes; 0 leaves it to the Controller
	helpers         []helper
}

// draw turns settings into objects. The error says what the Controller cannot be told.
func (n names) draw(k providers.Key, s providers.PoolSettings) (blueprint, error) {
	b := blueprint{algorithm: "LB_ALGORITHM_ROUND_ROBIN"}
	switch s.Algorithm {
	case "", providers.RoundRobin:
	case providers.LeastConnections:
		b.algorithm = "LB_ALGORITHM_LEAST_CONNECTIONS"
	case providers.SourceHash:
		b.algorithm, b.hash = "LB_ALGORITHM_CONSISTENT_HASH", "LB_ALGORITHM_CONSISTENT_HASH_SOURCE_IP_ADDRESS"
	}
	var err error
	if b.ramp, err = minutes("slow start", s.SlowStart, 300); err != nil {
		return b, err
	}
	if s.Persistence.Kind == providers.SourceAddress {
		timeout, err := minutes("persistence timeout", cmp.Or(s.Persistence.Timeout, 3*time.Hour), 720)
		if err != nil {
			return b, err
		}
		h := helper{typePersistence, n.ofPool(k, "source-address"), map[string]any{
			"persistence_type": "PERSISTENCE_TYPE_CLIENT_IP_ADDRESS", "ip_persistence_profile": map[string]any{"ip_persistent_timeout": timeout},
		}}
		b.helpers, b.persistence = append(b.helpers, h), h.name
	}
	monitor, own, err := n.monitor(k, s.Monitor)
	if err != nil {
		return b, err
	}
	if own != nil {
		b.helpers = append(b.helpers, *own)
	}
	if monitor != "" {
		b.monitors = []string{monitor}
	}
	return b, nil
}

// monitor returns the name of the health monitor to use, and what it is if it has to be made.
func (n names) monitor(k providers.Key, m providers.Monitor) (string, *helper, error) {
	system := map[providers.Protocol]string{providers.TCP: "System-TCP", providers.UDP: "System-UDP"}
	switch m.Type {
	case providers.MonitorNone:
		return "", nil, nil
	case providers.MonitorExisting:
		if m.Name == "" {
			return "", nil, fmt.Errorf("a monitor that exists: its name is empty")
		}
		return m.Name, nil, nil
	case providers.MonitorTCP, providers.MonitorHTTP, providers.MonitorHTTPS, providers.MonitorUDP:
	case "":
		m.Type = map[providers.Protocol]providers.MonitorType{providers.TCP: providers.MonitorTCP, providers.UDP: providers.MonitorUDP}[k.Protocol]
	}
	standard := m
	standard.Type = ""
	if standard == (providers.Monitor{}) && m.Type != providers.MonitorHTTP {
		return system[providers.Protocol(m.Type)], nil, nil
	}
	fields := map[string]any{"type": "HEALTH_MONITOR_" + string(m.Type)}
	for _, f := range []struct {
		name  string
		value int64
		limit int64
	}{
		{"send_interval", int64(m.Interval / time.Second), 3600},
		{"receive_timeout", int64(m.Timeout / time.Second), 2400},
		{"successful_checks", int64(m.Rise), 50},
		{"failed_checks", int64(m.Fall), 50},
	} {
		if f.value > f.limit {
			return "", nil, fmt.Errorf("monitor %s: %d is more than %d", f.name, f.value, f.limit)
		}
		if f.value > 0 {
			fields[f.name] = f.value
		}
	}
	if m.Type == providers.MonitorHTTP {
		request := "GET " + cmp.Or(m.Path, "/") + " HTTP/1.0"
		if m.Host != "" {
			request += "\r\nHost: " + m.Host
		}
		if strings.ContainsAny(m.Path+m.Host, " \t\r\n") {
			return "", nil, fmt.Errorf("monitor path %q and host %q must not have blanks", m.Path, m.Host)
		}
		fields["http_monitor"] = map[string]any{"http_request": request, "http_response_code": []string{"HTTP_2XX", "HTTP_3XX"}}
	}
	h := &helper{typeMonitor, n.ofPool(k, "monitor-"+strings.ToLower(string(m.Type))), fields}
	return h.name, h, nil
}

// minutes turns a duration into whole minutes, which is all that the Controller knows.
func minutes(what string, d time.Duration, most int64) (int64, error) {
	n := int64(d / time.Minute)
	if d < 0 || d%time.Minute != 0 || n > most {
		return 0, fmt.Errorf("%s: %s is not whole minutes up to %dm, which is all that Avi has", what, d, most)
	}
	return n, nil
}
