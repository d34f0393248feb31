package loop

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// agent gives out the node ports of one Node as npl-agent does with portReuse confirmed: the longest free first, and none before it
// has cooled down and every watermark says that no load balancer lists it.
type agent struct {
	*rig
	mark   func() watermark.Watermark
	owner  map[uint16]string
	free   []uint16 // the longest first
	at     map[uint16]withdrawn
	refuse int
}

type withdrawn struct {
	version int
	time    time.Time
}

const coolDown = time.Minute

// give returns a port for a Pod, or 0.
func (a *agent) give(pod string) uint16 {
	for i, port := range a.free {
		w, used := a.at[port]
		confirmed, _ := watermark.Confirmed([]watermark.Watermark{a.mark()},
			watermark.NodePort{Node: "node-1", Protocol: string(npl.TCP), Family: string(npl.IPv4), Port: port}, strconv.Itoa(w.version))
		if used && (a.clock.Since(w.time) < coolDown || !confirmed) {
			continue
		}
		a.free = slices.Delete(a.free, i, i+1)
		a.owner[port] = pod
		return port
	}
	a.refuse++
	return 0
}

func (a *agent) take(port uint16, version int) {
	delete(a.owner, port)
	a.free = append(a.free, port)
	a.at[port] = withdrawn{version, a.clock.Now()}
}

// I3: the load balancer is cut off for ten cool-downs while Pods come and go. No port that it lists is given to another Pod meanwhile, and
// when it is back everybody is served.
func TestCutOffForTenCoolDowns(t *testing.T) {
	r := newRig(t)
	m := &fixedMarks{last: watermark.Watermark{Seen: "1"}}
	r.marks, r.version = m, 100
	r.restart()
	r.loop.source = versionedFeed{r.x, &r.version}
	a := &agent{rig: r, mark: func() watermark.Watermark { return m.last }, owner: map[uint16]string{}, at: map[uint16]withdrawn{}}
	for port := uint16(61000); port < 61012; port++ {
		a.free = append(a.free, port)
	}
	r.service("a")
	r.service("b")
	publish := func() {
		if h, ok := r.loop.Holdings(); ok {
			m.last = watermark.Watermark{Instance: "ns/name", LoadBalancer: "lb", Seen: h.Seen, Held: h.Held}
		}
	}
	type instance struct {
		app  string
		n    int
		port uint16
	}
	var pods []instance
	next := 0
	serve := func(p *instance) {
		if p.port == 0 {
			p.port = a.give(fmt.Sprintf("%s-%d", p.app, p.n))
		}
		r.version++
		r.pod(p.app, p.n, func(pod *model.Pod) {
			if pod.Mappings[0].NodePort = p.port; p.port == 0 {
				pod.Mappings = nil
			}
		})
	}
	churn := func(rounds int) {
		for range rounds {
			if len(pods) == 4 {
				gone := pods[0]
				pods = pods[1:]
				r.version++
				r.x.DeletePod("shop", fmt.Sprintf("%s-%d", gone.app, gone.n), true, r.clock.Now())
				if gone.port != 0 {
					a.take(gone.port, r.version)
				}
			}
			next++
			pods = append(pods, instance{app: []string{"a", "b"}[next%2], n: next})
			for i := range pods {
				serve(&pods[i])
			}
			r.pass(10 * time.Second)
			publish()
			for _, pool := range r.lb.State().Pools {
				for _, member := range pool.Members {
					if who := a.owner[member.Address.Port()]; who != "" && who != member.UID {
						t.Fatalf("%s lists %s for %s, and the port is %s's", pool.Key, member.Address, member.UID, who)
					}
				}
			}
		}
	}
	churn(30)
	if a.refuse > 0 {
		t.Fatalf("%d refused before anything was wrong", a.refuse)
	}
	cut := func(err error) {
		r.lb.FailObserve(err)
		r.lb.FailKey(keyOf("a"), err)
		r.lb.FailKey(keyOf("b"), err)
	}
	cut(unavailable("cut"))
	churn(30)
	r.restart() // it knows no more of the load balancer than what it published
	r.loop.source = versionedFeed{r.x, &r.version}
	churn(30)
	if a.refuse == 0 {
		t.Fatal("ports were given to Pods though nobody could confirm any")
	}
	cut(nil)
	churn(12)
	refused := a.refuse
	churn(30)
	if a.refuse != refused {
		t.Errorf("%d refused though the load balancer is back", a.refuse-refused)
	}
	for _, p := range pods {
		if p.port == 0 {
			t.Errorf("%s-%d still has no node port", p.app, p.n)
		}
	}
}

// Where nothing of ours changes it is looked up all the same how far we have seen: an agent may wait for it, for a Pod that is nobody's here.
func TestSeenFollowsWithNothingToDo(t *testing.T) {
	r := newRig(t)
	m := &fixedMarks{last: watermark.Watermark{Seen: "1"}}
	r.marks, r.version = m, 100
	r.restart()
	r.loop.source = versionedFeed{r.x, &r.version}
	r.service("a")
	r.pod("a", 1)
	r.pass(time.Minute)
	if got := r.held(); got != "seen 100" {
		t.Fatalf("%s", got)
	}
	if d := r.loop.untilNext(); d > seenPoll {
		t.Errorf("nothing is looked up for %v", d)
	}
	r.version, m.changes = 200, 0
	r.pass(time.Minute)
	if got := r.held(); got != "seen 200" || m.changes == 0 {
		t.Errorf("%s, told %d times", got, m.changes)
	}
}
