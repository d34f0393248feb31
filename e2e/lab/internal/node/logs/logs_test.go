package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tail is the obvious way to take the last lines.
func tail(text string, n int64) string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, int64(len(lines))-n):], "")
}

func TestTailOfAnyLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "bb", strings.Repeat("long", 10000)}), 0, 12).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "ends with a newline") {
			text += "\n"
		}
		n := rapid.Int64Range(0, 14).Draw(t, "n")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := Copy(context.Background(), &got, nil, path, Options{TailLines: n}); err != nil {
			t.Fatal(err)
		}
		if want := tail(text, n); got.String() != want {
			t.Fatalf("got %d bytes, want %d", got.Len(), len(want))
		}
	})
}

func TestLimitAndMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{0: "0123456789", 1: "0", 9: "012345678", 10: "0123456789", 11: "0123456789"} {
		var got bytes.Buffer
		if err := Copy(t.Context(), &got, nil, path, Options{TailLines: -1, LimitBytes: limit}); err != nil || got.String() != want {
			t.Errorf("limit %d: got %q, %v", limit, got.String(), err)
		}
	}
	if err := Copy(t.Context(), &bytes.Buffer{}, nil, path+"x", Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// pipe is a writer that hands over what is written.
type pipe chan string

func (p pipe) Write(b []byte) (int, error) { p <- string(b); return len(b), nil }

func TestFollowUntilAllIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "log")
	log, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", log.Input().Fd()), os.O_WRONLY|os.O_TRUNC, 0) // as a program opens /dev/stdout
	if err != nil {
		t.Fatal(err)
	}
	drained, got, ended := make(chan struct{}), make(pipe), make(chan error, 1)
	go func() { log.Drain(); close(drained) }()
	go func() {
		ended <- Copy(t.Context(), got, nil, path, Options{TailLines: -1, Follow: true, Done: drained})
	}()
	for _, text := range []string{"one\n", "two\n"} {
		if _, err := program.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if line := <-got; line != text {
			t.Errorf("got %q, want %q", line, text)
		}
	}
	program.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}
