package dataplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/avi/avisim/dataplane"
)

type object = map[string]any

// vip is where the tests' virtual services are; all of 127.0.0.0/8 is on loopback.
const vip = "127.0.0.1"

// lab is a Controller with a data plane.
type lab struct {
	*avisim.Server
	t      *testing.T
	errors chan error
}

func start(t *testing.T) *lab {
	t.Helper()
	s, err := avisim.New(avisim.Config{Username: "admin", Password: "secret", Version: "31.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{s, t, make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		dataplane.Run(ctx, s, dataplane.Options{Interval: 5 * time.Millisecond, Retry: 5 * time.Millisecond, Report: l.report})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait() // every goroutine and connection ends
	})
	return l
}

func (l *lab) report(err error) {
	select {
	case l.errors <- err:
	default: // the test looks at the first ones only
	}
}

func (l *lab) create(kind string, body object) {
	l.t.Helper()
	if _, err := l.Create(kind, "", body); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) edit(kind, name string, change func(object)) {
	l.t.Helper()
	if err := l.Edit(kind, name, change); err != nil {
		l.t.Fatal(err)
	}
}

// publish makes pool "web" with these servers and a virtual service on a free port; the address is returned.
func (l *lab) publish(profile string, pool object, servers ...string) string {
	l.t.Helper()
	pool["name"], pool["servers"] = "web", listed(l.t, servers...)
	l.create("pool", pool)
	l.create("vsvip", object{"name": "web", "vip": []object{{"vip_id": "0", "ip_address": object{"addr": vip, "type": "V4"}}}})
	port := freePort(l.t)
	l.create("virtualservice", object{
		"name": "web", "vsvip_ref": "/api/vsvip?name=web", "pool_ref": "/api/pool?name=web", "services": []object{{"port": port}},
		"network_profile_ref": "/api/networkprofile?name=" + profile, "application_profile_ref": "/api/applicationprofile?name=System-L4-Application",
	})
	return fmt.Sprintf("%s:%d", vip, port)
}

func listed(t *testing.T, servers ...string) []object {
	t.Helper()
	out := []object{}
	for _, s := range servers {
		a := netip.MustParseAddrPort(s)
		out = append(out, object{"ip": object{"addr": a.Addr().String(), "type": "V4"}, "port": a.Port()})
	}
	return out
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", vip+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// backend is a server that tells its name in a line, and echoes lines.
type backend struct {
	net.Listener
	address     string
	connections atomic.Int64
}

func serve(t *testing.T, name string) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{Listener: l, address: l.Addr().String()}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := fmt.Fprintln(c, name); err != nil {
					return
				}
				b.connections.Add(1)
				io.Copy(c, c)
			}()
		}
	}()
	return b
}

// ask connects to a VIP and returns the name of the server that answers; "" if none does.
func ask(address string) string {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return ""
	}
	return line[:len(line)-1]
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

func answers(t *testing.T, address, name string) {
	t.Helper()
	eventually(t, name+" answers on "+address, func() bool { return ask(address) == name })
}

func TestRoundRobinByRatio(t *testing.T) {
	l := start(t)
	a, b := serve(t, "a"), serve(t, "b")
	address := l.publish("System-TCP-Proxy", object{"lb_algorithm": "LB_ALGORITHM_ROUND_ROBIN"}, a.address, b.address)
	l.edit("pool", "web", func(p object) { p["servers"].([]any)[0].(object)["ratio"] = 3 })
	answers(t, address, "b")
	got := map[string]int{}
	for range 40 {
		got[ask(address)]++
	}
	if got["a"] != 30 || got["b"] != 10 {
		t.Errorf("%v, want three of four at a", got)
	}
}

func TestLeastConnections(t *testing.T) {
	l := start(t)
	a, b := serve(t, "a"), serve(t, "b")
	address := l.publish("System-TCP-Proxy", object{}, a.address, b.address)
	answers(t, address, "a")
	held := map[string]int{}
	for range 10 {
		c, line := hold(t, address)
		defer c.Close()
		held[line]++
	}
	if held["a\n"] != 5 || held["b\n"] != 5 {
		t.Errorf("%v, want five at each", held)
	}
}

// hold opens a connection and returns it with the server's line.
func hold(t *testing.T, address string) (net.Conn, string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return c, line
}

func TestDisabledServerKeepsItsConnectionsAndGetsNoNew(t *testing.T) {
	l := start(t)
	a, b := serve(t, "a"), serve(t, "b")
	address := l.publish("System-TCP-Proxy", object{"lb_algorithm": "LB_ALGORITHM_ROUND_ROBIN", "graceful_disable_timeout_sec": -1}, a.address, b.address)
	answers(t, address, "b")
	onA, line := hold(t, address) // a has the next turn
	if line != "a\n" {
		t.Fatalf("%q answers, want a", line)
	}
	l.edit("pool", "web", func(p object) { p["servers"].([]any)[0].(object)["enabled"] = false })
	eventually(t, "four answers in a row from b", func() bool {
		for range 4 {
			if ask(address) != "b" {
				return false
			}
		}
		return true
	})
	if _, err := fmt.Fprintln(onA, "still there"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(onA).ReadString('\n'); line != "still there\n" {
		t.Errorf("the old connection: %q, %v", line, err)
	}
	l.edit("pool", "web", func(p object) { p["servers"] = p["servers"].([]any)[1:] })
	ends(t, onA)
}

// ends fails if a connection is not closed.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on: %v", err)
	}
}

func TestServerDisabledAtOnceLosesItsConnections(t *testing.T) {
	l := start(t)
	a := serve(t, "a")
	address := l.publish("System-TCP-Proxy", object{"graceful_disable_timeout_sec": 0}, a.address)
	answers(t, address, "a")
	c, _ := hold(t, address)
	l.edit("pool", "web", func(p object) { p["servers"].([]any)[0].(object)["enabled"] = false })
	ends(t, c)
	l.edit("pool", "web", func(p object) { p["servers"].([]any)[0].(object)["enabled"] = true })
	answers(t, address, "a")
}

func TestDisabledServerLosesItsConnectionsInTheEnd(t *testing.T) {
	l := start(t)
	a := serve(t, "a")
	address := l.publish("System-TCP-Proxy", object{"graceful_disable_timeout_sec": 1}, a.address)
	answers(t, address, "a")
	c, _ := hold(t, address)
	l.edit("pool", "web", func(p object) { p["servers"].([]any)[0].(object)["enabled"] = false })
	ends(t, c)
}

func TestWrongServerIsAFailedRequest(t *testing.T) {
	l := start(t)
	a := serve(t, "a")
	wrong := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	address := l.publish("System-TCP-Proxy", object{"lb_algorithm": "LB_ALGORITHM_ROUND_ROBIN"}, a.address, wrong)
	answers(t, address, "a")
	got := map[string]int{}
	for range 10 {
		got[ask(address)]++
	}
	if got["a"] != 5 || got[""] != 5 {
		t.Errorf("%v, want half of the requests to fail: nothing monitors this pool", got)
	}
}

func TestMonitorTakesOutAndBringsBack(t *testing.T) {
	l := start(t)
	a, b := serve(t, "a"), serve(t, "b")
	address := l.publish("System-TCP-Proxy",
		object{"lb_algorithm": "LB_ALGORITHM_ROUND_ROBIN", "health_monitor_refs": []string{"/api/healthmonitor?name=System-TCP"}}, a.address, b.address)
	answers(t, address, "b")
	b.Close()
	eventually(t, "b is down", func() bool { return l.state(b.address) == avisim.OperDown })
	for range 4 {
		if got := ask(address); got != "a" {
			t.Fatalf("%q answers, want a: b is down", got)
		}
	}
	again, err := net.Listen("tcp", b.address)
	if err != nil {
		t.Fatalf("the port was taken meanwhile: %v", err)
	}
	defer again.Close()
	eventually(t, "b is up", func() bool { return l.state(b.address) == avisim.OperUp })
}

// state is the oper_status of a server as the dashboard shows it.
func (l *lab) state(address string) string {
	for _, p := range l.Pools() {
		for _, s := range p.Servers {
			if s.Address == address {
				return s.State
			}
		}
	}
	return ""
}

func TestL4PolicyLeadsPortsToTheirPools(t *testing.T) {
	l := start(t)
	a, b := serve(t, "a"), serve(t, "b")
	l.create("pool", object{"name": "pa", "servers": listed(t, a.address)})
	l.create("pool", object{"name": "pb", "servers": listed(t, b.address)})
	first, second := freePort(t), freePort(t)
	rule := func(index, port int, pool string) object {
		return object{
			"name": fmt.Sprint(index), "index": index,
			"match":  object{"port": object{"match_criteria": "IS_IN", "ports": []int{port}}, "protocol": object{"match_criteria": "IS_IN", "protocol": "PROTOCOL_TCP"}},
			"action": object{"select_pool": object{"action_type": "L4_RULE_ACTION_SELECT_POOL", "pool_ref": "/api/pool?name=" + pool}},
		}
	}
	l.create("l4policyset", object{"name": "web", "l4_connection_policy": object{"rules": []object{rule(3, first, "pb"), rule(2, second, "pb"), rule(1, first, "pa")}}})
	l.create("vsvip", object{"name": "web", "vip": []object{{"vip_id": "0", "ip_address": object{"addr": vip, "type": "V4"}}}})
	l.create("virtualservice", object{
		"name": "web", "vsvip_ref": "/api/vsvip?name=web", "services": []object{{"port": first}, {"port": second}},
		"l4_policies": []object{{"index": 11, "l4_policy_set_ref": "/api/l4policyset?name=web"}},
	})
	answers(t, fmt.Sprintf("%s:%d", vip, first), "a")
	answers(t, fmt.Sprintf("%s:%d", vip, second), "b")
}

func TestVirtualServiceThatGoesStopsListening(t *testing.T) {
	l := start(t)
	a := serve(t, "a")
	address := l.publish("System-TCP-Proxy", object{}, a.address)
	answers(t, address, "a")
	l.edit("virtualservice", "web", func(vs object) { vs["enabled"] = false })
	eventually(t, "nobody listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

func TestPortInUseIsReportedAndTriedAgain(t *testing.T) {
	l := start(t)
	a := serve(t, "a")
	taken, err := net.Listen("tcp", vip+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	l.create("pool", object{"name": "web", "servers": listed(t, a.address)})
	l.create("vsvip", object{"name": "web", "vip": []object{{"vip_id": "0", "ip_address": object{"addr": vip, "type": "V4"}}}})
	l.create("virtualservice", object{"name": "web", "vsvip_ref": "/api/vsvip?name=web", "pool_ref": "/api/pool?name=web",
		"services": []object{{"port": taken.Addr().(*net.TCPAddr).Port}}})
	if err := <-l.errors; err == nil {
		t.Fatal("no error")
	}
	taken.Close()
	answers(t, taken.Addr().String(), "a")
	if n := len(l.errors); n > 0 {
		t.Errorf("%d more reports of the same, want one", n)
	}
}

func TestUDP(t *testing.T) {
	l := start(t)
	echo, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, peer, err := echo.ReadFrom(buffer)
			if err != nil {
				return
			}
			echo.WriteTo(append([]byte("echo "), buffer[:n]...), peer)
		}
	}()
	address := l.publish("System-UDP-Fast-Path", object{}, echo.LocalAddr().String())
	buffer := make([]byte, 2048)
	eventually(t, "an answer by UDP", func() bool {
		c, err := net.Dial("udp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		c.Write([]byte("hello"))
		n, err := c.Read(buffer)
		return err == nil && string(buffer[:n]) == "echo hello"
	})
}
