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

// InstallChart is ApplyChart with an lbsync that runs beside the load balancer of the lab, see StartLoadBalancer.
func (l *Lab) InstallChart(ctx context.Context, values ...string) error {
	return l.ApplyChart(ctx, append([]string{"lbsync.placement=external"}, values...)...)
}

// ApplyChart installs nplbridge's chart, or upgrades it, and waits until its Pods are ready. Values are given as to helm's
// --set: "agent.config.coolDown=5s"; those of an earlier call are forgotten.
func (l *Lab) ApplyChart(ctx context.Context, values ...string) error {
	root, err := build.RepositoryRoot()
	if err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	if err := l.Apply(ctx, podSecurity); err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	args := []string{
		"upgrade", "--install", release, filepath.Join(root, "charts", "nplbridge"), "--namespace", systemNamespace, "--wait", "--timeout", "2m",
	}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	if _, err := l.Helm(ctx, args...); err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	return nil
}

// UninstallChart takes the chart away, and returns what helm and the chart's hook have said.
func (l *Lab) UninstallChart(ctx context.Context) (string, error) {
	out, err := l.helm(ctx, "uninstall", release, "--namespace", systemNamespace, "--wait", "--timeout", "5m").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("uninstall the chart: %w\n%s", err, out)
	}
	return string(out), nil
}
