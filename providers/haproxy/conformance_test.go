package haproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// TestConformance judges the provider with the real haproxy by the rules of all providers.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("reloads", func(t *testing.T) { conformance(t, func(*balancer) {}) })
	t.Run("open ports", func(t *testing.T) { // after it: they share the members' addresses
		conformance(t, func(b *balancer) {
			first, second := b.vips[0].String(), b.vips[1].String()
			b.cfg.OpenPorts = []string{first + ":80-90", first + ":8000-8120", second + ":8000-8120"}
		})
	})
}

// conformance does so with a haproxy that was adjusted.
func conformance(t *testing.T, adjust func(*balancer)) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		b := newBalancer(t)
		adjust(b)
		spy := spyOn(t, b)
		p := b.open()
		b.start()
		return providertest.Harness{
			Provider: p,
			VIPs:     b.vips,
			Reopen: func(t *testing.T) providers.Provider {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				p = b.open()
				return p
			},
			PlantForeign: b.plantForeign,
			PlantPool:    b.plantPool,
			Enabled: func(key providers.Key) (int, bool) {
				servers, err := runtime.ParseServers(b.run("show servers state " + p.backend(key))[0])
				if err != nil {
					return 0, false
				}
				n := 0
				for _, s := range servers {
					if stateOf(s) == providers.Enabled {
						n++
					}
				}
				return n, true
			},
			Journal: func() []providers.MemberChange { return journal(spy.writes()) },
			Break: func(t *testing.T) func() {
				hidden := b.cfg.AdminSocket + ".away"
				if err := os.Rename(b.cfg.AdminSocket, hidden); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := os.Rename(hidden, b.cfg.AdminSocket); err != nil {
						t.Fatal(err)
					}
				}
			},
			Connect: func(t *testing.T, key providers.Key, m providers.Member) func() {
				l, err := net.Listen("tcp", m.Address.String())
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				client, server := b.through(l, netip.AddrPortFrom(b.vips[0], key.Port))
				return func() { _ = client.Close(); _ = server.Close() }
			},
		}
	})
}

// plantForeign adds a server to the administrator's backend, whose name looks like one of ours.
func (b *balancer) plantForeign(t *testing.T) func(t *testing.T) {
	own := b.cfg.Dir + "/10-own.cfg"
	b.write(own, "backend npl_b_shop_other_80\n    mode tcp\n    balance roundrobin\n    server 127.0.0.8:8_uid 127.0.0.8:8 id 8\n")
	if err := (runtime.Master{Path: b.cfg.MasterSocket}).Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func() string {
		return fmt.Sprint(b.run("show servers state npl_b_shop_foreign_80", "show servers state npl_b_shop_other_80"))
	}
	b.eventually("the foreign backend is loaded", func() error {
		if !runtime.ParseBackends(b.run("show backend")[0])["npl_b_shop_other_80"] {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	return func(t *testing.T) {
		for _, backend := range []string{"npl_b_shop_foreign_80", "npl_b_shop_other_80"} {
			servers, err := runtime.ParseServers(b.run("show servers state " + backend)[0])
			if err != nil || len(servers) != 1 || servers[0].Admin != 0 || servers[0].Weight != 1 {
				t.Errorf("%s was touched: %v, %v\n%s", backend, servers, err, look())
			}
		}
		text, err := os.ReadFile(own)
		if err != nil || len(text) == 0 {
			t.Errorf("%s was touched: %v", own, err)
		}
	}
}

// plantPool has the administrator make a backend with a server, and another lbsync add one of its own.
func (b *balancer) plantPool(t *testing.T) (name string, verify func(t *testing.T)) {
	name = "theirs"
	other := testOwner
	other.Instance += "-2"
	stranger, err := markOf(other).name(providers.MemberID{UID: "uid", Address: netip.MustParseAddrPort("127.0.1.1:61000")})
	if err != nil {
		t.Fatal(err)
	}
	b.backend(name, "balance roundrobin\n    server static 127.0.0.8:8 weight 7")
	b.run("add server theirs/"+stranger+" 127.0.1.1:61000 id 9 weight 3", "set server theirs/"+stranger+" state ready")
	return name, func(t *testing.T) {
		servers, err := runtime.ParseServers(b.run("show servers state theirs")[0])
		if err != nil {
			t.Fatal(err)
		}
		for server, weight := range map[string]int{"static": 7, stranger: 3} {
			i := slices.IndexFunc(servers, func(s runtime.Server) bool { return s.Name == server })
			if i < 0 || servers[i].Admin != 0 || servers[i].Weight != weight {
				t.Errorf("%s was touched: %+v", server, servers)
			}
		}
	}
}

// backend has the administrator add a backend to a file of their own and reload.
func (b *balancer) backend(name, lines string) {
	b.t.Helper()
	b.write(b.cfg.Dir+"/10-"+name+".cfg", "backend "+name+"\n    mode tcp\n    timeout connect 1s\n    timeout server 10s\n    "+lines+"\n")
	b.eventually("the master takes a reload", func() error {
		return runtime.Master{Path: b.cfg.MasterSocket}.Reload(b.t.Context())
	})
	looks := 0
	b.eventually("the backend is loaded", func() error {
		// A master that is still busy with the last reload loses the next one.
		if looks++; looks%100 == 0 {
			if err := (runtime.Master{Path: b.cfg.MasterSocket}).Reload(b.t.Context()); err != nil {
				return err
			}
		}
		s, err := runtime.Dial(b.t.Context(), b.cfg.AdminSocket)
		if err != nil {
			return err
		}
		defer s.Close()
		results, err := s.Run(b.t.Context(), []runtime.Command{runtime.Ask("show backend")})
		if err == nil && !runtime.ParseBackends(results[0].Text)[name] {
			err = errors.New("not yet")
		}
		return err
	})
}

// through connects to address until a connection comes out at l, past health checks and while haproxy still believes
// that the member is down.
func (b *balancer) through(l net.Listener, address netip.AddrPort) (client, server net.Conn) {
	b.t.Helper()
	type arrival struct {
		conn net.Conn
		try  byte
	}
	arrived := make(chan arrival, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				var try [1]byte
				if n, err := c.Read(try[:]); err == nil && n == 1 {
					arrived <- arrival{c, try[0]}
					return
				}
				_ = c.Close()
			}()
		}
	}()
	try := byte(0)
	b.eventually("a connection arrives at "+l.Addr().String(), func() error {
		try++
		c, err := net.Dial("tcp", address.String())
		if err != nil {
			return err
		}
		if _, err := c.Write([]byte{try}); err != nil {
			_ = c.Close()
			return err
		}
		patience := time.After(100 * time.Millisecond)
		for {
			select {
			case a := <-arrived:
				if a.try == try {
					client, server = c, a.conn
					return nil
				}
				_ = a.conn.Close() // of a try that was given up
			case <-patience:
				_ = c.Close()
				return errors.New("it did not")
			}
		}
	})
	return client, server
}

// journal reads the steps on members out of the commands that make them.
func journal(commands []string) []providers.MemberChange {
	var steps []providers.MemberChange
	last := "" // server of the step that the next commands may belong to
	for _, c := range commands {
		words := strings.Fields(c)
		if words[1] == "map" || words[1] == "backend" {
			continue
		}
		server := words[2]
		op := providers.MemberOp("")
		switch {
		case words[0] == "add":
			op = providers.AddMember
		case strings.HasSuffix(c, "weight 0"):
			op = providers.RemoveMember
		case server == last || words[0] != "set":
		case strings.HasSuffix(c, "state ready"):
			op = providers.EnableMember
		case strings.HasSuffix(c, "state maint"):
			op = providers.DrainMember
		}
		if op != "" {
			steps, last = append(steps, providers.MemberChange{Op: op}), server
		}
	}
	return steps
}
