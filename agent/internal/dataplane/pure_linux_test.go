package dataplane

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func TestServed(t *testing.T) {
	eth := func(s string, more ...func(*address)) address {
		p := netip.MustParsePrefix(s)
		a := address{addr: p.Addr(), bits: p.Bits(), index: 2, linkType: "device", permanent: true}
		for _, f := range more {
			f(&a)
		}
		return a
	}
	leased := func(a *address) { a.permanent = false }
	dummy := func(a *address) { a.index, a.linkType = 9, "dummy" }
	lo := func(a *address) { a.index, a.loopback = 1, true }
	unchecked := func(a *address) { a.unusable = true }
	on3 := func(a *address) { a.index = 3 }
	for _, c := range []struct {
		name string
		all  []address
		want []string
	}{
		{"ordinary", []address{eth("192.0.2.1/24"), eth("2001:db8::1/64")}, []string{"192.0.2.1", "2001:db8::1"}},
		{"loopback, its extra addresses too", []address{eth("127.0.0.1/8", lo), eth("::1/128", lo), eth("198.51.100.1/32", lo)}, nil},
		{"link-local", []address{eth("169.254.20.10/32"), eth("fe80::1/64")}, nil},
		{"Services of kube-proxy's IPVS mode", []address{eth("192.0.2.1/24"), eth("10.96.0.1/32", dummy), eth("10.96.0.10/24", dummy)}, []string{"192.0.2.1"}},
		{"virtual address beside the Node's", []address{eth("192.0.2.1/24"), eth("192.0.2.100/32")}, []string{"192.0.2.1"}},
		{"the Node's only address is a host prefix", []address{eth("10.128.0.7/32")}, []string{"10.128.0.7"}},
		{"host prefix on another interface", []address{eth("192.0.2.1/24"), eth("10.244.1.0/32", on3)}, []string{"10.244.1.0", "192.0.2.1"}},
		{"leased by DHCPv6 beside an advertised prefix", []address{eth("2001:db8::1/64"), eth("2001:db8::77/128", leased)}, []string{"2001:db8::1", "2001:db8::77"}},
		{"families do not matter to each other", []address{eth("192.0.2.1/32"), eth("2001:db8::1/64")}, []string{"192.0.2.1", "2001:db8::1"}},
		{"IPv6 that another host has", []address{eth("2001:db8::1/64", unchecked)}, nil},
		{"twice", []address{eth("192.0.2.1/24"), eth("192.0.2.1/24", on3)}, []string{"192.0.2.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, a := range served(c.all) {
				got = append(got, a.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		says string
	}{
		{Config{}, "cluster UID"},
		{Config{ClusterUID: strings.Repeat("x", 65)}, "1 to 64 bytes"},
		{Config{ClusterUID: "a", Masquerade: "some"}, `masquerade "some"`},
	} {
		if _, err := Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.says)
		}
	}
	if got := (Config{ClusterUID: "u-1"}).mark(); got != "nplbridge/v1 cluster=u-1" {
		t.Errorf("mark %q", got)
	}
}

func TestBadChanges(t *testing.T) {
	good := netip.MustParseAddrPort("10.0.0.1:80")
	key := Key{npl.TCP, npl.IPv4, 61000}
	set := func(k Key, to netip.AddrPort) Change { return Change{Set: map[Key]netip.AddrPort{k: to}} }
	for _, c := range []struct {
		change Change
		says   string
	}{
		{set(Key{npl.TCP, npl.IPv4, 0}, good), "must be 1 to 65535"},
		{set(Key{"icmp", npl.IPv4, 1}, good), `protocol "icmp"`},
		{set(Key{npl.TCP, "IPv5", 1}, good), `family "IPv5"`},
		{set(key, netip.AddrPort{}), "must be a Pod address"},
		{set(key, netip.AddrPortFrom(good.Addr(), 0)), "a port from 1 to 65535"},
		{set(key, netip.MustParseAddrPort("[fd00::1]:80")), "must be a plain IPv4 address"},
		{set(key, netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")), "must be a plain IPv4 address"},
		{set(key, netip.MustParseAddrPort("127.0.0.1:80")), "not loopback"},
		{Change{Delete: []Key{{}}}, "must be 1 to 65535"},
		{Change{FlushTCP: []Key{{}}}, "must be 1 to 65535"},
		{Change{Cool: map[Key]time.Duration{key: time.Microsecond}}, "at least 1ms"},
	} {
		if err := c.change.validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got %v, want %q", c.change, err, c.says)
		}
	}
	if err := set(key, good).validate(); err != nil {
		t.Error(err)
	}
}

func TestElementsRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := rapid.SampledFrom([]*family{ipv4, ipv6}).Draw(r, "family")
		k := Key{rapid.SampledFrom(protocols).Draw(r, "protocol"), f.ip, rapid.Uint16Min(1).Draw(r, "port")}
		if got, err := f.decodeKey(encodeKey(k)); err != nil || got != k {
			r.Errorf("got %v, %v, want %v", got, err, k)
		}
		n := int(f.addrType.Bytes)
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(r, "address"))
		to := netip.AddrPortFrom(a, rapid.Uint16().Draw(r, "to"))
		if got, err := f.decodeTarget(encodeTarget(to)); err != nil || got != to {
			r.Errorf("got %v, %v, want %v", got, err, to)
		}
	})
}

// The kernel hands out whatever somebody put into a table.
func FuzzDecoders(f *testing.F) {
	f.Add([]byte(encodeKey(tcp4)))
	f.Add([]byte(encodeTarget(netip.MustParseAddrPort("10.0.0.1:80"))))
	f.Add(userdata.AppendString(nil, userdata.TypeComment, "nplbridge/v1 cluster=x"))
	f.Add([]byte{0, 200, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, fam := range []*family{ipv4, ipv6} {
			if k, err := fam.decodeKey(string(b)); err == nil && encodeKey(k) != string(b) {
				t.Errorf("% x decodes to %s, which is % x", b, k, encodeKey(k))
			}
			if to, err := fam.decodeTarget(string(b)); err == nil && encodeTarget(to)[:len(b)-2] != string(b[:len(b)-2]) {
				t.Errorf("% x decodes to %s, which is % x", b, to, encodeTarget(to))
			}
		}
		decodeComment(b)
		if m, err := attributes(netlink.Message{Data: b}); err == nil {
			for m.Next() {
				_ = m.String()
			}
		}
		for _, e := range ipv4.dnat() {
			e.same(kernelExpression{e.name, b})
		}
		if e, ok := decodeEntry(b); ok && len(e.identity) == 0 {
			t.Errorf("% x decodes to an entry without an identity", b)
		}
	})
}

func TestCommentRoundTrip(t *testing.T) {
	if got := decodeComment(userdata.AppendString(userdata.Append(nil, 7, []byte("x")), userdata.TypeComment, "hello")); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// What differs between kernels makes no difference, and everything else does.
func TestSameExpression(t *testing.T) {
	attrs := func(fields ...field) []byte {
		b, err := encode(fields)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	with := func(e expression, more ...field) kernelExpression {
		return kernelExpression{e.name, attrs(append(slices.Clone(e.fields), more...)...)}
	}
	ct, lk, nat, bits := ctOriginal(unix.NFT_CT_PROTO_DST, reg1), lookup(setSelf, reg1), dnatTo(unix.NFPROTO_IPV4, reg1, reg32_01), anyBit(32, reg1)[0]
	for _, c := range []struct {
		name string
		want expression
		have kernelExpression
		same bool
	}{
		{"as sent", nat, with(nat), true},
		{"direction in four bytes", ct, kernelExpression{"ct", attrs(ct.fields[0], ct.fields[1], field{unix.NFTA_CT_DIRECTION, uint32(0)})}, true},
		{"other direction", ct, kernelExpression{"ct", attrs(ct.fields[0], ct.fields[1], field{unix.NFTA_CT_DIRECTION, uint8(1)})}, false},
		{"number of the set", lk, with(lk, field{unix.NFTA_LOOKUP_SET_ID, uint32(7)}), true},
		{"inverted lookup", lk, with(lk, field{unix.NFTA_LOOKUP_FLAGS, uint32(unix.NFT_LOOKUP_F_INV)}), false},
		{"plain lookup says so", lk, with(lk, field{unix.NFTA_LOOKUP_FLAGS, uint32(0)}), true},
		{"flags of DNAT", nat, with(nat, field{unix.NFTA_NAT_FLAGS, uint32(3)}), true},
		{"operation of bitwise", bits, with(bits, field{6, uint32(0)}), true},
		{"other operation of bitwise", bits, with(bits, field{6, uint32(1)}), false},
		{"other set", lk, with(lookup(setHairpin, reg1)), false},
		{"other register", lk, with(lookup(setSelf, reg2)), false},
		{"attribute missing", nat, kernelExpression{"nat", attrs(nat.fields[:5]...)}, false},
		{"other expression", nat, kernelExpression{"masq", nil}, false},
		{"masquerade to ports", masquerade(), kernelExpression{"masq", attrs(field{unix.NFTA_MASQ_REG_PROTO_MIN, uint32(1)})}, false},
		{"broken", nat, kernelExpression{"nat", []byte{1}}, false},
	} {
		if got := c.want.same(c.have); got != c.same {
			t.Errorf("%s: same = %t", c.name, got)
		}
	}
}

func TestStaleFlows(t *testing.T) {
	self, pod, old := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.9:80")
	connection := func(protocol byte, to, from netip.AddrPort) entry {
		return entry{flow: flow{protocol, to.Port()}, to: to.Addr(), from: from}
	}
	s := staleFlows{self: []netip.Addr{self}, want: map[flow]netip.AddrPort{
		{unix.IPPROTO_UDP, 61000}: pod, {unix.IPPROTO_UDP, 61001}: {},
	}}
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(self, port) }
	for _, c := range []struct {
		name  string
		entry entry
		stale bool
	}{
		{"right target", connection(unix.IPPROTO_UDP, at(61000), pod), false},
		{"old target", connection(unix.IPPROTO_UDP, at(61000), old), true},
		{"no NAT", connection(unix.IPPROTO_UDP, at(61000), at(61000)), true},
		{"port deleted", connection(unix.IPPROTO_UDP, at(61001), pod), true},
		{"other protocol", connection(unix.IPPROTO_TCP, at(61000), old), false},
		{"other port", connection(unix.IPPROTO_UDP, at(61002), old), false},
		{"other host's address", connection(unix.IPPROTO_UDP, netip.MustParseAddrPort("198.51.100.1:61000"), old), false},
	} {
		if got := s.match(c.entry); got != c.stale {
			t.Errorf("%s: stale = %t", c.name, got)
		}
	}
	change := Change{
		Set:      map[Key]netip.AddrPort{{npl.UDP, npl.IPv4, 1}: pod, {npl.TCP, npl.IPv4, 2}: pod, {npl.TCP, npl.IPv4, 3}: pod, {npl.UDP, npl.IPv6, 1}: pod},
		Delete:   []Key{{npl.UDP, npl.IPv4, 4}, {npl.TCP, npl.IPv4, 5}},
		FlushTCP: []Key{{npl.TCP, npl.IPv4, 3}, {npl.TCP, npl.IPv4, 6}},
	}
	want := map[flow]netip.AddrPort{
		{unix.IPPROTO_UDP, 1}: pod, {unix.IPPROTO_TCP, 3}: pod, {unix.IPPROTO_UDP, 4}: {}, {unix.IPPROTO_TCP, 6}: {},
	}
	if diff := cmp.Diff(want, change.flows(ipv4), cmp.AllowUnexported(flow{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// The short way of a change, which looks at its own keys only, must find what the long way finds.
func TestStepEqualsCompare(t *testing.T) {
	now := time.Unix(1000, 0)
	rapid.Check(t, func(r *rapid.T) {
		f := rapid.SampledFrom([]*family{ipv4, ipv6}).Draw(r, "family")
		n := &NFT{now: func() time.Time { return now }, known: map[*family]*state{}, stale: map[*family]bool{}}
		n.remember(f, &state{}, n.want(f, map[string]element{}, map[string]element{}))
		key := rapid.Custom(func(r *rapid.T) Key {
			return Key{rapid.SampledFrom(protocols).Draw(r, "protocol"), rapid.SampledFrom(bothFamilies).Draw(r, "of"), rapid.Uint16Range(1, 3).Draw(r, "port")}
		})
		keys := rapid.SliceOfN(key, 0, 4)
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			c := Change{Set: map[Key]netip.AddrPort{}, Cool: map[Key]time.Duration{}, Delete: keys.Draw(r, "delete")}
			for _, k := range keys.Draw(r, "cool") {
				c.Cool[k] = time.Duration(rapid.IntRange(1, 5).Draw(r, "seconds")) * time.Second
			}
			for _, k := range keys.Draw(r, "set") {
				c.Set[k] = netip.AddrPortFrom(podAddr[rapid.IntRange(0, 1).Draw(r, "pod")][k.Family], rapid.Uint16Range(1, 2).Draw(r, "to"))
			}
			s := n.known[f]
			long, short := compare(s, n.afterwards(f, s, c), now), s.step(f, c, now)
			for _, d := range []difference{long, short} {
				for _, keys := range d.del {
					slices.Sort(keys)
				}
			}
			if diff := cmp.Diff(long, short, cmp.AllowUnexported(difference{}, element{})); diff != "" {
				r.Fatalf("long and short differ:\n%s", diff)
			}
			s.advance(f, short)
			if rest := compare(s, n.afterwards(f, s, Change{}), now); !rest.empty() {
				r.Fatalf("afterwards still different: %+v", rest)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(r, "later")) * time.Second)
		}
	})
}
