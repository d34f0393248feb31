package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

func lbsyncKill(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	if random.IntN(2) == 0 {
		return nothing, s.restart(ctx, "kill -9 of the leading lbsync until the other leads", func() error {
			killed, other, err := s.leader(ctx)
			if err != nil {
				return err
			}
			killed.CrashLBSync()
			err = poll(ctx, func() error { return leads(ctx, other) })
			return errors.Join(err, killed.StartLBSync())
		})
	}
	killed := pick(random, s.Lab.LoadBalancers())
	return nothing, s.restart(ctx, "kill -9 of "+lbsyncOn(killed.Place()), func() error {
		before := killed.LBSyncPID()
		if err := killed.KillLBSync(); err != nil {
			return err
		}
		return poll(ctx, func() error {
			if pid := killed.LBSyncPID(); pid == before || pid == 0 {
				return errors.New("lbsync does not run again yet")
			}
			return killed.LBSyncReady(ctx)
		})
	})
}

// leads returns nil when an lbsync says that it holds the Lease.
func leads(ctx context.Context, b *lab.LoadBalancer) error {
	text, err := b.LBSyncMetrics(ctx)
	if err == nil && !strings.Contains(text, "\nlbsync_leader 1\n") {
		err = fmt.Errorf("%s does not lead", lbsyncOn(b.Place()))
	}
	return err
}

// leader waits until an lbsync leads, and returns where it is, and the other one.
func (s *site) leader(ctx context.Context) (leader, other *lab.LoadBalancer, err error) {
	both := s.Lab.LoadBalancers()
	err = poll(ctx, func() error {
		var none []error
		for n, b := range both {
			err := leads(ctx, b)
			if err == nil {
				leader, other = b, both[1-n]
				return nil
			}
			none = append(none, err)
		}
		return errors.Join(none...)
	})
	return leader, other, err
}

const (
	lease = 15 * time.Second
	// takeOver is for how long at most nobody writes the Controller and the device after the leader stood still: the Lease, the next look at it, and the
	// wait for what the last leader may have sent.
	takeOver = lease + 2*time.Second + 5*time.Second
)

// lbsyncFreeze stops the leader while Pods come and go, until the other lbsync has taken over and done what was to be done. The one that stood still
// then goes on in the belief that it leads, and must write nothing but its own HAProxy.
func lbsyncFreeze(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	if err := s.nothingCools(ctx); err != nil { // what cools stays so: new Pods would find no node port
		return nothing, err
	}
	frozen, other, err := s.leader(ctx)
	if err != nil {
		return nothing, err
	}
	if err := frozen.SignalLBSync(syscall.SIGSTOP); err != nil {
		return nothing, err
	}
	b, err := s.churn(ctx, random, lease-3*time.Second)
	b.within = takeOver + 8*time.Second
	if err == nil {
		err = s.takenOver(ctx, other)
	}
	if err != nil {
		return b, errors.Join(err, frozen.SignalLBSync(syscall.SIGCONT))
	}
	if _, err = s.written(); err != nil {
		return b, errors.Join(err, frozen.SignalLBSync(syscall.SIGCONT))
	}
	before, err := s.remoteChanges()
	if err := errors.Join(err, frozen.SignalLBSync(syscall.SIGCONT)); err != nil {
		return b, err
	}
	if err := s.rest(ctx); err != nil {
		return b, err
	}
	return b, s.fenced(frozen, before)
}

// takenOver waits until an lbsync leads and has made the Controller and the device as they should be, and nobody changes them any more.
func (s *site) takenOver(ctx context.Context, b *lab.LoadBalancer) error {
	if err := poll(ctx, func() error { return leads(ctx, b) }); err != nil {
		return err
	}
	calls, since := 0, time.Now()
	return poll(ctx, func() error {
		n, err := s.remoteChanges()
		if err != nil {
			return err
		}
		if n != calls {
			calls, since = n, time.Now()
		}
		if err := s.healthy(ctx, "", viaAvi, viaBigIP); err != nil {
			since = time.Now()
			return err
		}
		if calm := time.Since(since); calm < 1200*time.Millisecond {
			return fmt.Errorf("the last changing call was %v ago", calm)
		}
		return nil
	})
}

// fenced holds an lbsync that stood still while the other took its Lease to the fence: since it went on, it wrote neither Services nor what is remote,
// and nobody had anything to change there.
func (s *site) fenced(b *lab.LoadBalancer, before int) error {
	counts, err := s.written()
	if err != nil {
		return err
	}
	maps.DeleteFunc(counts, func(what string, _ int) bool { return !strings.HasPrefix(what, lbsyncOn(b.Place())+" ") })
	after, err := s.remoteChanges()
	if err != nil {
		return err
	}
	if s.watch.count("Leases taken over from a leader that stood still"); len(counts) > 0 {
		s.watch.violate("fence: %s, which had lost its Lease, wrote to the API server: %v", lbsyncOn(b.Place()), counts)
	}
	if after != before {
		s.watch.violate("fence: %d changing calls to the simulators after %s went on", after-before, lbsyncOn(b.Place()))
	}
	return nil
}

// churn lets Pods come and go for some time in which nobody tells the load balancers.
func (s *site) churn(ctx context.Context, random *rand.Rand, length time.Duration) (budget, error) {
	b := budget{"Pods that went while nobody could tell the load balancers", ofServices("api", "dns-avi", "dns-bigip"), length + 8*time.Second}
	end := time.Now().Add(length)
	for time.Now().Before(end) {
		app := pick(random, []string{"api", "dns"})
		victims := s.podsOf(app)
		if len(victims) > 1 { // one stays, which the load balancers know
			p := pick(random, victims[1:])
			if _, err := s.Lab.Kubectl(ctx, "-n", namespace, "delete", "pod", p.Name, "--wait=false"); err != nil {
				return b, err
			}
		}
		if err := sleep(ctx, min(time.Until(end), time.Duration(1000+random.IntN(1500))*time.Millisecond)); err != nil {
			return b, err
		}
	}
	return b, nil
}
