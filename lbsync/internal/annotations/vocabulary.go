package annotations

import (
	"fmt"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// Word is an annotation that users set.
type Word struct {
	Name    string
	On      string   // "Service", "Pod" or "Node"
	Values  string   // what it can be
	Doc     string   // what it does, and what holds without it
	Example string   // a good value
	Aliases []string // annotations of others that are read in its place, see Aliases
}

// Vocabulary lists every annotation that users set, in the order of the documentation. Options of one kind of load balancer, see
// providers.Capabilities, are not in it.
func Vocabulary() []Word {
	var out []Word
	for _, w := range vocabulary {
		word := w.Word
		for _, a := range aliases {
			if a.Word == word.Name {
				word.Aliases = append(word.Aliases, a.Name)
			}
		}
		out = append(out, word)
	}
	return out
}

// entry is a Word of a Service with how it is read. A Word of another object is read by a function of its own.
type entry struct {
	Word
	read func(d *decoder, value string) error
	// keep says what stays as it is while the value cannot be read; nil is nothing.
	keep func(w *Wishes)
	// foreign is true for what has a meaning also for pools of somebody else.
	foreign bool
}

// What stays as it is.
func keepPool(w *Wishes)      { w.Kept.Pool = true }
func keepVirtual(w *Wishes)   { w.Kept.Virtual = true }
func keepAddresses(w *Wishes) { w.Kept.Addresses = true }
func keepStructure(w *Wishes) { w.Kept.Structure = true }

// vocabulary is the one table that decoding, documentation and hints about typing errors come from.
var vocabulary = slices.Concat(addressWords(), structureWords(), poolWords(), monitorWords(), virtualWords(), memberWords())

func addressWords() []entry {
	return []entry{
		{
			Word: Word{
				Name: LoadBalancerIPs, On: "Service", Values: "one IPv4 address, one IPv6 address, or both separated by a comma", Example: "192.0.2.10,2001:db8::10",
				Doc: "the VIPs; without it `spec.loadBalancerIP`, else the lowest free address of each family in `spec.ipFamilies`",
			},
			read: func(d *decoder, value string) (err error) {
				d.Addresses, err = ParseAddresses(value)
				return err
			},
			keep: keepAddresses,
		},
		{
			Word: Word{
				Name: AddressPool, On: "Service", Values: "name of an address pool", Example: "public",
				Doc: "where the VIPs come from; without it the first [address pool](settings.md) that the Service may use and that is not kept for those who name it",
			},
			read: func(d *decoder, value string) (err error) {
				d.AddressPool, err = match(labelSyntax, value, "write the name of an address pool: lower-case letters, digits and dashes")
				return err
			},
			keep: keepAddresses,
		},
		{
			Word: Word{
				Name: SharedVIP, On: "Service", Values: "name of a group, of letters, digits, `-`, `_` and `.`", Example: "web",
				Doc: "the Services of the Namespace with the same group have the same VIPs on different ports",
			},
			read: func(d *decoder, value string) (err error) {
				d.SharedVIP, err = match(nameSyntax, value, "write at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at both ends")
				return err
			},
			keep: keepStructure,
		},
	}
}

func structureWords() []entry {
	return []entry{
		{
			Word: Word{
				Name: Providers, On: "Service", Values: "names of load balancers, separated by commas", Example: "avi,edge",
				Doc: "the load balancers that the Service is on, several to move it from one to another; without it the one of its class",
			},
			read: func(d *decoder, value string) (err error) {
				d.Providers, err = names(value, d.instances)
				return err
			},
			keep: keepStructure,
		},
		{
			Word: Word{
				Name: Pool, On: "Service", Values: "`<port>=<load balancer>:<pool>`, separated by commas; the port is a number or a name, the pool is spelled as on the load balancer",
				Example: "https=avi:web-pool",
				Doc: "puts the members into pools that somebody else made, and makes no virtual server. On Services of any type but `ExternalName`; " +
					"ports that are not named are not served",
			},
			read: func(d *decoder, value string) (err error) {
				d.Attachments, err = attachments(value, d.instances)
				return err
			},
			keep: keepStructure, foreign: true,
		},
		{
			Word: Word{
				Name: ServiceType, On: "Service", Values: either(Sources()), Example: "NodePort",
				Doc: "where members come from: node ports of Pods, the node port of the Service on the Nodes, or Pod addresses; without it the setting [`serviceType`](settings.md)",
			},
			read: func(d *decoder, value string) (err error) {
				d.Source, err = oneOf("a source of members", value, Sources())
				return err
			},
			keep: keepStructure, foreign: true,
		},
	}
}

func poolWords() []entry {
	return []entry{
		{
			Word: Word{
				Name: Algorithm, On: "Service", Values: either(algorithms), Example: "LeastConnections",
				Doc: "how the pool chooses a member; without it `RoundRobin`",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.Algorithm, err = oneOf("an algorithm", value, algorithms)
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: Persistence, On: "Service", Values: either(persistences), Example: "SourceAddress",
				Doc: "sends a client to the member that it had; without it `SourceAddress` with `spec.sessionAffinity: ClientIP`, else `None`",
			},
			read: func(d *decoder, value string) error {
				kind, err := oneOf("a kind of persistence", value, persistences)
				switch kind {
				case "None":
					d.Pool.Persistence = providers.Persistence{}
				case string(providers.SourceAddress):
					d.Pool.Persistence.Kind = providers.SourceAddress
				}
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: PersistenceTimeout, On: "Service", Values: "a duration, `1s` to `24h`", Example: "30m",
				Doc: "how long a client that does not come back is remembered; without it `timeoutSeconds` of `spec.sessionAffinityConfig`, else `3h`",
			},
			read: func(d *decoder, value string) (err error) {
				d.timeout, err = span(value, time.Second, 24*time.Hour)
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: ProxyProtocol, On: "Service", Values: either(proxyProtocols), Example: "v2",
				Doc: "tells members about the client by the PROXY protocol, which they must expect; without it nothing is told",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.ProxyProtocol, err = oneOf("a version of the PROXY protocol", value, proxyProtocols)
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: SlowStart, On: "Service", Values: "a duration, `1s` to `1h`", Example: "30s",
				Doc: "over how long the share of a new member grows to its full size; without it the load balancer decides",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.SlowStart, err = span(value, time.Second, time.Hour)
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: MemberConnections, On: "Service", Values: "a number, `1` to `1000000`", Example: "500",
				Doc: "the most connections that one member gets at once; without it the load balancer decides",
			},
			read: func(d *decoder, value string) error {
				n, err := count(value, 1, 1_000_000)
				d.Pool.MemberConnections = uint32(n)
				return err
			},
			keep: keepPool,
		},
	}
}

func monitorWords() []entry {
	seconds := func(name, doc, example string, field func(*providers.Monitor) *time.Duration) entry {
		return entry{
			Word: Word{Name: name, On: "Service", Values: "a duration, `1s` to `1h`", Example: example, Doc: doc},
			read: func(d *decoder, value string) (err error) {
				*field(&d.Pool.Monitor), err = span(value, time.Second, time.Hour)
				return err
			},
			keep: keepPool,
		}
	}
	looks := func(name, doc, example string, field func(*providers.Monitor) *uint8) entry {
		return entry{
			Word: Word{Name: name, On: "Service", Values: fmt.Sprintf("a number, `1` to `%d`", mostLooks), Example: example, Doc: doc},
			read: func(d *decoder, value string) error {
				n, err := count(value, 1, mostLooks)
				*field(&d.Pool.Monitor) = uint8(n)
				return err
			},
			keep: keepPool,
		}
	}
	return []entry{
		{
			Word: Word{
				Name: Monitor, On: "Service", Values: either(monitors), Example: "HTTP",
				Doc: "how the load balancer itself finds out whether a member answers; without it the load balancer connects to the port",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.Monitor.Type, err = oneOf("a kind of monitor", value, monitors)
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: MonitorPath, On: "Service", Values: "a path that begins with `/`", Example: "/healthz",
				Doc: "what `HTTP` and `HTTPS` ask for, an answer from 200 to 399 is good; without it `/`",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.Monitor.Path, err = match(pathSyntax, value, `write a path that begins with "/", without blanks, quotes and backslashes, such as /healthz`)
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: MonitorHost, On: "Service", Values: "a host name, also with a port", Example: "shop.example.com",
				Doc: "the host that `HTTP` and `HTTPS` ask; without it the load balancer decides",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.Monitor.Host, err = match(hostSyntax, value, "write a host name such as shop.example.com")
				return err
			},
			keep: keepPool,
		},
		{
			Word: Word{
				Name: MonitorName, On: "Service", Values: "a name as the load balancer spells it", Example: "System-HTTP",
				Doc: "the monitor that `Existing` means, which somebody else made on the load balancer",
			},
			read: func(d *decoder, value string) (err error) {
				d.Pool.Monitor.Name, err = match(objectSyntax, value, "write the name of a monitor on the load balancer, without commas, quotes and backslashes")
				return err
			},
			keep: keepPool,
		},
		seconds(MonitorInterval, "time between two looks at a member; without it the load balancer decides", "5s", func(m *providers.Monitor) *time.Duration { return &m.Interval }),
		seconds(MonitorTimeout, "how long a member may take to answer, at most the interval; without it the load balancer decides", "2s",
			func(m *providers.Monitor) *time.Duration { return &m.Timeout }),
		looks(MonitorRise, "how many good looks in a row bring a member back; without it the load balancer decides", "2", func(m *providers.Monitor) *uint8 { return &m.Rise }),
		looks(MonitorFall, "how many bad looks in a row take a member out; without it the load balancer decides", "3", func(m *providers.Monitor) *uint8 { return &m.Fall }),
	}
}

// mostLooks is the most looks in a row that every load balancer can count.
const mostLooks = 50

func virtualWords() []entry {
	return []entry{
		{
			Word: Word{
				Name: SourceRanges, On: "Service", Values: "prefixes and addresses, separated by commas", Example: "192.0.2.0/24,2001:db8::/64",
				Doc: "from where clients may connect; without it `spec.loadBalancerSourceRanges`, else from everywhere. " +
					"While it cannot be read, or the load balancer cannot enforce it, the Service is not served",
			},
			read: func(d *decoder, value string) (err error) {
				d.Virtual.SourceRanges, err = sourceRanges(value)
				return err
			},
			keep: func(w *Wishes) { w.Kept.Virtual, w.Unservable = true, true },
		},
		{
			Word: Word{
				Name: IdleTimeout, On: "Service", Values: "a duration, `1s` to `240h`", Example: "10m",
				Doc: "connections on which nothing was sent for so long are closed; without it the load balancer decides",
			},
			read: func(d *decoder, value string) (err error) {
				d.Virtual.IdleTimeout, err = span(value, time.Second, 240*time.Hour)
				return err
			},
			keep: keepVirtual,
		},
		{
			Word: Word{
				Name: AcceptProxyProtocol, On: "Service", Values: "`true` or `false`", Example: "true",
				Doc: "expects the PROXY protocol from clients, which are other load balancers then; without it `false`",
			},
			read: func(d *decoder, value string) (err error) {
				d.Virtual.AcceptProxyProtocol, err = truth(value)
				return err
			},
			keep: keepVirtual,
		},
	}
}

func memberWords() []entry {
	return []entry{
		{
			Word: Word{
				Name: DrainLimit, On: "Service", Values: "a duration, `0s` to `24h`", Example: "30m",
				Doc: "the longest that a member which takes no new connections is kept for those it has; without it the setting [`drainLimit`](settings.md)",
			},
			read: func(d *decoder, value string) error {
				limit, err := span(value, 0, 24*time.Hour)
				if err == nil {
					d.DrainLimit = &limit
				}
				return err
			},
			foreign: true,
		},
		{
			Word: Word{
				Name: AllowRemoval, On: "Service", Values: "`true` or `false`", Example: "true",
				Doc: "lets go the members that the guard holds; without it `false`",
			},
			read: func(d *decoder, value string) (err error) {
				d.AllowRemoval, err = truth(value)
				return err
			},
			foreign: true,
		},
		{
			Word: Word{
				Name: Abandon, On: "Service", Values: "names of load balancers, separated by commas", Example: "old-avi",
				Doc: "load balancers that are gone for good: what the Service has there is not waited for when it is deleted or moved",
			},
			read: func(d *decoder, value string) (err error) {
				d.Abandoned, err = names(value, nil) // also one that is not configured any more
				return err
			},
			foreign: true,
		},
		{
			Word: Word{
				Name: Weight, On: "Pod", Values: fmt.Sprintf("a number, `1` to `%d`", mostWeight), Example: "5",
				Doc: "the Pod's share of new connections relative to the other members; without it `1`",
			},
		},
		{
			Word: Word{
				Name: Drain, On: "Node", Values: "`true` or `false`", Example: "true",
				Doc: "the members on the Node take no new connections, and leave when they have none or at the drain limit; without it `false`",
			},
		},
	}
}

// either lists values for the documentation.
func either[T ~string](words []T) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, "`"+string(w)+"`")
	}
	return enumerate(quoted)
}
