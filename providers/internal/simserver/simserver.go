// Package simserver serves a simulated load balancer's API over TLS, with a certificate that a client can verify by a CA file as it would the real one's.
package simserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves one handler. All methods may be called by several goroutines.
type Server struct {
	handler   http.Handler
	authority *authority

	mu     sync.Mutex
	server *http.Server
}

// New returns a Server with an authority of its own, called after the simulator. It listens nowhere yet.
func New(name string, handler http.Handler) (*Server, error) {
	a, err := newAuthority(name)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &Server{handler: handler, authority: a}, nil
}

// Start listens on the address and returns the URL, such as https://127.0.0.1:40123.
func (s *Server) Start(address string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return "", errors.New("it was started already")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	certificate, err := s.authority.issue(l.Addr())
	if err != nil {
		return "", errors.Join(fmt.Errorf("make a certificate: %w", err), l.Close())
	}
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		// HTTP/1.1 only, as the APIs that are simulated: a dropped connection is then one that the client sees.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	s.server = server
	go server.ServeTLS(l, "", "") //nolint:errcheck // it ends by Close
	return "https://" + l.Addr().String(), nil
}

// Close stops listening and drops every connection.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	err := s.server.Close()
	s.server = nil
	return err
}

// CAPEM returns the certificate of the authority that signs the server's.
func (s *Server) CAPEM() []byte { return s.authority.pem }
