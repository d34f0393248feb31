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
	f.Fuzz(func(_ *testing.T, document []byte) {
		for _, format := range Formats {
			_ = Write(&strings.Builder{}, format, document) // must not panic
		}
	})
}
