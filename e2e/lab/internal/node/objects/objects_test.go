package objects

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func configMap(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cm"}, Data: map[string]string{"k": value}}
}

func TestFollow(t *testing.T) {
	client := fake.NewClientset()
	var forbidden, watches atomic.Int32
	forbidden.Store(3) // the API server learns that the Pod is ours a moment later than we do
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		selector := action.(clienttesting.ListAction).GetListRestrictions().Fields.String()
		if selector != "metadata.name=cm" && selector != "metadata.name=s" {
			t.Errorf("asked for %q: a Node may only ask for single objects", selector)
		}
		if forbidden.Add(-1) >= 0 {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "cm", errors.New("not yet"))
		}
		return false, nil, nil
	})
	client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) { watches.Add(1); return false, nil, nil })

	store := NewStore(client, zap.NewNop())
	cm, secret := Key{Namespace: "shop", Name: "cm"}, Key{Secret: true, Namespace: "shop", Name: "s"}
	if _, known := store.Get(cm); known {
		t.Error("known before it was asked for")
	}
	var calls atomic.Int32
	release := store.Follow(cm, func() { calls.Add(1) })
	second := store.Follow(cm, func() {})
	third := store.Follow(secret, func() {})
	value := func() string {
		object, known := store.Get(cm)
		if !known {
			return "unknown"
		}
		if object == nil {
			return "absent"
		}
		return object.(*corev1.ConfigMap).Data["k"]
	}
	eventually(t, "known to be absent", func() bool { return value() == "absent" })
	eventually(t, "both watches", func() bool { return watches.Load() == 2 })
	if _, err := client.CoreV1().ConfigMaps("shop").Create(t.Context(), configMap("1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "created", func() bool { return value() == "1" })
	if _, err := client.CoreV1().ConfigMaps("shop").Update(t.Context(), configMap("2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "updated", func() bool { return value() == "2" })
	if err := client.CoreV1().ConfigMaps("shop").Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deleted", func() bool { return value() == "absent" })
	if calls.Load() < 4 {
		t.Errorf("told %d times, want at least 4", calls.Load())
	}
	release()
	if value() == "unknown" {
		t.Error("forgotten though somebody still follows it")
	}
	second()
	second() // once is enough
	third()
	if value() != "unknown" || len(store.entries) != 0 {
		t.Errorf("still followed by nobody: %v", store.entries)
	}
}
