// Package mcp is the configuration of a BIG-IP and the rules that mcpd and the REST layer hold it to: names, defaults, references, and what is refused.
// It knows no HTTP beyond the status of a refusal, no users and no clock. A Configuration is not safe for concurrent use.
package mcp

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// Rules are the switches of the configuration; bigipsim.Rules explains each.
type Rules struct {
	UnknownProperties      bool
	BracesInMonitors       bool
	ShowDefaultRouteDomain bool
	ReplaceKeepsOmitted    bool
	MemberWithoutPartition bool
	MonitorInTransaction   bool
}

// Object is one, unchangeable: a change makes another.
type Object struct {
	Kind *Kind
	naming.Path
	Properties map[string]any
	Children   []*Object // by full path
	Generation int64
}

// FullPath returns the path; partitions have none but their name, and their folders are in "/".
func (o *Object) FullPath() string {
	switch {
	case o.Kind.Unfoldered:
		return o.Name
	case o.Partition == "/":
		return "/" + o.Name
	}
	return o.String()
}

// Text returns a property that is text; empty if it is not set.
func (o *Object) Text(name string) string {
	s, _ := o.Properties[name].(string)
	return s
}

// Number returns a property that is a number.
func (o *Object) Number(name string) int64 {
	n, _ := o.Properties[name].(int64)
	return n
}

// Child returns the child of this full path.
func (o *Object) Child(path string) *Object {
	i, ok := slices.BinarySearchFunc(o.Children, path, func(c *Object, path string) int { return strings.Compare(c.String(), path) })
	if !ok {
		return nil
	}
	return o.Children[i]
}

// Configuration is everything that is configured.
type Configuration struct {
	rules      Rules
	objects    map[string]map[string]*Object // by kind's path and full path
	nodes      map[naming.Address]string     // where a node of that address is
	generation int64
	undo       []func()
	nested     int
	before     *Configuration // during a transaction: what was before it
}

// New returns a configuration with what a device comes with.
func New(rules Rules) *Configuration {
	c := &Configuration{rules: rules, objects: map[string]map[string]*Object{}, nodes: map[naming.Address]string{}}
	c.seed()
	c.undo = nil
	return c
}

// Snapshot is a Configuration at one moment.
type Snapshot struct {
	objects    map[string]map[string]*Object
	nodes      map[naming.Address]string
	generation int64
}

// Snapshot returns what is configured.
func (c *Configuration) Snapshot() Snapshot {
	s := Snapshot{map[string]map[string]*Object{}, maps.Clone(c.nodes), c.generation}
	for kind, objects := range c.objects {
		s.objects[kind] = maps.Clone(objects)
	}
	return s
}

// Restore makes the configuration that of a snapshot. Objects that belong to the device stay, unless all is true.
func (c *Configuration) Restore(s Snapshot, all bool) {
	copied := Snapshot{objects: map[string]map[string]*Object{}, nodes: maps.Clone(s.nodes)}
	for kind, objects := range s.objects {
		copied.objects[kind] = maps.Clone(objects)
	}
	if !all {
		for _, k := range Kinds {
			if k.Local {
				copied.objects[k.Path] = c.objects[k.Path]
			}
		}
	}
	c.objects, c.nodes = copied.objects, copied.nodes
	if all {
		c.generation = s.generation
	} else {
		c.generation++
	}
}

// Atomically undoes everything that do did if it fails.
func (c *Configuration) Atomically(do func() *Error) *Error {
	mark, generation := len(c.undo), c.generation
	c.nested++
	err := do()
	c.nested--
	if err != nil {
		for i := len(c.undo) - 1; i >= mark; i-- {
			c.undo[i]()
		}
		c.undo, c.generation = c.undo[:mark], generation
	}
	if c.nested == 0 {
		c.undo = nil
	}
	return err
}

// Transaction is Atomically for the commands of a transaction. A monitor that was in use before it cannot be deleted in it.
func (c *Configuration) Transaction(do func() *Error) *Error {
	before := c.Snapshot()
	c.before = &Configuration{rules: c.rules, objects: before.objects, nodes: before.nodes}
	defer func() { c.before = nil }()
	return c.Atomically(do)
}

// Generation is that of the latest change.
func (c *Configuration) Generation() int64 { return c.generation }

// Find returns the object of a kind at a full path; nil if there is none.
func (c *Configuration) Find(kind, path string) *Object { return c.objects[kind][path] }

// List returns the objects of a kind by full path.
func (c *Configuration) List(kind string) []*Object {
	objects := c.objects[kind]
	out := make([]*Object, 0, len(objects))
	for _, path := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, objects[path])
	}
	return out
}

// All are the objects of a kind in no order.
func (c *Configuration) All(kind string) iter.Seq[*Object] { return maps.Values(c.objects[kind]) }

// put stores an object in place of the one at the same path.
func (c *Configuration) put(o *Object) {
	kind, path := o.Kind.Path, o.FullPath()
	old := c.objects[kind][path]
	if c.objects[kind] == nil {
		c.objects[kind] = map[string]*Object{}
	}
	c.generation++
	o.Generation = c.generation
	for _, child := range o.Children {
		if child.Generation == 0 {
			child.Generation = c.generation
		}
	}
	c.objects[kind][path] = o
	if kind == nodePath {
		a := c.AddressOf(o)
		had, known := c.nodes[a]
		c.nodes[a] = path
		c.undo = append(c.undo, func() {
			if known {
				c.nodes[a] = had
			} else {
				delete(c.nodes, a)
			}
		})
	}
	c.undo = append(c.undo, func() {
		if old == nil {
			delete(c.objects[kind], path)
		} else {
			c.objects[kind][path] = old
		}
	})
}

// drop forgets an object.
func (c *Configuration) drop(o *Object) {
	kind, path := o.Kind.Path, o.FullPath()
	c.generation++
	delete(c.objects[kind], path)
	if kind == nodePath {
		a := c.AddressOf(o)
		delete(c.nodes, a)
		c.undo = append(c.undo, func() { c.nodes[a] = path })
	}
	c.undo = append(c.undo, func() { c.objects[kind][path] = o })
}

// DefaultRouteDomain returns that of a partition.
func (c *Configuration) DefaultRouteDomain(partition string) int {
	if p := c.Find(partitionPath, partition); p != nil {
		return int(p.Number("defaultRouteDomain"))
	}
	return 0
}

// shownDomain is the route domain that is left out in what is stored in a partition.
func (c *Configuration) shownDomain(partition string) int {
	if c.rules.ShowDefaultRouteDomain {
		return 0
	}
	return c.DefaultRouteDomain(partition)
}

// AddressOf returns the address of a node, a member or a virtual address.
func (c *Configuration) AddressOf(o *Object) naming.Address {
	a, err := naming.ParseAddress(o.Text("address"), c.shownDomain(o.Partition))
	if err != nil {
		return naming.Address{} // of a name
	}
	return a
}

// parseAddress reads an address that a request gave; without a route domain it is in that of the partition.
func (c *Configuration) parseAddress(text, partition string) (naming.Address, *Error) {
	return c.parseAddressIn(text, c.DefaultRouteDomain(partition))
}

func (c *Configuration) parseAddressIn(text string, fallback int) (naming.Address, *Error) {
	a, err := naming.ParseAddress(text, fallback)
	if err != nil {
		return a, invalid(APIInvalid, "invalid IP address: %s", err)
	}
	if !slices.ContainsFunc(c.List("net/route-domain"), func(o *Object) bool { return o.Number("id") == int64(a.RouteDomain) }) {
		return a, refuse("01070978", "The vlan (null) and route domain (%s) do not exist.", strconv.Itoa(a.RouteDomain))
	}
	return a, nil
}

// hostName is a node's name as it is stored: an address is canonical, anything else stays.
func (c *Configuration) hostName(host, partition string) string {
	a, err := naming.ParseAddress(host, c.DefaultRouteDomain(partition))
	if err != nil {
		return host
	}
	return a.Text(c.shownDomain(partition))
}

// Secret reports whether a property is never read back.
func Secret(k *Kind, name string) bool {
	p, ok := k.property(name)
	return ok && p.Type == secret
}

// Targets are the objects that a property leads to.
func (c *Configuration) Targets(o *Object, name string) []*Object {
	p, ok := o.Kind.property(name)
	if !ok || (p.Type != path && p.Type != paths) {
		return nil
	}
	values, isList := o.Properties[name].([]any)
	if !isList {
		values = []any{o.Properties[name]}
	}
	var out []*Object
	for _, value := range values {
		full, _ := value.(string)
		if found := c.target(p, full); found != nil {
			out = append(out, found)
		}
	}
	return out
}
