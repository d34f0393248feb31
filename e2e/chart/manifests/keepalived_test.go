package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// keepalived takes the configuration: the addresses of HAProxy's pools, each once, by family.
func TestKeepalivedConfiguration(t *testing.T) {
	set := append(slices.Clone(keepalivedValues), "lbsync.keepalived.virtualRouterID=7")
	config := named[*corev1.ConfigMap](t, render(t, set...), "nplbridge-keepalived").Data["keepalived.conf"]
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^        ([0-9a-f.:]+/[0-9]+)$`).FindAllStringSubmatch(config, -1) {
		got = append(got, m[1])
	}
	if diff := cmp.Diff([]string{"192.0.2.10/32", "192.0.2.11/32", "2001:db8::10/128"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := strings.Count(config, "virtual_router_id 7\n"); n != 2 {
		t.Errorf("%d instances:\n%s", n, config)
	}
	file := filepath.Join(t.TempDir(), "keepalived.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// It wants an interface to be there: eth0 of a network of its own.
	check := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--net", "sh", "-c",
		`ip link add eth0 type veth peer name eth1 && ip link set eth0 up && exec keepalived --config-test --use-file "$0"`, file)
	check.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("keepalived --config-test: %v\n%s\n%s", err, out, config)
	}
}

// Tried: without SETGID keepalived starts no check, and a Node without HAProxy takes the addresses.
func TestKeepalivedPod(t *testing.T) {
	pod := embeddedOf(t, keepalivedValues...).Spec.Template.Spec
	hardened(t, pod, "keepalived", "NET_ADMIN", "NET_RAW", "SETGID")
	if len(pod.InitContainers) != 1 || !*pod.InitContainers[0].SecurityContext.Privileged {
		t.Errorf("nobody lets HAProxy bind the addresses of other Nodes: %+v", pod.InitContainers)
	}
	if pod := embeddedOf(t, combinations["keepalived alone"]...).Spec.Template.Spec; len(pod.InitContainers) != 0 {
		t.Errorf("init containers %+v", pod.InitContainers)
	}
	settings := settingsOf(t, "nplbridge-lbsync", keepalivedValues...)["haproxy"].(map[string]any)
	if _, has := settings["nodeAddresses"]; has || settings["announce"] != "interface" {
		t.Errorf("settings %v", settings)
	}
	config := named[*corev1.ConfigMap](t, render(t), "nplbridge-haproxy").Data["haproxy.cfg"]
	if !strings.Contains(config, "bind 127.0.0.1:8405") {
		t.Error("nobody answers keepalived's check")
	}
}
