package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/controlplane"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node"
)

// nodes runs the lab's Nodes.
type nodes struct {
	byName map[string]*node.Node
	cancel context.CancelFunc
	ran    sync.WaitGroup
	failed chan error // room for one error of each
}

// podNetwork gives the Pods of a Node their network.
type podNetwork struct{ *network.Node }

func (p podNetwork) Attach(podUID string) (node.PodSandbox, error) {
	sandbox, err := p.Node.Attach(podUID)
	return node.PodSandbox{NetNSPath: sandbox.Path, IPs: sandbox.Addresses}, err
}

// images are the programs that stand for container images.
func (l *Lab) images() map[string]string {
	programs := map[string]string{
		"ghcr.io/nplbridge/npl-agent": l.options.Programs.NPLAgent,
		"ghcr.io/nplbridge/lbsync":    l.options.Programs.LBSync,
		"ghcr.io/nplbridge/echo":      l.options.Programs.Echo,
	}
	// A lab without HAProxy can do everything else.
	if haproxy, err := findHAProxy(); err == nil {
		programs["haproxy"] = haproxy
		programs["docker.io/library/haproxy"] = haproxy
	}
	return programs
}

func (l *Lab) startNodes(ctx context.Context) error {
	running, cancel := context.WithCancel(context.Background())
	l.nodes = &nodes{byName: map[string]*node.Node{}, cancel: cancel, failed: make(chan error, l.options.Nodes)}
	l.onClose(l.stopNodes)
	for _, place := range l.network.Nodes() {
		identity, err := l.controlPlane.Node(place.Name())
		if err != nil {
			return err
		}
		log, err := logTo(l.logFile(place.Name()))
		if err != nil {
			return err
		}
		n, err := node.New(node.Config{
			Name:        place.Name(),
			Addresses:   place.Addresses,
			PodCIDRs:    place.PodCIDRs,
			RESTConfig:  identity,
			Network:     podNetwork{place},
			NetNSPath:   place.Path(),
			Programs:    l.images(),
			StateDir:    filepath.Join(workDir, "nodes", place.Name()),
			ServiceHost: network.APIService.String(),
			ServicePort: controlplane.Port,
			Heartbeat:   l.options.NodeGrace / 10,
			Log:         log,
		})
		if err != nil {
			return err
		}
		l.nodes.byName[place.Name()] = n
		l.nodes.ran.Go(func() {
			if err := n.Run(running); err != nil {
				l.nodes.failed <- err
			}
		})
	}
	return l.waitNodes(ctx)
}

func logTo(path string) (*zap.Logger, error) {
	config := zap.NewDevelopmentConfig()
	config.Level.SetLevel(zap.InfoLevel)
	config.OutputPaths, config.ErrorOutputPaths = []string{path}, []string{path}
	log, err := config.Build()
	if err != nil {
		return nil, fmt.Errorf("log file %s: %w", path, err)
	}
	return log, nil
}

func (l *Lab) stopNodes() error {
	l.nodes.cancel()
	l.nodes.ran.Wait()
	return nil
}

func (l *Lab) waitNodes(ctx context.Context) error {
	var waiting error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-l.nodes.failed:
			return false, err
		default:
		}
		if err := l.Failed(); err != nil {
			return false, err
		}
		waiting = l.allReady(ctx)
		return waiting == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("wait for Nodes: %w", errors.Join(waiting, err))
	}
	return err
}

// allReady returns nil when all Nodes are Ready, else how far they are.
func (l *Lab) allReady(ctx context.Context) error {
	list, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, item := range list.Items {
		if isReady(item) {
			ready++
		}
	}
	if ready != l.options.Nodes {
		return fmt.Errorf("%d of %d Nodes are Ready", ready, l.options.Nodes)
	}
	return nil
}

func isReady(n corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// KillContainer kills a running container with SIGKILL, as if it had crashed; its Node then restarts it.
func (l *Lab) KillContainer(namespace, pod, container string) error {
	return l.SignalContainer(namespace, pod, container, syscall.SIGKILL)
}

// SignalContainer sends a signal to a running container: SIGSTOP freezes it, SIGCONT lets it go on.
func (l *Lab) SignalContainer(namespace, pod, container string, signal syscall.Signal) error {
	found, err := l.client.CoreV1().Pods(namespace).Get(context.Background(), pod, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("signal container %s of Pod %s/%s: %w", container, namespace, pod, err)
	}
	n := l.nodes.byName[found.Spec.NodeName]
	if n == nil {
		return fmt.Errorf("signal container %s of Pod %s/%s: the Pod is on no Node of this lab", container, namespace, pod)
	}
	return n.SignalContainer(string(found.UID), container, signal)
}

// Reboot does to a Node what a restart of its machine does: everything on it dies at once, the rules and connections in its kernel are
// gone, and then its Pods are started anew, with other addresses. kube-proxy, if it runs there, is not started again.
func (l *Lab) Reboot(ctx context.Context, nodeName string) error {
	n := l.nodes.byName[nodeName]
	if n == nil {
		return fmt.Errorf("reboot: no Node %q in this lab", nodeName)
	}
	return n.Reboot(ctx, func() error {
		ns, err := l.network.Namespace(nodeName)
		if err != nil {
			return err
		}
		_, err = output(l.Command(ctx, nodeName, "nft", "flush", "ruleset"), "flush the rules of "+nodeName)
		return errors.Join(err, ns.ForgetConnections())
	})
}

// PauseHeartbeats makes a Node look lost to everyone else while its Pods keep running, or lets it come back.
func (l *Lab) PauseHeartbeats(nodeName string, paused bool) error {
	n := l.nodes.byName[nodeName]
	if n == nil {
		return fmt.Errorf("pause heartbeats: no Node %q in this lab", nodeName)
	}
	n.PauseHeartbeats(paused)
	return nil
}

// findHAProxy finds the program where Debian puts it even when PATH does not have that directory.
func findHAProxy() (string, error) {
	if path, err := exec.LookPath("haproxy"); err == nil {
		return filepath.Abs(path)
	}
	for _, path := range []string{"/usr/sbin/haproxy", "/usr/local/sbin/haproxy"} {
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the program haproxy is not installed: sudo apt-get install haproxy, or `make deps`")
}
