package haproxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// TestDrainOutlivesAKilledLbsync: a drain is lbsync's own though lbsync was killed before its file told of it, even before HAProxy answered. The next
// lbsync ends it. What it finds in maintenance beside that, and whatever is found when the file tells all, is an operator's.
func TestDrainOutlivesAKilledLbsync(t *testing.T) {
	t.Parallel()
	for name, passes := range map[string]int{"answered": 2, "in the middle of the batch": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBalancer(t)
			b.cfg.WriteDelay = time.Minute
			d, key := desk{t, b.open()}, testKey("web")
			b.start()
			one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
			all := members(one, two, three)
			address := b.serve(d, key, 80, one, two, three)
			abandon(d.p)

			real := b.cfg.AdminSocket
			cutter := newCutter(t, real, passes)
			b.cfg.AdminSocket = cutter.path
			d.p = b.open()
			d.observe()
			d.p.Apply(t.Context(), change(key, all, []providers.Member{one.draining(), two.draining(), three.Member}, nil))
			abandon(d.p)
			if cutter.cut() != (passes == 1) {
				t.Fatalf("the command line was cut: %v", cutter.cut())
			}
			file, err := d.p.files.Current()
			if err != nil || strings.Contains(string(file), " disabled") {
				t.Fatalf("the file knows already, and the test shows nothing: %v", err)
			}
			b.cfg.AdminSocket, b.cfg.WriteDelay = real, 0
			byHand := func(p *pod, state string) {
				name, err := mark("").name(p.ID())
				if err != nil {
					t.Fatal(err)
				}
				b.run("set server npl_b_shop_web_80/" + name + " state " + state)
			}
			blocked := func(want ...*pod) {
				t.Helper()
				o := d.observe()
				for _, p := range []*pod{one, two, three} {
					if got := o.Members[key][p.ID()].Blocked; got != slices.Contains(want, p) {
						t.Errorf("%s is blocked: %v", p.name, got)
					}
				}
			}
			byHand(three, "maint")
			d.p = b.open()
			blocked(three)
			byHand(three, "ready")
			d.must(change(key, d.pool(key), all, nil))
			b.reached(address, one, two, three)

			gone := func() error {
				text, err := d.p.files.Drains()
				if err == nil && text != nil {
					err = fmt.Errorf("it says\n%s", text)
				}
				return err
			}
			b.eventually("the list of drains is gone", gone)
			abandon(d.p)
			byHand(one, "maint")
			if err := d.p.files.WriteDrains([]byte("worker 1 1\n")); err != nil {
				t.Fatal(err)
			}
			d.p = b.open()
			blocked(one)
			b.eventually("a list that was left is gone", gone)
		})
	}
}

// TestRestartWithADrainThatIsOver: a worker that began with a file in which a server was drained has it in maintenance, also when the file says otherwise by
// the time anybody looks. That is no operator's doing.
func TestRestartWithADrainThatIsOver(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	b.cfg.WriteDelay = time.Minute // it is written when the test says so
	d, key := desk{t, b.open()}, testKey("web")
	b.start()
	one, two := newPod(t, "one"), newPod(t, "two")
	all := members(one, two)
	address := b.serve(d, key, 80, one, two)
	write := func() {
		t.Helper()
		if err := d.p.flush(); err != nil {
			t.Fatal(err)
		}
	}
	d.must(change(key, all, []providers.Member{one.draining(), two.Member}, nil))
	write()
	d.must(change(key, []providers.Member{one.draining(), two.Member}, all, nil))
	b.kill()
	b.start()
	write()
	if o := d.observe(); o.Members[key][one.ID()].Blocked {
		t.Error("lbsync's own drain is taken for an operator's")
	}
	d.must(change(key, d.pool(key), all, nil))
	b.reached(address, one, two)

	// What an operator does afterwards is his.
	write()
	name, err := mark("").name(one.ID())
	if err != nil {
		t.Fatal(err)
	}
	d.observe()
	b.run("set server npl_b_shop_web_80/" + name + " state maint")
	if o := d.observe(); !o.Members[key][one.ID()].Blocked {
		t.Error("an operator's drain is taken for lbsync's")
	}
}

// TestDrainsOfAnotherWorker: a list tells of the worker it was made for and of no other, whatever is in it.
func TestDrainsOfAnotherWorker(t *testing.T) {
	drains := map[ref]bool{{"npl_b_shop_web_80", "127.0.0.1:80_uid"}: true, {"npl_s_0001", "[::1]:80_uid"}: true}
	text := drainsText(runtime.Worker{PID: 7, Started: 100}, drains)
	if got := parseDrains(runtime.Worker{PID: 7, Started: 100}, text); !maps.Equal(got, drains) {
		t.Errorf("%q is read as %v", text, got)
	}
	for _, other := range []runtime.Worker{{PID: 7, Started: 101}, {PID: 8, Started: 100}, {}} {
		if got := parseDrains(other, text); got == nil || len(got) != 0 {
			t.Errorf("%+v is told %v", other, got)
		}
	}
}

func FuzzParseDrains(f *testing.F) {
	worker := runtime.Worker{PID: 7, Started: 100}
	f.Add([]byte("worker 7 100\nnpl_b_shop_web_80/127.0.0.1:80_uid\n"))
	f.Add([]byte("worker 7 100\n/\nnothing\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := parseDrains(worker, text)
		if again := parseDrains(worker, drainsText(worker, got)); !maps.Equal(got, again) {
			t.Errorf("%q is read as %v, and written and read again as %v", text, got, again)
		}
	})
}
