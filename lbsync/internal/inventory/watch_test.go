package inventory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

var testSelection = Selection{Instances: []string{"lb"}, Source: annotations.NodePortLocal, Manager: "ns/name"}

func apiPod(name, app, version string) *corev1.Pod {
	port, _ := strconv.Atoi(version) // as good as any
	mapping := npl.Mapping{PodPort: 8080, NodeIP: netip.MustParseAddr("192.0.2.11"), NodePort: uint16(port), Protocol: npl.TCP, Family: npl.IPv4}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: version, Labels: map[string]string{"app": app},
			Annotations: map[string]string{npl.Annotation: npl.Encode([]npl.Mapping{mapping})},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
}

func apiService(namespace, name, app string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/lb"), Selector: map[string]string{"app": app},
		},
	}
}

func apiNode(name string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}},
	}
}

func apiNamespace(name, tier string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", Labels: map[string]string{"tier": tier}},
	}
}

// start runs a Watch until the test ends.
func start(t *testing.T, client kubernetes.Interface, selection Selection, prepare func(*Watch)) *Watch {
	t.Helper()
	w, err := NewWatch(client, selection, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	prepare(w)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); w.Stop() })
	w.Start(ctx)
	deadline, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	if !w.Wait(deadline) {
		t.Fatal("never synced")
	}
	return w
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// endpoints returns the Pods behind a Service.
func endpoints(w *Watch, service string) (out []string) {
	v, _ := w.Index.View(model.ServiceKey{Namespace: "shop", Name: service})
	for _, e := range v.Endpoints {
		out = append(out, e.Pod.Name)
	}
	return out
}

// A real reflector against a real API: the first answer comes as a stream or in pages, never from a cache that may be old, and events,
// bookmarks and deletions carry the resourceVersion that everything is at.
func TestWatch(t *testing.T) {
	const pods = 1200
	first := map[string]any{"nodes": []runtime.Object{apiNode("n1")}, "services": []runtime.Object{apiService("shop", "web", "web")}}
	var list []runtime.Object
	for i := range pods {
		list = append(list, apiPod(fmt.Sprintf("web-%04d", i), "web", fmt.Sprint(i+1)))
	}
	first["pods"] = list
	for _, test := range []struct {
		name    string
		streams bool
		asked   []string
	}{
		{"streamed", true, []string{"watch=true streamed=true version= limit="}},
		{"in pages", false, []string{
			"watch=true streamed=true version= limit=", "watch= streamed= version= limit=500", "watch= streamed= version= limit=500", "watch= streamed= version= limit=500",
			"watch=true streamed= version=100 limit=",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := newAPIServer(t, test.streams, first)
			w := start(t, client, testSelection, func(*Watch) {})
			feed := w.Index.Feed(time.Now())
			if got := endpoints(w, "web"); len(got) != pods || got[0] != "web-0000" {
				t.Fatalf("%d endpoints", len(got))
			}
			if s, p, n := w.Index.Counts(); s != 1 || p != pods || n != 1 {
				t.Errorf("%d Services, %d Pods, %d Nodes", s, p, n)
			}
			dirty, seen := feed.TakeDirty()
			if len(dirty) != 1 || seen != "100" {
				t.Errorf("dirty %v, seen %q; want web at 100", dirty, seen)
			}
			// Whatever is taken at once belongs together.
			take := func(version string) (services int) {
				t.Helper()
				eventually(t, "seen "+version, func() bool {
					dirty, seen := feed.TakeDirty()
					services += len(dirty)
					return seen == version
				})
				return services
			}
			server.events["pods"] <- event{"ADDED", apiPod("new", "web", "1500")}
			if take("1500") != 1 || !slices.Contains(endpoints(w, "web"), "new") {
				t.Error("a new Pod is not there")
			}
			server.events["pods"] <- event{"DELETED", apiPod("web-0001", "web", "1600")}
			if take("1600") != 1 || slices.Contains(endpoints(w, "web"), "web-0001") || w.Index.Fate("web-0001") != model.Gone {
				t.Error("a Pod that was deleted is there, or lost")
			}
			server.events["pods"] <- event{"ADDED", apiPod("other", "other", "1700")}
			if take("1700") != 0 {
				t.Error("a Pod that nobody selects made something dirty")
			}
			server.events["pods"] <- bookmark("10000", nil, "pods")
			if take("10000") != 0 {
				t.Error("a bookmark made something dirty")
			}
			if old := server.old(); len(old) > 0 {
				t.Errorf("lists that may be old: %v", old)
			}
			asked := server.asked()
			if slices.Sort(asked); !slices.Equal(asked, slices.Sorted(slices.Values(test.asked))) {
				t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(test.asked, "\n"))
			}
		})
	}
}

// Events of Services and of Pods that wait are told after the Index has them.
func TestListeners(t *testing.T) {
	first := map[string]any{"nodes": []runtime.Object{apiNode("n1")}, "services": []runtime.Object{apiService("shop", "web", "web")}}
	server, client := newAPIServer(t, true, first)
	var mu sync.Mutex
	var told []string
	var w *Watch
	tell := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, s)
	}
	heard := func(s string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(told, s)
		}
	}
	w = start(t, client, testSelection, func(w *Watch) {
		w.OnService(func(k model.ServiceKey) {
			v, ok := w.Index.View(k)
			tell(fmt.Sprint(k, ok, v.Service.On))
		})
		w.OnGated(func(k PodKey) {
			g, ok := w.Index.GatedPod(k)
			tell(fmt.Sprint(k, ok, g.Services))
		})
	})
	eventually(t, "the Service is told", heard("shop/web true [lb]"))
	if in, elsewhere := w.ServicesIn("shop"), w.ServicesIn("else"); len(in) != 1 || in[0].Name != "web" || len(elsewhere) != 0 {
		t.Errorf("Services of shop: %v, of another Namespace: %v", in, elsewhere)
	}
	p := apiPod("p", "web", "101")
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: annotations.Gate}}
	server.events["pods"] <- event{"ADDED", p}
	eventually(t, "the Pod is told", heard("shop/p true [shop/web]"))
	open := p.DeepCopy()
	open.ResourceVersion, open.Status.Conditions = "102", []corev1.PodCondition{{Type: annotations.Gate, Status: corev1.ConditionTrue}}
	server.events["pods"] <- event{"MODIFIED", open}
	eventually(t, "that its gate is open is told", heard("shop/p false []"))
	web := apiService("shop", "web", "web")
	web.ResourceVersion = "103"
	server.events["services"] <- event{"DELETED", web}
	eventually(t, "the deletion is told", heard("shop/web false []"))
	if w.Service(model.ServiceKey{Namespace: "shop", Name: "web"}) != nil || len(w.Services()) != 0 {
		t.Error("the Service is there")
	}
	if !w.Index.Believable() {
		t.Error("the last Service was seen to go, and that is not believed")
	}
}

// Namespaces are watched only where their labels matter, and a label that changes is a change of all their Services.
func TestNamespaces(t *testing.T) {
	selected := testSelection
	selected.NamespaceSelector = map[string]string{"tier": "web"}
	first := map[string]any{
		"nodes":      []runtime.Object{apiNode("n1")},
		"services":   []runtime.Object{apiService("shop", "web", "web"), apiService("bank", "api", "api"), apiService("late", "job", "job")},
		"namespaces": []runtime.Object{apiNamespace("shop", "web"), apiNamespace("bank", "core")},
	}
	server, client := newAPIServer(t, true, first)
	w := start(t, client, selected, func(*Watch) {})
	ours := func(namespace, name string) func() bool {
		return func() bool {
			v, ok := w.Index.View(model.ServiceKey{Namespace: namespace, Name: name})
			return ok && v.Service.Ours()
		}
	}
	not := func(f func() bool) func() bool { return func() bool { return !f() } }
	if !ours("shop", "web")() || ours("bank", "api")() || ours("late", "job")() {
		t.Error("the first answer is read wrong")
	}
	feed := w.Index.Feed(time.Now())
	feed.TakeDirty()
	server.events["namespaces"] <- event{"MODIFIED", apiNamespace("bank", "web")}
	eventually(t, "a Namespace that is labelled brings its Services", ours("bank", "api"))
	if dirty, _ := feed.TakeDirty(); len(dirty) != 1 {
		t.Errorf("dirty %v, want bank/api", dirty)
	}
	server.events["namespaces"] <- event{"ADDED", apiNamespace("late", "web")}
	eventually(t, "a Namespace that comes after its Service brings it", ours("late", "job"))
	server.events["namespaces"] <- event{"MODIFIED", apiNamespace("bank", "core")}
	eventually(t, "a Namespace that loses the label takes its Services away", not(ours("bank", "api")))
	if s := w.Service(model.ServiceKey{Namespace: "bank", Name: "api"}); w.Selection.Ours(s) {
		t.Error("whoever asks the Selection is told otherwise")
	}

	_, client = newAPIServer(t, true, map[string]any{"nodes": first["nodes"], "services": first["services"]})
	w = start(t, client, testSelection, func(*Watch) {})
	if !ours("bank", "api")() {
		t.Error("without a selector a Namespace matters")
	}
}

// A Namespace that is missing from a list takes nothing away: neither what is known of it, nor what was taken for ours when nothing is known.
func TestMissingNamespace(t *testing.T) {
	n := &namespaces{changed: func(string) {}, labels: map[string]map[string]string{}}
	c := testSelection
	c.NamespaceSelector, c.labelsOf = map[string]string{"tier": "web"}, n.of
	fresh, served := apiService("shop", "new", "new"), apiService("shop", "old", "old")
	served.Finalizers = []string{annotations.Finalizer}
	check := func(when string, wantFresh, wantServed bool) {
		t.Helper()
		if c.Ours(fresh) != wantFresh || c.Ours(served) != wantServed {
			t.Errorf("%s: ours %t and %t, want %t and %t", when, c.Ours(fresh), c.Ours(served), wantFresh, wantServed)
		}
	}
	list := func(tier string) map[cache.ObjectName]namespace {
		return map[cache.ObjectName]namespace{cache.NewObjectName("", "shop"): {"shop", map[string]string{"tier": tier}}}
	}
	check("nothing known", false, true)
	n.replace(list("web"), "1")
	check("selected", true, true)
	n.replace(nil, "2")
	check("missing from a list", true, true)
	n.replace(list("core"), "3")
	check("not selected", false, false)
	n.gone(cache.NewObjectName("", "shop"), "4")
	check("deleted", false, true)
	c.BlockedNamespaces = []string{"shop"}
	n.replace(list("web"), "5")
	check("blocked", false, false)
}

// The store accepts what it made itself, and what it cannot read is an error that names it.
func TestStore(t *testing.T) {
	var got []string
	s := &store[*model.Pod]{convert: readPod, into: recorder{&got}}
	once, err := s.transform(apiPod("p", "web", "7"))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := s.transform(once)
	if err != nil || !reflect.DeepEqual(once, twice) {
		t.Errorf("%v, then %v, %v", once, twice, err)
	}
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(once); key != "shop/p" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
	if s.listed.Load() {
		t.Error("synced before the first list")
	}
	err = errors.Join(s.Replace([]any{once, apiPod("q", "web", "8")}, "9"), s.Add(apiPod("r", "web", "10")), s.Update(apiPod("r", "web", "11")),
		s.Delete(apiPod("r", "web", "12")), s.Resync())
	s.UpdateResourceVersion("13")
	want := []string{"list shop/p shop/q at 9", "shop/r at 10", "shop/r at 11", "no shop/r at 12", "up to 13"}
	if err != nil || !slices.Equal(got, want) || !s.listed.Load() {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	got = nil
	for _, err := range []error{s.Add(apiNode("n1")), s.Replace([]any{apiNode("n1")}, "14")} {
		if err == nil || !strings.Contains(err.Error(), "n1") {
			t.Errorf("a Node among Pods: %v", err)
		}
	}
	if err := s.Delete("nonsense"); err == nil || len(got) > 0 {
		t.Errorf("%v, %q", err, got)
	}
}

// recorder is a target that writes down what it is told.
type recorder struct{ out *[]string }

func (r recorder) set(p *model.Pod, version string) { *r.out = append(*r.out, p.ID()+" at "+version) }
func (r recorder) gone(name cache.ObjectName, version string) {
	*r.out = append(*r.out, "no "+name.String()+" at "+version)
}
func (r recorder) reached(version string) { *r.out = append(*r.out, "up to "+version) }
func (r recorder) replace(records map[cache.ObjectName]*model.Pod, version string) {
	var names []string
	for name, p := range records {
		if name.String() != p.ID() {
			names = append(names, "!")
		}
		names = append(names, p.ID())
	}
	slices.Sort(names)
	*r.out = append(*r.out, "list "+strings.Join(names, " ")+" at "+version)
}
