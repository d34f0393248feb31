package lbsync_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// stream is an API server that only does what a reflector asks of it first: one watch of each resource, in protobuf, beginning with all
// objects. Events are encoded beforehand, so that sending them costs next to nothing.
type stream struct {
	tb    testing.TB
	first map[string][]byte // by resource
	pods  chan []byte       // what comes after the first Pods
}

// newStream returns a client of an API server with these objects; by resource, make returns the i-th of n.
func newStream(tb testing.TB, objects map[string]objects) (*stream, kubernetes.Interface) {
	s := &stream{tb: tb, first: map[string][]byte{}, pods: make(chan []byte)}
	for resource, all := range objects {
		var out bytes.Buffer
		for i := range all.n {
			out.Write(event(tb, watch.Added, all.make(i)))
		}
		end := all.make(0)
		o := end.(metav1.Object)
		o.SetResourceVersion(fmt.Sprint(all.n + 1))
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		out.Write(event(tb, watch.Bookmark, end))
		s.first[resource] = out.Bytes()
	}
	server := httptest.NewServer(s)
	tb.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return s, client
}

// objects are all of one resource, each with APIVersion and Kind.
type objects struct {
	n    int
	make func(i int) runtime.Object
}

func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") != "true" {
		s.tb.Errorf("not a streamed list: %s", r.URL)
		http.Error(w, "not a streamed list", http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	flush := w.(http.Flusher).Flush
	_, err := w.Write(s.first[resource])
	flush()
	for err == nil {
		var more chan []byte
		if resource == "pods" {
			more = s.pods
		}
		select {
		case frames := <-more:
			_, err = w.Write(frames)
			flush()
		case <-r.Context().Done():
			return
		}
	}
}

var encoder = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// event is an event of a watch in protobuf: its length and itself.
func event(tb testing.TB, of watch.EventType, object runtime.Object) []byte {
	var raw bytes.Buffer
	err := encoder.Encode(object, &raw)
	var body []byte
	if err == nil {
		body, err = (&metav1.WatchEvent{Type: string(of), Object: runtime.RawExtension{Raw: raw.Bytes()}}).Marshal()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}
}
