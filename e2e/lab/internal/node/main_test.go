package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/build"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/controlplane"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
)

// programsVariable carries the built programs from the launcher into containment.
const programsVariable = "NODE_TEST_PROGRAMS"

// The tests run contained, with a real control plane and the lab's network.
func TestMain(m *testing.M) {
	MaybeRunContainer()
	contain.Init()
	var environment []string
	if !contain.Inside() {
		programs, err := build.All(context.Background(), os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		document, err := json.Marshal(programs)
		if err != nil {
			panic(err)
		}
		environment = append(environment, programsVariable+"="+string(document))
	}
	contain.Run(environment, os.Stderr, func() int {
		defer shared.stop()
		return m.Run()
	})
}

// cluster is a control plane with one Node that this package runs.
type cluster struct {
	admin  *rest.Config
	client kubernetes.Interface
	node   *Node
	state  string // the Node's StateDir
	stop   func()
}

// shared is the cluster of all tests, started by the first that wants it.
var shared lazyCluster

type lazyCluster struct {
	once sync.Once
	c    *cluster
	err  error
}

func (l *lazyCluster) stop() {
	if l.c != nil {
		l.c.stop()
	}
}

func theCluster(t *testing.T) *cluster {
	t.Helper()
	shared.once.Do(func() { shared.c, shared.err = startCluster() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.c
}

// adapter makes the lab's network a PodNetwork.
type adapter struct{ *network.Node }

func (a adapter) Attach(podUID string) (PodSandbox, error) {
	s, err := a.Node.Attach(podUID)
	return PodSandbox{NetNSPath: s.Path, IPs: s.Addresses}, err
}

func startCluster() (*cluster, error) {
	var programs build.Programs
	if err := json.Unmarshal([]byte(os.Getenv(programsVariable)), &programs); err != nil {
		return nil, err
	}
	const dir = "/run/test"
	for _, d := range []string{"controlplane", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	net, err := network.New(network.Options{Nodes: 1, Pods: network.Routed})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Program: programs.ControlPlane, Dir: dir + "/controlplane", Logs: dir + "/logs",
		Addresses: network.ControlPlane(), APIService: network.APIService, Services: network.Services,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	fail := func(err error) (*cluster, error) { cancel(); cp.Stop(); return nil, err }
	admin, err := cp.Admin()
	if err != nil {
		return fail(err)
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fail(err)
	}
	host := net.Nodes()[0]
	config, err := cp.Node(host.Name())
	if err != nil {
		return fail(err)
	}
	log := zap.NewNop()
	if os.Getenv("NODE_TEST_LOG") != "" {
		log = zap.Must(zap.NewDevelopment())
	}
	node, err := New(Config{
		Name: host.Name(), Addresses: host.Addresses, PodCIDRs: host.PodCIDRs, RESTConfig: config, Network: adapter{host},
		NetNSPath: host.Path(), StateDir: dir + "/node-1", Log: log, Heartbeat: 100 * time.Millisecond,
		ServiceHost: network.APIService.String(), ServicePort: controlplane.Port,
		Programs: map[string]string{"ghcr.io/nplbridge/echo": programs.Echo, "sh": "/bin/sh"},
	})
	if err != nil {
		return fail(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- node.Run(ctx) }()
	stop := func() {
		cancel()
		if err := <-ran; err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		cp.Stop()
	}
	return &cluster{admin, client, node, dir + "/node-1", stop}, nil
}

// patience is how long a test waits for anything.
const patience = time.Minute

func poll(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s: %s", patience, what())
		}
	}
}

// create makes a Pod bound to the Node from a spec in YAML, and removes it after the test.
func (c *cluster) create(t *testing.T, name, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", Labels: map[string]string{"app": name}, Annotations: map[string]string{"note": "one"},
	}}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(spec, "\t", "  ")), &pod.Spec); err != nil {
		t.Fatalf("spec of %s: %v", name, err)
	}
	pod.Spec.NodeName = c.node.cfg.Name
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1)) // most scripts here do not listen to signals
	}
	poll(t, func() string { return "create " + name }, func() bool {
		created, err := c.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) { // the ServiceAccount is not there yet
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		pod = created
		return true
	})
	t.Cleanup(func() {
		zero := int64(0)
		err := c.client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", name, err)
		}
	})
	return pod
}

// until waits for the Pod to be as wanted and returns it so.
func (c *cluster) until(t *testing.T, name string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	poll(t, func() string {
		status, _ := yaml.Marshal(last.Status)
		return fmt.Sprintf("Pod %s never came to be as wanted, its status is\n%s\nits log:\n%s", name, status, c.logs(last, last.Spec.Containers[0].Name))
	}, func() bool {
		pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = pod
		return ok(pod)
	})
	return last
}

func (c *cluster) gone(t *testing.T, name string) {
	t.Helper()
	poll(t, func() string { return name + " is still there" }, func() bool {
		_, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// logs is what a container's newest run printed.
func (c *cluster) logs(pod *corev1.Pod, container string) string {
	var number int32
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if s.Name == container {
			number = s.RestartCount
		}
	}
	text, _ := os.ReadFile(c.node.podDir(pod).log(container, number))
	return string(text)
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return "absent"
}

func isReady(pod *corev1.Pod) bool { return condition(pod, corev1.PodReady) == corev1.ConditionTrue }

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// writeHost makes an empty file where a hostPath of the Node shows it.
func writeHost(c *cluster, path string) error {
	return os.WriteFile(c.state+"/host"+path, nil, 0o644)
}
