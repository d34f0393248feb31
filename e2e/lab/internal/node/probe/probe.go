package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
)

// Target is the container that is asked.
type Target struct {
	// Host is the Pod's address, used where the probe names no host.
	Host string
	// Ports are the container's, for probes that name one.
	Ports []corev1.ContainerPort
	// Dial connects from the Node's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Exec runs a command inside the container and returns its exit status and output.
	Exec func(ctx context.Context, command []string) (code int, output []byte, err error)
}

// Answer is one answer, or the failure to get one.
type Answer struct {
	OK      bool
	Message string
}

// Once carries out an action once and judges it: HTTP status 200 to 399, an accepted connection, exit status 0.
func (t Target) Once(ctx context.Context, h corev1.ProbeHandler) Answer {
	var err error
	switch {
	case h.HTTPGet != nil:
		err = t.httpGet(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		err = t.connect(ctx, h.TCPSocket)
	case h.Exec != nil:
		err = t.exec(ctx, h.Exec.Command)
	default:
		err = fmt.Errorf("this kind of probe is not supported by the lab's Node; use httpGet, tcpSocket or exec")
	}
	if err != nil {
		return Answer{Message: err.Error()}
	}
	return Answer{OK: true}
}

func (t Target) connect(ctx context.Context, action *corev1.TCPSocketAction) error {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return err
	}
	conn, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (t Target) exec(ctx context.Context, command []string) error {
	code, output, err := t.Exec(ctx, command)
	if err != nil {
		return fmt.Errorf("command %q: %w", command, err)
	}
	if code != 0 {
		return fmt.Errorf("command %q: exit status %d: %s", command, code, output)
	}
	return nil
}

func (t Target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.Host
	}
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range t.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return "", fmt.Errorf("port %q: the container has no port of that name", port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// Watch asks again and again until ctx ends, and reports each answer that reaches its threshold.
func Watch(ctx context.Context, c clock.Clock, p *corev1.Probe, t Target, report func(Answer)) {
	tally := Tally{Success: int(max(1, p.SuccessThreshold)), Failure: int(max(1, p.FailureThreshold))}
	period := seconds(max(1, p.PeriodSeconds))
	if !sleep(ctx, c, seconds(p.InitialDelaySeconds)) {
		return
	}
	for {
		asking, cancel := context.WithTimeout(ctx, seconds(max(1, p.TimeoutSeconds)))
		answer := t.Once(asking, p.ProbeHandler)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if tally.Add(answer.OK) {
			report(answer)
		}
		if !sleep(ctx, c, period) {
			return
		}
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
