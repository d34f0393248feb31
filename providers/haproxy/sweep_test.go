package haproxy

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// disguise puts a relay before the balancer's haproxy that makes it look like a later version to the Providers opened from now on: it answers what
// 2.6 does not know, and writes down what it was told. The rest haproxy does.
type disguise struct {
	version string
	answer  func(line string) (string, bool) // false: haproxy answers

	mu    sync.Mutex
	lines []string
}

func (b *balancer) disguise(t *testing.T, d *disguise) {
	t.Helper()
	real := b.cfg.AdminSocket
	b.cfg.AdminSocket = filepath.Join(filepath.Dir(real), "later.sock")
	l, err := net.Listen("unix", b.cfg.AdminSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go d.relay(client, real)
		}
	}()
}

func (d *disguise) relay(client net.Conn, to string) {
	defer client.Close()
	haproxy, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer haproxy.Close()
	in, lines := bufio.NewReader(haproxy), bufio.NewScanner(client)
	for lines.Scan() {
		line := lines.Text()
		d.mu.Lock()
		d.lines = append(d.lines, line)
		d.mu.Unlock()
		text, known := d.answer(line)
		if known {
			text += "\n\n> "
		} else {
			if _, err := fmt.Fprintln(haproxy, line); err != nil {
				return
			}
			for !strings.HasSuffix(text, "\n> ") {
				c, err := in.ReadByte()
				if err != nil {
					return
				}
				text += string(c)
			}
		}
		if line == "show info" {
			text = strings.Replace(text, "Version: 2.6", "Version: "+d.version, 1)
		}
		if _, err := client.Write([]byte(text)); err != nil {
			return
		}
	}
}

// told returns the lines with this prefix.
func (d *disguise) told(prefix string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.lines), func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

// TestServersAreWaitedForFrom30: HAProxy says when a server can be deleted; one look and no second are enough, and a refusal is tried again.
func TestServersAreWaitedForFrom30(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	var busy atomic.Bool
	busy.Store(true)
	d := &disguise{version: "3.0", answer: func(line string) (string, bool) {
		switch {
		case line == "help":
			return "The following commands are valid at this level:\n  wait {-h|<delay_ms>} cond [args...]     : wait", true
		case strings.HasPrefix(line, "wait "):
			return "[6]: Done.", true
		case strings.HasPrefix(line, "del ") && busy.CompareAndSwap(true, false):
			return "[3]: Server still has connections attached to it, cannot remove it.", true
		}
		return "", false
	}}
	b.disguise(t, d)
	p := b.open()
	b.start()
	desk, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	b.serve(desk, key, 80, one, two)
	desk.must(change(key, members(one, two), members(one), nil))
	b.eventually("the server is deleted", func() error {
		if servers := b.servers(key); len(servers) != 1 {
			return fmt.Errorf("%+v", servers)
		}
		return nil
	})
	name, err := mark("").name(two.ID())
	if err != nil {
		t.Fatal(err)
	}
	server := "npl_b_shop_web_80/" + name
	if waits := d.told("wait "); len(waits) == 0 || waits[0] != "wait 20ms srv-removable "+server {
		t.Errorf("waited by %q", waits)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	first := slices.IndexFunc(d.lines, func(line string) bool { return strings.HasPrefix(line, "del server ") })
	looks := 0
	for _, line := range d.lines[:first] {
		if line == "show stat npl_b_shop_web_80 4 -1" {
			looks++
		}
	}
	if looks != 1 {
		t.Errorf("%d looks before the deletion was tried, want one", looks)
	}
}
