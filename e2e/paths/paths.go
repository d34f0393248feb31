// Package paths measures ways from one HAProxy to the same Pods beside each other: NodePort with kube-proxy, NodePortLocal, and the Pods'
// own addresses, which is the limit. What counts are ratios: everything shares one machine.
package paths

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Report is everything that was measured.
type Report struct {
	Options  Options
	Machine  Machine
	Shares   []Shares
	Rates    []*Rates
	Rolled   []Rolled
	Rollouts int
}

// Run starts a lab, measures, and tells its progress to out.
func Run(ctx context.Context, o Options, out io.Writer) (_ *Report, err error) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	l, err := lab.Start(ctx, lab.Options{Nodes: 3})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
	}()
	say("a lab with 3 Nodes is ready")
	s, err := newSite(ctx, l, say)
	if err != nil {
		return nil, err
	}
	r := &Report{Options: o, Machine: thisMachine(began)}
	if err := s.kubeProxy(ctx, lab.NFTables); err != nil {
		return nil, err
	}
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	if r.Shares, err = s.shares(ctx, o); err != nil {
		return nil, fmt.Errorf("shares: %w", err)
	}
	if r.Rolled, r.Rollouts, err = s.rolling(ctx, o); err != nil {
		return nil, fmt.Errorf("rolling updates: %w", err)
	}
	if r.Rates, err = s.rates(ctx, o); err != nil {
		return nil, fmt.Errorf("rates: %w", err)
	}
	return r, nil
}
