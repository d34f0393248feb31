//go:build unix

package rest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// In a process of its own, see TestFrozenProcessSendsNothing.
const (
	frozenURL      = "REST_FROZEN_URL"
	frozenCA       = "REST_FROZEN_CA"
	frozenDeadline = "REST_FROZEN_DEADLINE" // in nanoseconds since 1970
)

func TestMain(m *testing.M) {
	if os.Getenv(frozenURL) != "" {
		fmt.Println(sendUntilRefused())
		return
	}
	os.Exit(m.Run())
}

// sendUntilRefused sends requests, as fast as they are answered, with a deadline that nothing but Do looks at.
func sendUntilRefused() error {
	c, err := New(Config{BaseURL: os.Getenv(frozenURL), CAFile: os.Getenv(frozenCA)})
	if err != nil {
		return err
	}
	nanoseconds, err := strconv.ParseInt(os.Getenv(frozenDeadline), 10, 64)
	if err != nil {
		return err
	}
	ctx := late{context.Background(), time.Unix(0, nanoseconds)}
	for {
		if _, err := c.Do(ctx, Request{Method: http.MethodPut, Path: "/", Body: "x"}); err != nil {
			return err
		}
	}
}

// A process that is stopped while it writes and goes on after its deadline, when another may hold the Lease, sends nothing more.
func TestFrozenProcessSendsNothing(t *testing.T) {
	var got atomic.Int64
	_, s := start(t, Config{}, func(http.ResponseWriter, *http.Request) { got.Add(1) })
	await := func(what string, holds func() bool) {
		t.Helper()
		for limit := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("never: %s; %d requests", what, got.Load())
			}
		}
	}
	deadline := time.Now().Add(3 * time.Second)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), frozenURL+"="+s.URL, frozenCA+"="+caOf(t, s), frozenDeadline+"="+strconv.FormatInt(deadline.UnixNano(), 10))
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	await("it writes", func() bool { return got.Load() > 10 })
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v, %v", status, err)
	}
	await("the deadline passes", func() bool { return time.Now().After(deadline.Add(100 * time.Millisecond)) })
	before := got.Load()
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if after := got.Load(); after != before {
		t.Errorf("%d requests after it was frozen past its deadline", after-before)
	}
}
