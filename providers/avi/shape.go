package avi

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// entry is one port of a virtual service: what VirtualServer says beside the addresses, and where it leads.
type entry struct {
	key     providers.Key
	port    uint16
	options map[string]string
	pool    client.Object // without UUID there is none
}

// encodePort writes an entry as a marker's value, "80/TCP=8080?network-profile=x".
func encodePort(e entry) string {
	text := fmt.Sprintf("%d/%s=%d", e.key.Port, e.key.Protocol, e.port)
	if len(e.options) == 0 {
		return text
	}
	q := url.Values{}
	for name, value := range e.options {
		q.Set(name, value)
	}
	return text + "?" + q.Encode()
}

// decodePort reads encodePort's form.
func decodePort(s service, text string) (entry, error) {
	text, query, _ := strings.Cut(text, "?")
	key, port, _ := strings.Cut(text, "=")
	number, protocol, _ := strings.Cut(key, "/")
	from, err := strconv.ParseUint(number, 10, 16)
	to, err2 := strconv.ParseUint(port, 10, 16)
	q, err3 := url.ParseQuery(query)
	if err = cmp.Or(err, err2, err3); err != nil || from == 0 || to == 0 || protocol == "" {
		return entry{}, fmt.Errorf("port %q: it is not as we write it", text)
	}
	e := entry{key: providers.Key{Namespace: s.namespace, Service: s.name, Port: uint16(from), Protocol: providers.Protocol(protocol)}, port: uint16(to)}
	for name := range q {
		if e.options == nil {
			e.options = map[string]string{}
		}
		e.options[name] = q.Get(name)
	}
	return e, nil
}

// shape is a virtual service as it should be or is, with references taken apart so that the two can be compared.
type shape struct {
	vsVip    string   // UUID
	network  string   // name of the profile
	app      string   // name of the profile
	services []listen // sorted; Override is a name
	pool     string   // UUID of the one pool, or
	policies string   // UUID of the policy set
	rules    []string // "80/TCP pool-uuid", sorted
}

func (s shape) equal(o shape) bool {
	return s.vsVip == o.vsVip && s.network == o.network && s.app == o.app && slices.Equal(s.services, o.services) && s.pool == o.pool &&
		s.policies == o.policies && slices.Equal(s.rules, o.rules)
}

// profile is the network profile of an entry: its option, or that of its protocol.
func (p *Provider) profile(e entry) string {
	if name := e.options[networkProfile]; name != "" {
		return name
	}
	if e.key.Protocol == providers.UDP {
		return p.cfg.UDPProfile
	}
	return p.cfg.TCPProfile
}

// shapeFor is what a virtual service with these entries, sorted by key, must be. One port leads straight to its pool; several go through a
// policy set. The profile of the virtual service is the first TCP port's, and ports with another one override it.
func (p *Provider) shapeFor(entries []entry, vsVip, policies string) shape {
	base := entries[0]
	for _, e := range entries {
		if e.key.Protocol == providers.TCP {
			base = e
			break
		}
	}
	s := shape{vsVip: vsVip, network: p.profile(base), app: p.cfg.ApplicationProfile}
	for _, e := range entries {
		l := listen{Port: e.port}
		if name := p.profile(e); name != s.network {
			l.Override = name
		}
		s.services = append(s.services, l)
		s.rules = append(s.rules, fmt.Sprintf("%d/%s %s", e.port, e.key.Protocol, e.pool.UUID))
	}
	slices.SortFunc(s.services, compareListen)
	s.services = slices.Compact(s.services) // the same port and profile for two protocols
	slices.Sort(s.rules)
	if len(entries) == 1 {
		s.pool, s.rules = entries[0].pool.UUID, nil
	} else {
		s.policies = policies
	}
	return s
}

func compareListen(a, b listen) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Override, b.Override))
}

// shapeOf is what a virtual service is. Rules are its own policy set's; where it leads to another one, they do not count.
func shapeOf(v virtual) shape {
	now := decoded[virtualService](v.service)
	s := shape{vsVip: client.ParseRef(now.VsVip).UUID, network: refName(now.Network), app: refName(now.App), pool: client.ParseRef(now.Pool).UUID}
	for _, l := range now.Services {
		if l.Override != "" {
			l.Override = refName(l.Override)
		}
		s.services = append(s.services, l)
	}
	slices.SortFunc(s.services, compareListen)
	var refs []string
	for _, l := range now.Policies {
		refs = append(refs, client.ParseRef(l.Ref).UUID)
	}
	s.policies = strings.Join(refs, ",")
	if s.policies != "" && s.policies == v.policies.UUID {
		s.rules = rulesOf(v.policies)
	}
	return s
}

// rulesOf reads a policy set as shape.rules. What is not as we write it shows as a rule that nobody wants.
func rulesOf(o client.Object) []string {
	var out []string
	for _, r := range decoded[policySet](o).Connection.Rules {
		text := fmt.Sprintf("%v", r)
		if m := r.Match; r.Enable && len(m.Port.Ports) == 1 && m.Port.Criteria == "IS_IN" && m.Protocol.Criteria == "IS_IN" && r.Action.Select.Type == selectPool {
			text = fmt.Sprintf("%d/%s %s", m.Port.Ports[0], strings.TrimPrefix(m.Protocol.Protocol, "PROTOCOL_"), client.ParseRef(r.Action.Select.Pool).UUID)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

const selectPool = "L4_RULE_ACTION_SELECT_POOL"

// rulesFor are the rules of a policy set for entries.
func rulesFor(entries []entry) []rule {
	out := make([]rule, len(entries))
	for i, e := range entries {
		r := &out[i]
		r.Name, r.Index, r.Enable = fmt.Sprintf("%d-%s", e.port, e.key.Protocol), i+1, true
		r.Match.Port.Criteria, r.Match.Port.Ports = "IS_IN", []uint16{e.port}
		r.Match.Protocol.Criteria, r.Match.Protocol.Protocol = "IS_IN", "PROTOCOL_"+string(e.key.Protocol)
		r.Action.Select.Type, r.Action.Select.Pool = selectPool, e.pool.Ref()
	}
	return out
}

// virtualServers reads the virtual services as the contract has them. One that is not what its markers say is reported with settings that
// differ, so that it is written again.
func (p *Provider) virtualServers(inv *inventory) []providers.VirtualServer {
	var out []providers.VirtualServer
	for s, v := range inv.services {
		if v.service.UUID == "" {
			continue
		}
		entries, shared, err := p.entries(inv, s, v)
		drifted := err != nil || len(entries) == 0
		if !drifted {
			want := p.shapeFor(entries, v.vsVip, v.policies.UUID)
			drifted = !want.equal(shapeOf(v)) || slices.ContainsFunc(entries, func(e entry) bool { return e.pool.UUID == "" })
		}
		var vips []netip.Addr
		if a, ours := inv.vips[v.vsVip]; ours {
			vips = a.addrs
		} else {
			drifted = true
		}
		for _, e := range entries {
			one := providers.VirtualServer{
				Key: e.key, VIPs: slices.Clone(vips), Port: e.port, Shared: shared, Settings: providers.VirtualServerSettings{Options: e.options},
			}
			if drifted {
				one.Settings.Options = map[string]string{driftOption: "virtual service"}
			}
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	return out
}

// entries reads the ports of a virtual service from its markers. On an error it returns what could be read.
func (p *Provider) entries(inv *inventory, s service, v virtual) (entries []entry, shared string, err error) {
	markers := decoded[virtualService](v.service).Markers
	for _, text := range markedAll(markers, markPorts) {
		e, wrong := decodePort(s, text)
		if wrong != nil {
			err = wrong
			continue
		}
		e.pool = inv.pool(e.key)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.key.Compare(b.key) })
	return entries, marked(markers, markShared), err
}

// networkProfile is the name of an option.
const networkProfile = "network-profile"

func optionNetworkProfile() providers.Option {
	return providers.Option{
		Name: networkProfile, Virtual: true, Example: "System-TCP-Fast-Path",
		Doc: "name of the network profile of this Service's ports on the Controller, which must fit their protocol; default is avi.tcpProfile or avi.udpProfile",
		Check: func(value string) string {
			if value == "" || len(value) > maxName || strings.ContainsAny(value, "\r\n\t#?&") {
				return "give the name of a network profile"
			}
			return ""
		},
	}
}
