package paths

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/e2e/echo"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// server is an echo server, by its address.
func server(t *testing.T, pod string) string {
	t.Helper()
	s, err := echo.Listen(t.Context(), echo.Config{TCP: "127.0.0.1:0", Identity: echo.Identity{Pod: pod, Node: "node-1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s.Addr("tcp").String()
}

func TestDrive(t *testing.T) {
	target := server(t, "a")
	for _, kind := range []Kind{Connect, Keep, Bulk} {
		out := Drive(t.Context(), Task{Target: target, Kind: kind, Clients: 3, Requests: 20, Sources: []netip.Addr{netip.MustParseAddr("127.0.0.7")}})
		if out.Requests != 20 || out.Failed != 0 || out.ByPod["a"] != 20 || out.ByNode["node-1"] != 20 || out.Kept != 20 || out.Peers["127.0.0.7"] != 20 {
			t.Errorf("%s: %+v", kind, out)
		}
		if out.P50 <= 0 || out.P999 < out.P99 || out.P99 < out.P50 || out.PerSecond() <= 0 {
			t.Errorf("%s: %+v", kind, out)
		}
	}
	out := Drive(t.Context(), Task{Target: target, Kind: Connect, Clients: 2, For: 50 * time.Millisecond})
	if out.Requests == 0 || out.Failed != 0 {
		t.Errorf("for a while: %+v", out)
	}
}

// TestDriveHolds: who has his answer stays connected until the last one has his.
func TestDriveHolds(t *testing.T) {
	const clients = 5
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	early := make(chan error, 1)
	go func() {
		var open []*bufio.Reader
		for range clients {
			conn, err := listener.Accept()
			if err != nil {
				early <- err
				return
			}
			defer conn.Close()
			reader := bufio.NewReader(conn)
			if open = append(open, reader); len(open) == clients {
				for _, r := range open[:clients-1] { // they were answered, and this one was not
					if _, err := r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
						early <- err
						return
					}
				}
			}
			if _, err := reader.ReadString('\n'); err != nil {
				early <- err
				return
			}
			fmt.Fprintln(conn, `{"pod": "a", "node": "node-1", "peer": "127.0.0.1:1"}`)
			conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:errcheck // a later read tells
		}
		early <- nil
	}()
	out := Drive(t.Context(), Task{Target: listener.Addr().String(), Kind: Hold, Clients: clients})
	if err := <-early; err != nil || out.Requests != clients || out.Failed != 0 || out.ByPod["a"] != clients {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestDriveTellsFailures(t *testing.T) {
	out := Drive(t.Context(), Task{Target: "127.0.0.1:1", Kind: Connect, Clients: 2, Requests: 4})
	if out.Requests != 4 || out.Failed != 4 || !strings.Contains(out.Error, "127.0.0.1:1") || out.PerSecond() != 0 {
		t.Errorf("%+v", out)
	}
}

func TestShares(t *testing.T) {
	even := map[string]int{"a": 10, "b": 10}
	if o := (Outcome{ByPod: even}); o.Ratio(2) != 1 || o.Ratio(3) != 0 {
		t.Errorf("even: %v, and 0 where one got nothing: %v", o.Ratio(2), o.Ratio(3))
	}
	if o := (Outcome{ByPod: map[string]int{"a": 30, "b": 10}}); o.Ratio(2) != 3 {
		t.Errorf("uneven: %v", o.Ratio(2))
	}
	if s := spread(even, 2); s != 0 {
		t.Errorf("even: %v", s)
	}
	if s := spread(map[string]int{"a": 20}, 2); s != 1 {
		t.Errorf("one of two has all: %v, want 1", s)
	}
}

func TestInterval(t *testing.T) {
	i := interval([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9})
	if i.Center != 5 || i.Lo < 1 || i.Lo > 3 || i.Hi < 7 || i.Hi > 9 {
		t.Errorf("%+v", i)
	}
	if i := interval([]float64{1, 2}); !math.IsInf(i.Lo, -1) {
		t.Errorf("two values bound nothing: %+v", i)
	}
	if r := ratios([]float64{2, 9}, []float64{4, 3}); r[0] != 0.5 || r[1] != 3 {
		t.Errorf("%v", r)
	}
}

func TestPacketsOf(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth0:  123456     789    0    0    0     0          0         0   654321     321    0    0    0     0       0          0
`
	if n, err := packetsOf(text, "eth0"); n != 1110 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := packetsOf(text, "eth1"); err == nil {
		t.Error("an interface that there is not has packets")
	}
}

// TestWrite: the page has every table, the figures are complete, and the plots are SVG.
func TestWrite(t *testing.T) {
	r := &Report{Options: Options{Rounds: 6, Slice: time.Second}, Rollouts: 2, Machine: thisMachine(time.Now())}
	for i, p := range Paths() {
		r.Shares = append(r.Shares, Shares{Path: p, Ratio: float64(i + 1), Total: 100, Packets: map[string]float64{"node-1": 8, "node-2": 1}, Ports: map[string]int{"node-1": i}, Peer: "a Node's"})
		values := []float64{1, 2, 3, 4, 5, 6}
		r.Rates = append(r.Rates, &Rates{Mode: lab.NFTables, Others: 1000, Path: p, Connections: values, P50: values, P99: values, P999: values, Requests: values, Bulk: values})
		r.Rolled = append(r.Rolled, Rolled{Path: p, Requests: 100, Failed: i})
	}
	page := filepath.Join(t.TempDir(), "nodeport.md")
	if err := r.Write(page); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(strings.TrimSuffix(page, ".md"), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| busiest Pod over idlest Pod | 1.00 | 2.00 | 3.00 | 4.00 |", "mode nftables, 1000 other Services", "| failed | 0 | 1 | 2 | 3 |",
		"| nodeportlocal | 4 | 1.00 (1.00 to 1.00) |", "(nodeport/rates.csv)", "| 0, 0 | 1, 0 | 2, 0 | 3, 0 |", "9.0 (8.0, 1.0)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if lines := strings.Count(read("rates.csv"), "\n"); lines != 1+4*6 {
		t.Errorf("%d lines of rates", lines)
	}
	if lines := strings.Count(read("shares.csv"), "\n"); lines != 1+4*2 {
		t.Errorf("%d lines of shares", lines)
	}
	for _, plot := range []string{"shares.svg", "connections.svg", "latency.svg"} {
		d := xml.NewDecoder(strings.NewReader(read(plot)))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", plot, err)
			}
		}
	}
}
