// Package lbsync keeps a load balancer's pools and virtual servers equal to what the Services of a cluster want. See
// Syncer.
package lbsync

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
)

// Config is all that lbsync can be told. cmd/lbsync fills it from file, environment and flags.
// The zero value is not valid: start from DefaultConfig.
type Config struct {
	// Instance names this installation, "namespace/name" of the Helm release; part of every ownership mark.
	Instance string
	// ProviderName is the provider instance; the Services of loadBalancerClass "nplbridge.io/<ProviderName>" are ours.
	ProviderName string
	// HandleUnclassed takes Services of type LoadBalancer without a loadBalancerClass, too.
	HandleUnclassed bool
	// ServiceType is where members come from; only "NodePortLocal" for now.
	ServiceType string
	// AddressPools are the prefixes or ranges that VIPs are taken from, in order of preference.
	AddressPools []AddressRange
	// DrainLimit is the longest a member stays Draining; 0 to 24h.
	DrainLimit time.Duration
	// Resync is how often the load balancer is read back; 10s to 24h.
	Resync time.Duration
	// Lease locates the leader election Lease.
	LeaseNamespace, LeaseName string
	// Identity of this process in the Lease; required, unique.
	Identity string
}

// AddressRange is an inclusive range of addresses of one family, First <= Last.
type AddressRange struct{ First, Last netip.Addr }

// String returns "first-last", or one address.
func (r AddressRange) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// NodePortLocal is the ServiceType that takes members from the Pods' annotation.
const NodePortLocal = "NodePortLocal"

// DefaultConfig returns the defaults. Instance, ProviderName, the Lease and Identity have none.
func DefaultConfig() Config {
	return Config{ServiceType: NodePortLocal, DrainLimit: 5 * time.Minute, Resync: 5 * time.Minute}
}

// Validate returns every problem of the configuration, each naming the setting, its value and what would be right.
func (c Config) Validate() error {
	var errs []error
	bad := func(setting string, value any, fix string) {
		errs = append(errs, fmt.Errorf("%s: %q: %s", setting, fmt.Sprint(value), fix))
	}
	if namespace, name, ok := strings.Cut(c.Instance, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		bad("instance", c.Instance, `write "namespace/name" of the installation`)
	}
	if problems := validation.IsQualifiedName(annotations.ClassPrefix + c.ProviderName); len(problems) > 0 || c.ProviderName == "" {
		bad("providerName", c.ProviderName, `write a name such as "haproxy"; it makes the loadBalancerClass "`+annotations.ClassPrefix+`<providerName>"`)
	}
	if c.ServiceType != NodePortLocal {
		bad("serviceType", c.ServiceType, "write "+NodePortLocal)
	}
	for _, r := range c.AddressPools {
		if !r.First.IsValid() || !r.Last.IsValid() || r.First.Is4() != r.Last.Is4() || r.Last.Less(r.First) {
			bad("addressPools", r, "write two addresses of one family, the lower one first")
		}
	}
	if c.DrainLimit < 0 || c.DrainLimit > 24*time.Hour {
		bad("drainLimit", c.DrainLimit, "write a duration from 0 to 24h")
	}
	if c.Resync < 10*time.Second || c.Resync > 24*time.Hour {
		bad("resync", c.Resync, "write a duration from 10s to 24h")
	}
	const nameFix = "write the name of a Kubernetes object, in lower case"
	if len(validation.IsDNS1123Label(c.LeaseNamespace)) > 0 {
		bad("leaseNamespace", c.LeaseNamespace, nameFix)
	}
	if len(validation.IsDNS1123Subdomain(c.LeaseName)) > 0 {
		bad("leaseName", c.LeaseName, nameFix)
	}
	if c.Identity == "" {
		bad("identity", c.Identity, "write what is unique to this process, the Pod's name for example")
	}
	return errors.Join(errs...)
}

// ParseAddressRange reads an address pool: a prefix "172.31.0.0/24", a range "172.31.0.10-172.31.0.20", or one address.
// A prefix leaves out the addresses that not every client can reach: of IPv4 the first and the last (network and broadcast),
// of IPv6 the first (subnet-router anycast), where the prefix has more than two. A range is taken as it is written.
func ParseAddressRange(s string) (AddressRange, error) {
	const fix = `write a prefix "172.31.0.0/24", a range "172.31.0.10-172.31.0.20" or one address`
	s = strings.TrimSpace(s)
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return AddressRange{}, fmt.Errorf("address pool %q: not a prefix; %s", s, fix)
		}
		if p.Addr().Is4In6() {
			return AddressRange{}, fmt.Errorf("address pool %q: is IPv4 written as IPv6; %s", s, fix)
		}
		if p != p.Masked() {
			return AddressRange{}, fmt.Errorf("address pool %q: has bits set after the prefix; write %q", s, p.Masked())
		}
		return rangeOf(p), nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	r := AddressRange{}
	var errs [2]error
	r.First, errs[0] = netip.ParseAddr(strings.TrimSpace(first))
	r.Last, errs[1] = netip.ParseAddr(strings.TrimSpace(last))
	r.First, r.Last = r.First.Unmap(), r.Last.Unmap()
	switch {
	case errs[0] != nil || errs[1] != nil || r.First.Zone() != "" || r.Last.Zone() != "":
		return AddressRange{}, fmt.Errorf("address pool %q: not addresses; %s", s, fix)
	case r.First.Is4() != r.Last.Is4():
		return AddressRange{}, fmt.Errorf("address pool %q: its ends are of different families; %s", s, fix)
	case r.Last.Less(r.First):
		return AddressRange{}, fmt.Errorf("address pool %q: its end is below its start; write %q", s, last+"-"+first)
	}
	return r, nil
}

func rangeOf(p netip.Prefix) AddressRange {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	r := AddressRange{p.Addr(), last}
	if p.Addr().BitLen()-p.Bits() > 1 {
		r.First = r.First.Next()
		if p.Addr().Is4() {
			r.Last = r.Last.Prev()
		}
	}
	return r
}
