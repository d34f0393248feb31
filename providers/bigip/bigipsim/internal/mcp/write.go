package mcp

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// User is who writes.
type User struct {
	Name string
	// Partition is the only one that the user may change; empty is all.
	Partition string
}

func (u User) may(partition string) *Error {
	if u.Partition == "" || u.Partition == partition {
		return nil
	}
	err := refuse(accessDenied, "Access Denied: User (%s) may not change objects in partition (%s)", u.Name, partition)
	err.Status = http.StatusForbidden
	return err
}

// goodName is what the name of an object may be made of.
var goodName = regexp.MustCompile(`^[A-Za-z0-9_.:%-][A-Za-z0-9_.:% -]*$`)

// Create makes an object and returns it.
func (c *Configuration) Create(k *Kind, body map[string]any, user User) (*Object, *Error) {
	d, err := c.decode(k, body, creating)
	if err != nil {
		return nil, err
	}
	o := &Object{Kind: k, Properties: d.properties}
	if o.Path, err = c.place(k, d); err != nil {
		return nil, err
	}
	if err := user.may(cmpPartition(o)); err != nil {
		return nil, err
	}
	if c.Find(k.Path, o.FullPath()) != nil {
		return nil, alreadyExists(o)
	}
	return o, c.Atomically(func() *Error {
		c.fillDefaults(o)
		if err := c.complete(o, nil, d); err != nil {
			return err
		}
		c.put(o)
		c.created(o)
		return nil
	})
}

// cmpPartition is where the right to change an object is looked up.
func cmpPartition(o *Object) string {
	if o.Kind.Unfoldered || o.Partition == "/" {
		return "Common"
	}
	return o.Partition
}

func alreadyExists(o *Object) *Error {
	if o.Kind.Unfoldered {
		return refuse(exists, "The requested %s (%s) already exists.", o.Kind.Label, o.FullPath())
	}
	return refuse(exists, "The requested %s (%s) already exists in partition %s.", o.Kind.Label, o.FullPath(), o.Partition)
}

func missing(k *Kind, path string) *Error {
	return refuse(notFound, "The requested %s (%s) was not found.", k.Label, path)
}

// Missing is the answer to a call for an object that is not there.
func Missing(k *Kind, path string) *Error { return missing(k, path) }

// place is where an object goes by its name, partition and subPath.
func (c *Configuration) place(k *Kind, d decoded) (naming.Path, *Error) {
	p := naming.Path{Partition: d.partition, Folder: d.folder, Name: d.name}
	if d.name == "" {
		return p, invalid(APIInvalid, "one or more properties must be specified: name")
	}
	if strings.HasPrefix(d.name, "/") {
		var err error
		if p, err = naming.ParsePath(d.name); err != nil && k.Path != folderPath {
			return p, invalid(APIInvalid, "The name %s is not valid.", d.name)
		}
	}
	if !goodName.MatchString(p.Name) {
		return p, invalid(APIInvalid, "The name %q contains characters that are not valid.", p.Name)
	}
	if k.Unfoldered {
		p.Partition, p.Folder = "", ""
		return p, nil
	}
	if p.Partition == "" {
		p.Partition = "Common"
	}
	if c.Find(folderPath, p.In()) == nil {
		return p, invalid(APIInvalid, "The requested folder (%s) was not found.", p.In())
	}
	if k.Path == nodePath {
		p.Name = c.hostName(p.Name, p.Partition)
	}
	return p, nil
}

// Modify changes the properties that body names; replace sets the others to their defaults.
func (c *Configuration) Modify(k *Kind, path string, body map[string]any, replace bool, user User) (*Object, *Error) {
	old := c.Find(k.Path, path)
	if old == nil {
		return nil, missing(k, path)
	}
	if err := user.may(cmpPartition(old)); err != nil {
		return nil, err
	}
	op := patching
	if replace {
		op = putting
	}
	d, err := c.decode(k, body, op)
	if err != nil {
		return nil, err
	}
	if err := sameName(old, d); err != nil {
		return nil, err
	}
	if d.nothing && !replace {
		return nil, invalid(APIInvalid, "one or more properties must be specified")
	}
	o, err := c.changed(old, d.properties, replace)
	if err != nil {
		return nil, err
	}
	if replace {
		o.Children = nil
	}
	return o, c.Atomically(func() *Error {
		if err := c.complete(o, old, d); err != nil {
			return err
		}
		c.put(o)
		return nil
	})
}

// sameName refuses a body that would rename or move.
func sameName(o *Object, d decoded) *Error {
	if (d.name != "" && d.name != o.Name && d.name != o.FullPath()) || (d.partition != "" && d.partition != o.Partition) {
		return invalid(APIInvalid, `"name" may not be specified in the context of the "modify" command. "name" may be specified using the following commands: create, edit, list`)
	}
	return nil
}

// changed is an object with other properties.
func (c *Configuration) changed(old *Object, properties map[string]any, replace bool) (*Object, *Error) {
	o := &Object{Kind: old.Kind, Path: old.Path, Children: old.Children, Properties: maps.Clone(old.Properties)}
	if replace {
		o.Properties = map[string]any{}
		for _, p := range old.Kind.Properties {
			if value, ok := old.Properties[p.Name]; ok && (p.CreateOnly || p.Fixed || p.ReadOnly) {
				o.Properties[p.Name] = value
			}
		}
	}
	for name, value := range properties {
		p, _ := old.Kind.property(name)
		if p.Fixed && value != old.Properties[name] && c.normal(p, value) != old.Properties[name] {
			return nil, invalid(APIInvalid, `"%s" may not be specified in the context of the "modify" command. "%s" may be specified using the following commands: create, list`, name, name)
		}
		switch {
		case p.Fixed:
		case value == nil:
			delete(o.Properties, name)
		default:
			o.Properties[name] = value
		}
	}
	c.fillDefaults(o)
	return o, nil
}

// normal is the value of a property as it is stored.
func (c *Configuration) normal(p Property, value any) any {
	if s, ok := value.(string); ok && p.Type == path && !strings.HasPrefix(s, "/") {
		return "/Common/" + s
	}
	return value
}

// fillDefaults sets what is not set and has a default: that of the object it is derived from, or of its kind.
func (c *Configuration) fillDefaults(o *Object) {
	for name, value := range o.Properties {
		if value == nil {
			delete(o.Properties, name)
		}
	}
	var parent *Object
	if from, ok := o.Kind.property("defaultsFrom"); ok {
		parentPath, _ := c.normal(from, o.Properties["defaultsFrom"]).(string)
		if parentPath == "" && strings.HasPrefix(o.Kind.Path, monitorPath) {
			parentPath = "/Common/" + strings.ReplaceAll(o.Kind.Element(), "-", "_")
		}
		parent = c.Find(o.Kind.Path, parentPath)
		if parent != nil && parentPath != o.FullPath() && o.Properties["defaultsFrom"] == nil {
			o.Properties["defaultsFrom"] = parentPath
		}
	}
	for _, p := range o.Kind.Properties {
		if _, ok := o.Properties[p.Name]; ok || p.Name == "defaultsFrom" || p.Name == "description" || p.Name == "metadata" {
			continue
		}
		switch {
		case parent != nil && parent.Properties[p.Name] != nil:
			o.Properties[p.Name] = parent.Properties[p.Name]
		case p.Default != nil:
			o.Properties[p.Name] = p.Default
		}
	}
}

// complete checks an object against the others, and derives what follows. old is nil for a new one.
func (c *Configuration) complete(o, old *Object, d decoded) *Error {
	for _, p := range o.Kind.Properties {
		value, set := o.Properties[p.Name]
		if p.Required && !set {
			return invalid(APIInvalid, "one or more properties must be specified: %s", p.Name)
		}
		if !set {
			continue
		}
		if err := c.resolve(o, p, value); err != nil {
			return err
		}
	}
	switch o.Kind.Path {
	case nodePath:
		if old == nil {
			return c.completeNode(o, d)
		}
	case poolPath:
		return c.completePool(o, old, d)
	case virtualPath:
		return c.completeVirtual(o, old, d)
	case addressPath:
		if old == nil {
			return c.completeVirtualAddress(o)
		}
	case "ltm/data-group/internal":
		return completeRecords(o)
	case partitionPath:
		if old != nil && old.Number("defaultRouteDomain") != o.Number("defaultRouteDomain") && c.holds(old) != nil {
			return refuse(configuration, "Configuration error: the default route domain of partition %s cannot change while it has objects", o.Name)
		}
	case folderPath:
		o.Properties["inheritedTrafficGroup"] = inherited(d, o, "trafficGroup", "inheritedTrafficGroup")
		o.Properties["inheritedDevicegroup"] = inherited(d, o, "deviceGroup", "inheritedDevicegroup")
	}
	return nil
}

// inherited is "false" once somebody set the property itself.
func inherited(d decoded, o *Object, property, flag string) string {
	if d.properties[property] != nil {
		return "false"
	}
	return o.Text(flag)
}

// resolve checks what a property refers to.
func (c *Configuration) resolve(o *Object, p Property, value any) *Error {
	switch p.Type {
	case path:
		full, err := c.reference(o, p, value)
		o.Properties[p.Name] = full
		return err
	case paths:
		var out []any
		for _, item := range value.([]any) {
			full, err := c.reference(o, p, item)
			if err != nil {
				return err
			}
			out = append(out, full)
		}
		if out == nil {
			delete(o.Properties, p.Name)
			return nil
		}
		o.Properties[p.Name] = out
	case rule:
		return c.resolveRule(o, p, value.(string))
	default:
	}
	return nil
}

// reference returns the full path that a property leads to.
func (c *Configuration) reference(o *Object, p Property, value any) (string, *Error) {
	s, ok := value.(string)
	if !ok {
		return "", invalidValue(p.Name, value)
	}
	full, _ := c.normal(Property{Type: path}, s).(string)
	target := c.target(p, full)
	if target == nil {
		return full, refuse(notFound, "The requested %s (%s) was not found.", p.Label, full)
	}
	return full, c.mayRefer(o, target)
}

// target returns the object at a path that the property may lead to; nil if there is none.
func (c *Configuration) target(p Property, full string) *Object {
	for _, k := range Kinds {
		if p.leadsTo(k.Path) {
			if found := c.Find(k.Path, full); found != nil {
				return found
			}
		}
	}
	return nil
}

// mayRefer refuses references into a partition that is neither the object's own nor Common.
func (c *Configuration) mayRefer(o, to *Object) *Error {
	if to.Partition == o.Partition || to.Partition == "Common" {
		return nil
	}
	return refuse(otherPartition, "%s %s in partition %s cannot reference %s %s in partition %s", o.Kind.Label, o.FullPath(), o.Partition, to.Kind.Label, to.FullPath(), to.Partition)
}

// created does what follows from a new object.
func (c *Configuration) created(o *Object) {
	if o.Kind.Path != partitionPath || c.Find(folderPath, "/"+o.Name) != nil {
		return
	}
	folder := &Object{Kind: Lookup(folderPath), Path: naming.Path{Partition: "/", Name: o.Name}, Properties: map[string]any{}}
	c.fillDefaults(folder)
	if root := c.Find(folderPath, "/Common"); root != nil {
		folder.Properties["deviceGroup"], folder.Properties["trafficGroup"] = root.Properties["deviceGroup"], root.Properties["trafficGroup"]
	}
	c.put(folder)
}

// Delete deletes an object unless something needs it.
func (c *Configuration) Delete(k *Kind, path string, user User) *Error {
	o := c.Find(k.Path, path)
	if o == nil {
		return missing(k, path)
	}
	if err := user.may(cmpPartition(o)); err != nil {
		return err
	}
	if err := c.needed(o); err != nil {
		return err
	}
	return c.Atomically(func() *Error {
		c.drop(o)
		switch k.Path {
		case virtualPath:
			c.releaseAddress(o, nil)
		case partitionPath:
			if folder := c.Find(folderPath, "/"+o.Name); folder != nil {
				c.drop(folder)
			}
		}
		return nil
	})
}

// needed refuses to delete what others refer to.
func (c *Configuration) needed(o *Object) *Error {
	switch {
	case o.Kind.Path == partitionPath || o.Kind.Path == folderPath:
		return c.holds(o)
	case o.Kind.Path == nodePath:
		return c.nodeNeeded(o)
	case strings.HasPrefix(o.Kind.Path, monitorPath):
		return c.monitorNeeded(o)
	case o.Kind.Path == addressPath:
		for _, v := range c.List(virtualPath) {
			if c.virtualAddressOf(v) == o.FullPath() {
				return refuse(inUse, "The %s (%s) cannot be deleted because it is in use by a %s (%s).", o.Kind.Label, o.FullPath(), v.Kind.Label, v.FullPath())
			}
		}
		return nil
	}
	for _, k := range Kinds {
		for _, other := range c.List(k.Path) {
			if other != o && c.refersTo(other, o) {
				return refuse(inUse, "The %s (%s) cannot be deleted because it is in use by a %s (%s).", o.Kind.Label, o.FullPath(), other.Kind.Label, other.FullPath())
			}
		}
	}
	return nil
}

// refersTo reports whether a property of one object leads to another.
func (c *Configuration) refersTo(from, to *Object) bool {
	full := to.FullPath()
	for _, p := range from.Kind.Properties {
		if !p.leadsTo(to.Kind.Path) {
			continue
		}
		if value := from.Properties[p.Name]; value == full {
			return true
		} else if items, ok := value.([]any); ok && slices.Contains(items, any(full)) {
			return true
		}
	}
	return from.Kind.Path == virtualPath && virtualRefersTo(from, to)
}

// holds refuses to delete a partition or folder with something in it.
func (c *Configuration) holds(o *Object) *Error {
	folder := "/" + o.Name
	if o.Kind.Path == folderPath {
		folder = o.FullPath()
	}
	if folder == "/Common" {
		return refuse(configuration, "Configuration error: the partition Common may not be deleted")
	}
	for n, k := range Kinds {
		for _, other := range c.List(k.Path) {
			if !k.Unfoldered && (other.In() == folder || strings.HasPrefix(other.In(), folder+"/")) {
				return refuse(notEmpty, "All objects must be removed from a partition (%s) before the partition may be removed, type ID (%d)", o.Name, 100+n)
			}
		}
	}
	return nil
}
