package process

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// stableAfter is how long a program must have run for its next restart to be immediate again.
const stableAfter = 10 * time.Second

// Supervisor keeps a program running: it starts it again when it ends, later each time it ends soon.
type Supervisor struct {
	spec Spec
	stop chan struct{}
	gone chan struct{}

	mutex    sync.Mutex
	current  *Process
	restarts int
}

// Supervise starts a program and keeps it running until Stop. Only the first start can fail.
func Supervise(spec Spec) (*Supervisor, error) {
	first, err := Start(spec)
	if err != nil {
		return nil, err
	}
	s := &Supervisor{spec: spec, stop: make(chan struct{}), gone: make(chan struct{}), current: first}
	go s.run(first)
	return s, nil
}

func (s *Supervisor) run(current *Process) {
	defer close(s.gone)
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval = 100 * time.Millisecond
	delay.MaxInterval = 5 * time.Second
	for {
		started := time.Now()
		if current != nil {
			select {
			case <-s.stop:
				return
			case <-current.Done():
			}
		}
		if time.Since(started) > stableAfter {
			delay.Reset()
		}
		select {
		case <-s.stop:
			return
		case <-time.After(delay.NextBackOff()):
		}
		current = s.restart()
	}
}

func (s *Supervisor) restart() *Process {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case <-s.stop:
		return nil
	default:
	}
	s.restarts++
	next, err := Start(s.spec)
	if err != nil {
		return nil // tried again after the next delay
	}
	s.current = next
	return next
}

// Current is the process running now, or the last one while it is being restarted.
func (s *Supervisor) Current() *Process {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.current
}

// Restarts counts how often the program was started again.
func (s *Supervisor) Restarts() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.restarts
}

// Stop ends the program for good; grace 0 kills it at once. Calling it again does nothing.
func (s *Supervisor) Stop(grace time.Duration) {
	s.mutex.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mutex.Unlock()
	<-s.gone
	if grace > 0 {
		s.Current().Stop(grace)
	} else {
		s.Current().Kill()
	}
}
