package chart

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
)

const appliedLabel = "nplbridge.io/applied"

// A Node whose lbsync was taken over leads no Service elsewhere.
func TestLBSyncMayWriteItsPartOfServicesAndNothingElse(t *testing.T) {
	const ns = "lbsync-services"
	namespace(t, ns, nil)
	services := theLab.Client().CoreV1().Services(ns)
	// Of a class that nobody serves, so that nobody else writes it meanwhile.
	service, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Labels: map[string]string{"app": "web"}, Finalizers: []string{"example.org/keep"},
			Annotations: map[string]string{"example.org/a": "1", "nplbridge.io/algorithm": "round-robin"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("example.org/other"),
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = services.Patch(context.WithoutCancel(t.Context()), "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	service.Status.Conditions = []metav1.Condition{{Type: "example.org/Ready", Status: "True", Reason: "Test", LastTransitionTime: metav1.Now()}}
	if _, err = services.UpdateStatus(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	lbsync := as(t, lbsyncAccount, nil).CoreV1().Services(ns)
	try := func(body string, part ...string) error {
		_, err := lbsync.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, part...)
		return err
	}
	at := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	condition := func(kind string) string {
		return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","reason":"R","message":"","lastTransitionTime":%q}]}}`, kind, at)
	}
	for _, test := range []struct{ body, part string }{
		{`{"metadata":{"finalizers":["nplbridge.io/cleanup"]}}`, ""},
		{fmt.Sprintf(`{"metadata":{"annotations":{"nplbridge.io/managed-by":"a/b","nplbridge.io/load-balancer-ips-assigned":"192.0.2.1",`+
			`"nplbridge.io/attached-to":"b","nplbridge.io/enabled-by":"a",%q:"true"}}}`, npl.EnabledAnnotation), ""},
		{`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`, "status"},
		{condition("nplbridge.io/Accepted"), "status"},
		{condition("nplbridge.io/Programmed"), "status"},
	} {
		if err := try(test.body, parts(test.part)...); err != nil {
			t.Errorf("its own, services %s, %s: %v", test.part, test.body, err)
		}
	}

	for name, test := range map[string]struct {
		body, reason string
		parts        []string // "" is the Service itself
	}{
		"the selector":                     {`{"spec":{"selector":{"app":"evil"}}}`, "spec of a Service", []string{""}},
		"external addresses":               {`{"spec":{"externalIPs":["192.0.2.1"]}}`, "spec of a Service", []string{""}},
		"the target port":                  {`{"spec":{"ports":[{"port":80,"targetPort":22}]}}`, "spec of a Service", []string{""}},
		"a label":                          {`{"metadata":{"labels":{"app":"x"}}}`, "metadata.labels", []string{"", "status"}},
		"owners":                           {`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"1"}]}}`, "metadata.ownerReferences", []string{"", "status"}},
		"a finalizer":                      {`{"metadata":{"finalizers":["example.org/more"]}}`, "no finalizer", []string{"", "status"}},
		"a finalizer removed":              {`{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.org/keep"]}}`, "no finalizer", []string{"", "status"}},
		"an annotation":                    {`{"metadata":{"annotations":{"example.org/b":"1"}}}`, "no annotation", []string{"", "status"}},
		"an annotation changed":            {`{"metadata":{"annotations":{"example.org/a":"2"}}}`, "no annotation", []string{"", "status"}},
		"an annotation removed":            {`{"metadata":{"annotations":{"example.org/a":null}}}`, "no annotation", []string{"", "status"}},
		"a wish of the user's":             {`{"metadata":{"annotations":{"nplbridge.io/algorithm":"hash"}}}`, "no annotation of a Service but nplbridge.io/managed-by, ", []string{"", "status"}},
		"another condition":                {condition("example.org/Ready"), "no condition", []string{"status"}},
		"another condition removed":        {`{"status":{"conditions":[{"type":"example.org/Ready","$patch":"delete"}]}}`, "no condition", []string{"status"}},
		"the selector, its own annotation": {`{"metadata":{"annotations":{"nplbridge.io/managed-by":"a/b"}},"spec":{"selector":{"app":"x"}}}`, "spec of a Service", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, part := range test.parts {
				if err := refusedBy(try(test.body, parts(part)...), "services", test.reason); err != nil {
					t.Errorf("services %s: %v", part, err)
				}
			}
		})
	}

	// Were it ever given the rights.
	grant(t, systemNamespace, lbsyncAccount, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create", "delete"}})
	const reason = "neither create nor delete"
	for name, do := range map[string]func() error{
		"created": func() error {
			_, err := lbsync.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, dryRun)
			return err
		},
		"deleted": func() error {
			return lbsync.Delete(t.Context(), "web", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, func() error { return refusedBy(do(), "services", reason) }) // until the right has arrived
		})
	}
}

// A Node whose lbsync was taken over changes the settings of no other Node's programs.
func TestLBSyncMayWriteWhatItPublishesAndNoOtherConfigMap(t *testing.T) {
	admin := theLab.Client().CoreV1().ConfigMaps(systemNamespace)
	lbsync := as(t, lbsyncAccount, nil).CoreV1().ConfigMaps(systemNamespace)
	updating := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	deleting := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	named := func(name string, labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	refused := func(t *testing.T, what string, err error) {
		t.Helper()
		if err := refusedBy(err, "configmaps", "may write only ConfigMaps that carry the label"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	for _, label := range []string{watermark.Label, appliedLabel} {
		t.Run(label, func(t *testing.T) {
			own := named("policy-"+label[len("nplbridge.io/"):], map[string]string{label: "v1"})
			if _, err := lbsync.Create(t.Context(), own, dryRun); err != nil {
				t.Errorf("created: %v", err)
			}
			own, err := admin.Create(t.Context(), own, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), own.Name, metav1.DeleteOptions{}) })
			own.Data = map[string]string{"a": "b"}
			if _, err := lbsync.Update(t.Context(), own, updating); err != nil {
				t.Errorf("updated: %v", err)
			}
			if err := lbsync.Delete(t.Context(), own.Name, deleting); err != nil {
				t.Errorf("deleted: %v", err)
			}
			own.Labels = nil
			_, err = lbsync.Update(t.Context(), own, updating)
			refused(t, "its label removed", err)
		})
	}

	var ofTheChart []string
	for _, o := range render(t) {
		if c, ok := o.(*corev1.ConfigMap); ok {
			ofTheChart = append(ofTheChart, c.Name)
			if c.Labels[watermark.Label] != "" || c.Labels[appliedLabel] != "" {
				t.Errorf("the chart's own ConfigMap %s carries a label of what lbsync publishes", c.Name)
			}
		}
	}
	if !slices.Contains(ofTheChart, "nplbridge-haproxy") {
		t.Errorf("the chart's ConfigMaps are %v", ofTheChart)
	}
	for _, name := range []string{"nplbridge-agent", "kube-root-ca.crt"} {
		t.Run(name, func(t *testing.T) {
			object, err := admin.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			refused(t, "deleted", lbsync.Delete(t.Context(), name, deleting))
			object.Data["a"] = "b"
			_, err = lbsync.Update(t.Context(), object, updating)
			refused(t, "updated", err)
			object.Labels = map[string]string{watermark.Label: "v1", appliedLabel: "v1"}
			_, err = lbsync.Update(t.Context(), object, updating)
			refused(t, "updated, with the labels", err)
		})
	}
	_, err := lbsync.Create(t.Context(), named("policy-new", map[string]string{"app.kubernetes.io/managed-by": "lbsync"}), dryRun)
	refused(t, "created without", err)
}

// parts is what a request names a part of an object by; "" is the object itself.
func parts(part string) []string {
	if part == "" {
		return nil
	}
	return []string{part}
}
