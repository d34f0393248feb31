package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

const (
	systemNamespace = "nplbridge-system"
	accountPrefix   = "system:serviceaccount:" + systemNamespace + ":"
)

// permission is one verb on one resource that the chart grants an account, "nplbridge-lbsync: patch services/status".
type permission struct {
	account, verb, resource string
	names                   []string
}

func (p permission) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", p.account, p.verb, p.resource, strings.Join(p.names, ",")))
}

// uses says whether a request needed it.
func (p permission) uses(e lab.AuditEvent) bool {
	return e.User.Username == accountPrefix+p.account && e.Verb == p.verb && e.Resource() == p.resource && !e.Forbidden() &&
		(len(p.names) == 0 || slices.Contains(p.names, e.ObjectRef.Name))
}

// granted are the permissions in the manifests of the release, those of its hook among them.
func granted(t *testing.T) (out []permission) {
	t.Helper()
	for _, part := range []string{"manifest", "hooks"} {
		text, err := theLab.Helm(t.Context(), "get", part, "nplbridge", "--namespace", systemNamespace)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := manifests.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			switch o := o.(type) { // a role has the name of the account that it is bound to
			case *rbacv1.ClusterRole:
				out = append(out, permissions(o.Name, o.Rules)...)
			case *rbacv1.Role:
				out = append(out, permissions(o.Name, o.Rules)...)
			}
		}
	}
	return out
}

func permissions(account string, rules []rbacv1.PolicyRule) (out []permission) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					if group != "" {
						resource = strings.TrimSuffix(resource, "."+group) + "." + group
					}
					out = append(out, permission{account, verb, resource, r.ResourceNames})
				}
			}
		}
	}
	return out
}

// unusedBecause says of permissions why nobody may need them in these tests.
const (
	byCheck    = "for npl-agent check"
	byWatch    = "client-go streams its first list by a watch, and lists only where the API server cannot do that (before 1.34, or with the feature off)"
	repeated   = "client-go's recorder patches an Event that happens again within six minutes"
	byCleanup  = "for lbsync cleanup"
	besideOurs = "only where Antrea's agent runs on the Node"
	leftAlone  = "only where a process is gone for good that has published something"
)

var unusedBecause = map[string]string{
	"nplbridge-agent: get antreaagentinfos.crd.antrea.io":                  besideOurs,
	"nplbridge-agent: get nodes":                                           byCheck,
	"nplbridge-agent: list configmaps":                                     byWatch,
	"nplbridge-agent: list nodes":                                          byWatch,
	"nplbridge-agent: list services":                                       byWatch,
	"nplbridge-agent: patch events.events.k8s.io":                          repeated,
	"nplbridge-lbsync: delete leases.coordination.k8s.io nplbridge-lbsync": byCleanup,
	"nplbridge-lbsync: list nodes":                                         byWatch,
	"nplbridge-lbsync: list pods":                                          byWatch,
	"nplbridge-lbsync: list services":                                      byWatch,
	"nplbridge-lbsync: patch events.events.k8s.io":                         repeated,
	"nplbridge-uninstall: delete configmaps":                               leftAlone,
}

// usage remembers which permissions were ever granted, and which were used.
type usage struct {
	granted map[string]permission
	used    map[string]bool
}

func (u *usage) note(t *testing.T) {
	t.Helper()
	if u.granted == nil {
		u.granted, u.used = map[string]permission{}, map[string]bool{}
	}
	for _, p := range granted(t) {
		u.granted[p.String()] = p
	}
}

// report fails for each denial, for each permission that nobody needed without a reason, and for each reason of a permission that is not granted.
func (u *usage) report(t *testing.T) {
	t.Helper()
	events, err := theLab.Audit()
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, e := range events {
		if !strings.HasPrefix(e.User.Username, accountPrefix) {
			if e.RefusedByPolicy() {
				t.Errorf("refused by a policy of the chart: %s", e.Line)
			}
			continue
		}
		requests++
		if e.Forbidden() || e.ResponseStatus.Code == 403 || e.RefusedByPolicy() {
			t.Errorf("denied: %s", e.Line)
		}
		for name, p := range u.granted {
			if p.uses(e) {
				u.used[name] = true
			}
		}
	}
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(u.granted)) {
		why, known := unusedBecause[name]
		if !u.used[name] {
			unused = append(unused, name+" ("+why+")")
			if !known {
				t.Errorf("nobody used the permission %s: take it away, or say why it is needed", name)
			}
		}
	}
	for name := range unusedBecause {
		if _, is := u.granted[name]; !is {
			t.Errorf("there is no permission %s", name)
		}
	}
	t.Logf("%d requests of the chart's accounts, none denied; %d of %d permissions used; not used:\n  %s",
		requests, len(u.granted)-len(unused), len(u.granted), strings.Join(unused, "\n  "))
}

// What the chart grants is needed, and what is needed is granted: over all that the tests above have done.
func TestRights(t *testing.T) { rights.report(t) }
