package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
)

func TestMain(m *testing.M) { contain.Run(nil, os.Stderr, m.Run) }

// other makes a second network namespace with its loopback up and returns its path.
func other(t *testing.T) string {
	t.Helper()
	path := fmt.Sprintf("/run/netns/other-%d", os.Getpid())
	for _, args := range [][]string{
		{"ip", "netns", "add", "other-" + fmt.Sprint(os.Getpid())},
		{"ip", "-n", "other-" + fmt.Sprint(os.Getpid()), "link", "set", "lo", "up"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "delete", "other-"+fmt.Sprint(os.Getpid())).Run() })
	return path
}

func where(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestSocketsBelongToTheOtherNamespace(t *testing.T) {
	path := other(t)
	home := where(t)
	listener, err := Listen(t.Context(), path, "tcp", "127.0.0.1:7777")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	conn, err := Dial(t.Context(), path, "tcp", "127.0.0.1:7777")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if conn, err := Dial(t.Context(), "", "tcp", "127.0.0.1:7777"); err == nil {
		conn.Close()
		t.Error("reached it from the own namespace, which is another")
	}
	// No thread may stay behind over there, whatever runs on it next.
	seen := make(chan string)
	for range 50 {
		go func() { seen <- where(t) }()
	}
	for range 50 {
		if got := <-seen; got != home {
			t.Errorf("a goroutine runs in %s, want %s", got, home)
		}
	}
}

func TestDoReturnsItsError(t *testing.T) {
	wrong := errors.New("wrong")
	if err := Do("/proc/self/ns/net", func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if err := Do("/nosuch", func() error { t.Error("ran"); return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, "/proc/self/ns/net", "tcp", "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
