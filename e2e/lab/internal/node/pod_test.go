package node

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/echo"
)

func TestNodeIsReadyAndUntainted(t *testing.T) {
	c := theCluster(t)
	var node *corev1.Node
	poll(t, func() string { return "the Node is not Ready and untainted" }, func() bool {
		var err error
		node, err = c.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		return err == nil && len(node.Spec.Taints) == 0 && node.Status.Conditions[len(node.Status.Conditions)-1].Status == corev1.ConditionTrue
	})
	if got := node.Labels[corev1.LabelHostname]; got != "node-1" {
		t.Errorf("label %s: got %q", corev1.LabelHostname, got)
	}
	// What the first report said must survive the later ones.
	beat := node.Status.Conditions[0].LastHeartbeatTime
	poll(t, func() string { return "no further report" }, func() bool {
		var err error
		node, err = c.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		return err == nil && node.Status.Conditions[0].LastHeartbeatTime.After(beat.Time)
	})
	if len(node.Spec.PodCIDRs) != 2 || node.Status.DaemonEndpoints.KubeletEndpoint.Port != logPort {
		t.Errorf("got PodCIDRs %v, endpoints %v", node.Spec.PodCIDRs, node.Status.DaemonEndpoints)
	}
}

const echoSpec = `
containers:
- name: echo
  image: ghcr.io/nplbridge/echo:dev
  args: [--linger, $(LINGER)]
  env:
  - {name: LINGER, value: 100ms}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  ports: [{name: web, containerPort: 8080}]
  readinessProbe: {httpGet: {path: /healthz, port: web}, periodSeconds: 1}
`

func TestPodServesAndStopsGracefully(t *testing.T) {
	c := theCluster(t)
	c.create(t, "echo", echoSpec)
	pod := c.until(t, "echo", isReady)
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || len(pod.Status.PodIPs) != 2 || pod.Status.HostIP != "172.30.0.11" {
		t.Errorf("got status %+v", pod.Status)
	}
	res, err := http.Get("http://" + pod.Status.PodIP + ":8080/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	var reply echo.Reply
	if err := json.Unmarshal(body, &reply); err != nil || reply.Pod != "echo" || reply.UID != string(pod.UID) || reply.Node != "node-1" || reply.Local.Addr().String() != pod.Status.PodIP {
		t.Errorf("got %s, %v", body, err)
	}
	if _, ok := c.node.PodNetNS("default", "echo"); !ok {
		t.Error("no network namespace")
	}
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "echo", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.gone(t, "echo")
	if _, ok := c.node.PodNetNS("default", "echo"); ok {
		t.Error("a network namespace after the Pod is gone")
	}
}
