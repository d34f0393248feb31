package demo

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"text/template"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

const namespace = "demo"

//go:embed manifest.yaml.tmpl
var manifestText string

var manifest = template.Must(template.New("manifest").Parse(manifestText))

// group is a Deployment of echo servers; Node, if set, is where its Pods must run.
type group struct {
	Name     string
	Replicas int
	Node     string
}

// app is the story's Service echo and what can be seen of it.
type app struct {
	view.View

	vip    string      // "address:port" of the Service echo, once it has one
	uneven load.Result // of asking the Service uneven through its VIP
}

// apply creates or updates a Service of the type, and the Deployments behind it.
func (a *app) apply(ctx context.Context, service string, serviceType corev1.ServiceType, groups ...group) error {
	var text bytes.Buffer
	err := manifest.Execute(&text, map[string]any{
		"Namespace": namespace, "Service": service, "Type": serviceType, "Groups": groups, "Class": a.Lab.LoadBalancer().Class(),
	})
	if err != nil {
		return fmt.Errorf("rendering the manifest of Service %s: %w", service, err)
	}
	return a.Lab.Apply(ctx, text.String())
}
