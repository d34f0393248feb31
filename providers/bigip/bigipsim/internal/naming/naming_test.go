package naming

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEndpoint(t *testing.T) {
	for text, want := range map[string]struct {
		host string
		port uint16
	}{
		"10.0.0.1:80": {"10.0.0.1", 80}, "web:80": {"web", 80}, "2001:db8::1.80": {"2001:db8::1", 80}, "10.0.0.1%2:80": {"10.0.0.1%2", 80},
		"2001:db8::1%2.80": {"2001:db8::1%2", 80}, "::1.65535": {"::1", 65535}, "10.0.0.1:any": {"10.0.0.1", 0}, "10.0.0.1:0": {"10.0.0.1", 0},
	} {
		host, port, err := Endpoint(text)
		if err != nil || host != want.host || port != want.port {
			t.Errorf("%s: %s, %d, %v", text, host, port, err)
		}
	}
	for _, text := range []string{"", ":80", "web", "web:", "10.0.0.1:65536", "10.0.0.1:x", "2001:db8::1", "2001:db8::1:80"} {
		if host, port, err := Endpoint(text); err == nil {
			t.Errorf("%q is %s and %d", text, host, port)
		}
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.1": "10.0.0.1", "10.0.0.1%2": "10.0.0.1", "10.0.0.1%0": "10.0.0.1%0", "2001:DB8:0::1%10": "2001:db8::1%10"} {
		a, err := ParseAddress(text, 2)
		if err != nil || a.Text(2) != want {
			t.Errorf("%s: %s, %v, want %s", text, a.Text(2), err, want)
		}
	}
	for _, text := range []string{"", "x", "10.0.0.1%", "10.0.0.1%x", "10.0.0.1%65535", "10.0.0.1%-1", "10.0.0.256"} {
		if a, err := ParseAddress(text, 0); err == nil {
			t.Errorf("%q is %v", text, a)
		}
	}
}

func TestRule(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "none": "", "a": "a", "a and b": "a and b", " a  and b ": "a and b", "min 1 of a b": "min 1 of { a b }", "min 2 of { a b }": "min 2 of { a b }",
	} {
		if r, err := ParseRule(text, true); err != nil || r.String() != want {
			t.Errorf("%q: %q, %v, want %q", text, r, err, want)
		}
	}
	if _, err := ParseRule("min 1 of { a b }", false); !errors.Is(err, ErrBraces) {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"a b", "a and", "and a", "and", "min 1 of", "min 0 of a", "min 3 of a b", "min x of a", "min 1 a b", "min 1 of { a", "min 1 of {}", "min 1 of a and b"} {
		if r, err := ParseRule(text, true); err == nil {
			t.Errorf("%q is %v", text, r)
		}
	}
}

func TestPath(t *testing.T) {
	for text, want := range map[string]Path{
		"web": {"Common", "", "web"}, "/P/web": {"P", "", "web"}, "/P/app/web": {"P", "app", "web"}, "/P/a/b/web": {"P", "a/b", "web"},
	} {
		if p, err := ParsePath(text); err != nil || p != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "/", "/P", "/P/", "//web", "/P//web"} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
	if got := Escape("/P/10.0.0.1%2:80"); got != "~P~10.0.0.1%252:80" {
		t.Errorf("%s", got)
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, text := range []string{"10.0.0.1:80", "2001:db8::1%2.80", "web:any", ":", "a:b:c.1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, port, err := Endpoint(text)
		if err != nil {
			return
		}
		again, p, err := Endpoint(Join(host, port))
		if err != nil || again != host || p != port {
			t.Errorf("%q: %q %d, then %q %d %v", text, host, port, again, p, err)
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"10.0.0.1%2", "2001:DB8::1", "::ffff:10.0.0.1", "%"} {
		f.Add(text, 2)
	}
	f.Fuzz(func(t *testing.T, text string, domain int) {
		domain &= 0xfff
		a, err := ParseAddress(text, domain)
		if err != nil {
			return
		}
		if again, err := ParseAddress(a.Text(domain), domain); err != nil || again != a {
			t.Errorf("%q: %v, then %v %v", text, a, again, err)
		}
	})
}

func FuzzParseRule(f *testing.F) {
	for _, text := range []string{"a and b", "min 1 of { a b }", "none"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text, true)
		if err != nil {
			return
		}
		if again, err := ParseRule(r.String(), true); err != nil || again.Min != r.Min || !slices.Equal(again.Monitors, r.Monitors) {
			t.Errorf("%q: %v, then %v %v", text, r, again, err)
		}
	})
}

func FuzzParsePath(f *testing.F) {
	for _, text := range []string{"web", "/P/web", "/P/a/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePath(text)
		if err != nil {
			return
		}
		if again, err := ParsePath(p.String()); err != nil || again != p {
			t.Errorf("%q: %v, then %v %v", text, p, again, err)
		}
		if strings.Contains(text, "~") {
			return
		}
		if got := Unescape(strings.ReplaceAll(p.String(), "/", "~")); got != p.String() {
			t.Errorf("%q: %q", p, got)
		}
	})
}
