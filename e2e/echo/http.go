package echo

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"
)

type httpPart struct {
	server   *http.Server
	listener net.Listener
}

func (s *Server) listenHTTP(ctx context.Context, address string) (part, net.Addr, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(s.cfg.Identity.reply("http", peerOf(r), localOf(r)).Line()) //nolint:errcheck // the client went away
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n")) //nolint:errcheck // the client went away
	})
	server := &http.Server{Handler: s.closeWhenDraining(mux), ReadHeaderTimeout: 10 * time.Second}
	// A load balancer may say by the PROXY protocol who its client is; the peer is that client then.
	listener := &proxyproto.Listener{Listener: l, ReadHeaderTimeout: 10 * time.Second, ConnPolicy: headerIfAny}
	return &httpPart{server, listener}, l.Addr(), nil
}

func headerIfAny(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.USE, nil }

// closeWhenDraining asks clients to open no more requests on a connection once the server was told to stop. Setting
// the header is gentler than http.Server.SetKeepAlivesEnabled, which drops idle connections a client may just be using.
func (s *Server) closeWhenDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (p *httpPart) serve() error {
	if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (p *httpPart) shutdown(ctx context.Context) error {
	return errors.Join(p.server.Shutdown(ctx), closed(p.listener.Close()))
}

// closed hides that something was closed before, which shutting down a server that never served would report.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func peerOf(r *http.Request) netip.AddrPort {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return a
}

func localOf(r *http.Request) netip.AddrPort {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}
