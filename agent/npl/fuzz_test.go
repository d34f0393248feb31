package npl

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Whatever a Pod's annotation says, Decode returns mappings that can be and an error of bounded length; encoding what was read gives the
// same again; and saying everything over and over says nothing new.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[]`, `null`, `[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000,"protocols":["tcp","udp"]}]`,
		`[{"podport":"80","nodeip":"2001:db8::7","nodeport":"61000","ipFamily":"IPv6","protocol":"UDP"},7]`,
		`[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000},{"podPort":80,"nodeIP":"192.0.2.8","nodePort":61000}]`,
		`[{"podPort":80,"nodeIP":"::ffff:192.0.2.7","nodePort":61000,"protocol":"sctp","protocols":[[[]]]}]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ms, err := Decode(s)
		if err != nil && len(err.Error()) > 4096 {
			t.Errorf("message of %d bytes", len(err.Error()))
		}
		if !slices.IsSortedFunc(ms, Mapping.Compare) {
			t.Errorf("not sorted: %v", ms)
		}
		for _, m := range ms {
			if m.PodPort == 0 || m.NodePort == 0 || !m.NodeIP.IsValid() || m.NodeIP.Zone() != "" || m.NodeIP.Is4In6() || m.Family != FamilyOf(m.NodeIP) {
				t.Errorf("impossible mapping %+v", m)
			}
		}
		again, err := Decode(Encode(ms))
		if err != nil || !slices.Equal(again, ms) {
			t.Errorf("round trip of %v gave %v, %v", ms, again, err)
		}
		var entries []json.RawMessage
		if json.Unmarshal([]byte(s), &entries) != nil || len(entries) == 0 {
			return
		}
		long, err := json.Marshal(slices.Repeat(entries, 8))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decode(string(long)); !slices.Equal(again, ms) || err != nil && len(err.Error()) > 4096 {
			t.Errorf("eight times the entries of %v gave %v, %v", ms, again, err)
		}
	})
}

// Every mapping that can be is read back as it was written.
func FuzzEncode(f *testing.F) {
	f.Add(uint16(80), []byte{192, 0, 2, 7}, uint16(61000), uint8(0))
	f.Add(uint16(1), netip.MustParseAddr("2001:db8::7").AsSlice(), uint16(65535), uint8(2))
	f.Fuzz(func(t *testing.T, podPort uint16, address []byte, nodePort uint16, protocol uint8) {
		ip, ok := netip.AddrFromSlice(address)
		if !ok || ip.IsUnspecified() || ip.Unmap() != ip || podPort == 0 || nodePort == 0 {
			t.Skip("not a mapping")
		}
		m := Mapping{podPort, ip, nodePort, []Protocol{TCP, UDP, SCTP}[protocol%3], FamilyOf(ip)}
		again, err := Decode(Encode([]Mapping{m}))
		if err != nil || !slices.Equal(again, []Mapping{m}) {
			t.Errorf("%v was read back as %v, %v", m, again, err)
		}
	})
}

// shapes are ways in which an annotation can be long.
func shapes(n int) map[string]string {
	const entry = `{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000}`
	list := func(item string) string { return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]" }
	field := func(value string) string {
		return `[{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61000,` + value + `}]`
	}
	distinct := make([]Mapping, n)
	for i := range distinct {
		distinct[i] = Mapping{uint16(i%65535) + 1, netip.MustParseAddr("192.0.2.7"), uint16(i%65535) + 1, TCP, IPv4}
	}
	return map[string]string{
		"distinct entries":    Encode(distinct),
		"equal entries":       list(entry),
		"contradictions":      "[" + entry + "," + list(`{"podPort":80,"nodeIP":"192.0.2.7","nodePort":61001}`)[1:],
		"bad entries":         list("7"),
		"protocols":           field(`"protocols":` + list(`"tcp"`)),
		"a field repeated":    field(strings.TrimSuffix(strings.Repeat(`"protocol":"tcp",`, n), ",")),
		"fields not known":    field(strings.TrimSuffix(strings.Repeat(`"x":1,`, n), ",")),
		"a long value":        field(`"protocol":"` + strings.Repeat("x", n) + `"`),
		"a value in brackets": field(`"protocol":` + strings.Repeat("[", n) + strings.Repeat("]", n)),
		"brackets":            strings.Repeat("[", n) + strings.Repeat("]", n),
		"junk":                strings.Repeat("x", n),
	}
}

// Eight times the annotation takes eight times the memory, give or take the steps in which slices and maps grow. The time is what
// BenchmarkDecode is for.
func TestLongAnnotationsCostNoMoreThanTheyAreLong(t *testing.T) {
	cost := func(s string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Decode(s)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	short, long := shapes(1000), shapes(8000)
	for name := range short {
		if a, b := cost(short[name]), cost(long[name]); b > 16*a+64<<10 {
			t.Errorf("%s: %d bytes of annotation take %d bytes to read, %d take %d", name, len(short[name]), a, len(long[name]), b)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{10, 1000, 4000} { // 4000 entries are about as many as an object of the API can carry
		all := shapes(n)
		for _, name := range []string{"distinct entries", "contradictions", "protocols", "a field repeated", "a value in brackets"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(all[name])))
				for b.Loop() {
					_, _ = Decode(all[name])
				}
			})
		}
	}
}
