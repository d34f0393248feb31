//go:build !linux

package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// NFT is the nftables dataplane; it exists on Linux only.
type NFT struct{}

func unsupported() error {
	return fmt.Errorf("nftables on %s: %w: run npl-agent on a Linux Node", runtime.GOOS, ErrUnsupported)
}

// Open reports that nftables does not exist here.
func Open(Config) (*NFT, error) { return nil, unsupported() }

// Families returns nothing.
func (*NFT) Families() []npl.Family { return nil }

// Self returns nothing.
func (*NFT) Self() []netip.Addr { return nil }

// Load reports that nftables does not exist here.
func (*NFT) Load() (Snapshot, error) { return Snapshot{}, unsupported() }

// Apply reports that nftables does not exist here.
func (*NFT) Apply(Change) error { return unsupported() }

// Repair reports that nftables does not exist here.
func (*NFT) Repair(map[Key]netip.AddrPort) (int, error) { return 0, unsupported() }

// Watch returns a channel that never fires.
func (*NFT) Watch(context.Context) <-chan struct{} { return nil }

// Reserve reports that nftables does not exist here.
func (*NFT) Reserve(Key) error { return unsupported() }

// Release does nothing.
func (*NFT) Release(Key) {}

// Close does nothing.
func (*NFT) Close() error { return nil }

// Cleanup reports that nftables does not exist here.
func (*NFT) Cleanup() error { return unsupported() }
