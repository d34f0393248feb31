package host

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

func TestAddressesComeAndGo(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	synctest.Test(t, func(t *testing.T) {
		var has atomic.Pointer[[]netip.Addr]
		var failure atomic.Pointer[error]
		changes := 0
		a := &Addresses{
			Read: func() ([]netip.Addr, error) {
				if err := failure.Load(); err != nil {
					return nil, *err
				}
				return *has.Load(), nil
			},
			Changed: func() { changes++ }, Clock: clock.RealClock{}, Log: zap.NewNop(),
		}
		set := func(addrs ...netip.Addr) { has.Store(&addrs); time.Sleep(2 * Interval); synctest.Wait() }
		expect := func(when string, first, second bool, n int) {
			t.Helper()
			if a.Has(one) != first || a.Has(two) != second || changes != n {
				t.Errorf("%s: %v, %v, %d changes", when, a.Has(one), a.Has(two), changes)
			}
		}
		expect("before the first look", false, false, 0)
		has.Store(&[]netip.Addr{one})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		set(one)
		expect("one", true, false, 1)
		set(two, one)
		expect("both", true, true, 2)
		set(one, two)
		expect("in another order", true, true, 2)
		err := errors.New("out of descriptors")
		failure.Store(&err)
		set(two)
		expect("unreadable", true, true, 2)
		failure.Store(nil)
		set(two)
		expect("readable again", false, true, 3)
		cancel()
		<-done
	})
}

func TestInterfaces(t *testing.T) {
	got, err := Interfaces()
	if err != nil || !slices.Contains(got, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v, %v", got, err)
	}
	if slices.ContainsFunc(got, netip.Addr.IsLinkLocalUnicast) {
		t.Errorf("a link-local one is among %v", got)
	}
}
