package locks

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n Named
		inside, most := 0, 0
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				unlock, err := n.Lock(t.Context(), "pool a")
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				inside++
				most = max(most, inside)
				<-time.After(time.Second)
				inside--
			})
		}
		other, err := n.Lock(t.Context(), "pool b")
		if err != nil {
			t.Fatalf("another name waits: %v", err)
		}
		other()
		all.Wait()
		if most != 1 {
			t.Errorf("%d had the lock at once", most)
		}
		if len(n.held) != 0 {
			t.Errorf("remembered for ever: %v", n.held)
		}
	})
}

func TestWhoeverGivesUpLeaves(t *testing.T) {
	n := Named{Owner: "avi"}
	unlock, err := n.Lock(t.Context(), "pool a")
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = n.Lock(ended, "pool a")
	if providers.KindOf(err) != providers.Unavailable || !strings.Contains(err.Error(), "avi: waiting for pool a") {
		t.Errorf("%v", err)
	}
	if _, err := n.LockAll(ended, []string{"pool b", "pool a"}); err == nil {
		t.Error("a lock that another holds was given")
	}
	unlock()
	if len(n.held) != 0 {
		t.Errorf("remembered for ever: %v", n.held)
	}
}

// TestNoDeadlock: two that want the same names, told in different orders and twice, both get them.
func TestNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n Named
		var all sync.WaitGroup
		for _, names := range [][]string{{"a", "b"}, {"b", "a", "a"}} {
			all.Go(func() {
				for range 100 {
					unlock, err := n.LockAll(t.Context(), names)
					if err != nil {
						t.Error(err)
						return
					}
					<-time.After(time.Millisecond)
					unlock()
				}
			})
		}
		all.Wait() // synctest ends the test when everybody waits for everybody
	})
}
