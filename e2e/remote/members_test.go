package remote

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

type object = map[string]any

// stranger is a server that somebody else has put into a pool. Nobody is there.
var stranger = netip.MustParseAddrPort("172.30.0.250:8080")

// handMade is the address of a virtual server that an administrator made; lbsync's own addresses begin at the other end.
const handMade = "172.31.0.240"

// membersOnly: an administrator's virtual server leads to an administrator's pool, with a server of the administrator's, switched off. A Service puts its Pods
// into that pool, gets no address of ours, and takes out what it put in.
func (s *site) membersOnly() {
	pool := s.makePool()
	s.apply("guest", 2, "80="+string(s.lb.Kind())+":"+pool)
	var want []netip.AddrPort
	var members map[netip.AddrPort]string
	s.eventually(func() error {
		var err error
		if members, err = s.Published(s.t.Context(), "guest", 2); err != nil {
			return err
		}
		want = []netip.AddrPort{stranger}
		for m := range members {
			want = append(want, m)
		}
		slices.SortFunc(want, netip.AddrPort.Compare)
		if got := s.inPool(); !slices.Equal(got, want) {
			return fmt.Errorf("the pool has %v, want %v", got, want)
		}
		return nil
	})
	s.balanced(handMade+":80", members)
	s.hasCondition("guest", "nplbridge.io/Programmed", "True")
	if in := s.service("guest").Status.LoadBalancer.Ingress; len(in) > 0 {
		s.t.Errorf("ingress %v", in)
	}
	s.kubectl("scale", "deployment", "guest", "--replicas=1")
	s.eventually(func() error {
		if n := len(s.inPool()); n != 2 {
			return fmt.Errorf("%d members, want 2", n)
		}
		return nil
	})
	s.gone("guest")
	s.eventually(func() error {
		if got := s.inPool(); !slices.Equal(got, []netip.AddrPort{stranger}) {
			return fmt.Errorf("the pool has %v, want the administrator's member and no other", got)
		}
		return nil
	})
}

// makePool makes the administrator's pool and virtual server and returns how a Service names the pool.
func (s *site) makePool() string {
	if s.lb.Kind() == lab.BigIP {
		s.call("POST", "/mgmt/tm/ltm/pool", object{"name": "guests", "partition": "apps", "monitor": "/Common/tcp", "members": []object{
			{"name": "/apps/" + stranger.String(), "address": stranger.Addr().String(), "session": "user-disabled"},
		}})
		s.call("POST", "/mgmt/tm/ltm/virtual", object{
			"name": "guests", "partition": "apps", "destination": "/apps/" + handMade + ":80", "ipProtocol": "tcp", "pool": "/apps/guests",
		})
		return "/apps/guests"
	}
	s.call("POST", "/api/pool", object{
		"name": "guests", "health_monitor_refs": []string{"/api/healthmonitor?name=System-TCP"}, "servers": []object{
			{"ip": object{"addr": stranger.Addr(), "type": "V4"}, "port": stranger.Port(), "enabled": false},
		},
	})
	s.call("POST", "/api/vsvip", object{"name": "guests", "vip": []object{{"vip_id": "0", "ip_address": object{"addr": handMade, "type": "V4"}}}})
	s.call("POST", "/api/virtualservice", object{
		"name": "guests", "services": []object{{"port": 80}}, "vsvip_ref": "/api/vsvip?name=guests", "pool_ref": "/api/pool?name=guests",
		"network_profile_ref": "/api/networkprofile?name=System-TCP-Proxy", "application_profile_ref": "/api/applicationprofile?name=System-L4-Application",
	})
	return "guests"
}

// inPool are the addresses in the administrator's pool, sorted.
func (s *site) inPool() []netip.AddrPort {
	s.t.Helper()
	var out []netip.AddrPort
	if s.lb.Kind() == lab.BigIP {
		var answer struct{ Items []struct{ Name string } }
		s.must(json.Unmarshal(s.call("GET", "/mgmt/tm/ltm/pool/~apps~guests/members", nil), &answer))
		for _, m := range answer.Items {
			out = append(out, netip.MustParseAddrPort(m.Name))
		}
	} else {
		var answer struct {
			Results []struct {
				Servers []struct {
					IP   struct{ Addr netip.Addr }
					Port uint16
				}
			}
		}
		s.must(json.Unmarshal(s.call("GET", "/api/pool?name=guests", nil), &answer))
		for _, m := range answer.Results[0].Servers {
			out = append(out, netip.AddrPortFrom(m.IP.Addr, m.Port))
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}
