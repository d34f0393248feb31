package view

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// controllerMembers asks the simulated Controller for the servers of the Service's pools.
func (v View) controllerMembers(ctx context.Context, service string) (map[netip.AddrPort]Server, error) {
	var pools struct {
		Results []struct {
			UUID    string
			Markers []struct {
				Key    string
				Values []string
			}
			Servers []struct {
				IP           struct{ Addr netip.Addr }
				Port         uint16
				Enabled      *bool
				ExternalUUID string `json:"external_uuid"`
			}
		}
	}
	if err := v.read(ctx, "/api/pool?page_size=200", &pools); err != nil {
		return nil, err
	}
	members := map[netip.AddrPort]Server{}
	for _, p := range pools.Results {
		of := func(key, value string) bool {
			for _, m := range p.Markers {
				if m.Key == key {
					return slices.Equal(m.Values, []string{value})
				}
			}
			return false
		}
		if !of("nplbridge-service", v.Namespace+"/"+service) {
			continue
		}
		var runtime []struct {
			IP   struct{ Addr netip.Addr } `json:"ip_addr"`
			Port uint16
			Oper struct{ State string } `json:"oper_status"`
		}
		if err := v.read(ctx, "/api/pool/"+p.UUID+"/runtime/server", &runtime); err != nil {
			return nil, err
		}
		up := map[netip.AddrPort]bool{}
		for _, s := range runtime {
			up[netip.AddrPortFrom(s.IP.Addr, s.Port)] = s.Oper.State == "OPER_UP"
		}
		for _, s := range p.Servers {
			at := netip.AddrPortFrom(s.IP.Addr, s.Port)
			enabled := s.Enabled == nil || *s.Enabled
			members[at] = Server{Name: s.ExternalUUID, Up: up[at] && enabled, Enabled: enabled}
		}
	}
	return members, nil
}

// deviceMembers asks the simulated BIG-IP for the members of the Service's pools.
func (v View) deviceMembers(ctx context.Context, service string) (map[netip.AddrPort]Server, error) {
	var pools struct {
		Items []struct {
			Metadata         []struct{ Name, Value string }
			MembersReference struct {
				Items []struct{ Name, Partition, Address, Session, State string }
			}
		}
	}
	if err := v.read(ctx, "/mgmt/tm/ltm/pool?expandSubcollections=true", &pools); err != nil {
		return nil, err
	}
	members := map[netip.AddrPort]Server{}
	for _, p := range pools.Items {
		ours := false
		for _, m := range p.Metadata {
			ours = ours || m.Name == "nplbridge-key" && strings.HasPrefix(m.Value, v.Namespace+"/"+service+":")
		}
		if !ours {
			continue
		}
		for _, m := range p.MembersReference.Items {
			at, err := netip.ParseAddrPort(net.JoinHostPort(m.Address, m.Name[strings.LastIndexAny(m.Name, ":.")+1:]))
			if err != nil {
				return nil, fmt.Errorf("member %s of %s: %w", m.Name, service, err)
			}
			enabled := m.Session == "monitor-enabled" || m.Session == "user-enabled"
			members[at] = Server{Name: "/" + m.Partition + "/" + m.Name, Up: enabled && (m.State == "up" || m.State == "unchecked"), Enabled: enabled}
		}
	}
	return members, nil
}

func (v View) read(ctx context.Context, path string, into any) error {
	lb := v.Balancer()
	answer, err := lb.Administer(ctx, http.MethodGet, path, nil)
	if err != nil {
		return fmt.Errorf("reading the pools of %s: %w", lb.Kind(), err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("reading the pools of %s: %w in %s", lb.Kind(), err, answer)
	}
	return nil
}

// remoteMembers are those of a load balancer that is not HAProxy.
func (v View) remoteMembers(ctx context.Context, service string) (map[netip.AddrPort]Server, error) {
	if v.Balancer().Kind() == lab.Avi {
		return v.controllerMembers(ctx, service)
	}
	return v.deviceMembers(ctx, service)
}
