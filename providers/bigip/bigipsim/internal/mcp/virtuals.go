package mcp

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// Destination is where a virtual server listens.
type Destination struct {
	Path    naming.Path // of the virtual address
	Address naming.Address
	Port    uint16 // 0 is every port
}

// DestinationOf returns the destination of a stored virtual server.
func (c *Configuration) DestinationOf(v *Object) Destination {
	d, _ := v.Properties["_destination"].(Destination)
	return d
}

func (c *Configuration) virtualAddressOf(v *Object) string { return c.DestinationOf(v).Path.String() }

// parseDestination reads a destination; without a route domain it is in the one that domain gives for the partition.
func (c *Configuration) parseDestination(v *Object, domain func(partition string) int) (Destination, *Error) {
	text := v.Text("destination")
	var d Destination
	if strings.HasPrefix(text, "/") {
		p, err := naming.ParsePath(text)
		if err != nil {
			return d, invalidValue("destination", text)
		}
		d.Path = p
	} else {
		d.Path = naming.Path{Partition: v.Partition, Folder: v.Folder, Name: text}
	}
	host, port, err := naming.Endpoint(d.Path.Name)
	if err != nil {
		return d, invalidValue("destination", text)
	}
	a, refused := c.parseAddressIn(host, domain(d.Path.Partition))
	if refused != nil {
		return d, refused
	}
	d.Address, d.Port = a, port
	d.Path.Name = a.Text(c.shownDomain(d.Path.Partition))
	return d, nil
}

// completeVirtual checks a virtual server and fills in what depends on its destination.
func (c *Configuration) completeVirtual(o, old *Object, d decoded) *Error {
	domain := c.DefaultRouteDomain
	if d.properties["destination"] == nil {
		domain = c.shownDomain
	}
	to, err := c.parseDestination(o, domain)
	if err != nil {
		return err
	}
	if to.Path.Partition != o.Partition && to.Path.Partition != "Common" {
		return refuse(otherPartition, "Virtual Server %s in partition %s cannot reference Virtual Address %s in partition %s", o, o.Partition, to.Path, to.Path.Partition)
	}
	o.Properties["_destination"] = to
	o.Properties["destination"] = to.Path.In() + "/" + naming.Join(to.Path.Name, to.Port)
	anySource, mask := "0.0.0.0/0", "255.255.255.255"
	if to.Address.IP.Is6() {
		anySource, mask = "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	if o.Text("mask") == "" || (old != nil && d.properties["mask"] == nil) {
		o.Properties["mask"] = mask
	}
	if err := completeSource(o, anySource); err != nil {
		return err
	}
	for _, pair := range [][2]string{{"enabled", "disabled"}, {"vlansDisabled", "vlansEnabled"}} {
		if err := exclusive(o, d, pair[0], pair[1]); err != nil {
			return err
		}
	}
	if err := c.completeTranslation(o); err != nil {
		return err
	}
	if err := c.completePersist(o); err != nil {
		return err
	}
	if err := c.completeProfiles(o, d); err != nil {
		return err
	}
	if err := c.clashes(o, to); err != nil {
		return err
	}
	if old != nil {
		c.releaseAddress(old, o)
	}
	return c.ensureAddress(o, to)
}

// completeSource makes the source of the destination's family.
func completeSource(o *Object, anySource string) *Error {
	source := o.Text("source")
	if source == "" || source == "0.0.0.0/0" || source == "::/0" {
		o.Properties["source"] = anySource
		return nil
	}
	host, domain, scoped := strings.Cut(source, "%")
	bits := ""
	if scoped {
		domain, bits, _ = strings.Cut(domain, "/")
		host += "/" + bits
	}
	if !strings.Contains(host, "/") {
		return invalidValue("source", source)
	}
	p, err := netip.ParsePrefix(host)
	if err != nil || p.Addr().Is6() != (anySource == "::/0") {
		return refuse(configuration, "Configuration error: the source %s and the destination of virtual server %s are not of one family", source, o)
	}
	p = p.Masked()
	o.Properties["source"] = p.String()
	if scoped {
		o.Properties["source"] = p.Addr().String() + "%" + domain + "/" + bits
	}
	return nil
}

// exclusive keeps one of two flags that are each other's opposite; only true is a value. The first one is the default.
func exclusive(o *Object, d decoded, first, second string) *Error {
	for _, name := range []string{first, second} {
		if value, given := d.properties[name]; given && value != nil && value != true {
			return invalidValue(name, value)
		}
	}
	switch {
	case d.properties[first] == true && d.properties[second] == true:
		return invalid(APIInvalid, `"%s" may not be specified with "%s"`, second, first)
	case d.properties[first] == true, d.properties[second] == nil && o.Properties[second] == nil:
		delete(o.Properties, second)
		o.Properties[first] = true
	default:
		delete(o.Properties, first)
	}
	return nil
}

// completeTranslation checks sourceAddressTranslation.
func (c *Configuration) completeTranslation(o *Object) *Error {
	given, _ := o.Properties["sourceAddressTranslation"].(map[string]any)
	kind, _ := given["type"].(string)
	if kind == "" {
		kind = "none"
	}
	if !slices.Contains([]string{"none", "automap", "snat"}, kind) {
		return invalidValue("type", kind)
	}
	out := map[string]any{"type": kind}
	pool, _ := given["pool"].(string)
	if pool == "none" {
		pool = ""
	}
	if (pool != "") != (kind == "snat") {
		return refuse(configuration, "Configuration error: Virtual server (%s) needs a SNAT pool for source address translation of type snat, and for no other", o)
	}
	if pool != "" {
		full, err := c.reference(o, Property{Name: "pool", Type: path, To: []string{"ltm/snatpool"}, Label: "SNAT pool"}, pool)
		if err != nil {
			return err
		}
		out["pool"] = full
	}
	o.Properties["sourceAddressTranslation"] = out
	return nil
}

// completePersist makes the persistence profiles what is read back.
func (c *Configuration) completePersist(o *Object) *Error {
	items, _ := o.Properties["persist"].([]any)
	var out []any
	for _, item := range items {
		full, fields, err := c.named("persist", item)
		if err != nil {
			return err
		}
		target := c.target(Property{To: []string{persistPath}}, full)
		if target == nil {
			return refuse(notFound, "The requested Persistence profile (%s) was not found.", full)
		}
		if err := c.mayRefer(o, target); err != nil {
			return err
		}
		isDefault := "yes"
		if s, ok := fields["tmDefault"].(string); ok {
			isDefault = s
		}
		out = append(out, map[string]any{"name": target.Name, "partition": target.Partition, "tmDefault": isDefault, "_path": target.FullPath(), "_kind": target.Kind.Path})
	}
	if len(out) > 1 {
		return refuse(configuration, "Configuration error: virtual server %s has more than one default persistence profile", o)
	}
	if out == nil {
		delete(o.Properties, "persist")
		return nil
	}
	o.Properties["persist"] = out
	return nil
}

// named reads "/Common/x", or an object with name and, where that is no full path, partition.
func (c *Configuration) named(property string, item any) (string, map[string]any, *Error) {
	if s, ok := item.(string); ok && s != "" {
		full, _ := c.normal(Property{Type: path}, s).(string)
		return full, nil, nil
	}
	fields, _ := item.(map[string]any)
	name, _ := fields["name"].(string)
	if name == "" {
		return "", nil, invalidValue(property, item)
	}
	if partition, ok := fields["partition"].(string); ok && partition != "" && !strings.HasPrefix(name, "/") {
		folder, _ := fields["subPath"].(string)
		return naming.Path{Partition: partition, Folder: folder, Name: name}.String(), fields, nil
	}
	full, _ := c.normal(Property{Type: path}, name).(string)
	return full, fields, nil
}

// transport are the profile kinds that every virtual server has one of, with the protocol they are for.
var transport = map[string][]string{"tcp": {"tcp"}, "udp": {"udp"}, "sctp": {"sctp"}, "fastl4": {"any", "tcp", "udp", "sctp", "icmp"}}

// completeProfiles makes the profiles those of the request; where none carries the protocol, the system's is added.
func (c *Configuration) completeProfiles(o *Object, d decoded) *Error {
	if d.given {
		o.Children = nil
		for _, item := range d.children {
			full, fields, err := c.named("profiles", item)
			if err != nil {
				return err
			}
			target := c.target(Property{To: []string{profilePath}}, full)
			if target == nil {
				return refuse(notFound, "The requested profile (%s) was not found.", full)
			}
			if err := c.mayRefer(o, target); err != nil {
				return err
			}
			context := "all"
			if s, ok := fields["context"].(string); ok {
				context = s
			}
			if !slices.Contains([]string{"all", "clientside", "serverside"}, context) {
				return invalidValue("context", context)
			}
			o.Children = append(o.Children, &Object{Kind: profileKind, Path: target.Path, Properties: map[string]any{"context": context, "_kind": target.Kind.Path}})
		}
	}
	protocol := o.Text("ipProtocol")
	var carrier, http bool
	for _, p := range o.Children {
		kind := strings.TrimPrefix(p.Text("_kind"), profilePath)
		protocols, carries := transport[kind]
		if carries && !slices.Contains(protocols, protocol) || (needsTCP[kind] && protocol != "tcp") {
			return refuse(badProfiles, "Virtual server %s lists incompatible profiles.", o)
		}
		carrier, http = carrier || carries, http || kind == "http"
	}
	if !carrier {
		name := protocol
		if transport[protocol] == nil {
			name = "fastL4"
		}
		kind := profilePath + strings.ToLower(name)
		o.Children = append(slices.Clone(o.Children), &Object{Kind: profileKind, Path: naming.Path{Partition: "Common", Name: name}, Properties: map[string]any{"context": "all", "_kind": kind}})
	}
	slices.SortFunc(o.Children, func(a, b *Object) int { return strings.Compare(a.String(), b.String()) })
	for i, p := range o.Children {
		if i > 0 && p.String() == o.Children[i-1].String() {
			return refuse(exists, "The requested profile (%s) already exists in virtual server %s.", p, o)
		}
	}
	if persist, ok := o.Properties["persist"].([]any); ok && !http && persist[0].(map[string]any)["_kind"] == persistPath+"cookie" {
		return refuse(cookieNeedsHTTP, "Cookie persistence requires an HTTP or FastHTTP profile to be associated with the virtual server")
	}
	return nil
}

var needsTCP = map[string]bool{"http": true, "client-ssl": true, "server-ssl": true, "one-connect": true, "http2": true, "ftp": true}

// virtualRefersTo looks where a virtual server refers to others beside its properties.
func virtualRefersTo(v, to *Object) bool {
	full := to.FullPath()
	switch {
	case strings.HasPrefix(to.Kind.Path, profilePath):
		return v.Child(full) != nil
	case strings.HasPrefix(to.Kind.Path, persistPath):
		persist, _ := v.Properties["persist"].([]any)
		return slices.ContainsFunc(persist, func(p any) bool { return p.(map[string]any)["_path"] == full })
	case to.Kind.Path == "ltm/snatpool":
		translation, _ := v.Properties["sourceAddressTranslation"].(map[string]any)
		return translation["pool"] == full
	}
	return false
}

// clashes refuses a second virtual server for the same traffic.
func (c *Configuration) clashes(o *Object, to Destination) *Error {
	for _, other := range c.objects[virtualPath] {
		if other.FullPath() == o.FullPath() {
			continue
		}
		d := c.DestinationOf(other)
		sameProtocol := other.Text("ipProtocol") == o.Text("ipProtocol")
		if d.Address == to.Address && d.Port == to.Port && sameProtocol && other.Text("source") == o.Text("source") && vlansOverlap(o, other) {
			return refuse(clash, "Virtual Server %s illegally shares destination address, source address, service port, ip-protocol, and vlan with Virtual Server %s.", o, other)
		}
	}
	return nil
}

func vlansOverlap(a, b *Object) bool {
	first, _ := a.Properties["vlans"].([]any)
	second, _ := b.Properties["vlans"].([]any)
	if a.Properties["vlansEnabled"] != true || b.Properties["vlansEnabled"] != true {
		return true
	}
	return slices.ContainsFunc(first, func(v any) bool { return slices.Contains(second, v) })
}

// ensureAddress makes the virtual address of a destination, or finds the one that is there.
func (c *Configuration) ensureAddress(o *Object, to Destination) *Error {
	if c.Find(addressPath, to.Path.String()) != nil {
		return nil
	}
	a := &Object{Kind: Lookup(addressPath), Path: to.Path, Properties: map[string]any{"address": to.Path.Name, "mask": o.Properties["mask"], "autoDelete": "true"}}
	if folder := c.Find(folderPath, to.Path.In()); folder != nil {
		a.Properties["trafficGroup"] = folder.Text("trafficGroup")
	}
	c.fillDefaults(a)
	if err := c.addressIsFree(a, to.Address); err != nil {
		return err
	}
	c.put(a)
	return nil
}

// releaseAddress drops the virtual address of a virtual server that is gone or has moved to that of next, if nobody else uses it.
func (c *Configuration) releaseAddress(v, next *Object) {
	path := c.virtualAddressOf(v)
	if next != nil && c.virtualAddressOf(next) == path {
		return
	}
	for _, other := range c.objects[virtualPath] {
		if other.FullPath() != v.FullPath() && c.virtualAddressOf(other) == path {
			return
		}
	}
	if a := c.Find(addressPath, path); a != nil && a.Text("autoDelete") == "true" {
		c.drop(a)
	}
}

// completeVirtualAddress gives a virtual address its address.
func (c *Configuration) completeVirtualAddress(o *Object) *Error {
	given := o.Text("address")
	if given == "" {
		given = o.Name
	}
	a, err := c.parseAddress(given, o.Partition)
	if err != nil {
		return err
	}
	o.Properties["address"] = a.Text(c.shownDomain(o.Partition))
	return c.addressIsFree(o, a)
}

// addressIsFree refuses a second virtual address of one address.
func (c *Configuration) addressIsFree(o *Object, a naming.Address) *Error {
	for _, other := range c.objects[addressPath] {
		if other.FullPath() != o.FullPath() && c.AddressOf(other) == a {
			return refuse(addressExists, "Invalid Virtual Address, the IP address %s already exists.", a.Text(c.shownDomain(o.Partition)))
		}
	}
	return nil
}

// completeRecords checks the records of a data-group and orders them.
func completeRecords(o *Object) *Error {
	items, _ := o.Properties["records"].([]any)
	var out []any
	for _, item := range items {
		fields, _ := item.(map[string]any)
		if name, ok := item.(string); ok {
			fields = map[string]any{"name": name}
		}
		name, ok := scalar(fields["name"])
		if !ok || name == "" {
			return invalidValue("records", item)
		}
		entry := map[string]any{"name": name}
		if data, ok := scalar(fields["data"]); ok && data != "" {
			if len(data) > 65520 {
				return refuse(recordTooLong, "The value of record %s is too long (max:65520)", name)
			}
			entry["data"] = data
		}
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b any) int {
		return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
	})
	for i := 1; i < len(out); i++ {
		if out[i].(map[string]any)["name"] == out[i-1].(map[string]any)["name"] {
			return refuse(exists, "The requested record (%s) already exists in data group %s.", out[i].(map[string]any)["name"], o)
		}
	}
	if out == nil {
		delete(o.Properties, "records")
		return nil
	}
	o.Properties["records"] = out
	return nil
}
