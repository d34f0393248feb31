package inventory

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func TestDeletionIsAtTheVersionOfItsEventOrOfTheListThatLacksThePod(t *testing.T) {
	h := newHistory()
	pod := func(uid, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(uid), ResourceVersion: version}}
	}
	list := func() string { return "900" }
	h.changed(pod("a", "10"))
	h.changed(pod("b", "11"))
	h.gone(pod("a", "12"), list) // the final state that a watch event carries has the version of the deletion
	h.gone(cache.DeletedFinalStateUnknown{Obj: pod("b", "11")}, list)
	h.gone(&corev1.Node{}, list)
	inv := &Inventory{history: h}
	if diff := cmp.Diff(map[string]string{"a": "12", "b": "900"}, inv.Deletions()); diff != "" {
		t.Error(diff)
	}
	if got := inv.Deletions(); len(got) != 0 {
		t.Errorf("deletions are told twice: %v", got)
	}
	if got := inv.Arrivals(); len(got) != 0 {
		t.Errorf("Pods that are gone have arrived: %v", got)
	}
}

func TestArrivalIsTheFirstEventSinceTheLastCall(t *testing.T) {
	h := newHistory()
	inv := &Inventory{history: h}
	h.changed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	first := h.arrived["a"]
	h.changed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	if got := inv.Arrivals(); len(got) != 1 || !got["a"].Equal(first) || first.IsZero() {
		t.Errorf("arrivals %v, want %v", got, first)
	}
	if got := inv.Arrivals(); len(got) != 0 {
		t.Errorf("arrivals are told twice: %v", got)
	}
}

// What the API server says reaches the history before it reaches whoever was told that something changed.
func TestHistoryFollowsTheWatch(t *testing.T) {
	client := fake.NewClientset()
	events := watch.NewFake()
	client.PrependWatchReactor("pods", k8stesting.DefaultWatchReactor(events, nil))
	woken := make(chan struct{}, 10)
	inv, err := New(client, "node-1", func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); inv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "a", ResourceVersion: "10"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	events.Add(pod)
	<-woken
	if _, ok := inv.Arrivals()["a"]; !ok || inv.Version() != "10" {
		t.Errorf("no arrival, or version %q", inv.Version())
	}
	final := pod.DeepCopy()
	final.ResourceVersion = "20"
	events.Delete(final)
	<-woken
	if got := inv.Deletions()["a"]; got != "20" || inv.Version() != "20" {
		t.Errorf("deleted at %q, version %q", got, inv.Version())
	}
}
