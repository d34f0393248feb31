package haproxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// TestStartDown: with the setting a member that comes gets nothing until its check has succeeded, and one that never answers gets nothing at all.
func TestStartDown(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	b.cfg.StartDown, b.cfg.CheckInterval = true, 100*time.Millisecond
	p := b.open()
	b.start()
	d, key := desk{t, p}, testKey("web")
	one, two, dead := newPod(t, "one"), newPod(t, "two"), newPod(t, "dead")
	_ = dead.listener.Close()
	address := b.serve(d, key, 80, one)
	d.must(change(key, members(one), members(one, two, dead), nil))
	for _, s := range b.servers(key) {
		if strings.HasSuffix(s.Name, "uid-dead") && s.Operation != 0 {
			t.Errorf("it came up without a check: %+v", s)
		}
	}
	b.reached(address, one, two)
	b.eventually("the check's result is told", func() error {
		o := d.observe()
		if up, down := o.Members[key][two.ID()].Health, o.Members[key][dead.ID()].Health; up != providers.HealthUp || down != providers.HealthDown {
			return fmt.Errorf("two is %s, dead %s", up, down)
		}
		return nil
	})
}

// TestStartDownFrom31: HAProxy is told so as the server is added.
func TestStartDownFrom31(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	b.cfg.StartDown = true
	d := &disguise{version: "3.1", answer: func(line string) (string, bool) {
		if strings.HasPrefix(line, "add server ") && strings.Contains(line, "/") {
			return "[6]: New server registered.", true
		}
		return "", strings.HasPrefix(line, "set server ") || strings.HasPrefix(line, "enable health ")
	}}
	b.disguise(t, d)
	p := b.open()
	b.start()
	desk, key, one := desk{t, p}, testKey("web"), newPod(t, "one")
	b.serve(desk, key, 80)
	desk.must(change(key, nil, members(one), nil))
	added := d.told("add server npl_b_")
	if len(added) != 1 || !strings.HasSuffix(added[0], " init-state down") {
		t.Errorf("added by %q", added)
	}
	for _, line := range d.told("set server ") {
		if strings.HasSuffix(line, "health down") {
			t.Errorf("told twice: %q", line)
		}
	}
}
