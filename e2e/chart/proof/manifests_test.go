package proof

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// combinations are the features of the chart in the combinations that render different objects.
var combinations = map[string][]string{
	"as it is":            nil,
	"external":            {"lbsync.placement=external", "lbsync.tokenSecret=true"},
	"Avi":                 {"lbsync.config.provider=avi", "lbsync.config.avi.url=https://avi", "lbsync.config.avi.username=u", "lbsync.existingSecret=account", "lbsync.replicas=2"},
	"BIG-IP":              {"lbsync.config.provider=bigip", "lbsync.config.bigip.urls={https://a,https://b}", "lbsync.config.bigip.username=u", "lbsync.existingSecret=account"},
	"routed pools":        {"lbsync.haproxy.announce=routed", "addressPools={192.0.2.0/28}"},
	"keepalived":          {"lbsync.haproxy.announce=keepalived", "addressPools={192.0.2.10,192.0.2.11}", "lbsync.keepalived.image.repository=example.org/keepalived", "lbsync.keepalived.interface=eth0"},
	"no agent":            {"agent.enabled=false", "admissionPolicies.annotationWriters={system:serviceaccount:kube-system:antrea-agent}"},
	"no lbsync":           {"lbsync.enabled=false"},
	"no policies":         {"admissionPolicies.enabled=false"},
	"no hook":             {"uninstall.cleanup=false"},
	"a hook that fails":   {"uninstall.failOnLeftovers=true"},
	"selected namespaces": {"lbsync.config.namespaceSelector[0].key=tier", "lbsync.config.namespaceSelector[0].value=web"},
}

// The API server takes every object, warns of nothing that it will not take one day, and knows every field.
func TestManifestsOnTheAPIServer(t *testing.T) {
	s := site{t: t}
	s.makeNamespace()
	root, err := manifests.Root(t.Context())
	s.must(err)
	for name, set := range combinations {
		t.Run(name, func(t *testing.T) {
			rendered, err := theLab.Helm(t.Context(), manifests.Arguments(root+"/charts/nplbridge", set...)...)
			if err != nil {
				t.Fatal(err)
			}
			cmd := theLab.Command(t.Context(), "", theLab.Programs().ControlPlane, "kubectl", "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
			cmd.Stdin = strings.NewReader(rendered)
			out, err := cmd.CombinedOutput()
			if _, is := errors.AsType[*exec.ExitError](err); err != nil && !is {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if bad := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasSuffix(l, "(server dry run)") }); err != nil || len(bad) > 0 {
				t.Errorf("%v\n%s", err, strings.Join(bad, "\n"))
			}
			t.Logf("%d objects", len(lines))
		})
	}
}
