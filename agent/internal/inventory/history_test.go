package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

func TestDeletionIsAtTheVersionOfItsEventOrOfTheListThatLacksThePod(t *testing.T) {
	inv := New(fake.NewClientset(), "node-1", func() {}, func() {})
	pod := func(name, uid, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	}
	err := errors.Join(
		inv.pods.Add(pod("p", "a", "10")),
		inv.pods.Add(pod("q", "b", "11")),
		inv.pods.Add(pod("r", "c", "11")),
		inv.pods.Delete(pod("p", "a", "12")), // the final state that a watch event carries has the version of the deletion
		inv.pods.Replace([]any{pod("r", "c2", "800")}, "900"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "12", "b": "900", "c": "900"}, inv.Deletions()); diff != "" {
		t.Error(diff)
	}
	if got := inv.Deletions(); len(got) != 0 {
		t.Errorf("deletions are told twice: %v", got)
	}
	if got := slices.Collect(maps.Keys(inv.Arrivals())); !slices.Equal(got, []string{"c2"}) {
		t.Errorf("Pods %v have arrived, want the one that is left", got)
	}
}

func TestArrivalIsTheFirstEventSinceTheLastCall(t *testing.T) {
	h := newHistory()
	inv := &Inventory{history: h}
	h.note(nil, &model.Pod{UID: "a"}, "1")
	first := h.arrived["a"]
	h.note(&model.Pod{UID: "a"}, &model.Pod{UID: "a"}, "2")
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
	inv := New(client, "node-1", func() { woken <- struct{}{} }, func() {})
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
