// Package remotetest has an API server for tests of port-forwards.
package remotetest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Server is an API server that forwards ports to one Pod, as a kubelet does behind it: by SPDY, with the WebSocket refused, to addresses of
// this machine instead of the Pod's. Everything else is for rest, which may be nil.
func Server(t *testing.T, namespace, pod string, rest http.Handler) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	if rest != nil {
		mux.Handle("/", rest)
	}
	mux.HandleFunc("/api/v1/namespaces/"+namespace+"/pods/"+pod+"/portforward", func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "only SPDY", http.StatusBadRequest)
			return
		}
		forward(t, w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func forward(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if connection == nil {
		return
	}
	defer func() { _ = connection.Close() }()
	complaint, data := <-streams, <-streams
	if complaint.Headers().Get(corev1.StreamType) != corev1.StreamTypeError || data.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
		t.Error("the streams came in another order")
	}
	backend, err := net.Dial("tcp", "127.0.0.1:"+data.Headers().Get(corev1.PortHeader))
	if err != nil {
		_ = data.Reset() // whoever asks must wait for the reason
		_, _ = fmt.Fprintf(complaint, "failed to connect to localhost:\n%v", err)
		_ = complaint.Close()
		<-connection.CloseChan()
		return
	}
	defer func() { _ = backend.Close() }()
	_ = complaint.Close()
	go func() { _, _ = io.Copy(backend, data) }()
	_, _ = io.Copy(data, backend)
	_ = data.Close()
	<-connection.CloseChan()
}
