package proof

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// comesAndGoes are kinds of which Kubernetes writes objects by itself.
var comesAndGoes = []string{"events", "endpoints", "endpointslices", "replicasets", "controllerrevisions", "componentstatuses"}

// fingerprint lists every object of the cluster by name, what the chart's programs could have written into those that are not its own, and
// the nftables tables of every Node but those of kube-proxy.
func fingerprint(t *testing.T) []string {
	t.Helper()
	ctx := t.Context()
	client, err := dynamic.NewForConfig(theLab.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := theLab.Client().Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(comesAndGoes, r.Name) {
				continue
			}
			found, err := client.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for _, o := range found.Items {
				line := fmt.Sprintf("%s %s/%s", r.Name, o.GetNamespace(), o.GetName())
				if o.GetNamespace() == app && r.Name == "pods" { // rolled over meanwhile
					line = "a Pod of " + app
				}
				if o.GetNamespace() == app && (r.Name == "services" || r.Name == "pods") {
					line += " finalizers " + fmt.Sprint(o.GetFinalizers())
					for key := range o.GetAnnotations() {
						if strings.Contains(key, "nplbridge.io") || strings.HasPrefix(key, npl.Annotation) {
							line += " annotation " + key
						}
					}
					status, _ := o.Object["status"].(map[string]any)
					conditions, _ := status["conditions"].([]any)
					if r.Name == "services" {
						line += fmt.Sprintf(" conditions %v load balancer %v", conditions, status["loadBalancer"])
					}
				}
				out = append(out, line)
			}
		}
	}
	for _, node := range theLab.Nodes() {
		for _, table := range tables(t, node) {
			out = append(out, "nftables table on "+node+": "+table)
		}
	}
	slices.Sort(out)
	return out
}

var kubeProxys = regexp.MustCompile(`kube-proxy`)

// tables are the nftables tables of a Node that are not kube-proxy's.
func tables(t *testing.T, node string) []string {
	t.Helper()
	listing, err := theLab.Command(t.Context(), node, "nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list tables on %s: %v\n%s", node, err, listing)
	}
	var out []string
	for line := range strings.Lines(string(listing)) {
		if !kubeProxys.MatchString(line) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// unchanged waits until the cluster is again as it was.
func unchanged(t *testing.T, before []string) {
	t.Helper()
	err := view.Poll(t.Context(), func() error {
		now := fingerprint(t)
		var differ []string
		for _, line := range before {
			if !slices.Contains(now, line) {
				differ = append(differ, "- "+line)
			}
		}
		for _, line := range now {
			if !slices.Contains(before, line) {
				differ = append(differ, "+ "+line)
			}
		}
		if len(differ) > 0 {
			return fmt.Errorf("the cluster is not as before (-), it has (+):\n%s", strings.Join(differ, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
