package watermarks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/watermark"
)

func configMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lb", Name: name, ResourceVersion: "7", Labels: map[string]string{watermark.Label: watermark.LabelValue}},
		Data:       map[string]string{watermark.DataKey: data},
	}
}

func encoded(loadBalancer, seen string) string {
	return watermark.Encode(watermark.Watermark{Instance: "lb/lbsync", LoadBalancer: loadBalancer, Seen: seen})
}

func started(t *testing.T, client *fake.Clientset) (*Watermarks, <-chan struct{}) {
	t.Helper()
	woken := make(chan struct{}, 100)
	w, err := New(client, "lb", func() { woken <- struct{}{} }, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Marks(); err == nil || !strings.Contains(err.Error(), "has not arrived") {
		t.Errorf("before the first list: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w, woken
}

// wait waits until what Marks returns is as it should be.
func wait(t *testing.T, w *Watermarks, woken <-chan struct{}, ok func([]watermark.Watermark, error) bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		marks, err := w.Marks()
		if ok(marks, err) {
			return
		}
		select {
		case <-woken:
		case <-time.After(10 * time.Millisecond): // the first list may be empty, which wakes nobody
		case <-deadline:
			t.Fatalf("marks %v, %v", marks, err)
		}
	}
}

func TestMarksFollowTheNamespace(t *testing.T) {
	other := configMap("other", encoded("b", "9"))
	other.Labels = nil
	elsewhere := configMap("elsewhere", encoded("c", "9"))
	elsewhere.Namespace = "default"
	client := fake.NewClientset(other, elsewhere, configMap("mark", encoded("a", "9")))
	w, woken := started(t, client)
	seen := func(want ...string) func([]watermark.Watermark, error) bool {
		return func(marks []watermark.Watermark, err error) bool {
			if err != nil || len(marks) != len(want) {
				return false
			}
			for i := range marks {
				if marks[i].LoadBalancer+" "+marks[i].Seen != want[i] {
					return false
				}
			}
			return true
		}
	}
	wait(t, w, woken, seen("a 9"))
	maps := client.CoreV1().ConfigMaps("lb")
	if _, err := maps.Update(t.Context(), configMap("mark", encoded("a", "10")), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, w, woken, seen("a 10"))
	if _, err := maps.Create(t.Context(), configMap("first", encoded("A", "11")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, w, woken, seen("A 11", "a 10"))
	if err := maps.Delete(t.Context(), "mark", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, w, woken, seen("A 11"))
}

func TestUnreadableWatermarkIsThereAndConfirmsNothing(t *testing.T) {
	w, woken := started(t, fake.NewClientset(configMap("mark", encoded("a", "9")), configMap("junk", "{"), configMap("partly", encoded("b", "x"))))
	wait(t, w, woken, func(marks []watermark.Watermark, err error) bool { return err == nil && len(marks) == 3 })
	marks, _ := w.Marks()
	ok, waiting := watermark.Confirmed(marks, watermark.NodePort{Node: "n", Protocol: "tcp", Family: "IPv4", Port: 1}, "1")
	if want := "lb (unreadable ConfigMap junk)|lb/lbsync (b, unreadable ConfigMap partly)"; ok || strings.Join(waiting, "|") != want {
		t.Errorf("%v, waiting for %q, want %q", ok, waiting, want)
	}
}

func TestWhatCannotBeReadIsNotTakenForEmpty(t *testing.T) {
	client := fake.NewClientset(configMap("mark", encoded("a", "9")))
	forbidden := true // the first list
	client.PrependReactor("list", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
		if forbidden {
			forbidden = false
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
		}
		return false, nil, nil
	})
	w, woken := started(t, client)
	<-woken // by the failure
	if marks, err := w.Marks(); err == nil || marks != nil || !strings.Contains(err.Error(), "Namespace lb cannot be read") {
		t.Errorf("marks %v, %v", marks, err)
	}
	wait(t, w, woken, func(marks []watermark.Watermark, err error) bool { return err == nil && len(marks) == 1 })
}
