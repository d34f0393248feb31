package runtime

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// ErrClear says that a command line which should be reached through TLS serves anybody in clear text. HAProxy accepts
// `stats socket <address> ssl ...` without a warning and ignores the ssl (2.6.12 and 3.4.0).
var ErrClear = errors.New("it answers commands in clear text, to anybody; `stats socket ... ssl` is not encrypted by haproxy: " +
	"put a `mode tcp` frontend with `ssl verify required` in front of a unix socket")

// errFile says that a file of a TLS endpoint is not what it should be.
var errFile = errors.New("certificates")

// Untrusted reports whether TLS failed for a reason that only a person can mend: our files, or one side does not trust the other.
func Untrusted(err error) bool {
	var unverified *tls.CertificateVerificationError
	var refused *net.OpError
	return errors.Is(err, errFile) || errors.As(err, &unverified) || errors.As(err, &refused) && refused.Op == "remote error"
}

// Endpoint is where a worker's command line is.
type Endpoint interface {
	// Dial connects.
	Dial(ctx context.Context) (net.Conn, error)
	String() string
}

// Unix is the path of a unix socket.
type Unix string

// Dial implements Endpoint.
func (u Unix) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "unix", string(u))
}

// String returns the path.
func (u Unix) String() string { return string(u) }

// TLS is a `mode tcp` frontend of HAProxy with client certificates in front of the command line. The files are read with every
// connection, so they may change.
type TLS struct {
	Address    string // host:port
	ServerName string // in the certificate; empty is the host of Address
	CAFile     string // whom the server's certificate has to be from
	CertFile   string // what we show
	KeyFile    string
}

// Timeouts of a TLS endpoint's first steps.
const (
	handshakeTimeout = 5 * time.Second
	clearTimeout     = time.Second
)

// Dial implements Endpoint. ErrClear says that there is no TLS at all.
func (e TLS) Dial(ctx context.Context) (net.Conn, error) {
	config, err := e.config()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	raw, err := e.raw(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Client(raw, config)
	if err = conn.HandshakeContext(limited); err == nil {
		return conn, nil
	}
	_ = raw.Close()
	if e.clear(ctx) {
		return nil, ErrClear
	}
	return nil, fmt.Errorf("TLS: %w", err)
}

// String returns the address.
func (e TLS) String() string { return e.Address }

func (e TLS) raw(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "tcp", e.Address)
}

// clear reports whether commands are answered without TLS.
func (e TLS) clear(ctx context.Context) bool {
	conn, err := e.raw(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(clearTimeout)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "show version\n"); err != nil {
		return false
	}
	first := make([]byte, 1)
	_, err = io.ReadFull(conn, first)
	// A TLS server answers with an alert, which begins with the byte 21 (RFC 8446 section 5.1), or says nothing.
	return err == nil && first[0] >= ' '
}

func (e TLS) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(e.CertFile, e.KeyFile)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(e.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", e.CAFile)
	}
	name := e.ServerName
	if name == "" {
		if name, _, err = net.SplitHostPort(e.Address); err != nil {
			return nil, err
		}
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}, nil
}
