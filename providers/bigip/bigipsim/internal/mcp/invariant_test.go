package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// body is JSON as a request has it.
func body(t *rapid.T, text string) map[string]any {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// Whatever is asked for: a node for every member, one node for an address, one virtual server for its traffic, an address for every virtual server,
// and nothing that leads nowhere. What is refused changes nothing.
func TestConfigurationStaysWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(Rules{ShowDefaultRouteDomain: rapid.Bool().Draw(t, "show"), ReplaceKeepsOmitted: rapid.Bool().Draw(t, "keep")})
		for _, setup := range []string{`{"name":"P"}`, `{"name":"R","defaultRouteDomain":2}`} {
			c.Create(Lookup("net/route-domain"), body(t, `{"name":"2","id":2}`), User{})
			if _, err := c.Create(Lookup(partitionPath), body(t, setup), User{}); err != nil {
				t.Fatal(err)
			}
		}
		partition := rapid.SampledFrom([]string{"P", "R", "Common"})
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		host := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.1%2", "10.0.0.1%0", "worker", "10.0.0.9%77"})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := c.Snapshot()
			err := step(t, c, partition, name, host)
			if err != nil && !same(before, c.Snapshot()) {
				t.Fatalf("%v was refused and changed something", err)
			}
			sound(t, c)
		}
	})
}

func step(t *rapid.T, c *Configuration, partition, name, host *rapid.Generator[string]) *Error {
	p, n, h := partition.Draw(t, "partition"), name.Draw(t, "name"), host.Draw(t, "host")
	pool := "/" + p + "/" + n
	member := fmt.Sprintf(`{"name":"%s:80","partition":"%s"}`, h, rapid.SampledFrom([]string{p, "Common"}).Draw(t, "member's"))
	var err *Error
	switch rapid.IntRange(0, 10).Draw(t, "what") {
	case 0:
		_, err = c.Create(Lookup(poolPath), body(t, fmt.Sprintf(`{"name":"%s","partition":"%s","members":[%s]}`, n, p, member)), User{})
	case 1:
		_, err = c.Modify(Lookup(poolPath), pool, body(t, fmt.Sprintf(`{"members":[%s,{"name":"%s:81"}]}`, member, host.Draw(t, "second"))), rapid.Bool().Draw(t, "put"), User{})
	case 2:
		err = c.Delete(Lookup(poolPath), pool, User{})
	case 3:
		_, err = c.CreateMember(pool, body(t, member), User{})
	case 4:
		err = c.DeleteMember(pool, "/"+p+"/"+h+":80", User{})
	case 5:
		_, err = c.Create(Lookup(nodePath), body(t, fmt.Sprintf(`{"name":"worker","partition":"%s","address":"%s"}`, p, h)), User{})
	case 6:
		err = c.Delete(Lookup(nodePath), "/"+p+"/"+h, User{})
	case 7:
		_, err = c.Create(Lookup(virtualPath), body(t, fmt.Sprintf(`{"name":"%s","partition":"%s","destination":"%s:80","ipProtocol":"tcp","pool":"%s"}`, n, p, h, pool)), User{})
	case 8:
		_, err = c.Modify(Lookup(virtualPath), pool, body(t, fmt.Sprintf(`{"destination":"%s:80"}`, h)), rapid.Bool().Draw(t, "put"), User{})
	case 9:
		err = c.Delete(Lookup(virtualPath), pool, User{})
	case 10:
		err = c.Transaction(func() *Error {
			if _, err := c.Create(Lookup(poolPath), body(t, fmt.Sprintf(`{"name":"%s","partition":"%s","members":[%s]}`, n, p, member)), User{}); err != nil {
				return err
			}
			_, err := c.Create(Lookup(virtualPath), body(t, fmt.Sprintf(`{"name":"%s","partition":"%s","destination":"%s:80","ipProtocol":"tcp"}`, n, p, h)), User{})
			return err
		})
	}
	return err
}

func same(a, b Snapshot) bool {
	for _, k := range Kinds {
		if !maps.Equal(a.objects[k.Path], b.objects[k.Path]) {
			return false
		}
	}
	return maps.Equal(a.nodes, b.nodes)
}

func sound(t *rapid.T, c *Configuration) {
	nodes := map[naming.Address]string{}
	for _, n := range c.List(nodePath) {
		a := c.AddressOf(n)
		if other, taken := nodes[a]; taken {
			t.Fatalf("nodes %s and %s are both %v", n, other, a)
		}
		nodes[a] = n.FullPath()
	}
	if !maps.Equal(nodes, c.nodes) {
		t.Fatalf("the index of nodes is %v, want %v", c.nodes, nodes)
	}
	for _, pool := range c.List(poolPath) {
		for _, m := range pool.Children {
			node := c.Find(nodePath, NodeOf(m))
			if node == nil || c.AddressOf(node) != c.AddressOf(m) {
				t.Fatalf("member %s of %s is at %v, its node is %v", m, pool, c.AddressOf(m), node)
			}
		}
	}
	traffic := map[string]*Object{}
	used := map[string]bool{}
	for _, v := range c.List(virtualPath) {
		d := c.DestinationOf(v)
		a := c.Find(addressPath, d.Path.String())
		if a == nil || c.AddressOf(a) != d.Address {
			t.Fatalf("virtual server %s at %v has virtual address %v", v, d, a)
		}
		used[a.FullPath()] = true
		key := fmt.Sprint(d.Address, d.Port, v.Text("ipProtocol"))
		if other := traffic[key]; other != nil {
			t.Fatalf("virtual servers %s and %s have one destination and protocol", v, other)
		}
		traffic[key] = v
		if pool := v.Text("pool"); pool != "" && c.Find(poolPath, pool) == nil {
			t.Fatalf("virtual server %s leads to %s, which is not there", v, pool)
		}
	}
	for _, a := range c.List(addressPath) {
		if !used[a.FullPath()] {
			t.Fatalf("virtual address %s is left", a)
		}
	}
}
