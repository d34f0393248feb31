package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// refusals tries what must fail with one clear message and leave nothing, and after each that a lab can still start is
// shown by the one that all tests use. It runs before that one, because a process has one lab at a time.
func refusals() int {
	broken := filepath.Join("/run", "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho this is broken >&2\nexit 3\n"), 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended, end := context.WithCancel(context.Background())
	end()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		options lab.Options
		want    []string
	}{
		{"nodes", context.Background(), lab.Options{Nodes: 10}, []string{"nodes 10: the lab has room for 1 to 9"}},
		{"pod network", context.Background(), lab.Options{PodNetwork: "vxlan"}, []string{`pod network "vxlan": use "routed", "bridged" or "overlay"`}},
		{"name", context.Background(), lab.Options{Name: "No/Name"}, []string{`name "No/Name": use up to 32`}},
		{"broken program", context.Background(), lab.Options{Programs: lab.Programs{ControlPlane: broken}},
			[]string{"ended: exit status 3", "this is broken"}},
		{"missing program", context.Background(), lab.Options{Programs: lab.Programs{ControlPlane: "/nowhere"}},
			[]string{"start etcd", "/nowhere: no such file"}},
		{"interrupted", ended, lab.Options{}, []string{context.Canceled.Error()}},
	} {
		_, err := lab.Start(test.ctx, test.options)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				fmt.Fprintf(os.Stderr, "%s: Start = %v, want an error containing %q\n", test.name, err, want)
				return 1
			}
		}
		if left, _ := filepath.Glob("/run/netns/*"); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "%s: left behind: %v\n", test.name, left)
			return 1
		}
		if left, _ := filepath.Glob("/proc/[0-9]*"); len(left) != 2 { // PID 1 and this process
			fmt.Fprintf(os.Stderr, "%s: processes left behind: %v\n", test.name, left)
			return 1
		}
		if _, err := os.Stat("/run/lab"); !os.IsNotExist(err) {
			fmt.Fprintf(os.Stderr, "%s: /run/lab left behind: %v\n", test.name, err)
			return 1
		}
	}
	return 0
}

func TestNodes(t *testing.T) {
	nodes, err := theLab.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 3 || len(theLab.Nodes()) != 3 {
		t.Fatalf("%d Nodes in the cluster, %v in the lab, want 3", len(nodes.Items), theLab.Nodes())
	}
	for i, node := range nodes.Items {
		var addresses []string
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				addresses = append(addresses, address.Address)
			}
		}
		want := []string{lab.NodeAddress(node.Name).String(), lab.NodeAddress6(node.Name).String()}
		if node.Name != theLab.Nodes()[i] || strings.Join(addresses, " ") != strings.Join(want, " ") || len(node.Spec.PodCIDRs) != 2 {
			t.Errorf("Node %s has addresses %v and Pod ranges %v, want %v and two", node.Name, addresses, node.Spec.PodCIDRs, want)
		}
	}
}

func TestKubectlAndServerAgreeOnTheVersion(t *testing.T) {
	out, err := theLab.Kubectl(t.Context(), "version")
	if err != nil || !strings.Contains(out, "Client Version: v1.36.3") || !strings.Contains(out, "Server Version: v1.36.3") {
		t.Errorf("kubectl version: %v\n%s", err, out)
	}
	if _, err := theLab.Kubectl(t.Context(), "get", "nonsense"); err == nil || !strings.Contains(err.Error(), `doesn't have a resource type "nonsense"`) {
		t.Errorf("kubectl's own message is not in the error: %v", err)
	}
	if out, err := theLab.Helm(t.Context(), "list", "--all-namespaces"); err != nil {
		t.Errorf("helm list: %v\n%s", err, out)
	}
}

const echo = `apiVersion: apps/v1
kind: Deployment
metadata: {name: echo, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: ghcr.io/nplbridge/echo:lab
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: default}
spec:
  selector: {app: echo}
  ipFamilyPolicy: PreferDualStack
  type: NodePort
  ports: [{port: 80, targetPort: 8080}]
`

// One story through the whole lab: a Deployment scales, its Pods are reached in every way that a lab offers.
func TestDeployment(t *testing.T) {
	ctx := t.Context()
	began := time.Now()
	if err := theLab.Apply(ctx, echo); err != nil {
		t.Fatal(err)
	}
	pods := running(t, 4)
	t.Logf("4 Pods ready in %.1f s", time.Since(began).Seconds())
	pod := pods[0]

	for _, where := range []string{"", "lb", "client", "node-1", "node-2", "node-3", "pod:default/" + pods[1].Name} {
		for _, ip := range pod.Status.PodIPs {
			if err := get(ctx, where, address(ip.IP, 8080)); err != nil {
				t.Errorf("%s from %q: %v", ip.IP, where, err)
			}
		}
	}
	out, err := theLab.Command(ctx, "pod:default/"+pod.Name, "ip", "-o", "address").Output()
	if err != nil || !strings.Contains(string(out), pod.Status.PodIP+"/") {
		t.Errorf("ip address in the Pod: %v\n%s\nwant %s", err, out, pod.Status.PodIP)
	}
	var exit *exec.ExitError
	if err := theLab.Command(ctx, "node-1", "sh", "-c", "exit 4").Run(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("a command that exits 4 ends with %v", err)
	}
	if err := theLab.Command(ctx, "node-9", "true").Run(); err == nil || !strings.Contains(err.Error(), `no place "node-9"`) {
		t.Errorf("a command nowhere: %v", err)
	}
	if out, err := theLab.Kubectl(ctx, "logs", "deployment/echo"); err != nil {
		t.Errorf("kubectl logs: %v\n%s", err, out)
	}

	relayed, err := theLab.Relay("node-2", address(pod.Status.PodIP, 8080))
	if err != nil || !strings.HasPrefix(relayed, "127.0.0.1:") {
		t.Errorf("Relay = %q, %v", relayed, err)
	}
	if _, err := theLab.Relay("node-2", "localhost:80"); err == nil {
		t.Error("a relay to a name is not refused")
	}

	if _, err := theLab.Kubectl(ctx, "scale", "deployment", "echo", "--replicas=7"); err != nil {
		t.Fatal(err)
	}
	running(t, 7)
	if _, err := theLab.Kubectl(ctx, "scale", "deployment", "echo", "--replicas=1"); err != nil {
		t.Fatal(err)
	}
	last := running(t, 1)[0]

	if err := theLab.KillContainer("default", last.Name, "echo"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now, err := theLab.Client().CoreV1().Pods("default").Get(ctx, last.Name, metav1.GetOptions{})
		if err == nil && (now.Status.ContainerStatuses[0].RestartCount == 0 || !ready(*now)) {
			err = fmt.Errorf("the container was killed and has not restarted: %+v", now.Status.ContainerStatuses)
		}
		return err
	})
	testKubeProxy(t)
}

// With kube-proxy on one Node, ClusterIP and NodePort work there and nowhere else; without it again, nowhere.
func testKubeProxy(t *testing.T) {
	ctx := t.Context()
	service, err := theLab.Client().CoreV1().Services("default").Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodePort := func(node string) string {
		return address(lab.NodeAddress(node).String(), int(service.Spec.Ports[0].NodePort))
	}
	for range 2 { // again is nothing
		if err := theLab.StartKubeProxy(ctx, "node-1", lab.NFTables); err != nil {
			t.Fatal(err)
		}
	}
	for _, ip := range service.Spec.ClusterIPs {
		if err := get(ctx, "node-1", address(ip, 80)); err != nil {
			t.Errorf("ClusterIP %s where kube-proxy runs: %v", ip, err)
		}
		if err := get(ctx, "node-2", address(ip, 80)); err == nil {
			t.Errorf("ClusterIP %s answers where no kube-proxy runs", ip)
		}
	}
	if err := get(ctx, "client", nodePort("node-1")); err != nil {
		t.Errorf("NodePort where kube-proxy runs: %v", err)
	}
	if err := get(ctx, "client", nodePort("node-2")); err == nil {
		t.Error("NodePort answers where no kube-proxy runs")
	}
	for range 2 {
		if err := theLab.StopKubeProxy("node-1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := get(ctx, "client", nodePort("node-1")); err == nil {
		t.Error("NodePort answers after kube-proxy was stopped")
	}
	rules, err := theLab.Command(ctx, "node-1", "nft", "list", "tables").Output()
	if err != nil || bytes.Contains(rules, []byte("kube-proxy")) {
		t.Errorf("rules after kube-proxy was stopped: %v\n%s", err, rules)
	}
}

func TestAuditLogNamesTheNodes(t *testing.T) {
	eventually(t, func() error {
		content, err := os.ReadFile(theLab.AuditLog())
		if err == nil && !bytes.Contains(content, []byte(`"username":"system:node:node-1","groups":["system:nodes"`)) {
			err = fmt.Errorf("no request of system:node:node-1 in %d bytes", len(content))
		}
		return err
	})
}

func TestOneLabInOneProcess(t *testing.T) {
	_, err := lab.Start(t.Context(), lab.Options{})
	if err == nil || !strings.Contains(err.Error(), "this process runs a lab already") {
		t.Errorf("a second lab: %v", err)
	}
	if err := theLab.Failed(); err != nil {
		t.Errorf("the first lab after that: %v", err)
	}
	if _, err := theLab.Kubectl(t.Context(), "get", "nodes"); err != nil {
		t.Errorf("the first lab after that: %v", err)
	}
}

// running waits until so many Pods of the Deployment are there and ready.
func running(t *testing.T, want int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, func() error {
		list, err := theLab.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=echo"})
		if err != nil {
			return err
		}
		pods = list.Items
		good := 0
		for _, pod := range pods {
			if ready(pod) {
				good++
			}
		}
		if good != want || len(pods) != want {
			return fmt.Errorf("%d Pods, %d of them ready, want %d", len(pods), good, want)
		}
		return nil
	})
	return pods
}

func ready(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// get makes one HTTP request to the echo server from a place.
func get(ctx context.Context, where, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := theLab.Dial(ctx, where, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !bytes.Contains(answer, []byte(" 200 OK")) {
		err = fmt.Errorf("%s answers %q", address, answer)
	}
	return err
}

func address(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d", host, port)
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
