package dataplane

import (
	"bufio"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// A table that another version of the agent made is taken over: its mappings and cooling ports stay, everything else is made
// anew, all in one transaction, so that no packet ever finds the Node without its rules.
func TestAnotherLayoutIsReplacedInOneTransaction(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	for _, version := range []string{"v0", "v9"} {
		for name, upgrade := range map[string]func(*plane){
			"by a repair": func(d *plane) { d.repair(map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.10:8080")}) },
			"by a change": func(d *plane) {
				d.apply(Change{Delete: []Key{{npl.TCP, npl.IPv4, 61005}}})
			},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				n.node.nft(`flush ruleset
				table ip nplbridge {
					comment "nplbridge/` + version + ` cluster=test"
					map ports {
						type inet_proto . inet_service : ipv4_addr . inet_service
						elements = { tcp . 61000 : 10.244.0.10 . 8080 }
					}
					set cooling {
						type inet_proto . inet_service
						flags timeout
						elements = { tcp . 61002 timeout 1h }
					}
					set old { type ipv4_addr; }
					chain somewhere {
						type nat hook prerouting priority -99;
						dnat ip to meta l4proto . th dport map @ports
					}
				}`)
				c, err := dial(n.client, npl.TCP, netip.AddrPortFrom(nodeAddr[npl.IPv4], nodePort(0)))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				d := open(t, n.node, "")
				if version == "v9" { // with the memory of an earlier read, and without
					s := d.load()
					want := map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.10:8080")}
					if !maps.Equal(s.Mappings, want) || len(s.Cooling) != 1 {
						t.Errorf("got %+v, want %v and one port that cools", s, want)
					}
				}
				before := d.generation()
				upgrade(d)
				if got := d.generation() - before; got != 2 { // the table of IPv6 is made
					t.Errorf("%d transactions, want one for each family", got)
				}
				s := d.load()
				if s.Mappings[tcp4] != netip.MustParseAddrPort("10.244.0.10:8080") || len(s.Mappings) != 1 {
					t.Errorf("mappings: %v", s.Mappings)
				}
				if left := s.Cooling[Key{npl.TCP, npl.IPv4, 61002}]; left < 59*time.Minute || len(s.Cooling) != 1 {
					t.Errorf("cooling: %v", s.Cooling)
				}
				if got := n.node.ruleset(); strings.Contains(got, "/"+version) || strings.Contains(got, "somewhere") || strings.Contains(got, "set old") {
					t.Errorf("left of the old layout:\n%s", got)
				}
				if _, err := ask(c); err != nil {
					t.Errorf("a connection from before: %v", err)
				}
				if _, err := request(n.client, npl.TCP, netip.AddrPortFrom(nodeAddr[npl.IPv4], nodePort(0))); err != nil {
					t.Errorf("a new connection: %v", err)
				}
				if got := d.repair(s.Mappings); got != 0 {
					t.Errorf("a repair finds %d things", got)
				}
			})
		}
	}
}

// childVariable tells a copy of the test binary to free a port and wait to be killed.
const childVariable = "DATAPLANE_TEST_CHILD"

func child() {
	n, err := Open(Config{ClusterUID: "test"})
	if err == nil {
		err = n.Apply(Change{Set: map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.10:8080"), udp6: netip.MustParseAddrPort("[fd00:244::10]:53")}})
	}
	if err == nil {
		err = n.Apply(Change{Delete: []Key{tcp4}, Cool: map[Key]time.Duration{tcp4: time.Hour}})
	}
	fmt.Println("freed", err)
	select {}
}

// What a process that is killed knew of freed ports, the next one reads from the kernel.
func TestCoolingOutlivesKill(t *testing.T) {
	node := newNode(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in(node, func() (any, error) { return nil, cmd.Start() }); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killErr := cmd.Process.Kill(); killErr != nil {
		t.Error(killErr)
	}
	_ = cmd.Wait() // "signal: killed"
	if line != "freed <nil>\n" {
		t.Fatalf("the child said %q (%v)", line, err)
	}
	d := open(t, node, "")
	s := d.load()
	if left := s.Cooling[tcp4]; len(s.Cooling) != 1 || left < 50*time.Minute || len(s.Mappings) != 1 || s.Fresh {
		t.Errorf("got %+v, want %s cooling and %s in use", s, tcp4, udp6)
	}
}
