package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

// ConfigureLBSync writes lbsync's file anew, with these values, "key=value" in YAML, over those it was started with; a key with
// dots is a path. lbsync is ended as a service manager would and started with it; without values it is as at first.
func (b *LoadBalancer) ConfigureLBSync(ctx context.Context, values ...string) error {
	settings := deepClone(b.settings)
	for _, value := range values {
		key, text, ok := strings.Cut(value, "=")
		var decoded any
		if err := yaml.Unmarshal([]byte(text), &decoded); err != nil || !ok {
			return fmt.Errorf("configure lbsync: %q is not key=value in YAML", value)
		}
		set(settings, strings.Split(key, "."), decoded)
	}
	if err := b.writeSettings(settings); err != nil {
		return fmt.Errorf("configure lbsync: %w", err)
	}
	before := b.LBSyncPID()
	if err := syscall.Kill(before, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end lbsync: %w", err)
	}
	return b.wait(ctx, "lbsync", func(ctx context.Context) error {
		if pid := b.LBSyncPID(); pid == before || pid == 0 {
			return fmt.Errorf("lbsync still is process %d", before)
		}
		return b.LBSyncReady(ctx)
	})
}

func (b *LoadBalancer) writeSettings(settings map[string]any) error {
	text, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	return os.WriteFile(b.file("lbsync.yaml"), text, 0o644)
}

// deepClone copies the maps in m.
func deepClone(m map[string]any) map[string]any {
	out := maps.Clone(m)
	for key, value := range out {
		if inner, is := value.(map[string]any); is {
			out[key] = deepClone(inner)
		}
	}
	return out
}

func set(in map[string]any, path []string, value any) {
	for len(path) > 1 {
		inner, is := in[path[0]].(map[string]any)
		if !is {
			inner = map[string]any{}
			in[path[0]] = inner
		}
		in, path = inner, path[1:]
	}
	in[path[0]] = value
}

// SignalLBSync sends a signal to lbsync, such as SIGSTOP.
func (b *LoadBalancer) SignalLBSync(signal syscall.Signal) error {
	return syscall.Kill(b.LBSyncPID(), signal)
}

// LBSyncMetrics is what lbsync serves for Prometheus.
func (b *LoadBalancer) LBSyncMetrics(ctx context.Context) (string, error) {
	text, err := b.lab.fetch(ctx, b.place, lbsyncAddress, "/metrics")
	return string(text), err
}

// LBSync runs lbsync on the load balancer's host with its settings, as the administrator there would, and returns its standard
// output: "explain", "diff".
func (b *LoadBalancer) LBSync(ctx context.Context, args ...string) (string, error) {
	cmd := b.lab.Command(ctx, b.place, append([]string{b.lab.options.Programs.LBSync}, args...)...)
	cmd.Env = append(cmd.Env, "LBSYNC_CONFIG="+b.file("lbsync.yaml"))
	return output(cmd, "lbsync "+strings.Join(args, " "))
}
