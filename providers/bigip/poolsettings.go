package bigip

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
)

// maxSetting is more than any setting's limit.
const maxSetting = 1000 * time.Hour

// encodePool writes settings as one value.
func encodePool(s providers.PoolSettings) string {
	q := url.Values{}
	put := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	number := func(name string, n uint64) {
		if n != 0 {
			put(name, strconv.FormatUint(n, 10))
		}
	}
	seconds := func(name string, d time.Duration) { number(name, uint64(d/time.Second)) }
	put("algorithm", string(s.Algorithm))
	put("persistence", string(s.Persistence.Kind))
	seconds("persistence-timeout", s.Persistence.Timeout)
	put("monitor", string(s.Monitor.Type))
	put("monitor-name", s.Monitor.Name)
	put("monitor-path", s.Monitor.Path)
	put("monitor-host", s.Monitor.Host)
	seconds("monitor-interval", s.Monitor.Interval)
	seconds("monitor-timeout", s.Monitor.Timeout)
	number("monitor-rise", uint64(s.Monitor.Rise))
	number("monitor-fall", uint64(s.Monitor.Fall))
	seconds("slow-start", s.SlowStart)
	number("connections", uint64(s.MemberConnections))
	for name, value := range s.Options {
		q.Set("option."+name, value)
	}
	return q.Encode()
}

// decodePool reads encodePool's form. What it does not know is an error: the mark was edited.
func decodePool(text string) (providers.PoolSettings, error) {
	q, err := url.ParseQuery(text)
	if err != nil {
		return providers.PoolSettings{}, err
	}
	number := func(name string, most uint64) (n uint64) {
		if q.Has(name) && err == nil {
			if n, err = strconv.ParseUint(q.Get(name), 10, 32); err == nil && n > most {
				err = fmt.Errorf("%s %d", name, n)
			}
		}
		return n
	}
	seconds := func(name string) time.Duration {
		return time.Duration(number(name, uint64(maxSetting/time.Second))) * time.Second
	}
	s := providers.PoolSettings{
		Algorithm:   providers.Algorithm(q.Get("algorithm")),
		Persistence: providers.Persistence{Kind: providers.PersistenceKind(q.Get("persistence")), Timeout: seconds("persistence-timeout")},
		Monitor: providers.Monitor{
			Type: providers.MonitorType(q.Get("monitor")), Name: q.Get("monitor-name"), Path: q.Get("monitor-path"), Host: q.Get("monitor-host"),
			Interval: seconds("monitor-interval"), Timeout: seconds("monitor-timeout"),
			Rise: uint8(number("monitor-rise", 255)), Fall: uint8(number("monitor-fall", 255)),
		},
		SlowStart: seconds("slow-start"), MemberConnections: uint32(number("connections", 1<<32-1)),
	}
	for name := range q {
		if option, is := strings.CutPrefix(name, "option."); is {
			if s.Options == nil {
				s.Options = map[string]string{}
			}
			s.Options[option] = q.Get(name)
		}
	}
	if err == nil && encodePool(s) != text {
		err = fmt.Errorf("%q is not as we write it", text)
	}
	if err != nil {
		return providers.PoolSettings{}, err
	}
	return s, nil
}

// helper is an object that a pool needs beside it, in our partition.
type helper struct {
	collection client.Collection
	name       string
	fields     map[string]any // without name and marks; texts and int64s
}

// blueprint is what settings mean on a device.
type blueprint struct {
	least       bool
	monitor     rule
	ramp        int64  // seconds; 0 leaves it to the device
	connections uint32 // per member; 0 is no limit
	persist     string // path of the profile, or empty
	helpers     []helper
	// What a Service asked for by itself is compared; what we chose is set once and then the operator's.
	asked struct{ algorithm, monitor bool }
}

// mode is the way in which the pool chooses; the weights of members only count in some.
func (b blueprint) mode(weighed bool) string {
	switch {
	case b.least && weighed:
		return "ratio-least-connections-member"
	case b.least:
		return "least-connections-member"
	case weighed:
		return "ratio-member"
	}
	return "round-robin"
}

// sameMode reports whether a mode does what is asked for.
func (b blueprint) sameMode(now string, weighed bool) bool {
	return now == b.mode(weighed) || (!weighed && now == b.mode(true)) || (!b.asked.algorithm && !weighed)
}

// The limits of a pool's and a profile's numbers (tmsh reference).
const (
	maxRamp    = 900
	maxPersist = 4294967295
)

// draw turns settings into objects. The error says what a BIG-IP cannot be told.
func (n names) draw(k providers.Key, s providers.PoolSettings) (blueprint, error) {
	b := blueprint{least: s.Algorithm == providers.LeastConnections, ramp: int64(s.SlowStart / time.Second), connections: s.MemberConnections}
	b.asked.algorithm = s.Algorithm != ""
	if b.ramp > maxRamp {
		return b, fmt.Errorf("slow start: %s is more than %ds, the most that a BIG-IP has", s.SlowStart, maxRamp)
	}
	if s.Persistence.Kind == providers.SourceAddress {
		h := helper{client.SourceAddrs, n.of(k, "source-address", "-source-address"), map[string]any{
			"defaultsFrom": "/Common/source_addr", "timeout": strconv.FormatInt(int64(cmp.Or(s.Persistence.Timeout, 3*time.Hour)/time.Second), 10),
		}}
		b.helpers, b.persist = append(b.helpers, h), n.path(h.name)
	}
	kind := s.Options[optionMonitor]
	if kind != "" && s.Monitor.Type != "" {
		return b, fmt.Errorf("option %s %q: the Service asks for a monitor of type %s as well; leave one out", optionMonitor, kind, s.Monitor.Type)
	}
	b.asked.monitor = s.Monitor != (providers.Monitor{}) || kind != ""
	monitor, own, err := n.monitor(k, s.Monitor, kind)
	if err != nil {
		return b, err
	}
	b.monitor = parseRule(monitor)
	if own != nil {
		b.helpers = append(b.helpers, *own)
	}
	return b, nil
}

// monitorKinds are the types of monitor that we make.
var monitorKinds = map[providers.MonitorType]string{
	providers.MonitorTCP: "tcp", providers.MonitorHTTP: "http", providers.MonitorHTTPS: "https", providers.MonitorUDP: "udp",
}

// defaultMonitors are those for which no Service asked.
var defaultMonitors = map[providers.Protocol]string{providers.TCP: "tcp", providers.UDP: "udp", providers.SCTP: "gateway-icmp"}

// monitor returns the rule of a pool, and the monitor in it if it has to be made.
func (n names) monitor(k providers.Key, m providers.Monitor, kind string) (string, *helper, error) {
	switch m.Type {
	case providers.MonitorNone:
		return "", nil, nil
	case providers.MonitorExisting:
		r := parseRule(m.Name)
		if len(r.monitors) == 0 {
			return "", nil, fmt.Errorf("a monitor that exists: its name is empty")
		}
		for _, path := range r.monitors {
			if !pathForm.MatchString(path) {
				return "", nil, fmt.Errorf("monitor %q is not the path of one, such as /Common/http", path)
			}
		}
		return m.Name, nil, nil
	case "":
		kind = cmp.Or(kind, defaultMonitors[k.Protocol])
	default:
		kind = monitorKinds[m.Type]
	}
	plain := m
	plain.Type = ""
	if plain == (providers.Monitor{}) && kind != "http" && kind != "https" {
		return "/Common/" + strings.ReplaceAll(kind, "-", "_"), nil, nil // a device comes with these, each with destination *:*
	}
	if m.Interval > 86399*time.Second || m.Timeout > 86400*time.Second {
		return "", nil, fmt.Errorf("monitor interval %s and timeout %s: a BIG-IP has less than a day", m.Interval, m.Timeout)
	}
	// A BIG-IP counts time, not looks: a member is down when no look was good for so long, and up when all were for so long.
	interval := cmp.Or(int64(m.Interval/time.Second), 5)
	fall, rise := int64(cmp.Or(m.Fall, 3)), int64(cmp.Or(m.Rise, 1))
	fields := map[string]any{
		"defaultsFrom": "/Common/" + strings.ReplaceAll(kind, "-", "_"), "destination": "*:*", "interval": interval,
		"timeout": (fall-1)*interval + cmp.Or(int64(m.Timeout/time.Second), interval+1), "timeUntilUp": (rise - 1) * interval,
	}
	if kind == "http" || kind == "https" {
		if strings.ContainsFunc(m.Path+m.Host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"\<>`, r) }) {
			return "", nil, fmt.Errorf("monitor path %q and host %q must not have blanks, quotes, backslashes, < and >", m.Path, m.Host)
		}
		request := "GET " + cmp.Or(m.Path, "/") + ` HTTP/1.0\r\n\r\n`
		if m.Host != "" {
			request = "GET " + cmp.Or(m.Path, "/") + ` HTTP/1.1\r\nHost: ` + m.Host + `\r\nConnection: Close\r\n\r\n`
		}
		fields["send"], fields["recv"] = request, `^HTTP/1\.[01] [23]`
	}
	h := &helper{client.Monitors(kind), n.of(k, "monitor "+kind, "-"+kind), fields}
	return n.path(h.name), h, nil
}
