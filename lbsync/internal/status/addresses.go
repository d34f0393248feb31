package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// refusal is why a Service is not accepted as it is written.
type refusal struct{ reason, message string }

type addrs []netip.Addr

func (a addrs) has(x netip.Addr) bool { return slices.Contains(a, x) }

func (a addrs) containAll(of []netip.Addr) bool {
	return !slices.ContainsFunc(of, func(x netip.Addr) bool { return !slices.Contains(a, x) })
}

// addresses knows the VIPs of all Services on all load balancers. What a Service had and does not have any more is nobody else's until
// every load balancer has given it up. Its methods may be called by several goroutines; those with a context may call a load balancer,
// and hold no lock meanwhile.
type addresses struct {
	wake  func(model.ServiceKey) // of who waits for an address
	pools []vip.Pool

	mu        sync.Mutex
	vips      *vip.Allocator
	waiting   map[model.ServiceKey]bool
	former    map[model.ServiceKey][]former
	groups    map[place]string // under which name a load balancer's own address management gave the addresses
	releasing map[grant]bool   // a load balancer is being told
}

// place is a Service on a load balancer.
type place struct {
	instance string
	service  model.ServiceKey
}

// grant is what a load balancer's own address management gave.
type grant struct{ instance, group string }

// former is what a Service had on a load balancer.
type former struct {
	instance string
	addrs    addrs
	group    string // of the load balancer's own address management, or ""
}

func newAddresses(pools []vip.Pool, wake func(model.ServiceKey)) *addresses {
	return &addresses{
		wake: wake, pools: pools, vips: vip.New(pools), waiting: map[model.ServiceKey]bool{}, former: map[model.ServiceKey][]former{},
		groups: map[place]string{}, releasing: map[grant]bool{},
	}
}

// holderOf is who has the former addresses of a Service. The name is read by whoever asks for one of them.
func holderOf(instance string, key model.ServiceKey) vip.Holder {
	return vip.Holder{Instance: instance, Service: key.String() + ", whose load balancer has not given it up yet"}
}

// load records what a Service has already; the older is loaded first. own is true of a load balancer with an address management.
func (a *addresses) load(h vip.Holder, key model.ServiceKey, own bool, group string, has addrs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vips.Load(h, has)
	a.enter(place{h.Instance, key}, own, group, has)
}

// enter notes under which name the load balancer gave what the Service has. What is in no pool of ours must be from there, or was asked
// for and is unknown there, which does no harm. It is called under the lock.
func (a *addresses) enter(at place, own bool, group string, has addrs) {
	delete(a.groups, at)
	foreign := func(x netip.Addr) bool {
		return !slices.ContainsFunc(a.pools, func(p vip.Pool) bool { return p.Contains(x) })
	}
	if own && slices.ContainsFunc(has, foreign) {
		a.groups[at] = group
	}
}

// loadFormer records addresses that are published for a Service and not assigned to it.
func (a *addresses) loadFormer(instance string, key model.ServiceKey, had addrs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep(instance, key, had)
}

// keep keeps others off addresses that the Service has had, where nobody has them. It is called under the lock.
func (a *addresses) keep(instance string, key model.ServiceKey, had addrs) {
	free := slices.DeleteFunc(slices.Clone(had), func(x netip.Addr) bool { return len(a.vips.Holders(x)) > 0 })
	if len(had) == 0 {
		return
	}
	a.vips.Load(holderOf(instance, key), free)
	a.former[key] = append(a.former[key], former{instance, had, a.groups[place{instance, key}]})
}

// had returns what the Service had and nobody else may have yet.
func (a *addresses) had(key model.ServiceKey) (out addrs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.former[key] {
		out = append(out, f.addrs...)
	}
	return out
}

// hadOn is had on one load balancer.
func (a *addresses) hadOn(instance string, key model.ServiceKey) (out addrs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.former[key] {
		if f.instance == instance {
			out = append(out, f.addrs...)
		}
	}
	return out
}

// of returns what the Service has on a load balancer.
func (a *addresses) of(instance string, key model.ServiceKey) addrs {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.vips.Of(instance, key.String())
}

// leave ends what the Service has on a load balancer where it goes on without addresses.
func (a *addresses) leave(instance string, key model.ServiceKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	had := a.vips.Of(instance, key.String())
	a.vips.Release(instance, key.String())
	a.keep(instance, key, had)
	delete(a.groups, place{instance, key})
}

// regain gives the Service what it had before the record of it was lost: the load balancer still announces it.
func (a *addresses) regain(h vip.Holder, key model.ServiceKey, announced addrs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.former[key] {
		f := &a.former[key][i]
		mine := slices.DeleteFunc(slices.Clone(f.addrs), func(x netip.Addr) bool { return !slices.Contains(announced, x) })
		if len(mine) == 0 {
			continue
		}
		a.vips.Release(f.instance, holderOf(f.instance, key).Service)
		a.vips.Load(h, mine)
		f.addrs = slices.DeleteFunc(f.addrs, func(x netip.Addr) bool { return slices.Contains(mine, x) })
		a.vips.Load(holderOf(f.instance, key), f.addrs)
	}
	a.former[key] = slices.DeleteFunc(a.former[key], func(f former) bool { return len(f.addrs) == 0 })
}

// ask is a request for addresses, also to the load balancer itself.
type ask struct {
	vip.Request
	key     model.ServiceKey
	group   string // "namespace/name" of the Service or of the group that it shares with
	options map[string]string
}

func (r ask) holder() vip.Holder {
	return vip.Holder{Instance: r.Instance, Service: r.Service, Shared: r.Shared, Ports: r.Ports}
}

// errBusy says that the same addresses are being given back at this moment.
var errBusy = &providers.Error{Kind: providers.Conflict, What: "the load balancer is being told that the addresses of the group are free"}

// assign gives the Service addresses on a load balancer. On a refusal it keeps those that it has. An error is the load balancer's: it is
// worth asking again.
func (a *addresses) assign(ctx context.Context, b Balancer, r ask) (addrs, *refusal, error) {
	has, no, done, err := a.fromPools(b, r)
	if done || err != nil {
		return has, no, err
	}
	request := providers.VIPRequest{Group: r.group, Wanted: r.Addresses, Options: r.options}
	request.IPv4, request.IPv6 = slices.Contains(r.Families, npl.IPv4), slices.Contains(r.Families, npl.IPv6)
	given, err := b.Allocator.AllocateVIPs(ctx, request)
	if err != nil {
		return has, notAllocated(err), err
	}
	return a.take(b, r, given)
}

func notAllocated(err error) *refusal {
	return &refusal{ReasonNotAllocated, "the load balancer gives no address: " + err.Error()}
}

// fromPools tries the pools. done is false when it is for the load balancer to give addresses.
func (a *addresses) fromPools(b Balancer, r ask) (has addrs, no *refusal, done bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, r.key)
	before := a.vips.Of(r.Instance, r.Service)
	if a.releasing[grant{r.Instance, r.group}] {
		return before, notAllocated(errBusy), true, errBusy
	}
	after, failure := a.vips.Assign(r.Request)
	refused, failed := errors.AsType[*vip.Error](failure)
	switch {
	case !failed:
		a.changed(b, r, before, after)
		return after, nil, true, nil
	case b.Allocator != nil && r.Pool == "" && (refused.Reason == vip.NoPool || refused.Reason == vip.Outside):
		return before, nil, fits(before, r), nil
	}
	a.waiting[r.key] = true
	return after, &refusal{string(refused.Reason), refused.Message}, true, nil
}

// fits reports whether the Service has what it asks for already.
func fits(has addrs, r ask) bool {
	if len(r.Addresses) > 0 {
		return slices.Equal(has, r.Addresses)
	}
	return len(has) == len(r.Families) && !slices.ContainsFunc(has, func(x netip.Addr) bool { return !slices.Contains(r.Families, npl.FamilyOf(x)) })
}

// take enters what the load balancer gave.
func (a *addresses) take(b Balancer, r ask, given addrs) (addrs, *refusal, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := r.holder()
	before := a.vips.Of(r.Instance, r.Service)
	a.vips.Release(r.Instance, r.Service)
	a.vips.Load(h, given)
	after := a.vips.Of(r.Instance, r.Service)
	if len(after) != len(given) { // somebody else has one of them
		taken := slices.DeleteFunc(slices.Clone(given), func(x netip.Addr) bool { return slices.Contains(after, x) })
		a.vips.Release(r.Instance, r.Service)
		a.vips.Load(h, before)
		a.waiting[r.key] = true
		return before, &refusal{string(vip.Conflict), fmt.Sprintf("the load balancer gives %s, which belongs to Service %s", taken[0],
			a.vips.Holders(taken[0])[0].Service)}, nil
	}
	a.changed(b, r, before, after)
	return after, nil, nil
}

// changed keeps what the Service has no more until the load balancer has given it up. It is called under the lock.
func (a *addresses) changed(b Balancer, r ask, before, after addrs) {
	a.keep(r.Instance, r.key, slices.DeleteFunc(slices.Clone(before), func(x netip.Addr) bool { return slices.Contains(after, x) }))
	a.enter(place{r.Instance, r.key}, b.Allocator != nil, r.group, after)
}

// forget drops what is known of a Service that has no addresses any more.
func (a *addresses) forget(key model.ServiceKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, key)
}

// wakeAll has everybody who waits for an address ask again, in order. It is called under the lock.
func (a *addresses) wakeAll() {
	for _, key := range slices.SortedFunc(maps.Keys(a.waiting), func(x, y model.ServiceKey) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	}) {
		a.wake(key)
	}
}
