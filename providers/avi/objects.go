package avi

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// The types of objects, as they stand in URLs.
const (
	typePool           = "pool"
	typeVirtualService = "virtualservice"
	typeVsVip          = "vsvip"
	typeL4PolicySet    = "l4policyset"
	typeMonitor        = "healthmonitor"
	typePersistence    = "applicationpersistenceprofile"
	typeNetworkProfile = "networkprofile"
)

// pool is what we read of a Pool.
type pool struct {
	Servers     []server `json:"servers"`
	Algorithm   string   `json:"lb_algorithm"`
	Hash        string   `json:"lb_algorithm_hash"`
	Monitors    []string `json:"health_monitor_refs"`
	Persistence string   `json:"application_persistence_profile_ref"`
	Graceful    *int64   `json:"graceful_disable_timeout"`
	Ramp        *int64   `json:"connection_ramp_duration"`
	CreatedBy   string   `json:"created_by"`
	Markers     []marker `json:"markers"`
	Runtime     *struct {
		Servers int `json:"num_servers"`
		Enabled int `json:"num_servers_enabled"`
		Up      int `json:"num_servers_up"`
	} `json:"runtime"`
}

// poolFields are those of pool and what every object has.
const poolFields = "name,uuid,_last_modified,servers,lb_algorithm,lb_algorithm_hash,health_monitor_refs,application_persistence_profile_ref," +
	"graceful_disable_timeout,connection_ramp_duration,created_by,markers"

// virtualService is what we read of a VirtualService.
type virtualService struct {
	Services []listen `json:"services"`
	Network  string   `json:"network_profile_ref"`
	App      string   `json:"application_profile_ref"`
	VsVip    string   `json:"vsvip_ref"`
	Pool     string   `json:"pool_ref"`
	Policies []struct {
		Ref string `json:"l4_policy_set_ref"`
	} `json:"l4_policies"`
	Markers []marker `json:"markers"`
}

const virtualServiceFields = "name,uuid,_last_modified,services,network_profile_ref,application_profile_ref,vsvip_ref,pool_ref,l4_policies,created_by,markers"

type listen struct {
	Port     uint16 `json:"port"`
	Override string `json:"override_network_profile_ref,omitempty"`
}

// policySet is what we read and write of an L4PolicySet.
type policySet struct {
	Connection struct {
		Rules []rule `json:"rules"`
	} `json:"l4_connection_policy"`
}

const policySetFields = "name,uuid,_last_modified,l4_connection_policy,created_by,markers"

type rule struct {
	Name   string `json:"name"`
	Index  int    `json:"index"`
	Enable bool   `json:"enable"`
	Match  struct {
		Port struct {
			Criteria string   `json:"match_criteria"`
			Ports    []uint16 `json:"ports"`
		} `json:"port"`
		Protocol struct {
			Criteria string `json:"match_criteria"`
			Protocol string `json:"protocol"`
		} `json:"protocol"`
	} `json:"match"`
	Action struct {
		Select struct {
			Type string `json:"action_type"`
			Pool string `json:"pool_ref"`
		} `json:"select_pool"`
	} `json:"action"`
}

// vsVip is what we read and write of a VsVip.
type vsVip struct {
	VIPs    []vip    `json:"vip"`
	Markers []marker `json:"markers"`
}

const vsVipFields = "name,uuid,_last_modified,vip,markers"

type vip struct {
	ID       string      `json:"vip_id"`
	Enabled  bool        `json:"enabled"`
	Auto     bool        `json:"auto_allocate_ip"`
	AutoType string      `json:"auto_allocate_ip_type,omitempty"`
	IPv4     *ipAddr     `json:"ip_address,omitempty"`
	IPv6     *ipAddr     `json:"ip6_address,omitempty"`
	Subnet   *ipamSubnet `json:"ipam_network_subnet,omitempty"`
}

type ipamSubnet struct {
	Network string  `json:"network_ref,omitempty"`
	Subnet  *prefix `json:"subnet,omitempty"`
	Subnet6 *prefix `json:"subnet6,omitempty"`
}

type prefix struct {
	IP   ipAddr `json:"ip_addr"`
	Mask int    `json:"mask"`
}

// addresses are all that a VsVip has, sorted.
func (v vsVip) addresses() []netip.Addr {
	var out []netip.Addr
	for _, entry := range v.VIPs {
		for _, a := range []*ipAddr{entry.IPv4, entry.IPv6} {
			if addr := a.addr(); addr.IsValid() {
				out = append(out, addr)
			}
		}
	}
	slices.SortFunc(out, providers.CompareAddrs)
	return out
}

// refers reports whether a reference of a reply, which has UUID and name, leads to an object that we know by UUID, or else by name.
func refers(ref, uuid, name string) bool {
	r := client.ParseRef(ref)
	if uuid != "" && r.UUID != "" {
		return r.UUID == uuid
	}
	return name != "" && r.Name == name
}

// refName returns the name that a reply's reference ends in, else its UUID.
func refName(ref string) string {
	r := client.ParseRef(ref)
	return cmp.Or(r.Name, r.UUID)
}

// monitor is what we read of a HealthMonitor.
type monitor struct {
	Type     string `json:"type"`
	Interval int64  `json:"send_interval"`
	Timeout  int64  `json:"receive_timeout"`
	Rise     int64  `json:"successful_checks"`
	Fall     int64  `json:"failed_checks"`
	HTTP     *struct {
		Request string   `json:"http_request"`
		Codes   []string `json:"http_response_code"`
	} `json:"http_monitor"`
}

const monitorFields = "name,uuid,_last_modified,type,send_interval,receive_timeout,successful_checks,failed_checks,http_monitor,markers"

// persistence is what we read of an ApplicationPersistenceProfile.
type persistence struct {
	Type string `json:"persistence_type"`
	IP   *struct {
		Timeout int64 `json:"ip_persistent_timeout"`
	} `json:"ip_persistence_profile"`
}

const persistenceFields = "name,uuid,_last_modified,persistence_type,ip_persistence_profile,markers"
