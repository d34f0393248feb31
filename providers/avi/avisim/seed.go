package avisim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// fields is the body of a request.
type fields = map[string]any

// seed makes what every Controller has, and what the configuration names.
func (s *Server) seed() error {
	create := func(kind, slug string, body fields) error {
		_, err := s.createAs(kind, slug, body, by{version: s.version, tenant: adminTenant, system: true})
		return err
	}
	steps := []func() error{func() error { return create("tenant", adminTenant, fields{"name": "admin"}) }}
	add := func(kind, slug string, body fields) {
		steps = append(steps, func() error { return create(kind, slug, body) })
	}
	for _, name := range s.cfg.Tenants {
		add("tenant", "", fields{"name": name})
	}
	add("cloud", defaultCloud, fields{"name": "Default-Cloud"})
	for _, name := range s.cfg.Clouds {
		add("cloud", "", fields{"name": name})
	}
	for _, cloud := range slices.Concat([]string{"Default-Cloud"}, s.cfg.Clouds) {
		ref := "/api/cloud?name=" + cloud
		add("vrfcontext", "", fields{"name": "global", "cloud_ref": ref, "system_default": true})
		add("vrfcontext", "", fields{"name": "management", "cloud_ref": ref, "system_default": true})
		add("serviceenginegroup", "", fields{"name": "Default-Group", "cloud_ref": ref})
	}
	for name, kind := range map[string]string{
		"System-TCP-Proxy": "TCP_PROXY", "System-TCP-Fast-Path": "TCP_FAST_PATH", "System-UDP-Fast-Path": "UDP_FAST_PATH", "System-UDP-Per-Pkt": "UDP_FAST_PATH",
		"System-UDP-No-SNAT": "UDP_FAST_PATH", "System-SCTP-Proxy": "SCTP_PROXY",
	} {
		add("networkprofile", "", fields{"name": name, "profile": fields{"type": "PROTOCOL_TYPE_" + kind}})
	}
	for name, kind := range map[string]string{"System-L4-Application": "L4", "System-HTTP": "HTTP", "System-Secure-HTTP": "HTTP", "System-SSL-Application": "SSL"} {
		add("applicationprofile", "", fields{"name": name, "type": "APPLICATION_PROFILE_TYPE_" + kind})
	}
	for name, kind := range map[string]string{"Client-IP": "CLIENT_IP_ADDRESS", "Http-Cookie": "HTTP_COOKIE", "TLS": "TLS"} {
		add("applicationpersistenceprofile", "", fields{"name": "System-Persistence-" + name, "persistence_type": "PERSISTENCE_TYPE_" + kind})
	}
	for name, kind := range map[string]string{"TCP": "TCP", "UDP": "UDP", "SCTP": "SCTP", "HTTP": "HTTP", "HTTPS": "HTTPS", "Ping": "PING"} {
		add("healthmonitor", "", fields{"name": "System-" + name, "type": "HEALTH_MONITOR_" + kind})
	}
	for _, n := range s.cfg.Networks {
		steps = append(steps, func() error { return s.addNetwork(n, create) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) addNetwork(n Network, create func(kind, slug string, body fields) error) error {
	cloud, vrf := cmp.Or(n.Cloud, "Default-Cloud"), cmp.Or(n.VRF, "global")
	ref := "/api/cloud?name=" + cloud
	if _, err := s.resolve("vrfcontext", "/api/vrfcontext?name="+vrf+"&cloud="+cloud, adminTenant); err != nil {
		if err := create("vrfcontext", "", fields{"name": vrf, "cloud_ref": ref}); err != nil {
			return err
		}
	}
	kind := "V4"
	if n.First.Is6() {
		kind = "V6"
	}
	address := func(text fmt.Stringer) fields { return fields{"addr": text.String(), "type": kind} }
	return create("network", "", fields{
		"name": n.Name, "cloud_ref": ref, "vrf_context_ref": "/api/vrfcontext?name=" + vrf + "&cloud=" + cloud,
		"configured_subnets": []any{fields{
			"prefix": fields{"ip_addr": address(n.Prefix.Masked().Addr()), "mask": n.Prefix.Bits()},
			"static_ip_ranges": []any{fields{
				"range": fields{"begin": address(n.First), "end": address(n.Last)}, "type": "STATIC_IPS_FOR_VIP_AND_SE",
			}},
		}},
	})
}

// createAs creates an object from Go values. The caller holds the lock, or nobody else knows the server yet.
func (s *Server) createAs(kind, slug string, body fields, who by) (*object, error) {
	k := s.store.kinds[kind]
	if k == nil {
		return nil, fmt.Errorf("no type %q", kind)
	}
	in, err := asRequest(body)
	if err != nil {
		return nil, err
	}
	o, refused := s.create(k, in, slug, who)
	if refused != nil {
		return nil, fmt.Errorf("create %s %v: %w", kind, body["name"], refused)
	}
	return o, nil
}

// asRequest makes of Go values what arrives in a request.
func asRequest(body fields) (fields, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	in, refused := decode(sent)
	if refused != nil {
		return nil, refused
	}
	return in, nil
}
