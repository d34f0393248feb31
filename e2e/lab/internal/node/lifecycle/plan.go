package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Plan is what to do next with a Pod's containers.
type Plan struct {
	// Start lists the containers to start now.
	Start []*Container
	// Wake is when to plan again if nothing else happens; zero for never.
	Wake time.Time
	// Finished says that no ordinary container runs or will run again: what still runs are sidecars, to be stopped.
	Finished bool
}

// Next plans a Pod that is meant to run. initialized says that its ordinary containers were started once: from then on
// sidecars and ordinary containers restart independently of each other.
func Next(policy corev1.RestartPolicy, all []*Container, initialized bool, now time.Time) Plan {
	var p Plan
	for _, c := range all {
		if c.Kind == Main || (initialized && c.Kind == Init) {
			continue
		}
		goesOn := p.consider(c, policy, now)
		if initialized {
			continue
		}
		if !goesOn { // an init container that failed for good; no sidecar before it is started again, either
			return Plan{Finished: true}
		}
		if done := c.succeeded() || (c.Kind == Sidecar && c.Running() && c.Started); !done {
			return p
		}
	}
	p.Finished = true
	for _, c := range all {
		if c.Kind == Main && p.consider(c, policy, now) {
			p.Finished = false
		}
	}
	if p.Finished {
		p.Start, p.Wake = nil, time.Time{}
	}
	return p
}

// consider adds a container to the plan if it is to be started, now or later, and tells whether it goes on: runs, will
// run, or is an init container that has done its work.
func (p *Plan) consider(c *Container, policy corev1.RestartPolicy, now time.Time) bool {
	if c.Running() || (c.Kind == Init && c.succeeded()) {
		return true
	}
	if t := c.Ended(); t != nil && !c.restarts(policy, t.ExitCode) {
		return false
	}
	if c.NotBefore.After(now) {
		if p.Wake.IsZero() || c.NotBefore.Before(p.Wake) {
			p.Wake = c.NotBefore
		}
		return true
	}
	p.Start = append(p.Start, c)
	return true
}
