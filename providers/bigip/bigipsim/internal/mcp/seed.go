package mcp

import (
	"fmt"
	"maps"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// administrator may do everything.
var administrator = User{Name: "admin"}

// seed makes what every device comes with.
func (c *Configuration) seed() {
	c.put(&Object{Kind: Lookup(folderPath), Path: naming.Path{Partition: "/", Name: "Common"}, Properties: map[string]any{}})
	common := c.Find(folderPath, "/Common")
	c.fillDefaults(common)
	c.mustCreate(partitionPath, map[string]any{"name": "Common", "description": "Repository for system objects and shared objects."})
	for _, o := range []struct {
		kind, name string
		properties map[string]any
	}{
		{"net/route-domain", "0", map[string]any{"id": "0"}},
		{"cm/traffic-group", "traffic-group-1", nil},
		{"cm/traffic-group", "traffic-group-local-only", nil},
		{monitorPath + "tcp", "tcp", nil},
		{monitorPath + "http", "http", map[string]any{"send": `GET /\r\n`}},
		{monitorPath + "https", "https", map[string]any{"send": `GET /\r\n`, "cipherlist": "DEFAULT"}},
		{monitorPath + "udp", "udp", map[string]any{"send": "default send string"}},
		{monitorPath + "gateway-icmp", "gateway_icmp", nil},
		{monitorPath + "tcp-half-open", "tcp_half_open", nil},
		{monitorPath + "icmp", "icmp", nil},
		{monitorPath + "inband", "inband", nil},
		{profilePath + "tcp", "tcp", nil},
		{profilePath + "tcp", "tcp-lan-optimized", nil},
		{profilePath + "tcp", "tcp-wan-optimized", nil},
		{profilePath + "udp", "udp", nil},
		{profilePath + "sctp", "sctp", nil},
		{profilePath + "fastl4", "fastL4", nil},
		{profilePath + "http", "http", nil},
		{profilePath + "client-ssl", "clientssl", nil},
		{profilePath + "server-ssl", "serverssl", nil},
		{profilePath + "one-connect", "oneconnect", nil},
		{"ltm/rule", "_sys_https_redirect", map[string]any{"apiAnonymous": "when HTTP_REQUEST { HTTP::redirect https://[getfield [HTTP::host] : 1][HTTP::uri] }"}},
		{persistPath + "source-addr", "source_addr", nil},
		{persistPath + "dest-addr", "dest_addr", nil},
		{persistPath + "cookie", "cookie", nil},
		{persistPath + "hash", "hash", nil},
		{persistPath + "ssl", "ssl", nil},
		{persistPath + "universal", "universal", nil},
	} {
		body := map[string]any{"name": o.name}
		maps.Copy(body, o.properties)
		c.mustCreate(o.kind, body)
	}
}

// mustCreate makes an object that nothing can refuse.
func (c *Configuration) mustCreate(kind string, body map[string]any) {
	if _, err := c.Create(Lookup(kind), body, administrator); err != nil {
		panic(fmt.Sprintf("create %s %v: %v", kind, body["name"], err))
	}
}

// BuiltIn reports whether the object came with the device: what others are derived from.
func BuiltIn(o *Object) bool {
	return o.Partition == "Common" && strings.ReplaceAll(o.Kind.Element(), "-", "_") == strings.ToLower(o.Name)
}
