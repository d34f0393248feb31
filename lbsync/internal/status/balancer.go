package status

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/providers"
)

// Balancer is one provider instance as the Lease holder sees it.
type Balancer struct {
	Name         string
	Capabilities providers.Capabilities
	// Allocator is the load balancer's own address management; nil where it has none. See Fenced.
	Allocator providers.Allocator
	// Report says how a Service stands there; ok is false before that is known.
	Report func(model.ServiceKey) (r loop.Report, ok bool)
	// Trouble says why the load balancer could not be read, or nil.
	Trouble func() error
	// Others names the processes beside other load balancers of this name: those that have not applied yet what our own report says,
	// which rests on seen, and those that are silent. It is nil where there can be none.
	Others func(key model.ServiceKey, seen string) (pending, silent []string)
	// Behind reports whether those that have not applied it are only not known to have seen as much; nil is false.
	Behind func(key model.ServiceKey, seen string) bool
	// Shares returns what each load balancer of this name has of a Service at the addresses of the Node that it stands on; known is false until
	// everybody has been heard of. It is nil where Services are not served there.
	Shares func(model.ServiceKey) (shares []onnode.Share, known bool)
	// Announced reports whether the host of any load balancer of this name has the address; nil where that does not matter.
	Announced func(netip.Addr) bool
}

// stand is how one Service stands on one load balancer.
type stand struct {
	balancer  Balancer
	wanted    bool // the Service asks for it
	abandoned bool // it is gone for good, as the user says: nothing there is waited for
	reported  bool
	report    loop.Report
	trouble   error
	pending   []string // processes that have not applied it
	behind    bool     // they are only not known to have seen as much
	silent    []string
}

// look asks the load balancer how the Service stands.
func (b Balancer) look(key model.ServiceKey, r model.Service) stand {
	s := stand{balancer: b, wanted: slices.Contains(r.On, b.Name) && !r.Deleting, abandoned: slices.Contains(r.Abandoned, b.Name), trouble: b.Trouble()}
	s.report, s.reported = b.Report(key)
	if b.Others != nil && s.reported {
		s.pending, s.silent = b.Others(key, s.report.Seen)
		s.behind = len(s.pending) > 0 && b.Behind != nil && b.Behind(key, s.report.Seen)
	}
	return s
}

// gone reports whether nothing of the Service is left there, or nothing that is waited for.
func (s stand) gone() bool {
	return s.abandoned || s.reported && s.report.Gone && !s.report.Wanted && len(s.pending) == 0
}

// settled reports whether the load balancer has given up every address but these.
func (s stand) settled(kept addrs) bool {
	if s.abandoned || s.reported && s.report.Gone {
		return true
	}
	if !s.reported || !s.report.Wanted || len(s.pending) > 0 {
		return false
	}
	for _, p := range s.report.Ports {
		if !p.Programmed && !p.Unsupported || !kept.containAll(p.VIPs) {
			return false
		}
	}
	return true
}

// passing reports whether every problem there is of a kind that may be over in a moment.
func (s stand) passing() bool {
	return !slices.ContainsFunc(s.report.Ports, func(p loop.PortReport) bool { return p.Problem != "" && !passes(p.Kind) })
}

// passes reports whether a failure of the kind may be over in a moment.
func passes(kind providers.Kind) bool {
	return kind != providers.Rejected && kind != providers.Misconfigured && kind != ""
}

// servable reports whether the load balancer can balance any port of the Service.
func (s stand) servable() bool {
	return slices.ContainsFunc(s.report.Ports, func(p loop.PortReport) bool { return !p.Unsupported })
}

// Fenced returns a with every call behind the fence.
func Fenced(a providers.Allocator, fence Fence) providers.Allocator {
	return fenced{a, fence}
}

type fenced struct {
	providers.Allocator
	fence Fence
}

func (f fenced) AllocateVIPs(ctx context.Context, request providers.VIPRequest) ([]netip.Addr, error) {
	ctx, cancel, err := f.fence.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("allocate addresses for %s: %w", request.Group, err)
	}
	defer cancel()
	return f.Allocator.AllocateVIPs(ctx, request)
}

func (f fenced) ReleaseVIPs(ctx context.Context, group string) error {
	ctx, cancel, err := f.fence.Enter(ctx)
	if err != nil {
		return fmt.Errorf("release the addresses of %s: %w", group, err)
	}
	defer cancel()
	return f.Allocator.ReleaseVIPs(ctx, group)
}
