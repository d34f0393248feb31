package avisim

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// check compares o with the other objects; old is what it replaces.
func (s *Server) check(o, old *object) *refusal {
	switch o.kind.Name {
	case "pool":
		return s.checkPool(o)
	case "virtualservice":
		return s.checkVirtualService(o)
	case "l4policyset":
		return s.checkPolicySet(o)
	case "vsvip":
		return s.checkVsVip(o, old)
	}
	return nil
}

// serverKey is what tells one server of a pool from another: address and port.
func serverKey(server any) string {
	ip, _ := at(server, "ip", "addr").(string)
	port, _ := at(server, "port").(int64)
	return addressPort(ip, port)
}

func (s *Server) checkPool(o *object) *refusal {
	seen := map[string]bool{}
	for _, server := range messages(o.body, "servers") {
		ip, _ := at(server, "ip", "addr").(string)
		kind, _ := at(server, "ip", "type").(string)
		if err := checkAddress(ip, kind); err != nil {
			return err
		}
		key := serverKey(server)
		if seen[key] && s.cfg.Rules.Duplicates != KeepDuplicates {
			return refuse(http.StatusBadRequest, "Pool %s has duplicate server %s", o.name(), key)
		}
		seen[key] = true
	}
	return nil
}

func checkAddress(address, kind string) *refusal {
	if kind == "DNS" {
		return nil
	}
	if a, err := netip.ParseAddr(address); err != nil || a.Is4() != (kind == "V4") || a.Zone() != "" {
		return refuse(http.StatusBadRequest, "Invalid IP address %.60q of type %s", address, kind)
	}
	return nil
}

func (s *Server) checkVirtualService(o *object) *refusal {
	bad := func(format string, args ...any) *refusal { return refuse(http.StatusBadRequest, format, args...) }
	vip := s.store.objects[o.ref("vsvip_ref")]
	switch {
	case vip == nil:
		return bad("VirtualService %s has no vsvip_ref", o.name())
	case len(messages(o.body, "services")) == 0:
		return bad("VirtualService %s has no services", o.name())
	case o.body["pool_ref"] != nil && o.body["pool_group_ref"] != nil:
		return bad("VirtualService %s has both pool_ref and pool_group_ref", o.name())
	case vip.ref("cloud_ref") != o.ref("cloud_ref"):
		return bad("Cloud for VS %s and VsVip %s different", o.name(), vip.name())
	case vip.ref("vrf_context_ref") != o.ref("vrf_context_ref"):
		return bad("VRF Context for VS %s and VsVip %s different", o.name(), vip.name())
	}
	for _, ref := range []string{"se_group_ref", "vrf_context_ref"} {
		if to := s.store.objects[o.ref(ref)]; to != nil && to.ref("cloud_ref") != o.ref("cloud_ref") {
			return bad("Cloud for VS %s and %s %s different", o.name(), to.kind.Type, to.name())
		}
	}
	var pools []*object
	if p := s.store.objects[o.ref("pool_ref")]; p != nil {
		pools = append(pools, p)
	}
	for _, policy := range messages(o.body, "l4_policies") {
		set, _ := policy["l4_policy_set_ref"].(schema.Reference)
		pools = append(pools, s.poolsOf(s.store.objects[set])...)
	}
	if err := samePlace(o, pools); err != nil {
		return err
	}
	return s.checkPorts(o)
}

// samePlace wants the pools in the cloud and VRF of the virtual service.
func samePlace(o *object, pools []*object) *refusal {
	for _, p := range pools {
		if p.ref("cloud_ref") != o.ref("cloud_ref") {
			return refuse(http.StatusBadRequest, "Cloud for VS %s and pool %s different", o.name(), p.name())
		}
		if p.ref("vrf_ref") != o.ref("vrf_context_ref") {
			return refuse(http.StatusBadRequest, "VRF Context for VS %s and pool %s different", o.name(), p.name())
		}
	}
	return nil
}

func (s *Server) poolsOf(set *object) []*object {
	var out []*object
	for _, r := range rulesOf(set) {
		if p, ok := at(r, "action", "select_pool", "pool_ref").(schema.Reference); ok {
			out = append(out, s.store.objects[p])
		}
	}
	return out
}

func rulesOf(set *object) []map[string]any {
	if set == nil {
		return nil
	}
	policy, _ := set.body["l4_connection_policy"].(map[string]any)
	return messages(policy, "rules")
}

// service is a range of ports of a virtual service with its protocol.
type service struct {
	from, to int64
	protocol string // "TCP", "UDP", "SCTP"
}

func (s *Server) servicesOf(o *object) []service {
	var out []service
	for _, m := range messages(o.body, "services") {
		profile := o.ref("network_profile_ref")
		if override, ok := m["override_network_profile_ref"].(schema.Reference); ok {
			profile = override
		}
		from, _ := m["port"].(int64)
		to, _ := m["port_range_end"].(int64)
		out = append(out, service{from, to, s.protocolOf(profile)})
	}
	return out
}

// protocolOf returns what a network profile carries.
func (s *Server) protocolOf(profile schema.Reference) string {
	if o := s.store.objects[profile]; o != nil {
		kind, _ := at(o.body, "profile", "type").(string)
		for _, protocol := range []string{"UDP", "SCTP"} {
			if strings.Contains(kind, protocol) {
				return protocol
			}
		}
	}
	return "TCP"
}

// checkPorts wants each port of a VsVip once for each protocol.
func (s *Server) checkPorts(o *object) *refusal {
	mine := s.servicesOf(o)
	for i, a := range mine {
		if a.to < a.from {
			return refuse(http.StatusBadRequest, "VirtualService %s: port_range_end %d is below port %d", o.name(), a.to, a.from)
		}
		if slices.ContainsFunc(mine[:i], a.overlaps) {
			return refuse(http.StatusBadRequest, "VirtualService %s has duplicate service port %d/%s", o.name(), a.from, a.protocol)
		}
	}
	if s.cfg.Rules.SharedPorts {
		return nil
	}
	for _, r := range s.store.referrersOf(o.ref("vsvip_ref")) {
		other := s.store.objects[r]
		if r.Kind != "virtualservice" || r.UUID == o.uuid {
			continue
		}
		for _, a := range mine {
			if slices.ContainsFunc(s.servicesOf(other), a.overlaps) {
				return refuse(http.StatusBadRequest, "VirtualService %s already has service port %d/%s on this VsVip", other.name(), a.from, a.protocol)
			}
		}
	}
	return nil
}

// String is "80/TCP" or "8000-8010/TCP".
func (a service) String() string {
	if a.from == a.to {
		return fmt.Sprintf("%d/%s", a.from, a.protocol)
	}
	return fmt.Sprintf("%d-%d/%s", a.from, a.to, a.protocol)
}

func (a service) overlaps(b service) bool {
	return a.protocol == b.protocol && a.from <= b.to && b.from <= a.to
}

func (s *Server) checkPolicySet(o *object) *refusal {
	names, indexes := map[any]bool{}, map[any]bool{}
	for _, r := range rulesOf(o) {
		if names[r["name"]] || indexes[r["index"]] {
			return refuse(http.StatusBadRequest, "L4PolicySet %s: rule %v has a name or index that stands twice", o.name(), r["name"])
		}
		names[r["name"]], indexes[r["index"]] = true, true
		if action := at(r, "action", "select_pool"); action != nil && at(action, "pool_ref") == nil && at(action, "pool_group_ref") == nil {
			return refuse(http.StatusBadRequest, "L4PolicySet %s: rule %v selects no pool", o.name(), r["name"])
		}
	}
	for _, r := range s.store.referrersOf(o.reference()) {
		if vs := s.store.objects[r]; r.Kind == "virtualservice" {
			if err := samePlace(vs, s.poolsOf(o)); err != nil {
				return err
			}
		}
	}
	return nil
}
