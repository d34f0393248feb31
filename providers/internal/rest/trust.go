package rest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// trust opens TLS connections, each with the certificates that the CA file has at that moment.
type trust struct {
	file   *File // nil takes the system's
	config *tls.Config
	dialer net.Dialer
	limit  time.Duration // of a handshake: a dial goes on when nobody waits for it any more

	mu   sync.Mutex
	text string // what roots was made of
	pool *x509.CertPool
}

func newTrust(cfg Config, host string) *trust {
	t := &trust{dialer: newDialer(), limit: cfg.Timeout, config: &tls.Config{
		ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: cfg.Insecure, //nolint:gosec // it is the user's explicit setting
	}}
	if t.config.ServerName == "" {
		t.config.ServerName = host
	}
	if cfg.CAFile != "" && !cfg.Insecure {
		t.file = NewFile(cfg.CAFile)
	}
	return t
}

// errCA marks an error of the CA file itself.
var errCA = errors.New("CA file")

func (t *trust) roots() (*x509.CertPool, error) {
	if t.file == nil {
		return nil, nil // the system's
	}
	text, err := t.file.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCA, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool == nil || text != t.text {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(text)) {
			return nil, fmt.Errorf("%w %s: it holds no certificate in PEM form", errCA, t.file.path)
		}
		t.text, t.pool = text, pool
	}
	return t.pool, nil
}

// dial is http.Transport.DialTLSContext.
func (t *trust) dial(ctx context.Context, network, address string) (net.Conn, error) {
	pool, err := t.roots()
	if err != nil {
		return nil, err
	}
	conn, err := t.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	config := t.config.Clone()
	config.RootCAs = pool
	secure := tls.Client(&fencedConn{Conn: conn}, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return secure, nil
}

// Kind classifies the error: Misconfigured for what only a person can mend (a certificate that is not trusted, a host name that
// does not exist, a CA file that cannot be read), else Unavailable.
func (e *Error) Kind() providers.Kind {
	if e.certificate() || e.noSuchHost() || errors.Is(e.Err, errCA) {
		return providers.Misconfigured
	}
	return providers.Unavailable
}

// Hint says which of a Config's settings the error is about and how to mend it: "base URL", "CA file" or "server name"; "" when it is
// about none.
func (e *Error) Hint() string {
	var name x509.HostnameError
	var plain tls.RecordHeaderError
	switch {
	case errors.Is(e.Err, errCA):
		return "CA file: give the path of a readable PEM file"
	case errors.As(e.Err, &name):
		return "server name: set it to a name that the certificate has, or use such a name as host"
	case e.certificate():
		return "CA file: give the certificate that signed the server's"
	case errors.As(e.Err, &plain):
		return "base URL: this port does not speak TLS"
	case e.noSuchHost():
		return "base URL: this host name does not exist"
	}
	return ""
}

func (e *Error) certificate() bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](e.Err)
	return is
}

func (e *Error) noSuchHost() bool {
	dns, is := errors.AsType[*net.DNSError](e.Err)
	return is && dns.IsNotFound
}
