package inventory

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// arriving returns how an event about the object comes in: decoded from the wire, and handed to the store.
func arriving(b *testing.B, object apiruntime.Object, update func(any) error) func() {
	format := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	wire, err := apiruntime.Encode(scheme.Codecs.EncoderForVersion(format, corev1.SchemeGroupVersion), object)
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		decoded, err := apiruntime.Decode(format, wire)
		if err == nil {
			err = update(decoded)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// An event about something that means nothing to the agent: decoding is nearly all it costs.
func BenchmarkEvent(b *testing.B) {
	foreign, pod, elsewhere := fullService(), largePod(0), largePod(0)
	delete(foreign.Annotations, npl.EnabledAnnotation)
	for _, bm := range []struct {
		name   string
		object apiruntime.Object
		to     func(*Inventory) func(any) error
	}{
		{"foreign-service", foreign, func(i *Inventory) func(any) error { return i.services.Update }},
		{"foreign-service/decoding-only", foreign, func(*Inventory) func(any) error { return func(any) error { return nil } }},
		{"pod-heartbeat", pod, func(i *Inventory) func(any) error { return i.pods.Update }},
		{"pod-heartbeat/decoding-only", elsewhere, func(*Inventory) func(any) error { return func(any) error { return nil } }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			told := 0
			inv := New(fake.NewClientset(), "node-1", func() { told++ }, func() { told++ })
			arrive := arriving(b, bm.object, bm.to(inv))
			arrive()
			told = 0
			b.ReportAllocs()
			for b.Loop() {
				arrive()
			}
			if told != 0 {
				b.Errorf("%d changes told", told)
			}
		})
	}
}

// largePod is about 10 KiB of JSON.
func largePod(n int) *corev1.Pod {
	p := fullPod()
	p.Name = fmt.Sprintf("pod-%d", n)
	for i := range 60 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "http://backend.namespace.svc:8080/path"})
	}
	for i := range 10 {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(string(make([]byte, 500)))})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(fmt.Sprint("c", i)), Message: "a message of the usual length"})
	}
	return p
}

// What stays in memory of 1000 objects: of Pods what the model reads, of Services that are not enabled nothing.
func BenchmarkKept(b *testing.B) {
	const n = 1000
	for _, bm := range []struct {
		name   string
		object func(int) apiruntime.Object
		to     func(*Inventory) func(any) error
	}{
		{"pod", func(n int) apiruntime.Object { return largePod(n) }, func(i *Inventory) func(any) error { return i.pods.Update }},
		{"foreign-service", func(n int) apiruntime.Object {
			svc := fullService()
			svc.Name, svc.Annotations = fmt.Sprintf("service-%d", n), nil
			return svc
		}, func(i *Inventory) func(any) error { return i.services.Update }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var kept uint64
			for b.Loop() {
				inv := New(fake.NewClientset(), "node-1", func() {}, func() {})
				before := live()
				for i := range n {
					arriving(b, bm.object(i), bm.to(inv))()
				}
				kept = live() - before
				runtime.KeepAlive(inv)
			}
			b.ReportMetric(float64(int64(kept))/n, "B/object")
		})
	}
}

// live is the size of the objects that are reachable.
func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
