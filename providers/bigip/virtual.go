package bigip

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
)

// maxSources is the most virtual servers that source ranges make of one address.
const maxSources = 32

// wish is one virtual server as it should be.
type wish struct {
	name     string
	at       address
	port     uint16
	from     netip.Prefix // everybody where it is not valid
	protocol string
	pool     string
	snat     snat
	profiles []string
	persist  string
	rules    []string
	vlans    []string
	metadata metadata
}

// wishes are the virtual servers that one of ours consists of: one for each address and source range. The error says what a BIG-IP cannot be told.
func (d *device) wishes(v providers.VirtualServer, persist string) ([]wish, error) {
	option := func(name string) []string {
		if text := v.Settings.Options[name]; text != "" {
			return strings.Split(text, ",")
		}
		return nil
	}
	protocol := map[providers.Protocol]struct{ name, profile string }{
		providers.TCP: {"tcp", d.cfg.TCPProfile}, providers.UDP: {"udp", d.cfg.UDPProfile}, providers.SCTP: {"sctp", d.cfg.SCTPProfile},
	}[v.Key.Protocol]
	base := wish{
		port: v.Port, protocol: protocol.name, pool: d.names.path(d.names.pool(v.Key)), snat: parseSNAT(d.cfg.SNAT), profiles: []string{protocol.profile},
		persist: persist, rules: option(optionRules), vlans: option(optionVLANs),
		metadata: d.names.mark(metadatum{Name: markKey, Value: v.Key.String()}, metadatum{Name: markVirtual, Value: encodeVirtual(v)}),
	}
	if given := option(optionProfiles); given != nil {
		base.profiles = given
	}
	if text := v.Settings.Options[optionSNAT]; text != "" {
		base.snat = parseSNAT(text)
	}
	var out []wish
	for _, vip := range v.VIPs {
		w := base
		w.at = address{vip, d.domain()}
		if len(v.Settings.SourceRanges) == 0 {
			w.name = d.names.virtual(v.Key, vip.Is4(), netip.Prefix{})
			out = append(out, w)
		}
		n := 0
		for _, from := range v.Settings.SourceRanges {
			if from.Addr().Is4() != vip.Is4() {
				continue
			}
			if n++; n > maxSources {
				return nil, fmt.Errorf("more than %d source ranges of one family, each of which is a virtual server; merge some", maxSources)
			}
			w.from, w.name = from, d.names.virtual(v.Key, vip.Is4(), from)
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no source range is of the family of %s", v.VIPs)
	}
	return out, nil
}

func parseSNAT(text string) snat {
	if strings.HasPrefix(text, "/") {
		return snat{"snat", text}
	}
	return snat{Type: text}
}

// destination is where the virtual server listens, as it is written.
func (d *device) destination(w wish) string {
	return d.names.path(joinEndpoint(w.at.text(d.defaultDomain()), w.port))
}

// source is from whom the virtual server takes connections, as it is written.
func (d *device) source(w wish) string {
	from := w.from
	if !from.IsValid() {
		from = anybody(w.at.addr)
	}
	return address{from.Addr(), w.at.rd}.text(d.defaultDomain()) + fmt.Sprintf("/%d", from.Bits())
}

func anybody(family netip.Addr) netip.Prefix {
	if family.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// create is the request that makes a virtual server.
func (d *device) create(w wish) client.Command {
	body := map[string]any{
		"name": w.name, "partition": d.cfg.Partition, "description": "made by nplbridge; changes are undone", "destination": d.destination(w),
		"mask": "255.255.255.255", "ipProtocol": w.protocol, "pool": w.pool, "sourceAddressTranslation": w.snat,
		"profiles": references(w.profiles), "translateAddress": "enabled", "translatePort": "enabled", "metadata": w.metadata,
	}
	if !w.at.addr.Is4() {
		body["mask"] = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	if w.from.IsValid() {
		body["source"] = d.source(w)
	}
	if w.persist != "" {
		body["persist"] = persistence(w.persist)
	}
	if w.rules != nil {
		body["rules"] = w.rules
	}
	if w.vlans != nil {
		body["vlans"], body["vlansEnabled"] = w.vlans, true
	}
	return client.Command{Method: http.MethodPost, Path: client.Virtuals.Path(), Body: body}
}

func references(paths []string) []reference {
	out := []reference{}
	for _, path := range paths {
		out = append(out, referTo(path))
	}
	return out
}

func persistence(path string) []reference {
	r := referTo(path)
	r.Default = "yes"
	return []reference{r}
}

// differs returns the properties by which a virtual server is not as it should be. What we did not ask for, and did not set before, is the operator's.
func (d *device) differs(now virtualObject, w wish) map[string]any {
	out := map[string]any{}
	if at, port, ok := destination(now.Destination, d.defaultDomain()); !ok || at != w.at || port != w.port {
		out["destination"] = d.destination(w)
	}
	if from, ok := source(now.Source, w.at.rd); now.Source != "" && (!ok || (from != w.from && (w.from.IsValid() || from.Bits() > 0))) {
		out["source"] = d.source(w)
	}
	if now.Pool != w.pool {
		out["pool"] = w.pool
	}
	if now.SNAT != w.snat {
		out["sourceAddressTranslation"] = w.snat
	}
	if slices.ContainsFunc(w.profiles, func(path string) bool {
		return !slices.ContainsFunc(now.Profiles.Items, func(r reference) bool { return r.path() == path })
	}) {
		out["profiles"] = references(w.profiles)
	}
	var before providers.VirtualServer
	if k, ok := parseKey(now.Metadata.get(markKey)); ok {
		before, _ = decodeVirtual(k, now.Metadata.get(markVirtual)) // an edited mark says nothing of what was set
	}
	set := func(option string) bool { return before.Settings.Options[option] != "" }
	if (w.rules != nil || set(optionRules)) && !slices.Equal(now.Rules, w.rules) {
		out["rules"] = append([]string{}, w.rules...)
	}
	switch {
	case w.vlans != nil && (!now.VLANsOnly || !slices.Equal(slices.Sorted(slices.Values(now.VLANs)), slices.Sorted(slices.Values(w.vlans)))):
		out["vlans"], out["vlansEnabled"] = w.vlans, true
	case w.vlans == nil && set(optionVLANs) && (now.VLANsOnly || len(now.VLANs) > 0):
		out["vlans"], out["vlansDisabled"] = []string{}, true
	}
	ours := len(now.Persist) > 0 && strings.HasPrefix(now.Persist[0].path(), d.names.path(d.cfg.Prefix+"--"))
	switch {
	case w.persist != "" && (len(now.Persist) != 1 || now.Persist[0].path() != w.persist):
		out["persist"] = persistence(w.persist)
	case w.persist == "" && ours:
		out["persist"] = []reference{}
	}
	if !now.Metadata.sameOurs(w.metadata) {
		out["metadata"] = now.Metadata.with(w.metadata)
	}
	return out
}

// made is a virtual server as it is once a wish is fulfilled.
func (d *device) made(w wish, now virtualObject) virtualObject {
	now.Name, now.Partition, now.FullPath = w.name, d.cfg.Partition, d.names.path(w.name)
	now.Destination, now.Protocol, now.Pool, now.SNAT = d.destination(w), w.protocol, w.pool, w.snat
	now.Source = d.source(w)
	now.Profiles.Items = references(w.profiles)
	if w.rules != nil || len(now.Rules) > 0 {
		now.Rules = w.rules
	}
	if w.vlans != nil || now.VLANsOnly {
		now.VLANs, now.VLANsOnly = w.vlans, w.vlans != nil
	}
	now.Persist = nil
	if w.persist != "" {
		now.Persist = persistence(w.persist)
	}
	now.Metadata = now.Metadata.with(w.metadata)
	return now
}
