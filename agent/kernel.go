package agent

import (
	"context"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/loop"
)

// kernel is the dataplane and its life cycle. Each operating system has one that openKernel opens.
type kernel interface {
	loop.Dataplane
	Watch(context.Context) <-chan struct{}
	Close() error
	Cleanup() error
}

type opener func(dataplane.Config) (kernel, error)
