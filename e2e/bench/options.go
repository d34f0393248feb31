package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Options say how much is measured.
type Options struct {
	// Rates are the changes a second of the part control, 1 to 1,000 each, in growing order.
	Rates []int
	// For is how long each rate is kept, at least a second.
	For time.Duration
	// Requests are the new connections a second that control makes through the VIP, at least 1, at most as many as the machine can.
	Requests int
	// Samples is the file that control writes processor time and memory to, every second; empty is none.
	Samples string
	// Page is the file that the figures are written to as tables in Markdown, too; empty is none.
	Page string
	// Steady is how long lbsync is left alone before its memory is read, at least a second.
	Steady time.Duration
	// Members are those on HAProxy in the part haproxy-memory, 1 to 50,000.
	Members int
	// Sizes are the clusters of the part scale.
	Sizes []Size
}

// DefaultOptions are those that the figures in docs were measured with.
func DefaultOptions() Options {
	return Options{
		Rates: []int{1, 10, 100}, For: time.Minute, Requests: 1000, Steady: steadyAfter, Members: 10_000,
		Sizes: []Size{{Pods: 1_000, Nodes: 100, Services: 100}, {Pods: 10_000, Nodes: 1_000, Services: 1_000}, {Pods: 50_000, Nodes: 1_000, Services: 10_000}},
	}
}

// Validate says which option cannot be.
func (o Options) Validate() error {
	var errs []error
	last := 0
	for _, rate := range o.Rates {
		if rate < 1 || rate > 1000 || rate <= last {
			errs = append(errs, fmt.Errorf("rate %d: each is 1 to 1000 changes a second, and larger than the one before", rate))
		}
		last = rate
	}
	if o.For < time.Second {
		errs = append(errs, fmt.Errorf("%s for each rate: measure at least 1s", o.For))
	}
	if o.Steady < time.Second {
		errs = append(errs, fmt.Errorf("%s left alone: leave lbsync alone for at least 1s", o.Steady))
	}
	if o.Members < 1 || o.Members > 50_000 {
		errs = append(errs, fmt.Errorf("%d members: HAProxy has 1 to 50000", o.Members))
	}
	if o.Requests < 1 {
		errs = append(errs, fmt.Errorf("%d requests a second: make at least 1", o.Requests))
	}
	for _, size := range o.Sizes {
		errs = append(errs, size.validate())
	}
	return errors.Join(errs...)
}

// ParseSize reads "pods/nodes/services".
func ParseSize(text string) (s Size, err error) {
	fields := strings.Split(text, "/")
	if len(fields) != 3 {
		return s, fmt.Errorf("size %q: write pods/nodes/services, such as 1000/100/100", text)
	}
	for i, to := range []*int{&s.Pods, &s.Nodes, &s.Services} {
		if *to, err = strconv.Atoi(fields[i]); err != nil {
			return s, fmt.Errorf("size %q: %q is no number", text, fields[i])
		}
	}
	return s, s.validate()
}
