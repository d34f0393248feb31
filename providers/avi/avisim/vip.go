package avisim

import (
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

func addressPort(ip string, port int64) string {
	return net.JoinHostPort(ip, strconv.FormatInt(port, 10))
}

// checkVsVip gives the VIPs of o their addresses, and holds them to what they were.
func (s *Server) checkVsVip(o, old *object) *refusal {
	var before map[string]map[string]any
	if old != nil {
		before = byID(messages(old.body, "vip"))
	}
	list := messages(o.body, "vip")
	now := byID(list)
	if len(list) == 0 {
		return refuse(http.StatusBadRequest, "VsVip %s has no vip", o.name())
	}
	if len(now) < len(list) {
		return refuse(http.StatusBadRequest, "VsVip %s: a vip_id stands twice", o.name())
	}
	for id := range before {
		if now[id] == nil && len(now) >= len(before) {
			return refuse(http.StatusBadRequest, "Changing an existing VIP's vip_id is not supported")
		}
	}
	used := s.addressesInUse(o)
	vips := make([]any, len(list))
	for i, v := range list {
		vip := maps.Clone(v)
		id, _ := vip["vip_id"].(string)
		if err := s.addresses(o, vip, before[id], used); err != nil {
			return err
		}
		vips[i] = vip
	}
	o.body["vip"] = vips
	return nil
}

func byID(vips []map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, v := range vips {
		id, _ := v["vip_id"].(string)
		out[id] = v
	}
	return out
}

// families are the two fields of a VIP for an address, with the types of allocation that fill them.
var families = []struct {
	field, subnet, kind string
	auto                []string
}{
	{"ip_address", "subnet", "V4", []string{"V4_ONLY", "V4_V6"}},
	{"ip6_address", "subnet6", "V6", []string{"V6_ONLY", "V4_V6"}},
}

// addresses fills the addresses of one VIP. was is the same VIP before; used are the addresses of others and is added to.
func (s *Server) addresses(o *object, vip, was map[string]any, used map[string]string) *refusal {
	auto := vip["auto_allocate_ip"] == true
	kinds, _ := vip["auto_allocate_ip_type"].(string)
	found := false
	for _, family := range families {
		address, _ := at(vip, family.field, "addr").(string)
		kept, _ := at(was, family.field, "addr").(string)
		if address != "" {
			kind, _ := at(vip, family.field, "type").(string)
			if kind != family.kind {
				return refuse(http.StatusBadRequest, "VsVip %s: %s is of type %s", o.name(), family.field, kind)
			}
			if err := checkAddress(address, kind); err != nil {
				return err
			}
		}
		wanted := auto && slices.Contains(family.auto, kinds)
		switch {
		case kept != "" && address != "" && kept != address:
			return refuse(http.StatusBadRequest, "VsVip %s: the address %s of a VIP does not change. If a new preferred IP is needed, please recreate the VIP", o.name(), kept)
		case kept != "" && address == "" && wanted:
			address = kept
		case kept == "" && wanted:
			free, err := s.allocate(o, vip, family.subnet, family.kind, address, used)
			if err != nil {
				return err
			}
			address = free
			vip["avi_allocated_vip"] = true
		}
		if address == "" {
			delete(vip, family.field)
			continue
		}
		if owner := used[address]; owner != "" {
			return refuse(http.StatusBadRequest, "VsVip %s: IP address %s is already used by VsVip %s", o.name(), address, owner)
		}
		found = true
		used[address] = o.name()
		vip[family.field] = map[string]any{"addr": address, "type": family.kind}
	}
	if !found {
		return refuse(http.StatusBadRequest, "VsVip %s: a VIP needs ip_address, ip6_address or auto_allocate_ip", o.name())
	}
	return nil
}

// addressesInUse returns the addresses of the other VsVips in the VRF of o.
func (s *Server) addressesInUse(o *object) map[string]string {
	used := map[string]string{}
	for _, other := range s.store.byKind["vsvip"] {
		if other.uuid == o.uuid || other.ref("vrf_context_ref") != o.ref("vrf_context_ref") {
			continue
		}
		for _, v := range messages(other.body, "vip") {
			for _, family := range families {
				if address, _ := at(v, family.field, "addr").(string); address != "" {
					used[address] = other.name()
				}
			}
		}
	}
	return used
}

// allocate returns the preferred address if it is in a range and free, or the lowest free one of the ranges that the VIP names.
func (s *Server) allocate(o *object, vip map[string]any, subnetField, kind, preferred string, used map[string]string) (string, *refusal) {
	network, named := at(vip, "ipam_network_subnet", "network_ref").(schema.Reference)
	subnet := prefixOf(at(vip, "ipam_network_subnet", subnetField))
	ranges := 0
	for _, n := range s.store.of("network") {
		if (named && n.uuid != network.UUID) || n.ref("cloud_ref") != o.ref("cloud_ref") || n.ref("vrf_context_ref") != o.ref("vrf_context_ref") {
			continue
		}
		for _, r := range vipRanges(n, kind) {
			if subnet.IsValid() && !subnet.Contains(r[0]) {
				continue
			}
			ranges++
			if free := firstFree(r, preferred, used); free != "" {
				return free, nil
			}
		}
	}
	name := "any network"
	if named {
		name = s.store.nameOf(network)
	}
	switch {
	case ranges == 0:
		return "", refuse(http.StatusBadRequest, "No static IP range for VIPs of type %s found in %s", kind, name)
	case preferred != "":
		return "", refuse(http.StatusBadRequest, "Preferred IP %s is not available in %s", preferred, name)
	}
	return "", refuse(http.StatusBadRequest, "No available free IPs in %s", name)
}

// firstFree returns the preferred address, or the lowest free one, of a range; empty if there is none.
func firstFree(r [2]netip.Addr, preferred string, used map[string]string) string {
	if a, err := netip.ParseAddr(preferred); err == nil {
		if a.Compare(r[0]) < 0 || a.Compare(r[1]) > 0 || used[preferred] != "" {
			return ""
		}
		return preferred
	}
	for a := r[0]; a.IsValid() && a.Compare(r[1]) <= 0; a = a.Next() {
		if used[a.String()] == "" {
			return a.String()
		}
	}
	return ""
}

// vipRanges returns the ranges of a network that VIPs may be taken from.
func vipRanges(network *object, kind string) [][2]netip.Addr {
	var out [][2]netip.Addr
	for _, subnet := range messages(network.body, "configured_subnets") {
		for _, r := range messages(subnet, "static_ip_ranges") {
			purpose, _ := r["type"].(string)
			first, errFirst := netip.ParseAddr(addr(at(r, "range", "begin")))
			last, errLast := netip.ParseAddr(addr(at(r, "range", "end")))
			if strings.Contains(purpose, "VIP") && errFirst == nil && errLast == nil && first.Is4() == last.Is4() && first.Is4() == (kind == "V4") {
				out = append(out, [2]netip.Addr{first, last})
			}
		}
	}
	return out
}

func addr(value any) string {
	text, _ := at(value, "addr").(string)
	return text
}

func prefixOf(value any) netip.Prefix {
	a, err := netip.ParseAddr(addr(at(value, "ip_addr")))
	bits, _ := at(value, "mask").(int64)
	if err != nil || int(bits) > a.BitLen() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, int(bits)).Masked()
}
