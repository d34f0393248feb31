package client

import (
	"net/url"
	"strings"
)

// Collection is a kind of object by its place below /mgmt/tm/, such as "ltm/pool".
type Collection string

// The collections that are used.
const (
	Pools        Collection = "ltm/pool"
	Nodes        Collection = "ltm/node"
	Virtuals     Collection = "ltm/virtual"
	SourceAddrs  Collection = "ltm/persistence/source-addr"
	Partitions   Collection = "auth/partition"
	Folders      Collection = "sys/folder"
	Devices      Collection = "cm/device"
	DeviceGroups Collection = "cm/device-group"
)

// Monitors is the collection of the monitors of one kind, such as "tcp-half-open".
func Monitors(kind string) Collection { return Collection("ltm/monitor/" + kind) }

// Path is where the collection's objects are listed and made.
func (c Collection) Path() string { return "/mgmt/tm/" + string(c) }

// Object is where one object is. fullPath is "/partition/name", with folders in between where there are, or a bare name where objects
// have no partition. A slash is written as "~" and everything a URL cannot hold is escaped, so the "%" of a route domain is "%25" once.
func (c Collection) Object(fullPath string) string {
	return c.Path() + "/" + element(fullPath)
}

// Members is where a pool's members are.
func Members(pool string) string { return Pools.Object(pool) + "/members" }

// Member is where one member of a pool is.
func Member(pool, member string) string { return Members(pool) + "/" + element(member) }

func element(fullPath string) string {
	return url.PathEscape(strings.ReplaceAll(fullPath, "/", "~"))
}

// endpoint is what metrics call a path: its kind, never the name of an object.
func endpoint(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/mgmt/"), "tm/")
	var kept []string
	for part := range strings.SplitSeq(path, "/") {
		if part != "" && !strings.HasPrefix(part, "~") && !strings.ContainsAny(part, "%0123456789") {
			kept = append(kept, part)
		}
		if len(kept) == 4 {
			break
		}
	}
	switch {
	case strings.HasPrefix(path, "transaction"):
		return "transaction"
	case strings.HasPrefix(path, "shared/authz/tokens"):
		return "token"
	case strings.HasPrefix(path, "shared/appsvcs"):
		return "as3"
	case strings.HasPrefix(path, string(Partitions)):
		return string(Partitions)
	}
	return strings.Join(kept, "/")
}
