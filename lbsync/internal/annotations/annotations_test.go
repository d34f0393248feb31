package annotations

import (
	"strings"
	"testing"
)

func TestParseAddresses(t *testing.T) {
	for _, test := range []struct{ in, want, err string }{
		{in: "192.0.2.1", want: "192.0.2.1"},
		{in: " 2001:db8::1 , 192.0.2.1 ", want: "192.0.2.1,2001:db8::1"},
		{in: "::ffff:192.0.2.1", want: "192.0.2.1"},
		{in: "", err: "not an IP address"},
		{in: "192.0.2.1,", err: "not an IP address"},
		{in: "web", err: `"web"`},
		{in: "192.0.2.1,192.0.2.2", err: "two addresses of one family"},
		{in: "0.0.0.0", err: "unicast"},
		{in: "127.0.0.1", err: "unicast"},
		{in: "224.0.0.1", err: "unicast"},
		{in: "fe80::1", err: "unicast"},
		{in: "2001:db8::1%eth0", err: "unicast"},
		{in: strings.Repeat("x", 1000), err: "..."},
	} {
		got, err := ParseAddresses(test.in)
		switch {
		case test.err == "" && (err != nil || FormatAddresses(got) != test.want):
			t.Errorf("ParseAddresses(%q) = %v, %v; want %s", test.in, got, err, test.want)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("ParseAddresses(%q) = %v, %v; want an error with %q", test.in, got, err, test.err)
		}
	}
}

func FuzzParseAddresses(f *testing.F) {
	for _, seed := range []string{"192.0.2.1", "2001:db8::1,192.0.2.1", ",", "::ffff:1.2.3.4", "fe80::1%x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseAddresses(s)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := ParseAddresses(FormatAddresses(got))
		if err != nil || FormatAddresses(again) != FormatAddresses(got) || len(got) == 0 || len(got) > 2 {
			t.Errorf("%q -> %v -> %v, %v", s, got, again, err)
		}
	})
}
