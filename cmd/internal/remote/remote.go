// Package remote asks a process in the cluster for its status: through the API server, by a port-forward to the loopback address on
// which the process serves it. Who may do that is Kubernetes' to say, by the right to create pods/portforward.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nplbridge/nplbridge/cmd/internal/serve"
)

// Target says which process to ask.
type Target struct {
	Namespace string
	Selector  string // labels of the Pods that it may be
	Lease     string // whose holder is asked, if it is one of them
	Process   string // name of a Pod to ask instead
	Port      uint16 // on the Pod's loopback address
}

// Choose returns the name of the Pod to ask.
func Choose(ctx context.Context, client kubernetes.Interface, t Target) (string, error) {
	list, err := client.CoreV1().Pods(t.Namespace).List(ctx, metav1.ListOptions{LabelSelector: t.Selector})
	if err != nil {
		return "", fmt.Errorf("list Pods %s in namespace %s: %w", t.Selector, t.Namespace, err)
	}
	var names []string
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	holder := t.Process
	if holder == "" {
		lease, err := client.CoordinationV1().Leases(t.Namespace).Get(ctx, t.Lease, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return "", fmt.Errorf("read Lease %s/%s: %w", t.Namespace, t.Lease, err)
		}
		if err == nil && lease.Spec.HolderIdentity != nil {
			holder = *lease.Spec.HolderIdentity
		}
	}
	switch {
	case slices.Contains(names, holder):
		return holder, nil
	case t.Process != "":
		return "", fmt.Errorf("no Pod %s with the labels %s runs in namespace %s; there are: %s", t.Process, t.Selector, t.Namespace, some(names))
	case len(names) == 0 && holder != "":
		return "", fmt.Errorf("%s holds the Lease %s/%s and is no Pod there: run this command where it runs, without --remote", holder, t.Namespace, t.Lease)
	case len(names) == 0:
		return "", fmt.Errorf("no Pod with the labels %s runs in namespace %s; set instance to namespace/name of the Helm release", t.Selector, t.Namespace)
	default:
		return names[0], nil
	}
}

func some(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Status returns the status document of the process in a Pod.
func Status(ctx context.Context, config *rest.Config, t Target, pod string) ([]byte, error) {
	dialer, err := dialer(config, t.Namespace, pod)
	if err != nil {
		return nil, err
	}
	document, err := read(ctx, dialer, t.Port)
	if err != nil {
		return nil, fmt.Errorf("ask the process in Pod %s/%s on port %d of its loopback address: %w", t.Namespace, pod, t.Port, err)
	}
	return document, nil
}

// reasonPatience is how long the other end may take to say why it ended a stream: that comes on another one.
const reasonPatience = 2 * time.Second

// read asks through one port-forward, without a listener here that others could use.
func read(ctx context.Context, dialer httpstream.Dialer, port uint16) ([]byte, error) {
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	complaint, err := connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = complaint.Close() // we have nothing to complain about
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(complaint, 4<<10))
		said <- strings.Join(strings.Fields(string(text)), " ")
	}()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	document, err := serve.ReadStatusOver(ctx, stream{data})
	if err == nil || ctx.Err() != nil {
		return document, err
	}
	end := time.AfterFunc(reasonPatience, func() { _ = connection.Close() })
	defer end.Stop()
	if text := <-said; text != "" {
		err = errors.New(text)
	}
	return nil, fmt.Errorf("%w; set statusAddress there", err)
}

// stream is a stream as a net.Conn.
type stream struct{ httpstream.Stream }

func (stream) LocalAddr() net.Addr              { return address{} }
func (stream) RemoteAddr() net.Addr             { return address{} }
func (stream) SetDeadline(time.Time) error      { return nil } // whoever made the connection closes it when time is up
func (stream) SetReadDeadline(time.Time) error  { return nil }
func (stream) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "port-forward" }
func (address) String() string  { return "port-forward" }

// dialer speaks to the API server as kubectl does: by WebSocket, and by SPDY where that is refused.
func dialer(config *rest.Config, namespace, pod string) (httpstream.Dialer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build the client: %w", err)
	}
	at := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	return dialerTo(config, at)
}

func dialerTo(config *rest.Config, at *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("build the transport to %s: %w", at.Host, err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		return nil, fmt.Errorf("build the transport to %s: %w", at.Host, err)
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
