package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Everything on a Node dies before its kernel is wiped, and runs again afterwards.
func TestReboot(t *testing.T) {
	c := theCluster(t)
	pod := c.create(t, "rebooted", `
containers: [{name: main, image: sh, command: [sh, -c, "sleep 7402"]}]
`)
	c.until(t, pod.Name, isReady)
	wiped := false
	err := c.node.Reboot(t.Context(), func() error {
		wiped = true
		if n := running(t, "sleep\x007402"); n > 0 {
			t.Errorf("%d processes run without power", n)
		}
		return nil
	})
	if err != nil || !wiped {
		t.Fatalf("wiped is %v, %v", wiped, err)
	}
	c.until(t, pod.Name, func(p *corev1.Pod) bool { return isReady(p) && mainStatus(p).RestartCount == 1 })
	poll(t, func() string { return "it does not run again" }, func() bool { return running(t, "sleep\x007402") > 0 })
	c.delete(t, pod.Name)
	c.gone(t, pod.Name)
}
