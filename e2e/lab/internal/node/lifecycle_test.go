package node

import (
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (c *cluster) delete(t *testing.T, name string) {
	t.Helper()
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func mainStatus(pod *corev1.Pod) corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return pod.Status.ContainerStatuses[0]
}

func TestTerminationSequence(t *testing.T) {
	c := theCluster(t)
	pod := c.create(t, "graceful", `
terminationGracePeriodSeconds: 600
containers:
- name: main
  image: sh
  command: [sh, -c, 'trap "echo term >> /data/order; exit 0" TERM; echo up >> /data/order; while :; do sleep 0.02; done']
  readinessProbe: {exec: {command: [test, -s, /data/order]}, periodSeconds: 1}
  lifecycle: {preStop: {exec: {command: [sh, -c, 'echo preStop >> /data/order; until test -e /data/go; do sleep 0.02; done']}}}
  volumeMounts: [{name: data, mountPath: /data}]
initContainers:
- name: sidecar
  restartPolicy: Always
  image: sh
  command: [sh, -c, 'trap "echo sidecar >> /data/order; exit 0" TERM; while :; do sleep 0.02; done']
  volumeMounts: [{name: data, mountPath: /data}]
volumes: [{name: data, hostPath: {path: /tmp/order}}]
`)
	order := func() string {
		text, _ := os.ReadFile(c.state + "/host/tmp/order/order")
		return strings.Join(strings.Fields(string(text)), " ")
	}
	c.until(t, "graceful", isReady)
	c.delete(t, "graceful")
	poll(t, order, func() bool { return order() == "up preStop" })
	// Terminating Pods stay ready and keep their network as long as they run: that is what draining relies on.
	if got, err := c.client.CoreV1().Pods("default").Get(t.Context(), "graceful", metav1.GetOptions{}); err != nil || !isReady(got) {
		t.Errorf("while stopping: %v, %+v; want it ready", err, got.Status.Conditions)
	}
	if err := os.WriteFile(c.state+"/host/tmp/order/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.gone(t, "graceful")
	if got := order(); got != "up preStop term sidecar" {
		t.Errorf("order %q, want preStop, then SIGTERM, then the sidecar", got)
	}
	poll(t, func() string { return "the Pod's directory is still there" }, func() bool {
		_, err := os.Stat(string(c.node.podDir(pod)))
		return os.IsNotExist(err)
	})
}

func TestGraceEndsWithKill(t *testing.T) {
	c := theCluster(t)
	c.create(t, "stubborn", `
terminationGracePeriodSeconds: 600
containers: [{name: main, image: sh, command: [sh, -c, 'trap "" TERM; while :; do sleep 0.02; done']}]
`)
	c.until(t, "stubborn", isReady)
	c.delete(t, "stubborn")
	second := int64(1) // a second deletion shortens the grace
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: &second}); err != nil {
		t.Fatal(err)
	}
	c.gone(t, "stubborn")
}

func TestForcedRemovalStopsThePod(t *testing.T) {
	c := theCluster(t)
	pod := c.create(t, "forced", `
containers: [{name: main, image: sh, command: [sh, -c, 'sleep 1000']}]
`)
	c.until(t, "forced", isReady)
	zero := int64(0)
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "forced", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	poll(t, func() string { return "it still runs" }, func() bool { return c.node.worker(pod.UID) == nil })
}

func TestRestartAndBackOff(t *testing.T) {
	c := theCluster(t)
	pod := c.create(t, "crash", `
containers: [{name: main, image: sh, command: [sh, -c, 'echo I fail > /dev/termination-log; echo run; exit 7']}]
`)
	got := c.until(t, "crash", func(p *corev1.Pod) bool {
		s := mainStatus(p)
		return s.RestartCount >= 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
	last := mainStatus(got).LastTerminationState.Terminated
	if last == nil || last.ExitCode != 7 || last.Reason != "Error" || last.Message != "I fail\n" {
		t.Errorf("last run: got %+v", last)
	}
	if got.Status.Phase != corev1.PodRunning || isReady(got) {
		t.Errorf("got phase %s, ready %v; want Running and not ready", got.Status.Phase, isReady(got))
	}
	if text := c.logs(pod, "main"); text != "run\n" {
		t.Errorf("log of the first run %q", text)
	}
}

func TestKillHook(t *testing.T) {
	c := theCluster(t)
	pod := c.create(t, "victim", `containers: [{name: main, image: sh, command: [sleep, "1000"]}]`)
	c.until(t, "victim", isReady)
	before, ok := c.node.PID(string(pod.UID), "main")
	if !ok {
		t.Fatal("no process id")
	}
	if err := c.node.SignalContainer(string(pod.UID), "main", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := c.until(t, "victim", func(p *corev1.Pod) bool { return isReady(p) && mainStatus(p).RestartCount == 1 })
	if last := mainStatus(got).LastTerminationState.Terminated; last == nil || last.ExitCode != 137 || last.Signal != 9 {
		t.Errorf("last run: got %+v", last)
	}
	poll(t, func() string { return "the process id did not change" }, func() bool {
		after, ok := c.node.PID(string(pod.UID), "main")
		return ok && after != before
	})
	if err := c.node.SignalContainer(string(pod.UID), "nosuch", syscall.SIGKILL); err == nil {
		t.Error("killed a container that does not exist")
	}
}

func TestInitContainersRunInOrder(t *testing.T) {
	c := theCluster(t)
	c.create(t, "init", `
restartPolicy: Never
initContainers:
- {name: one, image: sh, command: [sh, -c, 'echo one >> /data/log'], volumeMounts: [{name: data, mountPath: /data}]}
- {name: side, image: sh, restartPolicy: Always, command: [sh, -c, 'echo side >> /data/log; sleep 1000'], startupProbe: {exec: {command: [grep, side, /data/log]}, periodSeconds: 1}, volumeMounts: [{name: data, mountPath: /data}]}
- {name: two, image: sh, command: [sh, -c, 'echo two >> /data/log'], volumeMounts: [{name: data, mountPath: /data}]}
containers:
- {name: main, image: sh, command: [sh, -c, 'cat /data/log'], volumeMounts: [{name: data, mountPath: /data}]}
volumes: [{name: data, emptyDir: {}}]
`)
	pod := c.until(t, "init", ended)
	if got := strings.Join(strings.Fields(c.logs(pod, "main")), " "); got != "one side two" || pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("got %q, phase %s", got, pod.Status.Phase)
	}
	if condition(pod, corev1.PodInitialized) != corev1.ConditionTrue || len(pod.Status.InitContainerStatuses) != 3 {
		t.Errorf("got %+v", pod.Status)
	}
}

func TestFailingInitContainer(t *testing.T) {
	c := theCluster(t)
	c.create(t, "noinit", `
restartPolicy: Never
initContainers: [{name: one, image: sh, command: [sh, -c, 'exit 1']}]
containers: [{name: main, image: sh, command: [sh, -c, 'true']}]
`)
	pod := c.until(t, "noinit", ended)
	if pod.Status.Phase != corev1.PodFailed || mainStatus(pod).State.Waiting == nil {
		t.Errorf("got phase %s, %+v", pod.Status.Phase, mainStatus(pod))
	}
}

func TestLivenessRestarts(t *testing.T) {
	c := theCluster(t)
	c.create(t, "sick", `
containers:
- name: main
  image: sh
  command: [sleep, "1000"]
  livenessProbe: {tcpSocket: {port: 81}, periodSeconds: 1, failureThreshold: 2}
`)
	got := c.until(t, "sick", func(p *corev1.Pod) bool { return mainStatus(p).RestartCount >= 1 })
	if last := mainStatus(got).LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
		t.Errorf("last run: got %+v", last)
	}
}

func TestReadinessFollowsTheProbe(t *testing.T) {
	c := theCluster(t)
	c.create(t, "flaky", `
containers:
- name: main
  image: sh
  command: [sleep, "1000"]
  readinessProbe: {exec: {command: [test, -e, /ready/yes]}, periodSeconds: 1, failureThreshold: 1}
  volumeMounts: [{name: ready, mountPath: /ready}]
volumes: [{name: ready, hostPath: {path: /tmp/flaky}}]
`)
	c.until(t, "flaky", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && !isReady(p) })
	yes := c.state + "/host/tmp/flaky/yes"
	if err := os.WriteFile(yes, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.until(t, "flaky", isReady)
	if err := os.Remove(yes); err != nil {
		t.Fatal(err)
	}
	c.until(t, "flaky", func(p *corev1.Pod) bool { return !isReady(p) && mainStatus(p).RestartCount == 0 })
}

func TestReadinessGateAndForeignFields(t *testing.T) {
	c := theCluster(t)
	c.create(t, "gated", `
readinessGates: [{conditionType: example.org/in-pool}]
containers: [{name: main, image: sh, command: [sleep, "1000"]}]
`)
	c.until(t, "gated", func(p *corev1.Pod) bool {
		return condition(p, corev1.ContainersReady) == corev1.ConditionTrue && condition(p, corev1.PodReady) == corev1.ConditionFalse
	})
	patch := `{"metadata":{"annotations":{"nodeportlocal.antrea.io":"x"}},"status":{"conditions":[{"type":"example.org/in-pool","status":"True"}]}}`
	if _, err := c.client.CoreV1().Pods("default").Patch(t.Context(), "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	pod := c.until(t, "gated", isReady)
	if pod.Annotations["nodeportlocal.antrea.io"] != "x" || condition(pod, "example.org/in-pool") != corev1.ConditionTrue {
		t.Errorf("what others wrote is gone: %v, %+v", pod.Annotations, pod.Status.Conditions)
	}
	// Whoever says that the Pod is not ready, as the node controller does to a lost Node's, is put right.
	patch = `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	changed, err := c.client.CoreV1().Pods("default").Patch(t.Context(), "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if isReady(changed) {
		t.Fatal("the patch had no effect")
	}
	c.until(t, "gated", isReady)
}

func TestWaitingReasons(t *testing.T) {
	c := theCluster(t)
	for name, tc := range map[string]struct{ spec, reason, message string }{
		"unknown-image":  {`containers: [{name: main, image: "example.org/x:1"}]`, "ImagePullBackOff", `has no local program for "example.org/x"; it knows ghcr.io/nplbridge/echo, sh`},
		"root-forbidden": {`containers: [{name: main, image: sh, securityContext: {runAsNonRoot: true, runAsUser: 0}}]`, "CreateContainerConfigError", "runAsNonRoot"},
		"no-configmap":   {`containers: [{name: main, image: sh, envFrom: [{configMapRef: {name: nosuch}}]}]`, "CreateContainerConfigError", `configmap "nosuch" not found`},
		"no-volume":      {"containers: [{name: main, image: sh}]\nvolumes: [{name: v, secret: {secretName: nosuch}}]", "ContainerCreating", `volume "v": secret "nosuch" not found`},
		"grpc":           {`containers: [{name: main, image: sh, livenessProbe: {grpc: {port: 1}}}]`, "CreateContainerConfigError", "grpc is not supported"},
		"no-program":     {`containers: [{name: main, image: sh, command: [/nosuch]}]`, "CrashLoopBackOff", "back-off"},
	} {
		t.Run(name, func(t *testing.T) {
			c.create(t, name, tc.spec)
			c.until(t, name, func(p *corev1.Pod) bool {
				w := mainStatus(p).State.Waiting
				return w != nil && w.Reason == tc.reason && strings.Contains(w.Message, tc.message)
			})
		})
	}
}

func TestEventsTellTheStory(t *testing.T) {
	c := theCluster(t)
	c.create(t, "story", `containers: [{name: main, image: sh, command: [sleep, "1000"]}]`)
	c.until(t, "story", isReady)
	poll(t, func() string { return "no Started event" }, func() bool {
		events, err := c.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=story,reason=Started"})
		return err == nil && len(events.Items) == 1
	})
}
