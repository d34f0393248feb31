package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// ownNetwork lets Pods share the network namespace of the test.
type ownNetwork struct{}

func (ownNetwork) Attach(string) (PodSandbox, error) {
	return PodSandbox{NetNSPath: "/proc/self/ns/net", IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, nil
}

func (ownNetwork) Detach(string) error { return nil }

// running counts the processes whose command line has the word.
func running(t *testing.T, word string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), word) {
			n++
		}
	}
	return n
}

func TestTheEndOfANodeIsTheEndOfItsProcesses(t *testing.T) {
	theCluster(t) // brings the loopback interface up
	client := fake.NewClientset()
	state := filepath.Join(t.TempDir(), "state")
	cfg := Config{
		Name: "other", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, RESTConfig: &rest.Config{}, Network: ownNetwork{},
		NetNSPath: "/proc/self/ns/net", StateDir: state, Programs: map[string]string{"sh": "/bin/sh"},
	}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	n := newNode(cfg, client)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	share := true
	for i := range 4 {
		shared := &share
		if i%2 == 0 {
			shared = nil
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("uid-", i))},
			Spec: corev1.PodSpec{NodeName: "other", ShareProcessNamespace: shared, Containers: []corev1.Container{{
				Name: "main", Image: "sh", Command: []string{"sh", "-c", "trap '' TERM; setsid sleep 7401 & sleep 7401"},
			}}},
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, func() string { return fmt.Sprintf("%d processes run, want 8", running(t, "sleep\x007401")) }, func() bool { return running(t, "sleep\x007401") == 8 })
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	poll(t, func() string { return "processes outlive their Node" }, func() bool { return running(t, "7401") == 0 })
	if left, err := os.ReadDir(filepath.Join(state, "pods")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestManyPodsComeAndGo(t *testing.T) {
	const count = 40
	c := theCluster(t)
	for i := range count {
		c.create(t, fmt.Sprint("many-", i), strings.Replace(echoSpec, "LINGER, value: 100ms", "LINGER, value: 0s", 1))
	}
	for i := range count {
		c.until(t, fmt.Sprint("many-", i), isReady)
	}
	for i := range count {
		c.delete(t, fmt.Sprint("many-", i))
	}
	for i := range count {
		c.gone(t, fmt.Sprint("many-", i))
	}
	poll(t, func() string { return "processes, namespaces or directories of removed Pods are left" }, func() bool {
		pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		namespaces, _ := filepath.Glob("/run/netns/pod-*")
		dirs, _ := filepath.Glob(c.state + "/pods/*")
		c.node.mu.Lock()
		workers := len(c.node.workers)
		c.node.mu.Unlock()
		left := len(pods.Items)
		return running(t, "/echo\x00") == 0 && len(namespaces) <= left && len(dirs) <= left && workers <= left
	})
}
