package mcp

import (
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// completeNode gives a node its address and refuses a second node of one address.
func (c *Configuration) completeNode(o *Object, d decoded) *Error {
	given := o.Text("address")
	if given == "" {
		given = d.name[strings.LastIndexByte(d.name, '/')+1:]
	}
	a, err := c.parseAddress(given, o.Partition)
	if err != nil {
		return err
	}
	if have, taken := c.nodes[a]; taken && have != o.FullPath() {
		return refuse(addressExists, "Invalid Node, the IP address %s already exists.", a.Text(c.shownDomain(o.Partition)))
	}
	o.Properties["address"] = a.Text(c.shownDomain(o.Partition))
	return nil
}

// nodeNeeded refuses to delete a node that a member of a pool is on.
func (c *Configuration) nodeNeeded(o *Object) *Error {
	for _, pool := range c.List(poolPath) {
		for _, m := range pool.Children {
			if NodeOf(m) == o.FullPath() {
				return refuse(nodeInUse, "Node address '%s' is referenced by a member of pool '%s'.", o.FullPath(), pool.FullPath())
			}
		}
	}
	return nil
}

// NodeOf returns the full path of a member's node.
func NodeOf(member *Object) string {
	host, _, err := naming.Endpoint(member.Name)
	if err != nil {
		return ""
	}
	return naming.Path{Partition: member.Partition, Folder: member.Folder, Name: host}.String()
}

// PortOf returns the port of a member.
func PortOf(member *Object) uint16 {
	_, port, _ := naming.Endpoint(member.Name) // it was parsed before it was stored
	return port
}

// completePool makes the members those of the request, if it names any.
func (c *Configuration) completePool(o, old *Object, d decoded) *Error {
	if !d.given {
		return nil
	}
	var members []*Object
	for _, item := range d.children {
		body, ok := item.(map[string]any)
		if name, isText := item.(string); isText {
			body, ok = map[string]any{"name": name}, true
		}
		if !ok {
			return invalidValue("members", item)
		}
		m, err := c.member(o, old, body)
		if err != nil {
			return err
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *Object) int { return strings.Compare(a.String(), b.String()) })
	for i, m := range members {
		if i > 0 && m.String() == members[i-1].String() {
			return memberExists(o, m)
		}
	}
	o.Children = members
	return nil
}

// member makes a member out of an entry of a pool's list or of a POST. Its node is made if it is not there.
func (c *Configuration) member(pool, old *Object, body map[string]any) (*Object, *Error) {
	d, err := c.decode(memberKind, body, creating)
	if err != nil {
		return nil, err
	}
	m := &Object{Kind: memberKind, Properties: d.properties, Path: naming.Path{Partition: d.partition, Folder: d.folder, Name: d.name}}
	if strings.HasPrefix(d.name, "/") {
		p, perr := naming.ParsePath(d.name)
		if perr != nil {
			return nil, invalid(APIInvalid, "The name %s is not valid.", d.name)
		}
		m.Path = p
	}
	if m.Partition == "" {
		m.Partition, m.Folder = pool.Partition, ""
	}
	host, port, perr := naming.Endpoint(m.Name)
	if perr != nil {
		return nil, refuse(configuration, "Configuration error: pool member %s: %s", m.Name, perr)
	}
	named, host := host, c.hostName(host, m.Partition)
	m.Name = naming.Join(host, port)
	if c.Find(folderPath, m.In()) == nil {
		return nil, refuse(configuration, "Configuration error: Can't associate Pool Member (%s) folder does not exist", m)
	}
	if m.Partition != pool.Partition && m.Partition != "Common" {
		return nil, refuse(otherPartition, "Pool %s in partition %s cannot reference Node %s in partition %s", pool, pool.Partition, naming.Path{Partition: m.Partition, Folder: m.Folder, Name: host}, m.Partition)
	}
	if err := c.memberAddress(m, host, named); err != nil {
		return nil, err
	}
	if old != nil && c.rules.ReplaceKeepsOmitted {
		if kept := old.Child(m.String()); kept != nil {
			for name, value := range kept.Properties {
				if _, given := m.Properties[name]; !given {
					m.Properties[name] = value
				}
			}
		}
	}
	c.fillDefaults(m)
	for _, p := range memberKind.Properties {
		if value, set := m.Properties[p.Name]; set {
			if err := c.resolve(m, p, value); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// memberAddress finds or makes the node of a member. host is its name as it is stored, named is as the request has it.
func (c *Configuration) memberAddress(m *Object, host, named string) *Error {
	node := naming.Path{Partition: m.Partition, Folder: m.Folder, Name: host}
	given := m.Text("address")
	if have := c.Find(nodePath, node.String()); have != nil {
		if given != "" {
			a, err := c.parseAddress(given, m.Partition)
			if err != nil {
				return err
			}
			if a != c.AddressOf(have) {
				return refuse(nodeAddressInUse, "Pool member node (%s) and existing node (%s) cannot use the same IP Address (%s).", node, have, have.Text("address"))
			}
		}
		m.Properties["address"] = have.Text("address")
		return nil
	}
	if given == "" {
		given = named
	}
	if _, err := naming.ParseAddress(given, 0); err != nil {
		return refuse(notFound, "The requested Node (%s) was not found.", node)
	}
	parsed, refused := c.parseAddress(given, m.Partition)
	if refused != nil {
		return refused
	}
	if byName, err := naming.ParseAddress(named, c.DefaultRouteDomain(m.Partition)); err == nil && byName != parsed {
		return refuse(configuration, "Configuration error: pool member %s has another address, %s", m.Name, given)
	}
	if have, taken := c.nodes[parsed]; taken {
		return refuse(nodeAddressInUse, "Pool member node (%s) and existing node (%s) cannot use the same IP Address (%s).", node, have, parsed.Text(c.shownDomain(m.Partition)))
	}
	made := &Object{Kind: Lookup(nodePath), Path: node, Properties: map[string]any{"address": parsed.Text(c.shownDomain(m.Partition))}}
	c.fillDefaults(made)
	c.put(made)
	m.Properties["address"] = made.Properties["address"]
	return nil
}

func memberLabel(pool, member *Object) string {
	host, port, err := naming.Endpoint(member.Name)
	if err != nil {
		return pool.FullPath() + " " + member.String()
	}
	return pool.FullPath() + " " + naming.Path{Partition: member.Partition, Folder: member.Folder, Name: host}.String() + " " + portText(port)
}

func portText(port uint16) string {
	_, text, _ := strings.Cut(naming.Join("x", port), ":")
	return text
}

func memberExists(pool, member *Object) *Error {
	return refuse(exists, "The requested Pool Member (%s) already exists in partition %s.", memberLabel(pool, member), pool.Partition)
}

// CreateMember adds a member to a pool.
func (c *Configuration) CreateMember(poolFull string, body map[string]any, user User) (*Object, *Error) {
	pool := c.Find(poolPath, poolFull)
	partition, _ := body["partition"].(string)
	name, _ := body["name"].(string)
	if pool != nil && partition == "" && pool.Partition != "Common" && !strings.HasPrefix(name, "/") && !c.rules.MemberWithoutPartition {
		// A false 404 of newer versions: without a partition the pool is looked for in Common.
		poolFull, pool = "/Common/"+pool.Name, nil
	}
	if pool == nil {
		return nil, refuse(notFound, "The requested pool (%s) was not found.", poolFull)
	}
	if err := user.may(pool.Partition); err != nil {
		return nil, err
	}
	var made *Object
	err := c.Atomically(func() *Error {
		m, err := c.member(pool, nil, body)
		if err != nil {
			return err
		}
		if pool.Child(m.String()) != nil {
			return memberExists(pool, m)
		}
		made = m
		c.putMembers(pool, append(slices.Clone(pool.Children), m))
		return nil
	})
	return made, err
}

// putMembers stores a pool with other members.
func (c *Configuration) putMembers(pool *Object, members []*Object) {
	slices.SortFunc(members, func(a, b *Object) int { return strings.Compare(a.String(), b.String()) })
	c.put(&Object{Kind: pool.Kind, Path: pool.Path, Properties: pool.Properties, Children: members})
}

// FindMember returns a member by the name or full path that a URL gives; nil if there is none.
func (c *Configuration) FindMember(pool *Object, element string) *Object {
	return pool.Child(c.memberPath(element))
}

func (c *Configuration) memberPath(element string) string {
	p, err := naming.ParsePath(element)
	if err != nil {
		return element
	}
	if host, port, err := naming.Endpoint(p.Name); err == nil {
		p.Name = naming.Join(c.hostName(host, p.Partition), port)
	}
	return p.String()
}

// ModifyMember changes a member.
func (c *Configuration) ModifyMember(poolFull, element string, body map[string]any, replace bool, user User) (*Object, *Error) {
	pool, old, err := c.ownedMember(poolFull, element, user)
	if err != nil {
		return nil, err
	}
	op := patching
	if replace {
		op = putting
	}
	d, err := c.decode(memberKind, body, op)
	if err != nil {
		return nil, err
	}
	if err := sameName(old, d); err != nil {
		return nil, err
	}
	if d.nothing && !replace {
		return nil, invalid(APIInvalid, "one or more properties must be specified")
	}
	m, err := c.changed(old, d.properties, replace)
	if err != nil {
		return nil, err
	}
	for _, p := range memberKind.Properties {
		if value, set := m.Properties[p.Name]; set {
			if err := c.resolve(m, p, value); err != nil {
				return nil, err
			}
		}
	}
	return m, c.Atomically(func() *Error {
		members := slices.Clone(pool.Children)
		members[slices.Index(members, old)] = m
		c.putMembers(pool, members)
		return nil
	})
}

// DeleteMember takes a member out of a pool. Its node stays.
func (c *Configuration) DeleteMember(poolFull, element string, user User) *Error {
	pool, old, err := c.ownedMember(poolFull, element, user)
	if err != nil {
		return err
	}
	return c.Atomically(func() *Error {
		c.putMembers(pool, slices.DeleteFunc(slices.Clone(pool.Children), func(m *Object) bool { return m == old }))
		return nil
	})
}

func (c *Configuration) ownedMember(poolFull, element string, user User) (pool, member *Object, err *Error) {
	pool = c.Find(poolPath, poolFull)
	if pool == nil {
		return nil, nil, refuse(notFound, "The requested pool (%s) was not found.", poolFull)
	}
	if member = c.FindMember(pool, element); member == nil {
		p, perr := naming.ParsePath(element)
		if perr != nil {
			p = naming.Path{Partition: "Common", Name: element}
		}
		return nil, nil, refuse(notFound, "The requested Pool Member (%s) was not found.", memberLabel(pool, &Object{Path: p}))
	}
	return pool, member, user.may(pool.Partition)
}

// resolveRule checks the monitors of a rule and stores it as it is read back: with full paths, in order of name.
func (c *Configuration) resolveRule(o *Object, p Property, text string) *Error {
	if text == p.Default || text == "/Common/none" {
		return nil
	}
	r, err := naming.ParseRule(text, true)
	if err != nil {
		return invalid(0, "%s: %s", p.Name, err)
	}
	for i, name := range r.Monitors {
		full, _ := c.normal(Property{Type: path}, name).(string)
		m := c.findMonitor(full)
		if m == nil {
			return refuse(noMonitor, "The monitor template %s was not found.", full)
		}
		if err := c.mayRefer(o, m); err != nil {
			return err
		}
		r.Monitors[i] = full
	}
	slices.Sort(r.Monitors)
	r.Monitors = slices.Compact(r.Monitors)
	o.Properties[p.Name] = r.String()
	return nil
}

func (c *Configuration) findMonitor(full string) *Object {
	for _, k := range Kinds {
		if strings.HasPrefix(k.Path, monitorPath) {
			if m := c.Find(k.Path, full); m != nil {
				return m
			}
		}
	}
	return nil
}

// MonitorsOf returns the monitors of a member: its own, or else its pool's.
func (c *Configuration) MonitorsOf(pool, member *Object) []*Object {
	text := member.Text("monitor")
	if text == "default" {
		text = pool.Text("monitor")
	}
	var out []*Object
	for _, name := range monitorsIn(text) {
		if m := c.findMonitor(name); m != nil {
			out = append(out, m)
		}
	}
	return out
}

func monitorsIn(text string) []string {
	r, err := naming.ParseRule(text, true)
	if err != nil {
		return nil
	}
	return r.Monitors
}

// monitorNeeded refuses to delete a monitor that is in use, or that was when the transaction began.
func (c *Configuration) monitorNeeded(o *Object) *Error {
	for _, look := range []*Configuration{c, c.before} {
		if look == nil || (look != c && c.rules.MonitorInTransaction) {
			continue
		}
		for _, kind := range []string{poolPath, nodePath} {
			for _, user := range look.List(kind) {
				for _, one := range append([]*Object{user}, user.Children...) {
					if slices.Contains(monitorsIn(one.Text("monitor")), o.FullPath()) {
						return refuse(monitorInUse, "Monitor %s is in use.", o.FullPath())
					}
				}
			}
		}
	}
	for _, k := range Kinds {
		for _, other := range c.List(k.Path) {
			if k.Path == o.Kind.Path && other != o && other.Text("defaultsFrom") == o.FullPath() {
				return refuse(monitorInUse, "Monitor %s is in use.", o.FullPath())
			}
		}
	}
	return nil
}
