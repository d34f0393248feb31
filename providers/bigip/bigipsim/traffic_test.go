package bigipsim_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

// carry runs the traffic of a device until the test ends.
func carry(t *testing.T, devices ...*bigipsim.Sim) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, s := range devices {
		running.Go(func() {
			s.CarryTraffic(ctx, bigipsim.TrafficOptions{Interval: 5 * time.Millisecond, Retry: 5 * time.Millisecond})
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait() // every goroutine and connection ends
	})
}

// backend is a server that tells its name in a line and then echoes.
func backend(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, name)
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ask returns the name of who answers at an address; "" if nobody does.
func ask(address string) (string, net.Conn) {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", nil
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		c.Close()
		return "", nil
	}
	return strings.TrimSpace(line), c
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func answers(address string) string {
	seen := map[string]bool{}
	for range 8 {
		name, c := ask(address)
		if c != nil {
			c.Close()
		}
		seen[name] = true
	}
	return fmt.Sprint(seen)
}

func TestTrafficGoesToMembersThatAreEnabledAndUp(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	carry(t, l.Sim)
	one, two, gone := backend(t, "one"), backend(t, "two"), freePort(t)
	vip := freePort(t)
	s.create(pools, object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "members": []object{member(one), member(two), member(gone)}})
	s.create(virtuals, virtual("front", vip, "pool", "/P/web"))
	eventually(t, "traffic to both that are there", func() bool { return answers(vip) == "map[one:true two:true]" })
	reads := func(address, field string) any { return s.get(web + "/members/~P~" + address).want(200).json()[field] }
	eventually(t, "the third is down", func() bool { return reads(gone, "state") == "down" })
	if reads(one, "state") != "up" {
		t.Errorf("one is %v", reads(one, "state"))
	}
	// A member that is disabled keeps the connection it has, and gets no new one.
	var held net.Conn
	eventually(t, "a connection to one", func() bool {
		name, c := ask(vip)
		if name == "one" {
			held = c
			return true
		}
		if c != nil {
			c.Close()
		}
		return false
	})
	defer held.Close()
	connections := func() any {
		for _, p := range l.Pools() {
			for _, m := range p.Members {
				if m.Name == "/P/"+one {
					return m.Connections
				}
			}
		}
		return nil
	}
	eventually(t, "one connection is counted", func() bool { return connections() == 1 })
	s.patch(web+"/members/~P~"+one, object{"session": "user-disabled"}).want(200)
	eventually(t, "new ones go to two", func() bool { return answers(vip) == "map[two:true]" })
	if connections() != 1 {
		t.Errorf("%v connections of a disabled member", connections())
	}
	if _, err := fmt.Fprintln(held, "still there"); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(held).ReadString('\n'); err != nil || line != "still there\n" {
		t.Errorf("%q, %v", line, err)
	}
	// One that is taken out loses it.
	s.remove(web + "/members/~P~" + one).want(200)
	if _, err := held.Read(make([]byte, 1)); err == nil {
		t.Error("a connection to a member that is gone")
	}
	s.patch(virtuals+"/~P~front", object{"disabled": true}).want(200)
	eventually(t, "nobody listens", func() bool { _, c := ask(vip); return c == nil })
}

func TestDeviceOnStandbyCarriesNothing(t *testing.T) {
	p := startPair(t, bigipsim.Config{AutoSync: true})
	vip := freePort(t)
	p.a.create(pools, pool(member(backend(t, "one"))))
	p.a.create(virtuals, virtual("front", vip, "pool", "/P/web"))
	carry(t, p.A, p.B)
	at := func(s *bigipsim.Sim) int {
		name, c := ask(vip)
		if name != "one" {
			return -1
		}
		defer c.Close()
		for range 1000 {
			if n := s.Pools()[0].Members[0].Connections; n > 0 {
				return n
			}
			time.Sleep(time.Millisecond)
		}
		return 0
	}
	eventually(t, "A carries", func() bool { return at(p.A) == 1 })
	p.Failover()
	eventually(t, "B carries", func() bool { return at(p.B) == 1 })
}
