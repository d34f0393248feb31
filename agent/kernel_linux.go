package agent

import "github.com/nplbridge/nplbridge/agent/internal/dataplane"

// openKernel opens nftables.
func openKernel(cfg dataplane.Config) (kernel, error) {
	nft, err := dataplane.Open(cfg)
	if err != nil {
		return nil, err // not a nil *NFT inside an interface
	}
	return nft, nil
}
