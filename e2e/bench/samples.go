package bench

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is what a process has taken at a moment.
type sample struct {
	at  time.Time
	rss float64       // bytes
	cpu time.Duration // since the process began
}

// tick is the unit of processor times in /proc/<pid>/stat on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func readSample(pid int) (s sample, err error) {
	s.at = time.Now()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, err
	}
	if s.rss, err = kilobytes(status, "VmRSS"); err != nil {
		return s, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	s.cpu, err = processorTime(string(stat))
	return s, err
}

// processorTime reads utime and stime, fields 14 and 15 of /proc/<pid>/stat. The name before them, in parentheses, may hold anything.
func processorTime(stat string) (time.Duration, error) {
	_, rest, _ := strings.Cut(stat[strings.LastIndex(stat, ")")+1:], " ")
	fields := strings.Fields(rest)
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/<pid>/stat has %d fields after the name", len(fields))
	}
	u, err := strconv.ParseInt(fields[user], 10, 64)
	k, err2 := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+k) * tick, errors.Join(err, err2)
}

// series are the samples of processes over time, by name.
type series map[string][]sample

// record samples processes every so often until ctx ends, and then closes the channel that it returns.
func (s series) record(ctx context.Context, pids map[string]int, every time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			for name, pid := range pids {
				one, err := readSample(pid)
				if err != nil {
					done <- fmt.Errorf("sampling %s: %w", name, err)
					return
				}
				s[name] = append(s[name], one)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return done
}

// taken is what a process took from the first sample to the last.
type taken struct {
	cpu, span        time.Duration
	begin, end, most float64 // RSS in bytes
}

func (s series) taken(name string) (t taken) {
	all := s[name]
	if len(all) == 0 {
		return t
	}
	first, last := all[0], all[len(all)-1]
	t = taken{cpu: last.cpu - first.cpu, span: last.at.Sub(first.at), begin: first.rss, end: last.rss}
	for _, one := range all {
		t.most = max(t.most, one.rss)
	}
	return t
}

// write writes all samples as lines "rate,seconds,program,rss bytes,cpu seconds".
func (s series) write(out io.Writer, rate int, began time.Time) error {
	w := csv.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		for _, one := range s[name] {
			err := w.Write([]string{
				strconv.Itoa(rate), fmt.Sprintf("%.1f", one.at.Sub(began).Seconds()), name, fmt.Sprintf("%.0f", one.rss), fmt.Sprintf("%.2f", one.cpu.Seconds()),
			})
			if err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
