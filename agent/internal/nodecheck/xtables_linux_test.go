package nodecheck

import (
	"encoding/binary"
	"slices"
	"testing"
)

// FuzzDecodeTable gives the decoder what no kernel would: it may refuse, but not crash or run for ever.
func FuzzDecodeTable(f *testing.F) {
	entry := make([]byte, 112+32+8) // one entry of IPv4 with a standard target
	binary.NativeEndian.PutUint16(entry[88:], 112)
	binary.NativeEndian.PutUint16(entry[90:], uint16(len(entry)))
	f.Add(make([]byte, infoSize), entry, false)
	f.Add(make([]byte, infoSize), slices.Repeat(entry, 2), true)
	f.Fuzz(func(t *testing.T, info, entries []byte, v6 bool) {
		if len(info) != infoSize {
			return
		}
		l := layoutIPv4()
		if v6 {
			l = layoutIPv6()
		}
		table, err := l.decode(info, entries)
		if err == nil && len(table.rules)*(l.matches+extensionSize) > len(entries) {
			t.Errorf("%d rules in %d bytes", len(table.rules), len(entries))
		}
	})
}
