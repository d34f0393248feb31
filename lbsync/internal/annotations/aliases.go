package annotations

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// Alias is an annotation of another load balancer controller that is read where our own is absent, so that a Service can be moved as it is.
type Alias struct {
	Name string
	Of   string // whose it is
	Word string // the Word that it stands for
	Doc  string // what is different; empty when nothing is

	read func(d *decoder, value string) error // nil where it is written like the Word
}

// Aliases lists every Alias. Of several on one Service that stand for the same Word the first is taken.
func Aliases() []Alias { return slices.Clone(aliases) }

var aliases = aliasTable()

func aliasTable() []Alias {
	const (
		ako, cis, metallb, kubeVIP, cilium = "AKO", "F5 CIS", "MetalLB", "kube-vip", "Cilium"
		within                             = "shares within the Namespace only, always, and never the same port"
	)
	return []Alias{
		{Name: "ako.vmware.com/load-balancer-ip", Of: ako, Word: LoadBalancerIPs, Doc: "may be changed later"},
		{Name: "cis.f5.com/ip", Of: cis, Word: LoadBalancerIPs, Doc: "without a route domain (`%2`)"},
		{Name: "metallb.io/loadBalancerIPs", Of: metallb, Word: LoadBalancerIPs},
		{Name: "metallb.universe.tf/loadBalancerIPs", Of: metallb, Word: LoadBalancerIPs},
		{Name: "kube-vip.io/loadbalancerIPs", Of: kubeVIP, Word: LoadBalancerIPs, Doc: "`0.0.0.0`, an address by DHCP, is not possible"},
		{Name: "lbipam.cilium.io/ips", Of: cilium, Word: LoadBalancerIPs, Doc: "at most one address per family"},

		{Name: "cis.f5.com/ipamLabel", Of: cis, Word: AddressPool, Doc: "in lower case; there must be an address pool of that name; not read where an address is asked for", read: readPoolAlias},
		{Name: "metallb.io/address-pool", Of: metallb, Word: AddressPool, Doc: "there must be an address pool of that name; not read where an address is asked for", read: readPoolAlias},
		{Name: "metallb.universe.tf/address-pool", Of: metallb, Word: AddressPool, Doc: "there must be an address pool of that name; not read where an address is asked for", read: readPoolAlias},

		{Name: "ako.vmware.com/enable-shared-vip", Of: ako, Word: SharedVIP},
		{Name: "metallb.io/allow-shared-ip", Of: metallb, Word: SharedVIP, Doc: within},
		{Name: "metallb.universe.tf/allow-shared-ip", Of: metallb, Word: SharedVIP, Doc: within},
		{Name: "lbipam.cilium.io/sharing-key", Of: cilium, Word: SharedVIP, Doc: within},

		{
			Name: "cis.f5.com/health", Of: cis, Word: Monitor, read: readHealth,
			Doc: "JSON: `type` (`tcp`, `udp`, `http`, `https`), `interval`, `timeout`, `send` (path and host of it), `reference: bigip` with `name`. " +
				"BIG-IP counts `timeout` over several looks, so it becomes `monitor-fall`. `recv` and `targetPort` are not used, which is said; of several monitors none is",
		},
	}
}

// readPoolAlias reads the name of a pool. Who has an address asked for does not need it, and the pools of others are not ours.
func readPoolAlias(d *decoder, value string) error {
	if len(d.Addresses) > 0 || d.spec.LoadBalancerIP != "" {
		return nil
	}
	name, err := match(labelSyntax, strings.ToLower(value), "give it a name that an address pool can have, of letters, digits and dashes")
	if err == nil {
		d.AddressPool = name
	}
	return err
}

// health is a monitor as CIS writes it. Numbers are seconds.
type health struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Reference  string          `json:"reference"`
	Interval   int             `json:"interval"`
	Timeout    int             `json:"timeout"`
	Send       string          `json:"send"`
	Recv       string          `json:"recv"`
	TargetPort json.RawMessage `json:"targetPort"`
}

// readHealth reads one monitor, or a list of one.
func readHealth(d *decoder, value string) error {
	const fix = `write {"type": "tcp", "interval": 5, "timeout": 16}, or ` + Monitor
	var list []health
	if strings.HasPrefix(value, "[") {
		if err := strict(value, &list); err != nil {
			return fmt.Errorf("%q is not JSON of a monitor (%s); %s", shorten(value), shorten(err.Error()), fix)
		}
	} else {
		list = make([]health, 1)
		if err := strict(value, &list[0]); err != nil {
			return fmt.Errorf("%q is not JSON of a monitor (%s); %s", shorten(value), shorten(err.Error()), fix)
		}
	}
	if len(list) != 1 {
		return fmt.Errorf("%q has %d monitors, and a pool has one; %s", shorten(value), len(list), fix)
	}
	m, err := list[0].monitor()
	if err != nil {
		return fmt.Errorf("%q: %w; %s", shorten(value), err, fix)
	}
	d.Pool.Monitor = m
	var unused []string
	if list[0].Recv != "" {
		unused = append(unused, "recv")
	}
	if len(list[0].TargetPort) > 0 {
		unused = append(unused, "targetPort")
	}
	if len(unused) > 0 {
		d.problem("cis.f5.com/health", value, fmt.Errorf("%s is not used: what is looked at is the member's own port, and an HTTP answer from 200 to 399 is good; "+
			"for another monitor make one on the load balancer and write %s: Existing with %s", strings.Join(unused, " and "), Monitor, MonitorName))
	}
	return nil
}

// strict decodes one JSON value of known fields.
func strict(s string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(s))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows")
	}
	return nil
}

func (h health) monitor() (providers.Monitor, error) {
	if h.Reference == "bigip" {
		name, err := match(objectSyntax, h.Name, "reference bigip wants the name of a monitor")
		return providers.Monitor{Type: providers.MonitorExisting, Name: name}, err
	}
	m := providers.Monitor{}
	if h.Type != "" {
		// None and Existing are ours, not theirs.
		at := slices.IndexFunc(monitors, func(t providers.MonitorType) bool { return strings.EqualFold(string(t), h.Type) })
		if at < 0 || monitors[at] == providers.MonitorNone || monitors[at] == providers.MonitorExisting {
			return m, fmt.Errorf("%q is not a type that can be taken over", shorten(h.Type))
		}
		m.Type = monitors[at]
	}
	const most = int(time.Hour / time.Second)
	if h.Interval < 0 || h.Interval > most || h.Timeout < 0 || h.Timeout > most {
		return m, fmt.Errorf("interval %d and timeout %d must be from 0 to %d seconds", h.Interval, h.Timeout, most)
	}
	m.Interval = time.Duration(h.Interval) * time.Second
	if h.Timeout > 0 {
		// A BIG-IP takes a member out when none of its looks within the timeout was good. 3n+1 is the recommendation: three looks.
		looks := (h.Timeout - 1) / cmp.Or(h.Interval, bigipInterval)
		m.Fall = uint8(min(max(looks, 1), mostLooks))
	}
	if m.Type != providers.MonitorHTTP && m.Type != providers.MonitorHTTPS {
		return m, nil // what is sent there is for a monitor of another kind
	}
	var err error
	m.Path, m.Host, err = request(h.Send)
	return m, err
}

// bigipInterval is the interval of a BIG-IP's monitors in seconds where none is given.
const bigipInterval = 5

// request takes path and host from the text of an HTTP request; `\r\n` may be written out in it, and it may be without a version.
func request(send string) (path, host string, err error) {
	if send == "" {
		return "", "", nil
	}
	text := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(send)
	line, headers, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 || len(fields) > 3 || fields[0] != "GET" {
		return "", "", fmt.Errorf("send %q is not a GET request", shorten(send))
	}
	if path, err = match(pathSyntax, fields[1], "that is no path"); err != nil {
		return "", "", err
	}
	for header := range bytes.Lines([]byte(headers)) {
		if name, value, ok := strings.Cut(string(header), ":"); ok && strings.EqualFold(strings.TrimSpace(name), "host") && strings.TrimSpace(value) != "" {
			if host, err = match(hostSyntax, strings.TrimSpace(value), "that is no host"); err != nil {
				return "", "", err
			}
		}
	}
	return path, host, nil
}
