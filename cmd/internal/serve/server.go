package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// ErrInUse is a listener's address that another process has.
var ErrInUse = errors.New("already in use")

// Listen opens a TCP listener; the error says in few words what is wrong with the address.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	var op *net.OpError
	switch {
	case errors.Is(err, errInUse):
		return nil, ErrInUse
	case errors.As(err, &op):
		return nil, op.Err
	}
	return listener, err
}

// ListenUnix opens a unix socket that its owner and group may use, and its directory where that is missing. A socket
// file that nobody listens on, as kill -9 leaves it, is replaced.
func ListenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := dial(path); err == nil {
		return nil, ErrInUse
	} else if errors.Is(err, errRefused) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := restrict(path); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// Listening says whether a process listens on the unix socket at path, even one that has not come to serving yet.
func Listening(path string) bool { return dial(path) == nil }

func dial(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Serve answers on listener until ctx ends, then lets running requests finish for a moment.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	stopped := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(grace) // what is still running then is cut off with the process
	})
	err := server.Serve(listener)
	if !release() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
}

const statusPath = "/status"

// StatusHandler serves the document that status returns, as JSON.
func StatusHandler(status func() any) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		document, err := json.Marshal(status())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	return mux
}

// ReadStatus returns the status document of the process that listens on the unix socket at path.
func ReadStatus(ctx context.Context, path string) ([]byte, error) {
	return readStatus(ctx, "socket", func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

// ReadStatusOver returns the status document of the process at the other end of a connection.
func ReadStatusOver(ctx context.Context, conn net.Conn) ([]byte, error) {
	return readStatus(ctx, "loopback", func(context.Context) (net.Conn, error) { return conn, nil })
}

func readStatus(ctx context.Context, host string, dial func(context.Context) (net.Conn, error)) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+statusPath, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			return nil, op.Err
		}
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s: %s", response.Status, body)
	}
	return body, nil
}
