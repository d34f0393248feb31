package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	vishnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func manyMappings(n int) map[Key]netip.AddrPort {
	out := make(map[Key]netip.AddrPort, n)
	for i := range n {
		f := bothFamilies[i%2]
		out[Key{npl.TCP, f, uint16(20000 + i/2)}] = netip.AddrPortFrom(podAddr[i%2][f], uint16(1+i))
	}
	return out
}

// manyPods leads n ports of IPv4 to as many Pods.
func manyPods(n int) map[Key]netip.AddrPort {
	out := make(map[Key]netip.AddrPort, n)
	for i := range n {
		out[Key{npl.TCP, npl.IPv4, uint16(20000 + i)}] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), podPort)
	}
	return out
}

// foreignRules gives the Node as many NAT rules as kube-proxy in iptables mode has for 5000 Services of one endpoint each.
func foreignRules(b *testing.B, node *namespace) {
	b.Helper()
	var chains, rules strings.Builder
	for i := range 5000 {
		address := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&chains, ":KUBE-SVC-%05d - [0:0]\n:KUBE-SEP-%05d - [0:0]\n", i, i)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-%05d\n-A KUBE-SVC-%05d -j KUBE-SEP-%05d\n"+
			"-A KUBE-SEP-%05d -p tcp -m tcp -j DNAT --to-destination 10.245.%d.%d:8080\n", address, i, i, i, i, i>>8&255, i&255)
	}
	script := "*nat\n:KUBE-SERVICES - [0:0]\n" + chains.String() + "-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n" + rules.String() + "COMMIT\n"
	out, err := in(node, func() ([]byte, error) {
		cmd := exec.Command("iptables-nft-restore")
		cmd.Stdin = strings.NewReader(script)
		return cmd.CombinedOutput()
	})
	if err != nil {
		b.Fatalf("iptables-nft-restore: %v: %s", err, out)
	}
}

// connections makes entries of one protocol in the connection tracking of the Node, to a port that is not ours.
func connections(b *testing.B, node *namespace, protocol uint8, n int) {
	b.Helper()
	self := []byte{192, 0, 2, 1}
	node.do(func() {
		h, err := vishnetlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			b.Error(err)
			return
		}
		defer h.Close()
		for i := range n {
			client := []byte{10, 99, byte(i >> 8), byte(i)}
			port := uint16(1000 + i>>16)
			entry := &vishnetlink.ConntrackFlow{
				FamilyType: unix.AF_INET, TimeOut: 3600,
				Forward: vishnetlink.IPTuple{Protocol: protocol, SrcIP: client, SrcPort: port, DstIP: self, DstPort: 443},
				Reverse: vishnetlink.IPTuple{Protocol: protocol, SrcIP: self, SrcPort: 443, DstIP: client, DstPort: port},
			}
			if protocol == unix.IPPROTO_TCP {
				entry.ProtoInfo = &vishnetlink.ProtoInfoTCP{State: 3}
			}
			if err := h.ConntrackCreate(vishnetlink.ConntrackTable, unix.AF_INET, entry); err != nil {
				b.Error(i, err)
				return
			}
		}
	})
	if b.Failed() {
		b.FailNow()
	}
}

// One mapping added or removed among 1000, which is one transaction. TCP needs no walk through conntrack; UDP does, and so
// does the end of a Pod.
func BenchmarkOneMapping(b *testing.B) {
	to := netip.MustParseAddrPort("10.244.99.99:80")
	tcp, udp := Key{npl.TCP, npl.IPv4, 61000}, Key{npl.UDP, npl.IPv4, 61000}
	set := func(k Key) Change { return Change{Set: map[Key]netip.AddrPort{k: to}} }
	for _, beside := range []struct {
		name    string
		prepare func(*testing.B, *namespace)
	}{
		{"alone", func(*testing.B, *namespace) {}},
		{"beside-15000-foreign-rules", foreignRules},
	} {
		for _, op := range []struct {
			name         string
			setup, timed Change
		}{
			{"add-tcp", Change{Delete: []Key{tcp}}, set(tcp)},
			{"delete-tcp", set(tcp), Change{Delete: []Key{tcp}, Cool: map[Key]time.Duration{tcp: time.Minute}}},
			{"add-udp-with-walk", Change{Delete: []Key{udp}}, set(udp)},
			{"delete-tcp-of-gone-pod-with-walk", set(tcp), Change{Delete: []Key{tcp}, FlushTCP: []Key{tcp}, Cool: map[Key]time.Duration{tcp: time.Minute}}},
		} {
			b.Run(beside.name+"/"+op.name, func(b *testing.B) {
				d := open(b, newNode(b), "")
				beside.prepare(b, d.node)
				d.apply(Change{Set: manyPods(1000)})
				d.apply(op.setup)
				var watch stopwatch
				for b.Loop() {
					err := watch.time(func() error { return d.n.Apply(op.timed) })
					if err == nil {
						err = d.n.Apply(op.setup)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				watch.report(b)
			})
		}
	}
}

// Everything at once on an empty kernel: what an agent does after a reboot.
func BenchmarkColdStart1000(b *testing.B) {
	d := open(b, newNode(b), "")
	all := manyPods(1000)
	var watch stopwatch
	for b.Loop() {
		err := watch.time(func() error { return d.n.Apply(Change{Set: all}) })
		if err == nil {
			err = d.n.Cleanup()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	watch.report(b)
}

// 1000 mappings added to a table that exists.
func BenchmarkBatch1000(b *testing.B) {
	d := open(b, newNode(b), "")
	all := manyPods(1000)
	gone := slices.Collect(maps.Keys(all))
	d.apply(Change{Set: map[Key]netip.AddrPort{tcp4: netip.AddrPortFrom(podAddr[0][npl.IPv4], podPort)}})
	var watch stopwatch
	for b.Loop() {
		err := watch.time(func() error { return d.n.Apply(Change{Set: all}) })
		if err == nil {
			err = d.n.Apply(Change{Delete: gone})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	watch.report(b)
}

// The comparison of every repair interval, with nothing to repair.
func BenchmarkRepairIntact1000(b *testing.B) {
	for _, foreign := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "beside-15000-foreign-rules"}[foreign], func(b *testing.B) {
			d := open(b, newNode(b), "")
			if foreign {
				foreignRules(b, d.node)
			}
			want := manyPods(1000)
			d.apply(Change{Set: want})
			var watch stopwatch
			d.node.do(func() {
				for b.Loop() {
					if err := watch.time(func() error {
						got, err := d.n.Repair(want)
						if got != 0 {
							err = fmt.Errorf("repaired %d things", got)
						}
						return err
					}); err != nil {
						b.Error(err)
					}
				}
			})
			watch.report(b)
		})
	}
}

// The walk through conntrack for one UDP port, and for 100 of them, on a busy Node.
func BenchmarkConntrackWalk(b *testing.B) {
	for _, c := range []struct {
		name     string
		protocol uint8
		entries  int
	}{
		{"no-entries", unix.IPPROTO_TCP, 0}, {"200000-tcp-entries", unix.IPPROTO_TCP, 200_000}, {"200000-udp-entries", unix.IPPROTO_UDP, 200_000},
	} {
		d := open(b, newNode(b), "")
		connections(b, d.node, c.protocol, c.entries)
		for _, ports := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d-ports", c.name, ports), func(b *testing.B) {
				changes := [2]Change{}
				for i := range changes {
					changes[i].Set = map[Key]netip.AddrPort{}
					for p := range ports {
						changes[i].Set[Key{npl.UDP, npl.IPv4, uint16(61000 + p)}] = netip.AddrPortFrom(podAddr[i][npl.IPv4], 80)
					}
				}
				var watch stopwatch
				for i := 0; b.Loop(); i++ {
					if err := watch.time(func() error { return d.n.Apply(changes[i%2]) }); err != nil {
						b.Fatal(err)
					}
				}
				watch.report(b)
			})
		}
	}
}

// stopwatch keeps how long calls took, by the clock and on the processor: the second is what remains on a machine that has
// other things to do.
type stopwatch struct{ clock, processor []time.Duration }

func (s *stopwatch) time(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, used := time.Now(), threadTime()
	err := call()
	s.clock, s.processor = append(s.clock, time.Since(start)), append(s.processor, threadTime()-used)
	return err
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// report tells the median and the 99th percentile in microseconds.
func (s *stopwatch) report(b *testing.B) {
	b.Helper()
	for unit, all := range map[string][]time.Duration{"us": s.clock, "cpu-us": s.processor} {
		slices.Sort(all)
		for _, p := range []int{50, 99} {
			b.ReportMetric(float64(all[(len(all)-1)*p/100].Nanoseconds())/1000, fmt.Sprintf("p%d-%s", p, unit))
		}
	}
}
