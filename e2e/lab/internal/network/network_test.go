package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
)

// The tests of this package change the network of their process, so all of them run contained.
func TestMain(m *testing.M) {
	contain.Run(nil, os.Stderr, m.Run)
}

func TestOptionsRefused(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{Nodes: 0, Pods: Routed}, "nodes 0: the lab has room for 1 to 9"},
		{Options{Nodes: 10, Pods: Routed}, "nodes 10: the lab has room for 1 to 9"},
		{Options{Nodes: 1, Pods: "vxlan"}, `pod network "vxlan": use "routed", "bridged" or "overlay"`},
		{Options{Nodes: 1, Pods: Routed, BridgeNetfilter: true}, `bridge netfilter needs a pod network with a bridge, "bridged" or "overlay", not "routed"`},
	} {
		if _, err := New(test.options); err == nil || err.Error() != test.want {
			t.Errorf("New(%+v) = %v, want %q", test.options, err, test.want)
		}
	}
}

// Everything that has an address is reached from everywhere, and sees the address of who asks.
func TestEveryoneReachesEveryone(t *testing.T) {
	for _, options := range []Options{
		{Nodes: 2, Pods: Routed},
		{Nodes: 2, Pods: Bridged},
		{Nodes: 2, Pods: Bridged, BridgeNetfilter: true},
	} {
		t.Run(fmt.Sprintf("%s bridge-netfilter=%v", options.Pods, options.BridgeNetfilter), func(t *testing.T) {
			n := start(t, options)
			type place struct {
				path      string
				addresses []netip.Addr
			}
			places := map[string]place{
				"underlay": {n.underlay.Path(), ControlPlane()},
				"lb":       {n.loadBalancer.Path(), LoadBalancerAddresses()},
				"client":   {n.client.Path(), ClientAddresses()},
			}
			for i, node := range n.Nodes() {
				own := NodeAddresses(i + 1)
				if options.Pods != Routed { // what a Node's own Pods see
					for _, cidr := range node.PodCIDRs {
						own = append(own, numbered(cidr, gatewayNumber))
					}
				}
				places[node.Name()] = place{node.Path(), own}
				for _, pod := range []string{"a", "b"} {
					uid := node.Name() + pod
					sandbox, err := node.Attach(uid)
					if err != nil {
						t.Fatal(err)
					}
					places["pod "+uid] = place{sandbox.Path, sandbox.Addresses}
				}
			}
			places["lb"] = place{n.loadBalancer.Path(), append(LoadBalancerAddresses(),
				netip.MustParseAddr("172.31.0.77"), netip.MustParseAddr("fd00:31::77"))} // any VIP
			for to, target := range places {
				for _, address := range target.addresses {
					server := listen(t, target.path, netip.AddrPortFrom(address, 8080))
					for from, source := range places {
						peer, err := ask(t, source.path, server)
						if err != nil {
							t.Fatalf("%s to %s (%s): %v", from, to, server, err)
						} else if from != to && !slices.Contains(source.addresses, peer) {
							t.Errorf("%s to %s (%s): seen as %s, want one of %v", from, to, server, peer, source.addresses)
						}
					}
				}
			}
		})
	}
}

// Pods reach Pods of other Nodes through the tunnel and are seen by their own addresses; outside they bear their Node's, and
// nobody there knows the way to them.
func TestOverlay(t *testing.T) {
	n := start(t, Options{Nodes: 3, Pods: Overlay})
	var pods []Sandbox
	for i, node := range n.Nodes() {
		sandbox, err := node.Attach(fmt.Sprint("u", i))
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, sandbox)
	}
	for family := range ClientAddresses() {
		pod := listen(t, pods[1].Path, netip.AddrPortFrom(pods[1].Addresses[family], 8080))
		outside := listen(t, n.client.Path(), netip.AddrPortFrom(ClientAddresses()[family], 8080))
		for i, from := range pods {
			if peer, err := ask(t, from.Path, pod); err != nil || peer != from.Addresses[family] {
				t.Errorf("Pod %d to Pod 1: seen as %s, %v, want %s", i, peer, err, from.Addresses[family])
			}
			if peer, err := ask(t, from.Path, outside); err != nil || peer != NodeAddresses(i + 1)[family] {
				t.Errorf("Pod %d to the client: seen as %s, %v, want %s", i, peer, err, NodeAddresses(i + 1)[family])
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if conn, err := DialFrom(ctx, n.client.Path(), "tcp", pod); err == nil {
			conn.Close()
			t.Errorf("the client reaches %s", pod)
		}
		cancel()
	}
}

func TestAPIServiceIsTheControlPlane(t *testing.T) {
	n := start(t, Options{Nodes: 1, Pods: Routed})
	server := listen(t, n.underlay.Path(), netip.AddrPortFrom(APIService, 443))
	if _, err := ask(t, n.Nodes()[0].Path(), server); err != nil {
		t.Error(err)
	}
}

func TestAttachDetach(t *testing.T) {
	for _, kind := range []Kind{Routed, Bridged} {
		t.Run(string(kind), func(t *testing.T) {
			node := start(t, Options{Nodes: 1, Pods: kind}).Nodes()[0]
			links := func() string {
				found, err := node.links.LinkList()
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(len(found))
			}
			before := links()
			first, err := node.Attach("u1")
			if err != nil {
				t.Fatal(err)
			}
			again, err := node.Attach("u1")
			if err != nil || again.Path != first.Path || again.Addresses[0] != first.Addresses[0] {
				t.Errorf("a second Attach gives %v, %v, want %v again", again, err, first)
			}
			// A process that holds the namespace must not keep the link.
			holder, err := os.Open(first.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Close()
			for range 2 {
				if err := node.Detach("u1"); err != nil {
					t.Fatal(err)
				}
			}
			if after := links(); after != before {
				t.Errorf("%s links after Detach, %s before Attach", after, before)
			}
			if _, err := os.Stat(first.Path); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", first.Path, err)
			}
		})
	}
}

func TestBridgeNetfilterIsPerNode(t *testing.T) {
	for _, want := range []string{"0", "1"} {
		n := start(t, Options{Nodes: 1, Pods: Bridged, BridgeNetfilter: want == "1"})
		err := n.Nodes()[0].Do(func() error {
			got, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables")
			if err == nil && strings.TrimSpace(string(got)) != want {
				err = fmt.Errorf("bridge-nf-call-iptables is %s, want %s", got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		n.Close()
	}
}

// However busy the namespaces are, no goroutine outside ever runs in one of them.
func TestDoLeavesNoThreadBehind(t *testing.T) {
	n := start(t, Options{Nodes: 3, Pods: Routed})
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			node := n.Nodes()[i%3]
			if err := node.Do(func() error { return nil }); err != nil {
				t.Error(err)
			}
			runtime.LockOSThread() // for as long as its name is in use
			defer runtime.UnlockOSThread()
			here, err := os.Readlink(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
			if err != nil || here != own {
				t.Errorf("outside of Do the thread is in %s, %v, want %s", here, err, own)
			}
		})
	}
	all.Wait()
}

func TestUnknownPlace(t *testing.T) {
	n := start(t, Options{Nodes: 1, Pods: Routed})
	_, err := n.Namespace("node-2")
	if want := `no place "node-2" in this lab: use one of underlay, lb, client, node-1, or pod:<namespace>/<name>`; err == nil || err.Error() != want {
		t.Errorf("Namespace(node-2) = %v, want %q", err, want)
	}
}

func start(t *testing.T, options Options) *Network {
	t.Helper()
	n, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, _ := filepath.Glob(namedDir + "/*"); len(left) == 0 {
			return // closed by the test
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(namedDir + "/*"); len(left) > 0 {
			t.Errorf("namespaces left after Close: %v", left)
		}
	})
	return n
}

// listen serves the address of who connects.
func listen(t *testing.T, path string, address netip.AddrPort) string {
	t.Helper()
	var listener net.Listener
	err := Inside(path, func() error {
		var err error
		listener, err = net.Listen("tcp", address.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, conn.RemoteAddr())
			conn.Close()
		}
	}()
	return address.String()
}

func ask(t *testing.T, path, address string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := DialFrom(ctx, path, "tcp", address)
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	if err != nil {
		return netip.Addr{}, err
	}
	peer, err := netip.ParseAddrPort(string(answer))
	return peer.Addr().Unmap(), err
}
