package annotations

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// parse makes annotations of lines "key=value"; a key without a slash is one of ours.
func parse(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, "=")
		if !strings.Contains(key, "/") {
			key = ClassPrefix + key
		}
		out[key] = value
	}
	return out
}

// seeds are every word and alias with its example and with nonsense.
func seeds() (out []string) {
	var all []string
	for _, w := range Vocabulary() {
		all = append(all, strings.TrimPrefix(w.Name, ClassPrefix)+"="+w.Example)
		out = append(out, w.Name+"=\x00,=:/")
	}
	for _, a := range Aliases() {
		out = append(out, a.Name+"=192.0.2.1", a.Name+`={"type":"http","send":"GET / HTTP/1.1\r\nHost: x","interval":5,"timeout":16}`)
	}
	return append(out, strings.Join(all, "\n"), "avi.nplbridge.io/a=b\nx.nplbridge.io/c=d\nalgorithms=x", legacyRanges+"=10.0.0.0/8,::/0")
}

// Whatever the annotations are, the answer is one that the model can work with, and nothing is wrong in silence.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, "", "", false)
	}
	f.Add("pool=80=edge:web", "192.0.2.1", "192.0.2.0/24,x", true)
	f.Fuzz(func(t *testing.T, text, ip, list string, affinity bool) {
		spec := Spec{LoadBalancerIP: ip, SessionAffinity: affinity, AffinityTimeout: time.Hour}
		if list != "" {
			spec.SourceRanges = strings.Split(list, ",")
		}
		values := parse(text)
		before := maps.Clone(values)
		w, problems := Decode(values, spec, instances)
		if again, more := Decode(values, spec, instances); !reflect.DeepEqual(w, again) || !slices.Equal(problems, more) || !maps.Equal(values, before) {
			t.Fatalf("decoded twice: %+v, %v; then %+v, %v", w, problems, again, more)
		}
		if (w.Unservable || w.Kept != (Kept{})) && len(problems) == 0 {
			t.Errorf("%+v without a Problem", w)
		}
		if !slices.IsSortedFunc(problems, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) }) {
			t.Errorf("not sorted: %v", problems)
		}
		for _, p := range problems {
			if _, set := values[p.Key]; !set && !strings.HasPrefix(p.Key, "spec.") || p.Message == "" || len(p.Message) > 1500 || len(p.Value) > 70 || strings.ContainsAny(p.Message, "\n\x00") {
				t.Errorf("%q: %d bytes", p, len(p.Message))
			}
			if utf8.ValidString(text) && utf8.ValidString(ip) && utf8.ValidString(list) && !utf8.ValidString(p.String()+p.Value) {
				t.Errorf("%q is not UTF-8", p)
			}
		}
		four, six := 0, 0
		for _, a := range w.Addresses {
			if a.Is4() {
				four++
			} else {
				six++
			}
		}
		if four > 1 || six > 1 {
			t.Errorf("addresses %v", w.Addresses)
		}
		checkRanges(t, w.Virtual.SourceRanges)
		for _, d := range []time.Duration{w.Pool.Persistence.Timeout, w.Pool.SlowStart, w.Pool.Monitor.Interval, w.Pool.Monitor.Timeout, w.Virtual.IdleTimeout} {
			if d < 0 || d > 240*time.Hour || d%time.Second != 0 {
				t.Errorf("duration %s", d)
			}
		}
		for _, name := range w.Providers {
			if !slices.Contains(instances, name) {
				t.Errorf("load balancer %q", name)
			}
		}
		if w.Source != "" && !slices.Contains(Sources(), w.Source) {
			t.Errorf("source %q", w.Source)
		}
		if len(w.Attachments) > 0 && (len(w.Addresses) > 0 || len(w.Options) > 0 || len(w.Virtual.SourceRanges) > 0 || w.Pool.Algorithm != "") {
			t.Errorf("a pool of somebody else with %+v", w)
		}
	})
}

func checkRanges(t *testing.T, ranges []netip.Prefix) {
	for i, p := range ranges {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || i > 0 && (ranges[i-1].Overlaps(p) || !ranges[i-1].Addr().Less(p.Addr())) {
			t.Errorf("ranges %v", ranges)
		}
	}
}

// Who is let in is who is in one of the ranges as they were written, and nobody else.
func FuzzPrefixes(f *testing.F) {
	f.Add("10.0.0.0/8,10.1.0.0/16", "10.1.2.3")
	f.Add("192.0.2.7/24,::/0", "192.0.2.1")
	f.Add("2001:db8::1,2001:db8::/127", "2001:db8::")
	f.Fuzz(func(t *testing.T, list, client string) {
		fields := strings.Split(list, ",")
		got, err := prefixes(fields, true)
		if err != nil {
			return
		}
		checkRanges(t, got)
		if strict, err := prefixes(fields, false); err == nil && !slices.Equal(got, strict) {
			t.Errorf("%q: %v, and strictly %v", list, got, strict)
		}
		addr, err := netip.ParseAddr(client)
		if err != nil {
			return
		}
		within := func(list []netip.Prefix) bool {
			return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
		}
		var written []netip.Prefix
		for _, f := range fields {
			f = strings.TrimSpace(f)
			if p, err := netip.ParsePrefix(f); err == nil {
				written = append(written, p.Masked())
			} else {
				a := netip.MustParseAddr(f)
				written = append(written, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		if within(got) != within(written) {
			t.Errorf("%q lets %s in: %t, as written %t", list, addr, within(got), within(written))
		}
	})
}

func FuzzAttachments(f *testing.F) {
	f.Add("80=edge:web,https=avi:/Common/x y")
	f.Add("80=edge:a,080=edge:b")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := attachments(s, instances)
		if err != nil {
			if len(err.Error()) > 1500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		var fields []string
		seen := map[[2]string]bool{}
		for _, a := range got {
			if a.Port == "" || a.Pool == "" || a.Pool != strings.TrimSpace(a.Pool) || seen[[2]string{a.Port, a.Instance}] {
				t.Errorf("%q: %+v", s, got)
			}
			seen[[2]string{a.Port, a.Instance}] = true
			fields = append(fields, a.Port+"="+a.Instance+":"+a.Pool)
		}
		if again, err := attachments(strings.Join(fields, ","), instances); err != nil || !slices.Equal(got, again) {
			t.Errorf("%q -> %+v -> %+v, %v", s, got, again, err)
		}
	})
}

// A monitor of CIS becomes one that every load balancer could have, or a reason.
func FuzzHealth(f *testing.F) {
	for _, s := range []string{
		`{"interval": 10, "timeout": 31}`, `[{"type":"http","send":"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"}]`, `{"reference":"bigip","name":"/Common/x"}`, `{"recv":"x","targetPort":80}`, `[`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, _ := Decode(on("cis.f5.com/health", s), Spec{}, nil)
		m := w.Pool.Monitor
		// What it became can be written in our own words.
		values := map[string]string{}
		set := func(word, value string, is bool) {
			if is {
				values[word] = value
			}
		}
		set(Monitor, string(m.Type), m.Type != "")
		set(MonitorName, m.Name, m.Name != "")
		set(MonitorPath, m.Path, m.Path != "")
		set(MonitorHost, m.Host, m.Host != "")
		set(MonitorInterval, m.Interval.String(), m.Interval != 0)
		set(MonitorFall, strconv.Itoa(int(m.Fall)), m.Fall != 0)
		again, problems := Decode(values, Spec{}, nil)
		if again.Pool.Monitor != m || len(problems) > 0 {
			t.Errorf("%q became %+v, and that %+v, %v", s, m, again.Pool.Monitor, problems)
		}
	})
}

func FuzzAssigned(f *testing.F) {
	f.Add("edge=192.0.2.1,2001:db8::1 avi=192.0.2.2")
	f.Add("192.0.2.1")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseAssigned(s, "first")
		if err != nil {
			return
		}
		again, err := ParseAssigned(FormatAssigned(got), "first")
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%q -> %v -> %v, %v", s, got, again, err)
		}
	})
}

func FuzzPodsAndNodes(f *testing.F) {
	f.Add("5")
	f.Add("true")
	f.Fuzz(func(t *testing.T, s string) {
		if n, p := ParseWeight(s); (p == nil) != (n >= 1 && n <= 20) {
			t.Errorf("weight %q: %d, %v", s, n, p)
		}
		if drain, p := ParseDrain(s); p != nil && drain || p == nil && drain != (strings.TrimSpace(s) == "true") {
			t.Errorf("drain %q: %t, %v", s, drain, p)
		}
	})
}
