// Package lbsync keeps a load balancer's pools and virtual servers equal to what the Services of a cluster want. See
// Syncer.
package lbsync

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
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
	// Providers names the provider instances; the Services of loadBalancerClass "nplbridge.io/<name>" are ours. At least one.
	Providers []string
	// HandleUnclassed puts Services of type LoadBalancer without a loadBalancerClass on the first provider.
	HandleUnclassed bool
	// ServiceType is where members come from unless a Service says otherwise.
	ServiceType string
	// PortRange is where npl-agents take node ports from; a mapping outside it is taken only if the Pod declares that host port. The
	// zero value takes any.
	PortRange PortRange
	// NodePortSelector are the labels of the Nodes that are members with ServiceType NodePort; empty selects all.
	NodePortSelector map[string]string
	// NamespaceSelector are the labels of the Namespaces whose Services are ours; empty selects all.
	NamespaceSelector map[string]string
	// BlockedNamespaces are Namespaces whose Services are never ours.
	BlockedNamespaces []string
	// NodeAddresses are the provider instances that stand on the Node NodeName and serve Services which ask for no address at those of the Node.
	NodeAddresses []string
	// NodeName is the Node that this process runs on.
	NodeName string
	// NodePortRange is where the API server takes node ports of Services from; a port in it cannot be served at a Node's addresses. The zero
	// value is none.
	NodePortRange PortRange
	// AnnounceByInterface are the provider instances whose addresses are announced by the host that has them on an interface: no other is
	// published.
	AnnounceByInterface []string
	// AddressPools are what VIPs are taken from, in order of preference.
	AddressPools []AddressPool
	// GuardHold is how long the loss of more than half of a pool is held at least when no event explains it; 0 to 24h, 0 is no guard.
	GuardHold time.Duration
	// GateTimeout opens the readiness gate of a Pod that waited so long for a load balancer; 0 to 24h, 0 never does.
	GateTimeout time.Duration
	// DrainOnCordon drains the members on a Node that is cordoned, too.
	DrainOnCordon bool
	// DryRun plans and reports and writes nothing, to load balancers or to Kubernetes.
	DryRun bool
	// DrainLimit is the longest a member stays Draining; 0 to 24h.
	DrainLimit time.Duration
	// Resync is how often the load balancer is read back; 10s to 24h.
	Resync time.Duration
	// Lease locates the leader election Lease.
	LeaseNamespace, LeaseName string
	// Identity of this process in the Lease; required, unique.
	Identity string

	retiring bool // see Cleanup
}

// PortRange is an inclusive range of ports; zero is none.
type PortRange struct{ First, Last uint16 }

// AddressPool is a set of addresses that VIPs are taken from.
type AddressPool struct {
	Name   string // unique; what annotations.AddressPool names
	Ranges []AddressRange
	// Providers are the provider instances that may use it; empty is all.
	Providers []string
	// Namespaces and the labels of Services that may use it; empty is all.
	Namespaces []string
	Selector   map[string]string
	// OnRequest keeps it for Services that name it or an address in it.
	OnRequest bool
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

// DefaultConfig returns the defaults. Instance, Providers, the Lease and Identity have none.
func DefaultConfig() Config {
	return Config{
		ServiceType: string(annotations.NodePortLocal), NodePortRange: PortRange{30000, 32767}, DrainLimit: 5 * time.Minute, Resync: 5 * time.Minute,
		GuardHold: time.Minute, GateTimeout: 10 * time.Minute,
	}
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
	if len(c.Providers) == 0 {
		bad("providerName", "", "name at least one provider")
	}
	setting := "providerName"
	if len(c.Providers) > 1 {
		setting = "providers"
	}
	for i, name := range c.Providers {
		if len(validation.IsQualifiedName(annotations.ClassPrefix+name)) > 0 || name == "" || strings.ContainsAny(name, "=, ") {
			bad(setting, name, `write a name such as "haproxy"; it makes the loadBalancerClass "`+annotations.ClassPrefix+`<name>"`)
		}
		if slices.Contains(c.Providers[:i], name) {
			bad(setting, name, "give each provider a name of its own")
		}
	}
	if !slices.Contains(annotations.Sources(), annotations.Source(c.ServiceType)) {
		bad("serviceType", c.ServiceType, "write "+listOf(annotations.Sources()))
	}
	if first, last := c.PortRange.First, c.PortRange.Last; (first == 0) != (last == 0) || last < first {
		bad("portRange", c.PortRange, portRangeFix)
	}
	if first, last := c.NodePortRange.First, c.NodePortRange.Last; (first == 0) != (last == 0) || last < first {
		bad("nodePortRange", c.NodePortRange, portRangeFix)
	}
	for setting, names := range map[string][]string{"haproxy.nodeAddresses": c.NodeAddresses, "haproxy.announce": c.AnnounceByInterface} {
		for _, name := range names {
			if !slices.Contains(c.Providers, name) {
				bad(setting, name, "name load balancers that exist: "+strings.Join(c.Providers, ", "))
			}
		}
	}
	if len(c.NodeAddresses) > 0 && c.NodeName != "" && len(validation.IsDNS1123Subdomain(c.NodeName)) > 0 {
		bad("nodeName", c.NodeName, "write the name of a Node")
	}
	for setting, labels := range map[string]map[string]string{"nodePortSelector": c.NodePortSelector, "namespaceSelector": c.NamespaceSelector} {
		if wrong := wrongLabel(labels); wrong != "" {
			bad(setting, wrong, "write labels as Kubernetes has them")
		}
	}
	for i, name := range c.BlockedNamespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			bad("blockedNamespaces", name, "write the name of a Namespace")
		} else if slices.Contains(c.BlockedNamespaces[:i], name) {
			bad("blockedNamespaces", name, "write it once")
		}
	}
	errs = append(errs, c.validatePools()...)
	for _, d := range []struct {
		setting string
		value   time.Duration
	}{{"guardHold", c.GuardHold}, {"gateTimeout", c.GateTimeout}} {
		if d.value < 0 || d.value > 24*time.Hour {
			bad(d.setting, d.value, "write a duration from 0 to 24h")
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

// listOf lists words for people: "a, b or c".
func listOf[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// wrongLabel returns the first label that Kubernetes would not take, "" when there is none.
func wrongLabel(labels map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(labels[key])) > 0 {
			return key + "=" + labels[key]
		}
	}
	return ""
}

// validatePools returns what is wrong with the address pools, each message beginning with "addressPools".
func (c Config) validatePools() (errs []error) {
	bad := func(pool int, what string, value any, fix string) {
		errs = append(errs, fmt.Errorf("addressPools[%d]%s: %q: %s", pool, what, fmt.Sprint(value), fix))
	}
	type owned struct {
		AddressRange
		pool string
	}
	var taken []owned
	for i, pool := range c.AddressPools {
		if len(validation.IsDNS1123Label(pool.Name)) > 0 {
			bad(i, ".name", pool.Name, "write a name in lower case, of at most 63 letters, digits and dashes")
		}
		if slices.ContainsFunc(c.AddressPools[:i], func(o AddressPool) bool { return o.Name == pool.Name }) {
			bad(i, ".name", pool.Name, "give each pool a name of its own")
		}
		if len(pool.Ranges) == 0 {
			bad(i, ".ranges", "", "write at least one range of addresses")
		}
		for _, r := range pool.Ranges {
			if !r.First.IsValid() || !r.Last.IsValid() || r.First.Is4() != r.Last.Is4() || r.Last.Less(r.First) {
				bad(i, ".ranges", r, "write two addresses of one family, the lower one first")
				continue
			}
			for _, o := range taken {
				if o.pool != pool.Name && r.First.Is4() == o.First.Is4() && !o.Last.Less(r.First) && !r.Last.Less(o.First) {
					bad(i, ".ranges", r, fmt.Sprintf("put each address into one pool; it overlaps %s of %s", o.AddressRange, o.pool))
					break
				}
			}
			taken = append(taken, owned{r, pool.Name})
		}
		for _, name := range pool.Providers {
			if !slices.Contains(c.Providers, name) {
				bad(i, ".providers", name, "name load balancers that exist: "+strings.Join(c.Providers, ", "))
			}
		}
		for _, name := range pool.Namespaces {
			if len(validation.IsDNS1123Label(name)) > 0 {
				bad(i, ".namespaces", name, "write the names of Namespaces")
			}
		}
		if wrong := wrongLabel(pool.Selector); wrong != "" {
			bad(i, ".selector", wrong, "write labels as Kubernetes has them")
		}
	}
	return errs
}

const portRangeFix = "write FIRST-LAST, two ports from 1 to 65535, the lower one first"

// ParsePortRange reads "61000-62000"; empty is none.
func ParsePortRange(s string) (PortRange, error) {
	if s == "" {
		return PortRange{}, nil
	}
	first, last, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || b < a {
		return PortRange{}, errors.New(portRangeFix)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

// String returns "first-last", and "" for none.
func (r PortRange) String() string {
	if r == (PortRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
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
