package haproxy

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// meter counts the round trips on a command line: writes, after each of which the session waits.
type meter struct {
	runtime.Endpoint
	writes atomic.Int64
}

func (m *meter) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := m.Endpoint.Dial(ctx)
	return meteredConn{conn, m}, err
}

type meteredConn struct {
	net.Conn
	of *meter
}

func (c meteredConn) Write(b []byte) (int, error) {
	c.of.writes.Add(1)
	return c.Conn.Write(b)
}

// TestRoundTrips: what costs time on a command line is waiting for it. One change of a Pod waits twice, for the state of the backend and for the commands, and
// so does a change of ten Services; the greeting, the version and the checks at both ends of the batch wait for nothing of their own.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	p.stop() // the keeper looks at the worker too
	p.kept.Wait()
	m := &meter{Endpoint: p.admin}
	p.admin = m
	d := desk{t, p}
	one, two := newPod(t, "one"), newPod(t, "two")
	var many providers.Changes
	for i := range 10 {
		key := testKey(string(rune('a' + i)))
		b.serve(d, key, uint16(80+i), one)
		many.Pools = append(many.Pools, change(key, members(one), members(one, two), nil).Pools...)
	}
	key, both := testKey("a"), members(one, two)
	drained := []providers.Member{one.Member, two.draining()}
	for _, step := range []struct {
		name string
		most int64
		do   func()
	}{
		{"Observe", 1, func() { d.observe() }},
		{"a member comes", 2, func() { d.must(change(key, members(one), both, nil)) }},
		{"a member drains", 2, func() { d.must(change(key, both, drained, nil)) }},
		{"a member leaves", 2, func() { d.must(change(key, drained, members(one), nil)) }},
		{"nothing changes", 1, func() { d.must(change(key, members(one), members(one), nil)) }},
		{"a member comes to ten Services", 2, func() { d.must(many) }},
		{"Observe again", 1, func() { d.observe() }},
	} {
		before := m.writes.Load()
		step.do()
		if n := m.writes.Load() - before; n < 1 || n > step.most {
			t.Errorf("%s: %d round trips, want %d", step.name, n, step.most)
		}
	}
}

// TestMasterIsAskedOnce: a worker that has been seen alone stays so, and the master is not asked again with every Pod that goes.
func TestMasterIsAskedOnce(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	address := b.serve(d, key, 80, one, two)
	drained := []providers.Member{one.Member, two.draining()}
	d.must(change(key, members(one, two), drained, nil))
	b.eventually("the worker is alone", func() error {
		d.observe()
		if p.alone != p.worker {
			return errors.New("there are older ones")
		}
		return nil
	})
	path := p.master.Path
	p.master.Path = "/nonexistent"
	if o := d.observe(); o.Members[key][two.ID()].Connections != 0 {
		t.Errorf("%+v", o.Members[key])
	}
	p.master.Path = path
	client, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := talk(client, true); err != nil { // so the worker does not end with the reload
		t.Fatal(err)
	}
	b.serve(d, testKey("other"), 81, one)
	d.observe()
	if p.alone == p.worker {
		t.Error("after a reload the new worker counts as alone, and the old one has a connection")
	}
}
