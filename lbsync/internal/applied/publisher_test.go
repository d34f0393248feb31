package applied

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/providers"
)

// What becomes of a write.
type fate int

const (
	done     fate = iota
	refused       // nothing is written, and an error is the answer
	unheard       // it is written, and nobody hears of it
	onItsWay      // nobody hears of it, and it is written when land is called
)

// server is an API server with versions, of two ConfigMaps.
type server struct {
	client  *fake.Clientset
	version int
	now     map[string]*corev1.ConfigMap
	history map[string][]*corev1.ConfigMap
	late    []ktesting.Action
	verbs   []string
	fates   map[string]fate // by name of the object; of the next write
}

func newServer() *server {
	s := &server{client: &fake.Clientset{}, version: 99, now: map[string]*corev1.ConfigMap{}, history: map[string][]*corev1.ConfigMap{}, fates: map[string]fate{}}
	s.client.AddReactor("*", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		if get, is := a.(ktesting.GetAction); is {
			return s.get(get.GetName())
		}
		name := a.(ktesting.UpdateAction).GetObject().(*corev1.ConfigMap).Name
		fate := s.fates[name]
		delete(s.fates, name)
		lost := errors.New("the connection broke")
		switch fate {
		case refused:
			return true, nil, lost
		case unheard:
			_, _, _ = s.write(a)
			return true, nil, lost
		case onItsWay:
			s.late = append(s.late, a)
			return true, nil, lost
		default:
			return s.write(a)
		}
	})
	return s
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

func (s *server) get(name string) (bool, runtime.Object, error) {
	if m := s.now[name]; m != nil {
		return true, m.DeepCopy(), nil
	}
	return true, nil, apierrors.NewNotFound(configMaps, name)
}

func (s *server) write(a ktesting.Action) (bool, runtime.Object, error) {
	m := a.(ktesting.UpdateAction).GetObject().(*corev1.ConfigMap).DeepCopy()
	was := s.now[m.Name]
	switch {
	case a.GetVerb() == "create" && was != nil:
		return true, nil, apierrors.NewAlreadyExists(configMaps, m.Name)
	case a.GetVerb() == "update" && was == nil:
		return true, nil, apierrors.NewNotFound(configMaps, m.Name)
	case a.GetVerb() == "update" && m.ResourceVersion != "" && m.ResourceVersion != was.ResourceVersion:
		return true, nil, apierrors.NewConflict(configMaps, m.Name, errors.New("changed"))
	}
	s.version++
	m.ResourceVersion = fmt.Sprint(s.version)
	s.now[m.Name] = m
	s.history[m.Name] = append(s.history[m.Name], m)
	s.verbs = append(s.verbs, a.GetVerb()+" "+m.Name)
	return true, m, nil
}

// land lets every write happen that is on its way.
func (s *server) land() {
	for _, a := range s.late {
		_, _, _ = s.write(a)
	}
	s.late = nil
}

// wrote returns what was written since the last call.
func (s *server) wrote() string {
	out := strings.Join(s.verbs, ", ")
	s.verbs = nil
	return out
}

func (s *server) standing(t *testing.T) Standing {
	t.Helper()
	m := s.now["applied-two"]
	if m == nil {
		t.Fatal("there is no heartbeat")
	}
	out, err := Decode(m.Data[DataKey])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *server) publisher(clk *clocktesting.FakeClock) *Publisher {
	p := &Publisher{
		Client: s.client, Namespace: "ns", Heartbeat: "applied-two", Content: "served-two", Instance: "ns/lbsync", Identity: "two", Provider: "haproxy",
		Node: "node-2", Clock: clk, Log: zap.NewNop(), Owner: &metav1.OwnerReference{Kind: "Pod", Name: "two", UID: "uid-two"},
	}
	p.Init()
	return p
}

// serving returns a loop that serves so many Services at an address.
func serving(seen string, services int, where netip.Addr) *reporting {
	r := &reporting{reports: map[model.ServiceKey]loop.Report{}}
	r.say(seen, nil)
	for n := range services {
		r.serve(fmt.Sprintf("s%d", n), where)
	}
	return r
}

func (r *reporting) serve(name string, where netip.Addr) {
	r.reports[model.ServiceKey{Namespace: "shop", Name: name}] = loop.Report{Wanted: true, Ports: []loop.PortReport{
		{Key: providers.Key{Namespace: "shop", Service: name, Port: 80, Protocol: providers.TCP}, VIPs: []netip.Addr{where}},
	}}
}

func at(where netip.Addr) onnode.Served { return onnode.Served{At: []netip.Addr{where}} }

func TestContentIsWrittenWhenItChanges(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := newServer()
	p := s.publisher(clk)
	r := serving("100", 2000, here)
	publish := func(when, want string) {
		t.Helper()
		p.publish(t.Context(), r)
		if got := s.wrote(); got != want {
			t.Errorf("%s: wrote %q, want %q", when, got, want)
		}
		clk.Step(Interval)
	}
	const beat, both = "update applied-two", "update served-two, update applied-two"
	publish("the first, content first", "create served-two, create applied-two")
	first := s.standing(t)
	for range 40 {
		publish("nothing changes", beat)
	}
	if now := s.standing(t); now.Content != first.Content || len(now.Changes) > 0 || !now.At.After(first.At) {
		t.Errorf("%+v", now)
	}
	if size := len(s.now["applied-two"].Data[DataKey]); size > 400 {
		t.Errorf("a heartbeat has %d bytes", size)
	}
	r.say("101", map[model.ServiceKey]string{web: "refused"})
	publish("only how far was seen changes", beat)
	r.serve("new", here)
	delete(r.reports, model.ServiceKey{Namespace: "shop", Name: "s7"})
	publish("two Services change", beat)
	if c := s.standing(t).Changes; len(c) != 2 || !c["shop/new"].Equal(at(here)) || !c["shop/s7"].Empty() {
		t.Errorf("changes %+v", c)
	}
	delete(r.reports, model.ServiceKey{Namespace: "shop", Name: "new"})
	r.serve("s7", here)
	publish("as before", beat)
	if now := s.standing(t); len(now.Changes) > 0 || now.Content != first.Content {
		t.Errorf("%+v", now)
	}
	r.serve("new", here)
	clk.Step(again)
	publish("after long, what changed goes into the content", both)
	if now := s.standing(t); len(now.Changes) > 0 || now.Content == first.Content {
		t.Errorf("%+v", now)
	}
	clk.Step(again)
	publish("after long, with nothing changed", beat)
	for n := range 200 {
		r.serve(fmt.Sprint("more", n), here)
	}
	publish("many at once", both)
	p.Holds = func(netip.Addr) bool { return true }
	publish("addresses", both)

	// What nobody does, but somebody could.
	delete(s.now, "served-two")
	delete(s.now, "applied-two")
	publish("the heartbeat was deleted", "create applied-two")
	clk.Step(again)
	publish("the content was deleted, long ago", "create served-two, update applied-two")
	p = s.publisher(clk)
	p.Holds = func(netip.Addr) bool { return true }
	publish("started anew", beat)
	p = s.publisher(clk)
	p.Holds, p.Owner = func(netip.Addr) bool { return true }, &metav1.OwnerReference{Kind: "Pod", Name: "two", UID: "uid-2"}
	publish("in another Pod of the same name", both)

	r.reports, p.Node = nil, ""
	publish("nothing to say", beat)
	if now := s.standing(t); now.Content != "" || len(now.Changes) > 0 {
		// Changes against a content that is there would do as well; the addresses have changed, so it is none.
		t.Errorf("%+v", now)
	}
}

// A process beside a load balancer that is asked for nothing has a heartbeat only.
func TestNoContentWhereNobodyAsks(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	s := newServer()
	p := s.publisher(clk)
	p.Node = ""
	p.publish(t.Context(), &reporting{})
	if got := s.wrote(); got != "" {
		t.Errorf("before the load balancer was read: %q", got)
	}
	p.publish(t.Context(), serving("100", 10, here))
	if got := s.wrote(); got != "create applied-two" {
		t.Errorf("wrote %q", got)
	}
}

func TestNoHeartbeatWithoutItsContent(t *testing.T) {
	for _, f := range []fate{refused, unheard, onItsWay} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			s := newServer()
			p := s.publisher(clk)
			r := serving("100", 2000, here)
			p.publish(t.Context(), r)
			s.wrote()
			for n := range 2000 {
				r.serve(fmt.Sprint("s", n), there)
			}
			r.say("101", nil)
			s.fates["served-two"] = f
			p.publish(t.Context(), r)
			if strings.Contains(s.wrote(), "applied") || s.standing(t).Seen != "100" {
				t.Error("the heartbeat is ahead of its content")
			}
			// And back: the same as what was written last, as far as it is known.
			for n := range 2000 {
				r.serve(fmt.Sprint("s", n), here)
			}
			r.say("102", nil)
			p.publish(t.Context(), r)
			s.land() // undoes what was there already
			clk.Step(soon)
			p.publish(t.Context(), r)
			c, err := Unpack(s.now["served-two"].BinaryData[ContentKey])
			if now := s.standing(t); err != nil || now.Seen != "102" || now.Content != c.Digest || !c.of("shop/s7").Equal(at(here)) {
				t.Errorf("seen %s, of %s, and there is %s with %+v, %v", now.Seen, now.Content, c.Digest, c.of("shop/s7"), err)
			}
		})
	}
}

// A request that was given up and is carried out after a later one undoes nothing.
func TestLateContent(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := newServer()
	p := s.publisher(clk)
	for n, services := range []int{1000, 2000, 3000} {
		if n == 1 {
			s.fates["served-two"] = onItsWay
		}
		p.publish(t.Context(), serving(fmt.Sprint(100+n), services, here))
	}
	s.land()
	c, err := Unpack(s.now["served-two"].BinaryData[ContentKey])
	if now := s.standing(t); err != nil || now.Seen != "102" || now.Content != c.Digest {
		t.Errorf("seen %s, of %s, and there is %s, %v", now.Seen, now.Content, c.Digest, err)
	}
}

// So it is with a heartbeat, whether it was to be the first or not, and whether it lands before the next one or after that.
func TestLateHeartbeat(t *testing.T) {
	for lost := range 3 {
		for _, lands := range []int{lost, lost + 1} {
			t.Run(fmt.Sprintf("%d lands after %d", lost, lands), func(t *testing.T) {
				clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
				s := newServer()
				p := s.publisher(clk)
				for n := range 5 {
					if n == lost {
						s.fates["applied-two"] = onItsWay
					}
					p.publish(t.Context(), serving(fmt.Sprint(100+n), 10, here))
					if n == lands {
						s.land()
					}
					if now := s.now["applied-two"]; n > lost && (now == nil || s.standing(t).Seen != fmt.Sprint(100+n)) {
						t.Errorf("after %d it says %+v", n, now)
					}
					clk.Step(Interval)
				}
			})
		}
	}
}

// The more processes, the seldomer each of them writes.
func TestPace(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second, 2: time.Second, 100: time.Second, 300: 3 * time.Second, 1000: Interval, 5000: Interval} {
		if got := (&Publisher{Instances: func() int { return n }}).pause(); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := (&Publisher{}).pause(); got != time.Second {
		t.Errorf("few: %s", got)
	}
}

func TestReadersRefuse(t *testing.T) {
	g := &Group{Instance: "ns/lbsync", Identity: "one", Clock: clocktesting.NewFakeClock(time.Now()), Log: zap.NewNop(), Tell: func(model.ServiceKey) {}}
	g.set(published(t, &corev1.ConfigMap{Data: map[string]string{DataKey: "{}"}}))
	g.set(published(t, &corev1.ConfigMap{BinaryData: map[string][]byte{ContentKey: []byte("x")}}))
	g.drop(published(t, &corev1.ConfigMap{}))
	if len(g.others) > 0 {
		t.Errorf("%+v", g.others)
	}
}
