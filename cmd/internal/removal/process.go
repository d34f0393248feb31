// Package removal takes an installation away: Process does it in each program whose state is removing, Hook tells the programs to and
// waits for them.
package removal

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
)

// Reasons of the Events by which a process says how far it is.
const (
	removed = "Removed"
	failed  = "RemovalFailed"
)

// lastRetry is the longest pause before a removal that failed is tried again.
const lastRetry = 30 * time.Second

// again is after how long what is removed is said again: a hook that comes later looks for the Event, and servers keep Events for an hour or
// less.
const again = 5 * time.Minute

// Process takes everything of a program away, which is what it does instead of its work in state removing.
type Process struct {
	Program string // "npl-agent"
	Client  kubernetes.Interface
	Log     *zap.Logger
	// Remove removes everything, and returns when nothing is left. It may be called again after an error. tell is told in a few words what
	// is left.
	Remove func(ctx context.Context, tell func(left string)) error
	// Status is the status document while so much is left, "" at last.
	Status func(left string) any

	mu   sync.Mutex
	left string
}

// Service returns the Service that does it. It is ready when nothing is left.
func (p *Process) Service() program.Service {
	p.tell("it has just begun")
	return program.Service{
		Run:    p.run,
		Checks: []serve.Check{{Name: "removed", Check: p.check}},
		Status: func() any { return p.Status(p.get()) },
	}
}

func (p *Process) tell(left string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = left
}

func (p *Process) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

func (p *Process) check() error {
	if left := p.get(); left != "" {
		return errors.New(left)
	}
	return nil
}

// run removes everything and says so until the end of ctx.
func (p *Process) run(ctx context.Context) error {
	p.Log.Info("The state is removing: everything of this process is taken away")
	pauses := backoff.NewExponentialBackOff()
	pauses.MaxInterval = lastRetry
	told := ""
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := p.Remove(ctx, p.tell)
		if err == nil {
			err = p.done(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.tell(err.Error())
			p.Log.Error("removing; trying again", zap.Error(err))
			if told != err.Error() {
				told = err.Error()
				if also := p.report(ctx, corev1.EventTypeWarning, failed, told); also != nil {
					p.Log.Warn("the Event about that", zap.Error(also))
				}
			}
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil //nolint:nilerr // ctx has ended: this goes on in the next process
	}
	p.tell("")
	p.Log.Info("Everything is taken away; with state running it begins again")
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := p.done(ctx); err != nil {
				p.Log.Warn("the Event that says so once more", zap.Error(err))
			}
		}
	}
}

func (p *Process) done(ctx context.Context) error {
	return p.report(ctx, corev1.EventTypeNormal, removed, p.Program+" has taken away everything of its own")
}

func (p *Process) report(ctx context.Context, kind, reason, note string) error {
	return program.PodEvent{Program: p.Program, Type: kind, Reason: reason, Action: "Removing", Note: note}.Write(ctx, p.Client)
}
