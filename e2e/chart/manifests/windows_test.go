package manifests

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The variables of the Windows DaemonSet are settings of npl-agent, and lbsync takes the ports of both kinds of Node.
func TestWindows(t *testing.T) {
	set := append([]string{"agent.config.coolDown=7m", "agent.config.nodeAddressTypes={ExternalIP,InternalIP}"}, combinations["Windows"]...)
	agent := named[*appsv1.DaemonSet](t, render(t, set...), "nplbridge-agent-windows")
	pod := agent.Spec.Template.Spec
	selects(t, agent.Spec.Selector.MatchLabels, agent.Spec.Template.Labels)
	if w := pod.SecurityContext.WindowsOptions; !*w.HostProcess || !pod.HostNetwork || pod.NodeSelector[corev1.LabelOSStable] != "windows" {
		t.Errorf("%+v", pod)
	}
	reference := read(t, "docs/reference/settings.md")
	env := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		env[e.Name] = e.Value
		if !strings.Contains(reference, "`"+e.Name+"`") {
			t.Errorf("there is no setting %s", e.Name)
		}
	}
	for name, want := range map[string]string{
		"PORT_RANGE": "40000-41000", "REPAIR_INTERVAL": "2m", "IP_FAMILIES": "IPv4", "COOL_DOWN": "7m", "PORT_REUSE": "confirmed",
		"WATERMARK_NAMESPACE": Namespace, "NODE_ADDRESS_TYPES": "ExternalIP,InternalIP", "NODE_ADDRESS_CIDRS": "", "LISTEN": ":10361",
	} {
		if got, has := env["NPL_AGENT_"+name]; !has || got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := settingsOf(t, "nplbridge-lbsync", set...)["portRange"]; got != "40000-62000" {
		t.Errorf("lbsync takes ports of %v", got)
	}
}
