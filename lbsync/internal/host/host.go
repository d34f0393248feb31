// Package host knows which addresses are on the interfaces of this host.
package host

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// Interval is how often the interfaces are read.
const Interval = time.Second

// ipvs is where kube-proxy puts addresses of Services that this host does not announce.
const ipvs = "kube-ipvs0"

// Addresses follows the addresses of this host. It is run once.
type Addresses struct {
	Read    func() ([]netip.Addr, error)
	Changed func() // after one came or went; it must not block
	Clock   clock.WithTicker
	Log     *zap.Logger

	mu  sync.Mutex
	has map[netip.Addr]bool
}

// Has reports whether the address is on an interface, as of the last reading; before the first, none is.
func (a *Addresses) Has(addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.has[addr]
}

// Refresh reads the interfaces. What cannot be read stays as it was.
func (a *Addresses) Refresh() (changed bool, err error) {
	list, err := a.Read()
	if err != nil {
		return false, err
	}
	has := map[netip.Addr]bool{}
	for _, addr := range list {
		has[addr] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = !maps.Equal(a.has, has)
	a.has = has
	return changed, nil
}

// Run reads the interfaces again and again until ctx ends.
func (a *Addresses) Run(ctx context.Context) {
	failing := false
	for {
		changed, err := a.Refresh()
		if err != nil && !failing {
			a.Log.Warn("cannot read this host's addresses; those known before stay", zap.Error(err))
		}
		failing = err != nil
		if changed {
			a.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-a.Clock.After(Interval):
		}
	}
}

// Interfaces returns the addresses on the interfaces of this host.
func Interfaces() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read the addresses of this host: %w", err)
	}
	var foreign []net.Addr
	if i, err := net.InterfaceByName(ipvs); err == nil { // there is none without kube-proxy's IPVS mode
		if foreign, err = i.Addrs(); err != nil {
			return nil, fmt.Errorf("read the addresses of interface %s: %w", ipvs, err)
		}
	}
	services := parse(foreign)
	return slices.DeleteFunc(parse(all), func(a netip.Addr) bool { return slices.Contains(services, a) }), nil
}

func parse(in []net.Addr) (out []netip.Addr) {
	for _, a := range in {
		if prefix, ok := a.(*net.IPNet); ok {
			// Link-local ones come and go with Pods, and no Service is at them.
			if addr, ok := netip.AddrFromSlice(prefix.IP); ok && !addr.Unmap().IsLinkLocalUnicast() {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}
