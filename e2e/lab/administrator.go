package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// AdministerHAProxy edits the administrator's part of HAProxy's configuration, haproxy.cfg, and reloads, as a person would. The edit is given the
// text as the lab wrote it.
func (b *LoadBalancer) AdministerHAProxy(ctx context.Context, edit func(original string) string) error {
	original, err := b.originalConfig()
	if err == nil {
		err = os.WriteFile(b.file("haproxy.cfg"), []byte(edit(original)), 0o644)
	}
	if err != nil {
		return fmt.Errorf("edit haproxy.cfg: %w", err)
	}
	return b.ReloadHAProxy(ctx)
}

// originalConfig is what haproxyEngine writes.
func (b *LoadBalancer) originalConfig() (string, error) {
	if b.half != nil {
		return b.half.haproxyConfig(b)
	}
	return fmt.Sprintf(haproxyConfig, b.AdminSocket(), b.StatsAddress()), nil
}

// ReloadHAProxy has HAProxy's master reload its configuration, as a person would, and waits for the new worker. Configuration that HAProxy refuses
// is an error, and the old worker goes on.
func (b *LoadBalancer) ReloadHAProxy(ctx context.Context) error {
	before, _, err := b.worker()
	if err != nil {
		return fmt.Errorf("reload haproxy: %w", err)
	}
	if err := syscall.Kill(b.HAProxyPID(), syscall.SIGUSR2); err != nil {
		return fmt.Errorf("reload haproxy: %w", err)
	}
	return b.wait(ctx, "haproxy", func(context.Context) error {
		now, failed, err := b.worker() // the master does not answer while it reloads
		if err == nil && now == before {
			err = errors.New("the old worker still serves")
		}
		if failed {
			err = errors.New("the reload failed")
		}
		return err
	})
}

// worker asks HAProxy's master for the process ID of the worker that serves, and whether the last reload failed.
func (b *LoadBalancer) worker() (pid string, failed bool, err error) {
	conn, err := net.DialTimeout("unix", b.MasterSocket(), time.Second)
	if err != nil {
		return "", false, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", false, err
	}
	if _, err := io.WriteString(conn, "show proc;quit\n"); err != nil {
		return "", false, err
	}
	text, err := io.ReadAll(conn)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "worker" && pid == "" {
			pid = f[0]
		}
	}
	if pid == "" && err == nil {
		err = fmt.Errorf("haproxy's master names no worker: %s", text)
	}
	return pid, strings.Contains(string(text), "[failed:") && !strings.Contains(string(text), "[failed: 0]"), err
}
