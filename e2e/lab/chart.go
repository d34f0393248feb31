package lab

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/build"
)

// Where the chart is installed in a lab.
const (
	systemNamespace = "nplbridge-system"
	release         = "nplbridge"
	lbsyncAccount   = "nplbridge-lbsync"
)

// podSecurity admits npl-agent, which needs the Node's network.
const podSecurity = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + systemNamespace + `
  labels: {pod-security.kubernetes.io/enforce: privileged}
`

// InstallChart installs nplbridge's chart, or upgrades it, and waits until its Pods are ready. lbsync is not among them: in
// the lab it runs beside HAProxy, see StartLoadBalancer. Values are given as to helm's --set: "agent.config.coolDown=5s".
func (l *Lab) InstallChart(ctx context.Context, values ...string) error {
	root, err := build.RepositoryRoot()
	if err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	if err := l.Apply(ctx, podSecurity); err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	args := []string{
		"upgrade", "--install", release, filepath.Join(root, "charts", "nplbridge"), "--namespace", systemNamespace,
		"--set", "lbsync.placement=external", "--wait", "--timeout", "2m",
	}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	if _, err := l.Helm(ctx, args...); err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	return nil
}
