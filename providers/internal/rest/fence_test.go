package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// late is a context whose deadline nothing enforces: that of a process whose timers have not run yet.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

func TestNothingIsSentAfterTheDeadline(t *testing.T) {
	var got atomic.Int32
	c, _ := start(t, Config{}, func(http.ResponseWriter, *http.Request) { got.Add(1) })
	do := func(deadline time.Time) error {
		_, err := c.Do(late{t.Context(), deadline}, Request{Method: http.MethodPut, Path: "/", Body: "x"})
		return err
	}
	if err := do(time.Now().Add(time.Minute)); err != nil || got.Load() != 1 {
		t.Fatalf("%v, %d requests", err, got.Load())
	}
	err := do(time.Now().Add(-time.Millisecond))
	if e, ok := errors.AsType[*Error](err); !ok || e.Sent || !errors.Is(err, context.DeadlineExceeded) || got.Load() != 1 {
		t.Errorf("%v, %d requests", err, got.Load())
	}
	if err := do(time.Now().Add(time.Minute)); err != nil || got.Load() != 2 {
		t.Errorf("a deadline in the way of the next request: %v, %d requests", err, got.Load())
	}
}

// The deadline passes when Do has begun already: while it waits for a connection.
func TestNothingIsWrittenAfterTheDeadline(t *testing.T) {
	var got atomic.Int32
	c, s := start(t, Config{}, func(http.ResponseWriter, *http.Request) { got.Add(1) })
	deadline := time.Now().Add(200 * time.Millisecond)
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		for !over(deadline) {
			time.Sleep(time.Millisecond)
		}
		return nil, nil
	}
	_, err := c.Do(late{t.Context(), deadline}, Request{Method: http.MethodPut, Path: "/", Body: "x"})
	if !errors.Is(err, context.DeadlineExceeded) || got.Load() != 0 {
		t.Errorf("%v, %d requests", err, got.Load())
	}
}
