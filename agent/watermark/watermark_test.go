package watermark

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
)

var (
	port = NodePort{"node-1", "tcp", "IPv4", 61000}
	mark = Watermark{Instance: "nplbridge-system/lbsync", LoadBalancer: "haproxy", Seen: "4711", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
)

func with(change func(*Watermark)) Watermark {
	w := mark
	change(&w)
	return w
}

func TestConfirmed(t *testing.T) {
	other := with(func(w *Watermark) { w.LoadBalancer = "avi"; w.Seen = "5000" })
	old := with(func(w *Watermark) { w.Seen = "4710" })
	holding := with(func(w *Watermark) { w.LoadBalancer = "b"; w.Held = []NodePort{port} })
	const haproxy = "nplbridge-system/lbsync (haproxy)"
	for name, tt := range map[string]struct {
		marks []Watermark
		at    string
		want  []string
	}{
		"no watermark":             {nil, "1", []string{NoWatermark}},
		"seen":                     {[]Watermark{mark}, "4711", nil},
		"seen later":               {[]Watermark{mark}, "4710", nil},
		"not seen yet":             {[]Watermark{mark}, "4712", []string{haproxy}},
		"shorter is smaller":       {[]Watermark{with(func(w *Watermark) { w.Seen = "999" })}, "1000", []string{haproxy}},
		"longer than 64 bits":      {[]Watermark{with(func(w *Watermark) { w.Seen = "100000000000000000000001" })}, "100000000000000000000000", nil},
		"all have to":              {[]Watermark{other, old}, "4711", []string{haproxy}},
		"all have":                 {[]Watermark{other, mark}, "4711", nil},
		"held":                     {[]Watermark{mark, holding}, "4711", []string{"nplbridge-system/lbsync (b)"}},
		"several, sorted, once":    {[]Watermark{old, old, holding}, "4711", []string{"nplbridge-system/lbsync (b)", haproxy}},
		"unreadable":               {[]Watermark{other, {Instance: "ConfigMap ns/x"}}, "1", []string{"ConfigMap ns/x"}},
		"unknown withdrawal":       {[]Watermark{mark}, "", []string{haproxy}},
		"withdrawal is no version": {[]Watermark{mark}, "0", []string{haproxy}},
	} {
		t.Run(name, func(t *testing.T) {
			ok, got := Confirmed(tt.marks, port, tt.at)
			if ok != (tt.want == nil) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%v, waiting for %q, want %q", ok, got, tt.want)
			}
		})
	}
	for _, p := range []NodePort{{"node-2", "tcp", "IPv4", 61000}, {"node-1", "udp", "IPv4", 61000}, {"node-1", "tcp", "IPv6", 61000}, {"node-1", "tcp", "IPv4", 61001}} {
		if ok, waiting := Confirmed([]Watermark{holding}, p, "4711"); !ok {
			t.Errorf("%s is not held, yet it waits for %q", p, waiting)
		}
	}
}

func TestEncode(t *testing.T) {
	second := NodePort{"node-2", "udp", "IPv6", 61001}
	w := with(func(w *Watermark) {
		w.Held = []NodePort{second, port, port}
		w.At = w.At.Add(time.Millisecond).In(time.FixedZone("", 3600))
	})
	const want = `{"instance":"nplbridge-system/lbsync","loadBalancer":"haproxy","seen":"4711","at":"2026-01-02T03:04:05Z",` +
		`"held":[{"node":"node-1","protocol":"tcp","family":"IPv4","nodePort":61000},{"node":"node-2","protocol":"udp","family":"IPv6","nodePort":61001}]}`
	if got := Encode(w); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Encode(mark); !strings.HasSuffix(got, `"held":[]}`) {
		t.Errorf("got %s", got)
	}
	if w.Held[0] != second {
		t.Error("Encode sorts its argument")
	}
}

func TestDecode(t *testing.T) {
	all := with(func(w *Watermark) { w.Held = []NodePort{port} })
	for name, tt := range map[string]struct {
		in   string
		want Watermark
	}{
		"canonical":     {Encode(all), all},
		"without held":  {`{"instance":"nplbridge-system/lbsync","loadBalancer":"haproxy","seen":"4711","at":"2026-01-02T03:04:05Z"}`, mark},
		"number":        {`{"instance":"nplbridge-system/lbsync","loadBalancer":"haproxy","seen":4711,"at":"2026-01-02T03:04:05Z","held":null}`, mark},
		"unknown field": {`{"x":[],"INSTANCE":"nplbridge-system/lbsync","loadbalancer":"haproxy","seen":"4711","at":"2026-01-02T04:04:05.9+01:00"}`, mark},
		"odd time":      {`{"instance":"nplbridge-system/lbsync","loadBalancer":"haproxy","seen":"4711","at":7}`, with(func(w *Watermark) { w.At = time.Time{} })},
		"held by hand":  {strings.Replace(Encode(all), `"protocol":"tcp","family":"IPv4","nodePort":61000`, `"Protocol":"TCP","family":"ipv4","nodePort":"61000"`, 1), all},
		"huge":          {`{"instance":"a/b","loadBalancer":"c","seen":123456789012345678901234567890}`, Watermark{Instance: "a/b", LoadBalancer: "c", Seen: "123456789012345678901234567890"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Decode(tt.in); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestDecodeErrorsNameTheFieldAndConfirmNothing(t *testing.T) {
	entry := func(fields string) string {
		return `{"instance":"a/b","loadBalancer":"c","seen":"9","held":[{"node":"n","protocol":"udp","family":"IPv6","nodePort":1},` + fields + `]}`
	}
	for in, want := range map[string]string{
		``:     "is not a JSON object such as",
		`[]`:   "is not a JSON object such as",
		`null`: "watermark, instance: is missing; write",
		`{"instance":"b","loadBalancer":"c","seen":"9"}`:             `watermark, instance "b": write "namespace/name"`,
		`{"instance":"a/b","seen":"9"}`:                              `watermark, loadBalancer: is missing`,
		`{"instance":"a/b","loadBalancer":"c"}`:                      `watermark, seen: is missing; write a resourceVersion`,
		`{"instance":"a/b","loadBalancer":"c","seen":"0"}`:           `watermark, seen "0": write a resourceVersion`,
		`{"instance":"a/b","loadBalancer":"c","seen":"012"}`:         `watermark, seen "012"`,
		`{"instance":"a/b","loadBalancer":"c","seen":-4}`:            `watermark, seen -4`,
		`{"instance":"a/b","loadBalancer":"c","seen":1e3}`:           `watermark, seen 1e3`,
		`{"instance":"a/b","loadBalancer":"c","seen":"9","held":{}}`: `watermark, held {}: write an array`,
		entry(`7`):    `watermark, held[1] 7: write an object`,
		entry(`null`): `watermark, held[1]: is missing; write an object`,
		entry(`{"protocol":"tcp","family":"IPv4","nodePort":1}`):                  `watermark, held[1].node: is missing`,
		entry(`{"node":"n","protocol":"icmp","family":"IPv4","nodePort":1}`):      `watermark, held[1].protocol "icmp": write "tcp"`,
		entry(`{"node":"n","protocol":"tcp","family":"IPv5","nodePort":1}`):       `watermark, held[1].family "IPv5": write "IPv4"`,
		entry(`{"node":"n","protocol":"tcp","family":"IPv4","nodePort":0}`):       `watermark, held[1].nodePort 0: write a port from 1 to 65535`,
		entry(`{"node":"n","protocol":"tcp","family":"IPv4","nodePort":"65536"}`): `watermark, held[1].nodePort "65536": write a port`,
	} {
		w, err := Decode(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%s): %v, want %q", in, err, want)
			continue
		}
		var field *FieldError
		if errors.As(err, &field) != strings.HasPrefix(want, "watermark, ") {
			t.Errorf("Decode(%s): error of type %T", in, err)
		}
		if ok, _ := Confirmed([]Watermark{w}, port, "1"); ok {
			t.Errorf("Decode(%s) confirms a port", in)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(with(func(w *Watermark) { w.Held = []NodePort{port, {"n", "udp", "IPv6", 1}} })))
	f.Add(`{"instance":"a/b","loadBalancer":"c","seen":12345678901234567890123,"at":"","held":[{"node":"n","protocol":"SCTP","family":"ipv6","nodePort":"7"}]}`)
	f.Add(`{"seen":"0"}`)
	f.Fuzz(func(t *testing.T, s string) {
		w, err := Decode(s)
		if err != nil {
			if w.Seen != "" || w.Held != nil || len(err.Error()) > 1024 {
				t.Errorf("%+v, %v", w, err)
			}
			return
		}
		if again, err := Decode(Encode(w)); err != nil || !reflect.DeepEqual(again, w) {
			t.Errorf("%+v became %+v, %v", w, again, err)
		}
	})
}

func FuzzCompareVersions(f *testing.F) {
	f.Add("1", "2")
	f.Add("99", "100")
	f.Add("007", "")
	f.Add("18446744073709551616", "18446744073709551615")
	f.Fuzz(func(t *testing.T, a, b string) {
		c, ok := CompareVersions(a, b)
		x, okX := number(a)
		y, okY := number(b)
		if ok != (okX && okY) {
			t.Fatalf("%q and %q can be compared: %v", a, b, ok)
		}
		if ok && c != x.Cmp(y) {
			t.Errorf("%q and %q: %d, want %d", a, b, c, x.Cmp(y))
		}
	})
}

// number is the rule by arithmetic: what prints as it was read, above zero.
func number(s string) (*big.Int, bool) {
	n, ok := new(big.Int).SetString(s, 10)
	return n, ok && n.Sign() > 0 && fmt.Sprint(n) == s
}
