package network

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// A number is never held twice, never reserved, and always of the range, whatever order Pods come and go in.
func TestPoolNeverGivesTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cidr := netip.MustParsePrefix("10.244.1.0/28")
		p := newPool(cidr, rapid.Bool().Draw(t, "lowest"))
		held := map[uint32]bool{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give") {
				number := rapid.SampledFrom(keys(held)).Draw(t, "number")
				p.give(number)
				delete(held, number)
				continue
			}
			number, err := p.take()
			if err != nil {
				if len(held) != 13 {
					t.Fatalf("take fails with %d of 13 held: %v", len(held), err)
				}
				continue
			}
			address := numbered(cidr, number)
			switch {
			case held[number]:
				t.Fatalf("%s was given twice", address)
			case !cidr.Contains(address), address.As4()[3] == 0, address.As4()[3] == gatewayNumber, address.As4()[3] == 15:
				t.Fatalf("%s is reserved or out of %s", address, cidr)
			}
			held[number] = true
		}
	})
}

func TestPoolReuse(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.1.0/24")
	for _, test := range []struct {
		name   string
		lowest bool
		want   uint32
	}{
		{"a freed address rests", false, 4},
		{"a freed address comes back at once", true, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPool(cidr, test.lowest)
			for range 2 {
				if _, err := p.take(); err != nil {
					t.Fatal(err)
				}
			}
			p.give(2)
			if got, err := p.take(); err != nil || got != test.want {
				t.Errorf("take after give(2) = %d, %v, want %d", got, err, test.want)
			}
		})
	}
}

func TestNumbered(t *testing.T) {
	for prefix, want := range map[string]string{
		"10.244.3.0/24":   "10.244.3.7",
		"fd00:244:3::/64": "fd00:244:3::7",
	} {
		if got := numbered(netip.MustParsePrefix(prefix), 7).String(); got != want {
			t.Errorf("numbered(%s, 7) = %s, want %s", prefix, got, want)
		}
	}
}

func keys(m map[uint32]bool) []uint32 {
	var all []uint32
	for n := range uint32(256) {
		if m[n] {
			all = append(all, n)
		}
	}
	return all
}
