package dataplane

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// patience bounds what must happen but may be slow on a busy machine.
const patience = 20 * time.Second

// podNetwork is how Pods are attached to the Node.
type podNetwork struct {
	name           string
	bridged        bool
	bridgeNetfiler bool
}

var (
	routed          = podNetwork{name: "routed"}
	bridged         = podNetwork{name: "bridged", bridged: true}
	bridgedFiltered = podNetwork{name: "bridged with br_netfilter", bridged: true, bridgeNetfiler: true}
)

// network is a client, a Node and two Pods on the Node, in IPv4 and IPv6.
type network struct {
	client, node *namespace
	pods         [2]*namespace
}

// Addresses of the network. The client's and the Node's meet on one link.
var (
	clientAddr = map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("192.0.2.2"), npl.IPv6: netip.MustParseAddr("2001:db8::2")}
	nodeAddr   = map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("192.0.2.1"), npl.IPv6: netip.MustParseAddr("2001:db8::1")}
	podAddr    = [2]map[npl.Family]netip.Addr{
		{npl.IPv4: netip.MustParseAddr("10.244.0.10"), npl.IPv6: netip.MustParseAddr("fd00:244::10")},
		{npl.IPv4: netip.MustParseAddr("10.244.0.11"), npl.IPv6: netip.MustParseAddr("fd00:244::11")},
	}
	bothFamilies = []npl.Family{npl.IPv4, npl.IPv6}
)

const podPort = 8080

func newNetwork(t testing.TB, kind podNetwork) *network {
	t.Helper()
	n := &network{client: newNamespace(t, "client"), node: newNamespace(t, "node")}
	plug(n.node, "eth0", n.client, "eth0")
	n.node.run("ip addr add 192.0.2.1/24 dev eth0\nip addr add 2001:db8::1/64 dev eth0 nodad")
	n.client.run("ip addr add 192.0.2.2/24 dev eth0\nip addr add 2001:db8::2/64 dev eth0 nodad")
	if kind.bridged {
		n.node.run(`ip link add br0 type bridge
			ip link set br0 up
			ip addr add 10.244.0.1/24 dev br0
			ip addr add fd00:244::1/64 dev br0 nodad`)
		call := map[bool]string{true: "1"}[kind.bridgeNetfiler] + map[bool]string{false: "0"}[kind.bridgeNetfiler]
		n.node.sysctl("net/bridge/bridge-nf-call-iptables", call)
		n.node.sysctl("net/bridge/bridge-nf-call-ip6tables", call)
	}
	for i := range n.pods {
		pod, port := newNamespace(t, fmt.Sprintf("pod-%d", i)), fmt.Sprintf("pod%d", i)
		n.pods[i] = pod
		mac := plug(n.node, port, pod, "eth0")
		v4, v6 := podAddr[i][npl.IPv4].String(), podAddr[i][npl.IPv6].String()
		if kind.bridged {
			n.node.run("ip link set " + port + " master br0")
			if kind.bridgeNetfiler { // a bridge that sees the DNAT sends a Pod's packet to itself back through the port it came from
				n.node.run("ip link set " + port + " type bridge_slave hairpin on")
			}
			pod.run("ip addr add " + v4 + "/24 dev eth0\nip addr add " + v6 + "/64 dev eth0 nodad\n" +
				"ip route add default via 10.244.0.1\nip route add default via fd00:244::1")
			continue
		}
		// As Calico does it: no address on the Node's end, a gateway that exists only as a neighbour entry.
		n.node.run("ip route add " + v4 + "/32 dev " + port + "\nip route add " + v6 + "/128 dev " + port)
		pod.run("ip addr add " + v4 + "/32 dev eth0\nip addr add " + v6 + "/128 dev eth0 nodad\n" +
			"ip route add 169.254.1.1 dev eth0 scope link\nip route add default via 169.254.1.1\n" +
			"ip neigh add 169.254.1.1 lladdr " + mac + " dev eth0 nud permanent\n" +
			"ip route add default via fe80::1 dev eth0\nip neigh add fe80::1 lladdr " + mac + " dev eth0 nud permanent")
	}
	for _, f := range bothFamilies { // the far end of each link must answer before packets are counted on
		for i := range n.pods {
			awaitReachable(t, n.node, n.pods[i], podAddr[i][f])
		}
		awaitReachable(t, n.client, n.node, nodeAddr[f])
	}
	return n
}

// plug joins two namespaces by a veth pair and returns the hardware address of a's end.
func plug(a *namespace, aName string, b *namespace, bName string) string {
	a.t.Helper()
	peer := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(b.handle))
	a.run("ip link add " + aName + " type veth peer name " + bName + " netns " + peer)
	a.run("ip link set " + aName + " up")
	b.run("ip link set " + bName + " up")
	mac, err := in(a, func() ([]byte, error) { return os.ReadFile("/sys/class/net/" + aName + "/address") })
	if err != nil {
		// sysfs shows the namespace it was mounted in; ask the tool instead.
		words := strings.Fields(a.run("ip -o link show dev " + aName))
		for i, w := range words {
			if w == "link/ether" {
				return words[i+1]
			}
		}
		a.t.Fatalf("no hardware address of %s in %q", aName, words)
	}
	return strings.TrimSpace(string(mac))
}

// awaitReachable waits until a TCP connect is answered at all: neighbour discovery and links take a moment.
func awaitReachable(t testing.TB, from, to *namespace, addr netip.Addr) {
	t.Helper()
	l, err := in(to, func() (net.Listener, error) { return net.Listen("tcp", netip.AddrPortFrom(addr, 1).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(t, fmt.Sprintf("%s reaches %s at %s", from.name, to.name, addr), func() error {
		c, err := in(from, func() (net.Conn, error) { return net.DialTimeout("tcp", l.Addr().String(), time.Second) })
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still not so: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// serve answers every line and every datagram with "<name> <address the peer was seen at>".
func serve(t testing.TB, ns *namespace, port uint16) {
	t.Helper()
	address := fmt.Sprintf("[::]:%d", port)
	l, err := in(ns, func() (net.Listener, error) { return net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	u, err := in(ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = fmt.Fprintf(c, "%s %s\n", ns.name, c.RemoteAddr())
				}
			}()
		}
	}()
	go func() {
		buf := make([]byte, 1500)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte(ns.name+" "+from.String()+"\n"), from)
		}
	}()
}

// answer is what a server said: who it is and whom it saw.
type answer struct {
	server string
	peer   netip.Addr
}

// ask sends one line over c and returns the answer.
func ask(c net.Conn) (answer, error) {
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return answer{}, err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return answer{}, err
	}
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err != nil {
		return answer{}, err
	}
	server, peer, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	ap, err := netip.ParseAddrPort(peer)
	return answer{server, ap.Addr().Unmap()}, err
}

// answerTime bounds what is answered at once on an idle machine; silence bounds what is not answered at all.
const answerTime, silence = 6 * time.Second, 500 * time.Millisecond

// connects reports whether a TCP connection comes about, without much patience.
func connects(from *namespace, source netip.Addr, to netip.AddrPort) bool {
	c, err := in(from, func() (net.Conn, error) {
		dialer := net.Dialer{Timeout: silence, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
		return dialer.Dial("tcp", to.String())
	})
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func dial(from *namespace, p npl.Protocol, to netip.AddrPort) (net.Conn, error) {
	return in(from, func() (net.Conn, error) { return net.DialTimeout(string(p), to.String(), answerTime) })
}

// request is dial and ask.
func request(from *namespace, p npl.Protocol, to netip.AddrPort) (answer, error) {
	c, err := dial(from, p, to)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	return ask(c)
}

// open opens a dataplane on the Node until the test ends.
func open(t testing.TB, node *namespace, mode string) *plane {
	t.Helper()
	log := zap.NewNop()
	if t, ok := t.(*testing.T); ok {
		log = zaptest.NewLogger(t)
	}
	n, err := in(node, func() (*NFT, error) { return Open(Config{ClusterUID: "test", Masquerade: mode, Log: log}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return &plane{n, node, t}
}

// plane calls a dataplane inside its namespace, and fails the test on errors.
type plane struct {
	n    *NFT
	node *namespace
	t    testing.TB
}

func (p *plane) load() Snapshot {
	p.t.Helper()
	s, err := in(p.node, p.n.Load)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *plane) apply(c Change) {
	p.t.Helper()
	if _, err := in(p.node, func() (any, error) { return nil, p.n.Apply(c) }); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plane) repair(want map[Key]netip.AddrPort) int {
	p.t.Helper()
	count, err := in(p.node, func() (int, error) { return p.n.Repair(want) })
	if err != nil {
		p.t.Fatal(err)
	}
	return count
}

func (p *plane) reserve(k Key) error {
	_, err := in(p.node, func() (any, error) { return nil, p.n.Reserve(k) })
	return err
}

func (p *plane) generation() uint32 {
	p.t.Helper()
	g, err := p.n.kernel.generation()
	if err != nil {
		p.t.Fatal(err)
	}
	return g
}
