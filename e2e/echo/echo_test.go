package echo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

var testIdentity = Identity{Pod: "web-1", UID: "u1", Node: "node-1"}

// start serves until the returned stop, which returns what Serve returned.
func start(t *testing.T, cfg Config, after func(time.Duration) <-chan time.Time) (*Server, context.CancelFunc, func() error) {
	t.Helper()
	cfg.Identity = testIdentity
	s, err := Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.after = after
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	wait := func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(30 * time.Second):
			t.Fatal("Serve did not return")
			return nil
		}
	}
	return s, cancel, wait
}

func decode(t *testing.T, line []byte) Reply {
	t.Helper()
	if n := strings.Count(string(line), "\n"); n != 1 || line[len(line)-1] != '\n' {
		t.Fatalf("reply %q: want one line", line)
	}
	var r Reply
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatalf("reply %q: %v", line, err)
	}
	return r
}

// TestClientOfAProxy: who a load balancer says its client is, is the peer.
func TestClientOfAProxy(t *testing.T) {
	s, _, stop := start(t, Config{HTTP: "127.0.0.1:0"}, time.After)
	defer stop() //nolint:errcheck // another test's
	conn, err := net.Dial("tcp", s.Addr("http").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := netip.MustParseAddrPort("192.0.2.7:4711")
	header := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(client), conn.RemoteAddr())
	if _, err := header.WriteTo(conn); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: echo\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if r := decode(t, body); r.Peer != client {
		t.Errorf("the peer is %v, want %v", r.Peer, client)
	}
}

func TestEachProtocolTellsWhoAnsweredAndWhoAsked(t *testing.T) {
	s, _, stop := start(t, Config{HTTP: ":0", TCP: ":0", UDP: ":0"}, time.After)
	ask := map[string]func(t *testing.T, conn net.Conn) []byte{
		"http": func(t *testing.T, conn net.Conn) []byte {
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: echo\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.Close {
				t.Error("keep-alive refused while not draining")
			}
			body, _ := io.ReadAll(res.Body)
			return body
		},
		"tcp": func(t *testing.T, conn net.Conn) []byte {
			var line []byte
			for range 2 { // the connection stays
				io.WriteString(conn, "hello\n")
				var err error
				if line, err = bufio.NewReader(conn).ReadBytes('\n'); err != nil {
					t.Fatal(err)
				}
			}
			return line
		},
		"udp": func(t *testing.T, conn net.Conn) []byte {
			io.WriteString(conn, "hello")
			buf := make([]byte, 1500)
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			return buf[:n]
		},
	}
	for protocol, ask := range ask {
		for _, host := range []string{"127.0.0.2", "::1"} { // 127.0.0.2: not what routing would choose as a source
			t.Run(protocol+" "+host, func(t *testing.T) {
				addr := netip.AddrPortFrom(netip.MustParseAddr(host), port(t, s.Addr(protocol)))
				network := "tcp"
				if protocol == "udp" {
					network = "udp"
				}
				conn, err := net.Dial(network, addr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				got := decode(t, ask(t, conn))
				peer := netip.MustParseAddrPort(conn.LocalAddr().String())
				if want := testIdentity.reply(protocol, peer, addr); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func port(t *testing.T, a net.Addr) uint16 {
	t.Helper()
	return netip.MustParseAddrPort(a.String()).Port()
}

func TestLingerServesAndAsksToClose(t *testing.T) {
	lingering, over := make(chan time.Duration, 1), make(chan time.Time)
	s, cancel, stop := start(t, Config{HTTP: "127.0.0.1:0", TCP: "127.0.0.1:0", Linger: time.Hour},
		func(d time.Duration) <-chan time.Time { lingering <- d; return over })
	tcp, err := net.Dial("tcp", s.Addr("tcp").String())
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	cancel()
	if d := <-lingering; d != time.Hour {
		t.Fatalf("lingers for %s, want 1h", d)
	}
	res, err := http.Get("http://" + s.Addr("http").String() + "/healthz")
	if err != nil {
		t.Fatalf("a new connection during the linger: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("got status %d, close %v; want 200 with Connection: close", res.StatusCode, res.Close)
	}
	close(over)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	tcp.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := tcp.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection after shutdown: %v, want EOF", err)
	}
}

func TestListenRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"port in use":     {Config{HTTP: busy.Addr().String()}, "listen on --http " + busy.Addr().String()},
		"nothing":         {Config{}, "nothing to serve"},
		"negative linger": {Config{HTTP: ":0", Linger: -1}, "linger -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Listen(t.Context(), tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
