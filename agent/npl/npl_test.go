package npl

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func v4(podPort, nodePort uint16, p Protocol) Mapping {
	return Mapping{podPort, netip.MustParseAddr("192.0.2.7"), nodePort, p, IPv4}
}

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// Every form that was ever written, by the version that wrote it, and what consumers and people make of them.
func TestDecodeForms(t *testing.T) {
	v6 := Mapping{80, netip.MustParseAddr("2001:db8::7"), 61000, TCP, IPv6}
	const v4Entry = `"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000`
	tests := []struct {
		name, in string
		want     []Mapping
	}{
		{"the first proposal: strings, lower case names", `[{"podport":"80","nodeip":"192.0.2.7","nodeport":"61000"}]`, []Mapping{v4(80, 61000, TCP)}},
		{"v0.13 to v1.3: no protocol", `[{` + v4Entry + `}]`, []Mapping{v4(80, 61000, TCP)}},
		{"v1.4 to v1.6: protocols, one node port for all", `[{` + v4Entry + `,"protocols":["tcp","udp"]}]`, []Mapping{v4(80, 61000, TCP), v4(80, 61000, UDP)}},
		{"v1.7: protocol and protocols, the same node port", `[{` + v4Entry + `,"protocol":"tcp","protocols":["tcp"]},{` + v4Entry + `,"protocol":"udp","protocols":["udp"]}]`,
			[]Mapping{v4(80, 61000, TCP), v4(80, 61000, UDP)}},
		{"v1.8 to v1.15: a node port for each protocol", `[{` + v4Entry + `,"protocol":"tcp","protocols":["tcp"]},{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61001,"protocol":"udp","protocols":["udp"]}]`,
			[]Mapping{v4(80, 61000, TCP), v4(80, 61001, UDP)}},
		{"v2.0 to v2.5: no family", `[{` + v4Entry + `,"protocol":"tcp"}]`, []Mapping{v4(80, 61000, TCP)}},
		{"v2.6: families, the same number for both", `[{"podPort":80,"nodeIP":"2001:db8::7","nodePort":61000,"protocol":"tcp","ipFamily":"IPv6"},{` + v4Entry + `,"protocol":"tcp","ipFamily":"IPv4"}]`,
			[]Mapping{v4(80, 61000, TCP), v6}},
		{"ours: SCTP", `[{` + v4Entry + `,"protocol":"sctp","ipFamily":"IPv4"}]`, []Mapping{v4(80, 61000, SCTP)}},
		{"empty list", `[]`, nil},
		{"blanks", " [ {\n" + v4Entry + "\t} ] ", []Mapping{v4(80, 61000, TCP)}},
		{"protocol wins over protocols", `[{` + v4Entry + `,"protocol":"udp","protocols":["tcp"]}]`, []Mapping{v4(80, 61000, UDP)}},
		{"a protocol twice", `[{` + v4Entry + `,"protocols":["tcp","TCP"]}]`, []Mapping{v4(80, 61000, TCP)}},
		{"IPv6 without family", `[{"podPort":80,"nodeIP":"2001:db8::7","nodePort":61000}]`, []Mapping{v6}},
		{"any case", `[{` + v4Entry + `,"protocol":"UDP","ipFamily":"ipv4"}]`, []Mapping{v4(80, 61000, UDP)}},
		{"null means absent", `[{` + v4Entry + `,"protocol":null,"protocols":null,"ipFamily":null}]`, []Mapping{v4(80, 61000, TCP)}},
		{"IPv4 in IPv6", `[{"podPort":80,"nodeIP":"::ffff:192.0.2.7","nodePort":61000}]`, []Mapping{v4(80, 61000, TCP)}},
		{"same entry twice", `[{` + v4Entry + `},{` + v4Entry + `}]`, []Mapping{v4(80, 61000, TCP)}},
		{"unknown field", `[{` + v4Entry + `,"zone":"a"}]`, []Mapping{v4(80, 61000, TCP)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, compareAddr); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	entry := func(fields string) string {
		return `[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000},{` + fields + `}]`
	}
	tests := []struct{ name, in, want string }{
		{"podPort missing", entry(`"nodeIP":"192.0.2.7","nodePort":61001`), "entry 1, podPort: is missing; write a port from 1 to 65535"},
		{"podPort 0", entry(`"podPort":0,"nodeIP":"192.0.2.7","nodePort":61001`), "entry 1, podPort 0: write a port from 1 to 65535"},
		{"podPort name", entry(`"podPort":"http","nodeIP":"192.0.2.7","nodePort":61001`), `entry 1, podPort "http": write a port from 1 to 65535`},
		{"podPort fraction", entry(`"podPort":80.5,"nodeIP":"192.0.2.7","nodePort":61001`), `entry 1, podPort 80.5: write a port`},
		{"nodePort too large", entry(`"podPort":81,"nodeIP":"192.0.2.7","nodePort":65536`), "entry 1, nodePort 65536: write a port from 1 to 65535"},
		{"nodeIP missing", entry(`"podPort":81,"nodePort":61001`), "entry 1, nodeIP: is missing; write the Node's"},
		{"nodeIP name", entry(`"podPort":81,"nodeIP":"node-1","nodePort":61001`), `entry 1, nodeIP "node-1": write the Node's`},
		{"nodeIP zone", entry(`"podPort":81,"nodeIP":"fe80::1%eth0","nodePort":61001`), `entry 1, nodeIP "fe80::1%eth0"`},
		{"nodeIP unspecified", entry(`"podPort":81,"nodeIP":"0.0.0.0","nodePort":61001`), `entry 1, nodeIP "0.0.0.0"`},
		{"family", entry(`"podPort":81,"nodeIP":"192.0.2.7","nodePort":61001,"ipFamily":"IPv6"`), `entry 1, ipFamily "IPv6": nodeIP 192.0.2.7 makes it "IPv4"`},
		{"protocol", entry(`"podPort":81,"nodeIP":"192.0.2.7","nodePort":61001,"protocol":"icmp"`), `entry 1, protocol "icmp": write "tcp", "udp" or "sctp"`},
		{"protocols", entry(`"podPort":81,"nodeIP":"192.0.2.7","nodePort":61001,"protocols":["tcp",6]`), `entry 1, protocols ["tcp",6]: write`},
		{"protocols empty", entry(`"podPort":81,"nodeIP":"192.0.2.7","nodePort":61001,"protocols":[]`), `entry 1, protocols []: write`},
		{"two node ports for one pod port", entry(`"podPort":80,"nodeIP":"192.0.2.7","nodePort":61001`), "entry 1, podPort 80: tcp over IPv4 is already mapped to 192.0.2.7:61000 by an earlier entry"},
		{"entry is a number", `[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000},7]`, "entry 1 7: write an object"},
		{"entry is null", `[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000},null]`, "entry 1 null: write an object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			var field *FieldError
			if !errors.As(err, &field) || field.Index != 1 {
				t.Errorf("error %#v is not about entry 1", err)
			}
			if diff := cmp.Diff([]Mapping{v4(80, 61000, TCP)}, got, compareAddr); diff != "" {
				t.Error("the good entry is lost:", diff)
			}
		})
	}
}

func TestDecodeNothingReadable(t *testing.T) {
	for in, want := range map[string]string{
		"": "is not a JSON array", "{}": "is not a JSON array", "[": "is not a JSON array", "null": "is null", "[] x": "is not a JSON array",
		strings.Repeat("x", 1000): "xxx... is not",
	} {
		if got, err := Decode(in); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%.10q) = %v, %v; want an error with %q", in, got, err, want)
		}
	}
}

func TestManyBadEntriesGiveOneShortMessage(t *testing.T) {
	_, err := Decode("[" + strings.TrimSuffix(strings.Repeat("7,", 5000), ",") + "]")
	if err == nil || !strings.HasSuffix(err.Error(), "and 4997 more") || len(err.Error()) > 1000 {
		t.Error(err)
	}
}

func TestEncodeIsAntreasFormat(t *testing.T) {
	ms := []Mapping{v4(80, 61001, UDP), {80, netip.MustParseAddr("2001:db8::7"), 61000, TCP, IPv6}, v4(80, 61000, TCP), v4(80, 61000, TCP)}
	want := `[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000,"protocol":"tcp","ipFamily":"IPv4"},` +
		`{"podPort":80,"nodeIP":"2001:db8::7","nodePort":61000,"protocol":"tcp","ipFamily":"IPv6"},` +
		`{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61001,"protocol":"udp","ipFamily":"IPv4"}]`
	if got := Encode(ms); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Encode(nil); got != "[]" {
		t.Errorf("Encode(nil) = %s", got)
	}
}

func TestEqualIgnoresOrder(t *testing.T) {
	a := []Mapping{v4(80, 61000, TCP), v4(81, 61001, TCP)}
	b := []Mapping{a[1], a[0], a[1]}
	if !Equal(a, b) || Equal(a, a[:1]) || !Equal(nil, []Mapping{}) {
		t.Error("Equal does not compare sets")
	}
}

func TestEnabledIsExact(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "True": false, "1": false, "": false, " true": false, "false": false} {
		if got := Enabled(map[string]string{EnabledAnnotation: value}); got != want {
			t.Errorf("Enabled(%q) = %v", value, got)
		}
	}
	if Enabled(nil) {
		t.Error("Enabled(nil)")
	}
}
