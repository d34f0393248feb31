package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shell(t *testing.T, script string) Spec {
	return Spec{Name: "script", Argv: []string{"sh", "-c", script}, Log: filepath.Join(t.TempDir(), "log")}
}

func TestErrTellsWhy(t *testing.T) {
	p, err := Start(shell(t, "seq 30; echo it broke >&2; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	got := p.Err().Error()
	if !strings.HasPrefix(got, "script ended: exit status 3\n    17\n") || !strings.HasSuffix(got, "    30\n    it broke") {
		t.Errorf("Err = %q, want the status and the last 15 lines", got)
	}
}

func TestStartFails(t *testing.T) {
	_, err := Start(Spec{Name: "x", Argv: []string{"/nowhere"}, Log: filepath.Join(t.TempDir(), "log")})
	if err == nil || !strings.Contains(err.Error(), "start x: ") {
		t.Errorf("Start = %v", err)
	}
	_, err = Start(Spec{Name: "x", Argv: []string{"true"}, Log: "/nowhere/log"})
	if err == nil || !strings.Contains(err.Error(), "log of x: ") {
		t.Errorf("Start = %v", err)
	}
}

// Children go with their parent, whether that ends when asked or has to be killed.
func TestStop(t *testing.T) {
	for _, test := range []struct {
		name, trap string
		stop       func(*Process)
		wantLog    string
	}{
		{"asked", "trap 'echo asked; exit 0' TERM", func(p *Process) { p.Stop(time.Minute) }, "asked"},
		{"deaf", "trap '' TERM", func(p *Process) { p.Stop(50 * time.Millisecond) }, ""},
		{"killed", "trap 'echo asked; exit 0' TERM", (*Process).Kill, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := shell(t, test.trap+"; sleep 1000 & echo $! > child; while :; do sleep 0.01; done")
			spec.Dir = t.TempDir()
			p, err := Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			var child int
			eventually(t, func() error {
				content, err := os.ReadFile(filepath.Join(spec.Dir, "child"))
				if err == nil {
					_, err = fmt.Sscan(string(content), &child)
				}
				return err
			})
			test.stop(p)
			test.stop(p) // again is nothing
			select {
			case <-p.Done():
			default:
				t.Error("stop returned before the program had ended")
			}
			eventually(t, func() error {
				if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child)); err == nil && !strings.Contains(string(stat), ") Z ") {
					return fmt.Errorf("child %d is still there: %s", child, stat)
				}
				return nil
			})
			if log, err := os.ReadFile(spec.Log); err != nil || strings.TrimSpace(string(log)) != test.wantLog {
				t.Errorf("log is %q, %v, want %q", log, err, test.wantLog)
			}
		})
	}
}

func TestSupervisorRestarts(t *testing.T) {
	s, err := Supervise(shell(t, "exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	first := s.Current().PID()
	s.Current().Kill()
	eventually(t, func() error {
		if now := s.Current().PID(); now == first {
			return fmt.Errorf("still process %d", now)
		}
		return nil
	})
	if s.Restarts() != 1 {
		t.Errorf("%d restarts, want 1", s.Restarts())
	}
	last := s.Current()
	s.Stop(time.Minute)
	s.Stop(0) // again is nothing
	if err := syscall.Kill(last.PID(), 0); err == nil {
		t.Error("the program runs after Stop")
	}
	if s.Current() != last {
		t.Error("Stop started the program again")
	}

	// Stop is for a while, and then the program is kept running as before.
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed := s.Current()
	if err := s.Resume(); err != nil || s.Current() != resumed || resumed == last {
		t.Errorf("Resume, twice: %v, process %d, %d before Stop", err, s.Current().PID(), last.PID())
	}
	resumed.Kill()
	eventually(t, func() error {
		if s.Current() == resumed {
			return errors.New("not started again")
		}
		return nil
	})
	s.Stop(0)
	if err := syscall.Kill(s.Current().PID(), 0); err == nil {
		t.Error("the program runs after the second Stop")
	}
}

// A program that ends while the supervisor waits to start it again is not started by Stop.
func TestSupervisorStopsDuringDelay(t *testing.T) {
	spec := shell(t, "echo ran; exit 1")
	s, err := Supervise(spec)
	if err != nil {
		t.Fatal(err)
	}
	<-s.Current().Done()
	s.Stop(0)
	runs := s.Restarts() + 1
	if log, err := os.ReadFile(spec.Log); err != nil || strings.Count(string(log), "ran") != runs {
		t.Errorf("log is %q, %v, want %d runs", log, err, runs)
	}
}

func TestSuperviseReportsTheFirstStart(t *testing.T) {
	if _, err := Supervise(Spec{Name: "x", Argv: []string{"/nowhere"}, Log: filepath.Join(t.TempDir(), "log")}); err == nil {
		t.Error("no error although the program does not exist")
	}
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
