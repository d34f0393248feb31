package lbsync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/applied"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/lbsync/internal/watermarks"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// cleanup runs Cleanup as another process of the installation.
func (w *world) cleanup(ctx context.Context, how Cleaning) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return Cleanup(ctx, config("cleaner"), w.client, w.open(), zaptest.NewLogger(w.t), how)
}

// trace returns what of ours is on a Service.
func trace(s *corev1.Service) (out []string) {
	for key := range s.Annotations {
		if strings.HasPrefix(key, "nplbridge.io/") || strings.HasPrefix(key, "nodeportlocal.antrea.io/") {
			out = append(out, key)
		}
	}
	out = append(out, s.Finalizers...)
	for _, c := range s.Status.Conditions {
		out = append(out, c.Type)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		out = append(out, i.IP)
	}
	return out
}

func TestCleanup(t *testing.T) {
	own := service("own") // its request for node ports is the user's
	own.Annotations = map[string]string{"nodeportlocal.antrea.io/enabled": "true", "nplbridge.io/algorithm": "LeastConnections"}
	w := newWorld(t, node(), service("web"), own, pod("web", 1), pod("own", 2))
	foreign := &providers.Pool{Key: providers.Key{Namespace: "x", Service: "y", Port: 1, Protocol: providers.TCP}, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}
	other := w.lb.Open(providers.Owner{ClusterUID: "c1", Instance: "other/nplbridge"})
	if err := other.Apply(t.Context(), providers.Changes{Pools: []providers.PoolChange{{Key: foreign.Key, New: foreign}}})[foreign.Key]; err != nil {
		t.Fatal(err)
	}
	before := providertest.Render(w.lb.State())
	_, stop := w.start("one")
	w.eventually("both are programmed", func() bool { return programmed(w.service("web")) && programmed(w.service("own")) })

	err := w.cleanup(t.Context(), Cleaning{})
	if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "one holds the Lease nplbridge-system/nplbridge-lbsync, and would write") {
		t.Fatalf("beside a running process: %v", err)
	}
	if !programmed(w.service("web")) {
		t.Fatal("it was refused and did something")
	}
	stop()

	// The load balancer does not answer at first: it says what is left, and the next one goes on.
	w.lb.FailObserve(&providers.Error{Kind: providers.Unavailable, What: "read", Err: errors.New("no route")})
	ctx, cancel := context.WithCancel(t.Context())
	var told []string
	err = w.cleanup(ctx, Cleaning{Tell: func(left string) {
		told = append(told, left)
		if strings.Contains(left, "no route") {
			cancel()
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "no route") || !strings.Contains(err.Error(), "marks on 2 Services, shop/own, shop/web") || !strings.Contains(err.Error(), "run cleanup again") {
		t.Fatalf("with the load balancer away: %v, told %q", err, told)
	}
	w.lb.FailObserve(nil)
	if err := w.cleanup(t.Context(), Cleaning{Wait: true}); err != nil {
		t.Fatal(err)
	}
	if after := providertest.Render(w.lb.State()); after != before {
		t.Errorf("on the load balancer there is\n%s\nand before us there was\n%s", after, before)
	}
	if left := trace(w.service("web")); len(left) > 0 {
		t.Errorf("shop/web still has %q", left)
	}
	if left, want := trace(w.service("own")), []string{"nodeportlocal.antrea.io/enabled", "nplbridge.io/algorithm"}; !slices.Equal(sorted(left), want) {
		t.Errorf("shop/own has %q, want what its owner wrote", left)
	}
	if _, err := w.client.CoordinationV1().Leases("nplbridge-system").Get(t.Context(), "nplbridge-lbsync", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease: %v", err)
	}
	if list, err := w.client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("%v, left: %+v", err, list.Items)
	}
	if err := w.cleanup(t.Context(), Cleaning{}); err != nil { // again, with nothing left
		t.Error(err)
	}
}

// What another installation has served stays, whatever its Services look like.
func TestCleanupLeavesOthersAlone(t *testing.T) {
	s := service("web")
	s.Finalizers = []string{annotations.Finalizer}
	s.Annotations = map[string]string{annotations.ManagedBy: "other/nplbridge/lbsync", annotations.EnabledBy: "other/nplbridge", "nodeportlocal.antrea.io/enabled": "true"}
	s.Status.Conditions = []metav1.Condition{{Type: status.Programmed, Status: metav1.ConditionTrue, Reason: "Programmed"}}
	nobody := service("nobody") // our finalizer with nobody's name proves nothing
	nobody.Finalizers = []string{annotations.Finalizer}
	w := newWorld(t, node(), s, nobody)
	if err := w.cleanup(t.Context(), Cleaning{}); err != nil {
		t.Fatal(err)
	}
	if n := w.serviceWrites(); n != 0 {
		t.Errorf("%d writes: %v", n, w.writes)
	}
}

func TestExpiredLeaseIsNobodys(t *testing.T) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nplbridge-system", Name: "nplbridge-lbsync"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("dead"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-time.Minute)},
		},
	}
	w := newWorld(t, node(), lease)
	if err := idle(t.Context(), w.client, config("c")); err != nil {
		t.Error(err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	w = newWorld(t, node(), lease)
	if err := idle(t.Context(), w.client, config("c")); !errors.Is(err, ErrRunning) {
		t.Errorf("got %v", err)
	}
}

// publication is the two ConfigMaps by which a process says what it has applied, and the watermark of its load balancer.
func publication(instance, identity string, age time.Duration) []runtime.Object {
	object := func(kind, label, version, key, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "nplbridge-system", Name: kind + "-" + strings.ReplaceAll(instance, "/", "-") + "-" + identity, UID: types.UID(kind + instance + identity),
				Labels: map[string]string{label: version}, Annotations: map[string]string{watermarks.IdentityAnnotation: identity},
			},
			Data: map[string]string{key: value},
		}
	}
	at := time.Now().Add(-age)
	served := object("served", applied.Label, applied.LabelValue, "", "")
	packed, _ := applied.NewContent(instance, identity, "haproxy", map[string]onnode.Served{"shop/web": {}}, nil).Pack()
	served.Data, served.BinaryData = nil, map[string][]byte{applied.ContentKey: packed}
	return []runtime.Object{
		served,
		object("applied", applied.Label, applied.LabelValue, applied.DataKey, applied.Encode(applied.Standing{Instance: instance, Identity: identity, Provider: "haproxy", At: at})),
		object("watermark", watermark.Label, watermark.LabelValue, watermark.DataKey, watermark.Encode(watermark.Watermark{Instance: instance, LoadBalancer: "haproxy/" + identity, Seen: "7", At: at})),
	}
}

func TestRetire(t *testing.T) {
	objects := slices.Concat([]runtime.Object{node()}, publication(owner.Instance, "lb-1", time.Hour), publication(owner.Instance, "lb-2", time.Second),
		publication("other/nplbridge", "lb-1", time.Hour))
	w := newWorld(t, objects...)
	if _, err := Retire(t.Context(), config("c"), w.client, "lb-2"); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "lb-2 wrote applied-nplbridge-system-nplbridge-lb-2") {
		t.Errorf("a living process: %v", err)
	}
	if _, err := Retire(t.Context(), config("c"), w.client, "lb-3"); err == nil || !strings.Contains(err.Error(), `no process "lb-3" of nplbridge-system/nplbridge has published anything; there are: lb-1, lb-2`) {
		t.Errorf("nobody: %v", err)
	}
	removed, err := Retire(t.Context(), config("c"), w.client, "lb-1")
	if want := []string{"applied-nplbridge-system-nplbridge-lb-1", "served-nplbridge-system-nplbridge-lb-1", "watermark-nplbridge-system-nplbridge-lb-1"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("%v, %q", err, removed)
	}
	left, err := w.client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 6 {
		t.Errorf("%v, %d ConfigMaps are left, want those of lb-2 and of the other installation", err, len(left.Items))
	}
}

// What a process wrote whose format had another version is noticed, too.
func TestRetireWhatIsOlder(t *testing.T) {
	objects := publication(owner.Instance, "lb-1", time.Hour)
	for _, o := range objects {
		for label := range o.(*corev1.ConfigMap).Labels {
			o.(*corev1.ConfigMap).Labels[label] = "v0"
		}
	}
	w := newWorld(t, append(objects, node())...)
	if removed, err := Retire(t.Context(), config("c"), w.client, "lb-1"); err != nil || len(removed) != 3 {
		t.Errorf("%v, %q", err, removed)
	}
}

// Processes beside other load balancers: while one speaks nothing is done, and one that is silent is named in the end.
func TestCleanupAndOtherProcesses(t *testing.T) {
	w := newWorld(t, append(publication(owner.Instance, "lb-2", time.Second), node())...)
	if err := w.cleanup(t.Context(), Cleaning{}); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "lb-2 wrote") {
		t.Errorf("a living process: %v", err)
	}
	w = newWorld(t, slices.Concat([]runtime.Object{node()}, publication(owner.Instance, "lb-2", time.Hour), publication(owner.Instance, "cleaner", time.Hour))...)
	if err := w.cleanup(t.Context(), Cleaning{}); err == nil || !strings.Contains(err.Error(), "left: load balancers beside lb-2; run cleanup there, or cleanup --retire") {
		t.Errorf("a silent process: %v", err)
	}
	left, err := w.client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 3 {
		t.Errorf("%v, %d ConfigMaps are left, want the three of lb-2", err, len(left.Items))
	}
}

// What Plan says is what a process does, and nothing is written for it.
func TestPlan(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	_, stop := w.start("one")
	w.eventually("web is programmed", func() bool { return programmed(w.service("web")) })
	stop()
	planned := func() []PlannedChange {
		t.Helper()
		d, err := Plan(t.Context(), config("planner"), w.client, w.open(), zaptest.NewLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		return d.Providers[0].Planned
	}
	writes, services := w.lb.Writes(), w.serviceWrites()
	if got := planned(); len(got) != 0 {
		t.Errorf("with nothing changed: %+v", got)
	}
	if _, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod("web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := planned()
	if len(got) != 1 || got[0].Key != "shop/web:80/TCP" || len(got[0].Steps) != 1 || got[0].Steps[0].Op != "+" || !strings.Contains(got[0].Steps[0].What, "shop/web-2") {
		t.Errorf("with a new Pod: %+v", got)
	}
	if w.lb.Writes() != writes || w.serviceWrites() != services {
		t.Error("planning wrote something")
	}
	w.lb.FailObserve(&providers.Error{Kind: providers.Unavailable, What: "read", Err: errors.New("no route")})
	if _, err := Plan(t.Context(), config("planner"), w.client, w.open(), zaptest.NewLogger(t)); err == nil || !strings.Contains(err.Error(), "read load balancer memory: observe: read: no route") {
		t.Errorf("got %v", err)
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }
