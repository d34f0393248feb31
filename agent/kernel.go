package agent

import (
	"context"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/loop"
)

// kernel is the dataplane and its life cycle.
type kernel interface {
	loop.Dataplane
	Watch(context.Context) <-chan struct{}
	Close() error
	Cleanup() error
}

type opener func(dataplane.Config) (kernel, error)

func openNFT(cfg dataplane.Config) (kernel, error) {
	nft, err := dataplane.Open(cfg)
	if err != nil {
		return nil, err // not a nil *NFT inside an interface
	}
	return nft, nil
}
