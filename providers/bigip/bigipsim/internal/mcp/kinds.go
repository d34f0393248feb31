package mcp

import (
	"slices"
	"strings"
)

// valueType is what a property holds.
type valueType int

const (
	text     valueType = iota
	number             // within Min and Max
	choice             // one of Choices
	flag               // true or false
	list               // of anything, kept as it is
	record             // an object, kept as it is
	metadata           // [{name, persist, value}]
	path               // the full path of another object
	paths              // a list of them
	rule               // of monitors
	secret             // text that is never read back
)

// Property is one of an object.
type Property struct {
	Name    string
	Type    valueType
	Default any // nil: it is left out while it is not set
	Choices []string
	Min     int64
	Max     int64
	// CreateOnly is refused in a change, even where it is the same.
	CreateOnly bool
	// Fixed is refused in a change unless it is the same.
	Fixed bool
	// ReadOnly is not taken over from a request.
	ReadOnly bool
	// Required has to be given when the object is made.
	Required bool
	// To are the kinds that a path leads to; a kind that ends with "/" is every one below it.
	To []string
	// Label is what the object behind a path is called when it is not there.
	Label string
}

// Kind is a type of object.
type Kind struct {
	Path       string // "ltm/pool"
	Label      string // "Pool"
	Properties []Property
	Child      *Kind // of its sub-collection
	// Unfoldered objects are in no folder: partitions.
	Unfoldered bool
	// Loose kinds keep properties that are not listed: profiles and the like, which are only referred to.
	Loose bool
	// Local objects belong to the device and are not synchronised.
	Local bool

	byName map[string]Property
}

// Element returns the last part of the path.
func (k *Kind) Element() string { return k.Path[strings.LastIndexByte(k.Path, '/')+1:] }

// Type returns what stands in "kind", without "state" or "collectionstate".
func (k *Kind) Type() string {
	return "tm:" + strings.ReplaceAll(k.Path, "/", ":") + ":" + k.Element()
}

func (k *Kind) property(name string) (Property, bool) {
	p, ok := k.byName[name]
	return p, ok
}

// indexed finds properties by name in the kinds and their children.
func indexed(kinds []*Kind) []*Kind {
	for _, k := range kinds {
		for _, one := range []*Kind{k, k.Child} {
			if one == nil {
				continue
			}
			one.byName = map[string]Property{}
			for _, p := range one.Properties {
				one.byName[p.Name] = p
			}
		}
	}
	return kinds
}

// leadsTo reports whether the property may refer to objects of that kind.
func (p Property) leadsTo(kind string) bool {
	return slices.ContainsFunc(p.To, func(to string) bool {
		return to == kind || (strings.HasSuffix(to, "/") && strings.HasPrefix(kind, to))
	})
}

// Lookup returns the kind at a path, "ltm/pool"; nil if there is none. Sub-collections are found by their owner.
func Lookup(path string) *Kind {
	i := slices.IndexFunc(Kinds, func(k *Kind) bool { return k.Path == path })
	if i < 0 {
		return nil
	}
	return Kinds[i]
}

func str(name string) Property               { return Property{Name: name} }
func strDefault(name, value string) Property { return Property{Name: name, Default: value} }
func whole(name string, value int64) Property {
	return Property{Name: name, Type: number, Default: value, Max: 4294967295}
}
func oneOf(name, value string, others ...string) Property {
	return Property{Name: name, Type: choice, Default: value, Choices: append([]string{value}, others...)}
}
func pathTo(name, label string, kinds ...string) Property {
	return Property{Name: name, Type: path, To: kinds, Label: label}
}
func (p Property) createOnly() Property { p.CreateOnly = true; return p }
func (p Property) fixed() Property      { p.Fixed = true; return p }
func (p Property) readOnly() Property   { p.ReadOnly = true; return p }
func (p Property) required() Property   { p.Required = true; return p }

// described are the properties that most objects have.
func described(more ...Property) []Property {
	return append([]Property{str("description"), {Name: "metadata", Type: metadata}, str("appService")}, more...)
}

const (
	poolPath      = "ltm/pool"
	nodePath      = "ltm/node"
	virtualPath   = "ltm/virtual"
	addressPath   = "ltm/virtual-address"
	monitorPath   = "ltm/monitor/"
	profilePath   = "ltm/profile/"
	persistPath   = "ltm/persistence/"
	partitionPath = "auth/partition"
	folderPath    = "sys/folder"
)

// runtimeFields are of members and nodes. What is read back of session and state depends on monitors.
var runtimeFields = []Property{
	{Name: "session", Type: choice, Choices: []string{"user-enabled", "user-disabled"}},
	{Name: "state", Type: choice, Choices: []string{"user-up", "user-down"}},
}

func endpoint() []Property {
	return append(described(
		str("address").createOnly(), oneOf("ephemeral", "false", "true").createOnly(), whole("connectionLimit", 0), whole("dynamicRatio", 1),
		Property{Name: "fqdn", Type: record, Default: map[string]any{"autopopulate": "disabled"}}, oneOf("logging", "disabled", "enabled"),
		strDefault("rateLimit", "disabled"), Property{Name: "ratio", Type: number, Default: int64(1), Min: 1, Max: 65535},
		Property{Name: "monitor", Type: rule, Default: "default"},
	), runtimeFields...)
}

// Kinds are all there are, in the order in which they may refer to each other.
var Kinds = indexed(slices.Concat([]*Kind{
	{Path: partitionPath, Label: "Partition", Unfoldered: true, Properties: []Property{str("description"), whole("defaultRouteDomain", 0)}},
	{Path: folderPath, Label: "folder", Properties: []Property{
		str("description"), strDefault("deviceGroup", "none"), strDefault("trafficGroup", "/Common/traffic-group-1"),
		oneOf("inheritedDevicegroup", "true", "false"), oneOf("inheritedTrafficGroup", "true", "false"), oneOf("hidden", "false", "true"), oneOf("noRefCheck", "false", "true"),
	}},
	{Path: "net/route-domain", Label: "Route Domain", Properties: described(Property{Name: "id", Type: number, Max: 65534}.required().fixed(), oneOf("strict", "enabled", "disabled"))},
	{Path: "net/vlan", Label: "VLAN", Loose: true, Local: true, Properties: described(whole("tag", 4094), whole("mtu", 1500))},
	{Path: nodePath, Label: "Node", Properties: endpoint()},
	{Path: "ltm/rule", Label: "rule", Properties: described(str("apiAnonymous"))},
	{Path: "ltm/snatpool", Label: "SNAT pool", Properties: described(Property{Name: "members", Type: list}.required())},
	{Path: "ltm/data-group/internal", Label: "Data Group", Properties: []Property{
		str("description"), {Name: "type", Type: choice, Choices: []string{"string", "ip", "integer"}, Required: true, Fixed: true}, {Name: "records", Type: list},
	}},
	{Path: poolPath, Label: "Pool", Child: memberKind, Properties: described(
		Property{Name: "monitor", Type: rule},
		oneOf("allowNat", "yes", "no"), oneOf("allowSnat", "yes", "no"), oneOf("ignorePersistedWeight", "disabled", "enabled"),
		strDefault("ipTosToClient", "pass-through"), strDefault("ipTosToServer", "pass-through"), strDefault("linkQosToClient", "pass-through"),
		strDefault("linkQosToServer", "pass-through"), oneOf("loadBalancingMode", "round-robin", loadBalancingModes...), whole("minActiveMembers", 0),
		whole("minUpMembers", 0), oneOf("minUpMembersAction", "failover", "reboot", "restart-all"), oneOf("minUpMembersChecking", "disabled", "enabled"),
		whole("queueDepthLimit", 0), oneOf("queueOnConnectionLimit", "disabled", "enabled"), whole("queueTimeLimit", 0), whole("reselectTries", 0),
		oneOf("serviceDownAction", "none", "reset", "drop", "reselect"), whole("slowRampTime", 10),
	)},
	{Path: virtualPath, Label: "Virtual Server", Child: profileKind, Properties: described(
		str("destination").required(), str("mask"), str("source"), pathTo("pool", "Pool", poolPath), oneOf("ipProtocol", "any", "tcp", "udp", "sctp", "icmp"),
		Property{Name: "enabled", Type: flag}, Property{Name: "disabled", Type: flag}, Property{Name: "vlansEnabled", Type: flag}, Property{Name: "vlansDisabled", Type: flag},
		Property{Name: "vlans", Type: paths, To: []string{"net/vlan"}, Label: "VLAN"}, Property{Name: "rules", Type: paths, To: []string{"ltm/rule"}, Label: "rule"},
		Property{Name: "persist", Type: list}, pathTo("fallbackPersistence", "Persistence profile", persistPath),
		Property{Name: "sourceAddressTranslation", Type: record, Default: map[string]any{"type": "none"}},
		oneOf("addressStatus", "yes", "no"), strDefault("autoLasthop", "default"), oneOf("cmpEnabled", "yes", "no"), whole("connectionLimit", 0),
		whole("gtmScore", 0), oneOf("mirror", "disabled", "enabled"), oneOf("mobileAppTunnel", "disabled", "enabled"), oneOf("nat64", "disabled", "enabled"),
		strDefault("rateLimit", "disabled"), whole("rateLimitDstMask", 0), strDefault("rateLimitMode", "object"), whole("rateLimitSrcMask", 0),
		oneOf("serviceDownImmediateAction", "none", "reset", "drop"), oneOf("sourcePort", "preserve", "preserve-strict", "change"),
		strDefault("synCookieStatus", "not-activated").readOnly(), oneOf("translateAddress", "enabled", "disabled"), oneOf("translatePort", "enabled", "disabled"),
		whole("vsIndex", 0).readOnly(),
	)},
	{Path: addressPath, Label: "Virtual Address", Properties: described(
		str("address").createOnly(), oneOf("arp", "enabled", "disabled", "any", "all"), oneOf("autoDelete", "true", "false"), whole("connectionLimit", 0), oneOf("enabled", "yes", "no"),
		str("mask"), strDefault("icmpEcho", "enabled"), strDefault("routeAdvertisement", "disabled"), strDefault("serverScope", "any"),
		strDefault("trafficGroup", "/Common/traffic-group-1"), oneOf("inheritedTrafficGroup", "true", "false"), oneOf("floating", "enabled", "disabled"),
	)},
	{Path: "cm/device-group", Label: "device group", Properties: []Property{
		str("description"), oneOf("type", "sync-failover", "sync-only").fixed(), oneOf("autoSync", "disabled", "enabled"), oneOf("saveOnAutoSync", "false", "true"),
		oneOf("fullLoadOnSync", "false", "true"), oneOf("networkFailover", "enabled", "disabled"), oneOf("asmSync", "disabled", "enabled"), whole("incrementalConfigSyncSizeMax", 1024),
	}},
	{Path: "cm/traffic-group", Label: "traffic group", Properties: []Property{
		str("description"), oneOf("autoFailbackEnabled", "false", "true"), whole("autoFailbackTime", 60), whole("haLoadFactor", 1), strDefault("isFloating", "true").readOnly(), strDefault("mac", "none"), whole("unitId", 1),
	}},
}, monitorKinds(), looseKinds()))

var loadBalancingModes = []string{
	"dynamic-ratio-member", "dynamic-ratio-node", "fastest-app-response", "fastest-node", "least-connections-member", "least-connections-node",
	"least-sessions", "observed-member", "observed-node", "predictive-member", "predictive-node", "ratio-least-connections-member",
	"ratio-least-connections-node", "ratio-member", "ratio-node", "ratio-session", "weighted-least-connections-member", "weighted-least-connections-node",
}

// memberKind and profileKind are the sub-collections.
var (
	memberKind = &Kind{Path: "ltm/pool/members", Label: "Pool Member", Properties: append(endpoint(), oneOf("inheritProfile", "enabled", "disabled"), whole("priorityGroup", 0), Property{Name: "profiles", Type: list})}

	profileKind = &Kind{Path: "ltm/virtual/profiles", Label: "profile", Properties: []Property{oneOf("context", "all", "clientside", "serverside")}}
)

func monitorKinds() []*Kind {
	common := func(kind string, more ...Property) *Kind {
		from := pathTo("defaultsFrom", "monitor", monitorPath+kind).fixed()
		return &Kind{Path: monitorPath + kind, Label: "monitor", Properties: append(described(
			from, strDefault("destination", "*:*"), Property{Name: "interval", Type: number, Default: int64(5), Min: 1, Max: 86400},
			Property{Name: "timeout", Type: number, Default: int64(16), Min: 1, Max: 86400}, Property{Name: "upInterval", Type: number, Default: int64(0), Max: 86400},
			whole("timeUntilUp", 0), oneOf("manualResume", "disabled", "enabled"),
		), more...)}
	}
	payload := []Property{str("send"), str("recv"), str("recvDisable"), oneOf("reverse", "disabled", "enabled"), oneOf("transparent", "disabled", "enabled"), whole("ipDscp", 0), oneOf("adaptive", "disabled", "enabled"), whole("adaptiveLimit", 200), strDefault("adaptiveDivergenceType", "relative"), whole("adaptiveDivergenceValue", 25), whole("adaptiveSamplingTimespan", 300)}
	account := []Property{str("username"), {Name: "password", Type: secret}}
	tls := []Property{str("cert"), str("key"), str("cipherlist"), strDefault("compatibility", "enabled"), strDefault("sslProfile", "none")}
	transparent := []Property{oneOf("transparent", "disabled", "enabled")}
	return []*Kind{
		common("tcp", payload...),
		common("http", slices.Concat(payload, account)...),
		common("https", slices.Concat(payload, account, tls)...),
		common("udp", slices.Concat(payload, []Property{oneOf("debug", "no", "yes")})...),
		common("gateway-icmp", slices.Concat(transparent, []Property{oneOf("adaptive", "disabled", "enabled")})...),
		common("tcp-half-open", transparent...),
		common("icmp", transparent...),
		common("inband"),
	}
}

func looseKinds() []*Kind {
	var out []*Kind
	for _, name := range []string{"tcp", "udp", "sctp", "fastl4", "http", "client-ssl", "server-ssl", "one-connect", "request-log", "ftp", "http2", "web-acceleration", "statistics"} {
		from := pathTo("defaultsFrom", "profile", profilePath+name)
		out = append(out, &Kind{Path: profilePath + name, Label: "profile", Loose: true, Properties: described(from)})
	}
	for _, name := range []string{"source-addr", "dest-addr", "cookie", "hash", "ssl", "universal", "sip", "msrdp"} {
		from := pathTo("defaultsFrom", "Persistence profile", persistPath+name)
		out = append(out, &Kind{Path: persistPath + name, Label: "Persistence profile", Loose: true, Properties: described(from, strDefault("timeout", "180"))})
	}
	return out
}
