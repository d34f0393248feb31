package statusview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const document = `{
 "node": "node-1", "ports": {"used": 2, "of": 1001}, "ready": true,
 "mappings": [
  {"pod": "shop/web-1", "podUID": "u1", "nodePort": 61000, "families": ["IPv4", "IPv6"]},
  {"pod": "shop/web-22", "podUID": "u2", "nodePort": 61001, "note": "new"}
 ],
 "refused": [], "since": null
}`

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := Write(&out, "table", []byte(document)); err != nil {
		t.Fatal(err)
	}
	want := `node    node-1
ready   true
since

PORTS
used   2
of     1001

MAPPINGS (2)
POD           POD UID   NODE PORT   FAMILIES     NOTE
shop/web-1    u1        61000       IPv4, IPv6
shop/web-22   u2        61001                    new

REFUSED (0)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A list of objects inside a row is a table of its own, with as much of its parents as tells them apart.
func TestNestedTables(t *testing.T) {
	var out strings.Builder
	err := Write(&out, "table", []byte(`{"services": [
 {"service": "shop/web", "wanted": true, "ports": [
  {"port": 53, "protocol": "TCP", "vips": ["192.0.2.1", "2001:db8::1"], "members": [
   {"pod": "shop/a", "address": "10.0.0.1:61000", "state": "enabled"},
   {"pod": "shop/b", "address": "10.0.0.2:61000", "state": "draining"},
   {"address": "10.0.0.3:61000", "state": "enabled"}]},
  {"port": 53, "protocol": "UDP", "members": []}]},
 {"service": "shop/db", "wanted": false, "ports": [], "refusals": [{"reason": "NoAddress"}]}
]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `
SERVICES (2)
SERVICE    WANTED   PORTS   REFUSALS
shop/web   true     2
shop/db    false    0       1

PORTS (2)
SERVICE    PORT   PROTOCOL   VIPS                     MEMBERS
shop/web   53     TCP        192.0.2.1, 2001:db8::1   3: 1 draining, 2 enabled
shop/web   53     UDP                                 0

MEMBERS (3)
SERVICE    PORT   PROTOCOL   POD      ADDRESS          STATE
shop/web   53     TCP        shop/a   10.0.0.1:61000   enabled
shop/web   53     TCP        shop/b   10.0.0.2:61000   draining
shop/web   53     TCP                 10.0.0.3:61000   enabled

REFUSALS (1)
SERVICE   REASON
shop/db   NoAddress
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestJSONAndYAML(t *testing.T) {
	for format, want := range map[string]string{"json": "  \"node\": \"node-1\",\n", "yaml": "node: node-1\n"} {
		var out strings.Builder
		if err := Write(&out, format, []byte(document)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, &out)
		}
	}
}

func FuzzWrite(f *testing.F) {
	f.Add([]byte(document))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"a":[{"b":[{}]},1]}`))
	f.Add([]byte(`{"a":[{"b":[{"c":[{}, {"d":[{}]}]}, {}]},{"x":[],"b":null}]}`))
	f.Fuzz(func(_ *testing.T, document []byte) {
		for _, format := range Formats {
			_ = Write(&strings.Builder{}, format, document) // must not panic
		}
	})
}
