package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
)

// StartStandby starts what the other host of a pair has, without keepalived, beside the load balancer of StartLoadBalancer: in the namespace "lb-2" a
// HAProxy, to which no VIP is routed, and its lbsync, which waits for the Lease. It ends with the load balancer.
func (l *Lab) StartStandby(ctx context.Context) error {
	if l.loadBalancer == nil || l.partner != nil {
		return errors.New("start the standby: it takes exactly one load balancer that runs already")
	}
	if _, err := l.network.AddPartner(); err != nil {
		return fmt.Errorf("start the standby: %w", err)
	}
	var err error
	l.partner, err = l.start(ctx, &LoadBalancer{
		lab: l, kind: HAProxy, place: network.Partner, address: network.PartnerAddresses()[0], dir: filepath.Join(workDir, network.Partner),
	})
	return err
}

// CrashLBSync kills lbsync with SIGKILL; it stays away until StartLBSync.
func (b *LoadBalancer) CrashLBSync() { b.lbsync.Stop(0) }
