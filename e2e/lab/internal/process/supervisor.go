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

	mutex    sync.Mutex
	watch    *watch
	current  *Process
	restarts int
}

// watch is the time from a start to the Stop after it.
type watch struct {
	stop chan struct{} // closed by Stop
	gone chan struct{} // closed when nobody starts the program any more
}

// Supervise starts a program and keeps it running until Stop. Only the first start can fail.
func Supervise(spec Spec) (*Supervisor, error) {
	s := &Supervisor{spec: spec}
	if err := s.begin(); err != nil {
		return nil, err
	}
	return s, nil
}

// Resume starts a program again after Stop has returned, and keeps it running. Before that it does nothing.
func (s *Supervisor) Resume() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case <-s.watch.gone:
		return s.begin()
	default:
		return nil
	}
}

func (s *Supervisor) begin() error {
	first, err := Start(s.spec)
	if err != nil {
		return err
	}
	s.current, s.watch = first, &watch{make(chan struct{}), make(chan struct{})}
	go s.run(first, s.watch)
	return nil
}

func (s *Supervisor) run(current *Process, w *watch) {
	defer close(w.gone)
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval = 100 * time.Millisecond
	delay.MaxInterval = 5 * time.Second
	for {
		started := time.Now()
		if current != nil {
			select {
			case <-w.stop:
				return
			case <-current.Done():
			}
		}
		if time.Since(started) > stableAfter {
			delay.Reset()
		}
		select {
		case <-w.stop:
			return
		case <-time.After(delay.NextBackOff()):
		}
		current = s.restart(w)
	}
}

func (s *Supervisor) restart(w *watch) *Process {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case <-w.stop:
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

// Stop ends the program until Resume; grace 0 kills it at once. Calling it again does nothing.
func (s *Supervisor) Stop(grace time.Duration) {
	s.mutex.Lock()
	w := s.watch
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	s.mutex.Unlock()
	<-w.gone
	if grace > 0 {
		s.Current().Stop(grace)
	} else {
		s.Current().Kill()
	}
}
