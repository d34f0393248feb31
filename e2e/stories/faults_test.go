package stories

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

const systemNamespace = "nplbridge-system"

// death is what was seen of a component before it was killed: it has restarted when the number is another one.
type death struct {
	container string // agent: the Pod's name; else empty
	number    int    // restarts of the container, or process id
}

// crash agent NODE | crash lbsync | crash haproxy sends SIGKILL.
func (s *story) crash(_ *testscript.TestScript, args []string) (string, error) {
	lb := s.Balancer()
	switch args[0] {
	case "agent":
		pod, err := s.agentOn(args[1])
		if err != nil {
			return "", err
		}
		s.down["agent "+args[1]] = death{container: pod.Name, number: restarts(pod)}
		return "", s.Lab.KillContainer(systemNamespace, pod.Name, "npl-agent")
	case "lbsync":
		s.down[lb.Place()+" lbsync"] = death{number: lb.LBSyncPID()}
		return "", lb.KillLBSync()
	case "haproxy":
		s.down[lb.Place()+" haproxy"] = death{number: lb.HAProxyPID()}
		return "", lb.KillHAProxy()
	}
	return "", fmt.Errorf("crash: there is no component %q; use agent NODE, lbsync or haproxy", args[0])
}

// restarted waits until everything that was killed runs again and is ready.
func (s *story) restarted(_ *testscript.TestScript, _ []string) (string, error) {
	for what, d := range s.down {
		err := view.Poll(s.ctx, func() error {
			place, component, _ := strings.Cut(what, " ")
			lb, _ := s.Lab.LoadBalancerAt(place)
			switch component {
			case "lbsync":
				if pid := lb.LBSyncPID(); pid == d.number || pid == 0 {
					return errors.New("lbsync does not run again yet")
				}
				return lb.LBSyncReady(s.ctx)
			case "haproxy":
				if pid := lb.HAProxyPID(); pid == d.number || pid == 0 {
					return errors.New("haproxy does not run again yet")
				}
				return nil
			default:
				pod, err := s.Lab.Client().CoreV1().Pods(systemNamespace).Get(s.ctx, d.container, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if restarts(*pod) == d.number || !view.Ready(*pod) {
					return fmt.Errorf("the Pod %s has not restarted and become ready yet", d.container)
				}
				return nil
			}
		})
		if err != nil {
			return "", err
		}
		delete(s.down, what)
	}
	return "", nil
}

// freeze agent NODE | freeze lbsync stops it where it is, thaw lets it go on. What is frozen can be crashed.
func (s *story) freeze(_ *testscript.TestScript, args []string) (string, error) {
	return "", s.signal(args, syscall.SIGSTOP)
}

func (s *story) thaw(_ *testscript.TestScript, args []string) (string, error) {
	return "", s.signal(args, syscall.SIGCONT)
}

func (s *story) signal(who []string, signal syscall.Signal) error {
	if who[0] == "lbsync" {
		return s.Balancer().SignalLBSync(signal)
	}
	return s.signalAgent(who[1], signal)
}

func (s *story) signalAgent(node string, signal syscall.Signal) error {
	pod, err := s.agentOn(node)
	if err != nil {
		return err
	}
	return s.Lab.SignalContainer(systemNamespace, pod.Name, "npl-agent", signal)
}

// reboot NODE restarts everything on the Node, with empty tables in its kernel; "restarted" waits for its agent.
func (s *story) reboot(_ *testscript.TestScript, args []string) (string, error) {
	pod, err := s.agentOn(args[0])
	if err != nil {
		return "", err
	}
	s.down["agent "+args[0]] = death{container: pod.Name, number: restarts(pod)}
	return "", s.Lab.Reboot(s.ctx, args[0])
}

func (s *story) agentOn(node string) (corev1.Pod, error) {
	pods, err := s.Lab.Client().CoreV1().Pods(systemNamespace).List(s.ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return corev1.Pod{}, err
	}
	if len(pods.Items) != 1 {
		return corev1.Pod{}, fmt.Errorf("the Node %s has %d Pods of npl-agent, not one", node, len(pods.Items))
	}
	return pods.Items[0], nil
}

func restarts(p corev1.Pod) int {
	var n int
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// churn is a load that runs while other verbs do.
type churn struct{ short, long *load.Load }

// minRequests is how much a load must have asked to mean anything.
const minRequests = 500

// churn: load start ADDRESS | load stop. Stopping fails if any request failed.
func (s *story) churn(_ *testscript.TestScript, args []string) (string, error) {
	if args[0] == "start" {
		kept := s.client(args[1])
		kept.KeepAlive = true
		s.load = &churn{short: load.Start(s.ctx, s.client(args[1])), long: load.Start(s.ctx, kept)}
		return "", nil
	}
	if s.load == nil {
		return "", errors.New("load stop: no load runs")
	}
	err := view.Poll(s.ctx, func() error {
		if n := s.load.short.Result().Requests; n < minRequests {
			return fmt.Errorf("only %d requests so far", n)
		}
		return nil
	})
	short, long := s.load.stop()
	s.load = nil
	out := fmt.Sprintf("%d requests on new connections, %d failed; %d on kept ones, %d failed\n",
		short.Requests, short.Failed, long.Requests, long.Failed)
	if failed := short.Failed + long.Failed; failed > 0 {
		return out, fmt.Errorf("%d requests failed: %v %v", failed, short.Failures, long.Failures)
	}
	return out, err
}

func (c *churn) stop() (short, long load.Result) { return c.short.Stop(), c.long.Stop() }

func (s *story) client(target string) load.Options {
	return load.Options{Targets: []string{target}, Clients: 4, Timeout: 10 * time.Second, Dial: s.DialFrom("client")}
}
