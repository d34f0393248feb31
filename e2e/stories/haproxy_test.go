package stories

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nplbridge/nplbridge/e2e/view"
)

// administer add FILE | administer replace OLD NEW | administer reset edits haproxy.cfg as the lab wrote it, and reloads HAProxy; administer reload
// only reloads it. $WORK in the file is the story's directory.
func (s *story) administer(ts *testscript.TestScript, args []string) (string, error) {
	edit := func(original string) string { return original }
	switch args[0] {
	case "reload":
		return "", s.Balancer().ReloadHAProxy(s.ctx)
	case "add":
		more := strings.ReplaceAll(ts.ReadFile(args[1]), "$WORK", ts.Getenv("WORK"))
		edit = func(original string) string { return original + "\n" + more }
	case "replace":
		edit = func(original string) string { return strings.ReplaceAll(original, args[1], args[2]) }
	}
	return "", s.Balancer().AdministerHAProxy(s.ctx, edit)
}

// attached BACKEND SERVICE PODS waits until our members in the administrator's backend are what so many ready Pods of the Service publish, and prints the
// names of all other servers there.
func (s *story) attached(_ *testscript.TestScript, args []string) (string, error) {
	want, err := strconv.Atoi(args[2])
	if err != nil {
		return "", err
	}
	var others []string
	_, err = s.SettledIn(s.ctx, args[1], want, func() (map[netip.AddrPort]view.Server, error) {
		var members map[netip.AddrPort]view.Server
		members, others, err = s.Attached(args[0])
		return members, err
	})
	return strings.Join(others, "\n") + "\n", err
}

// occupy ADDRESS listens there on the load balancer's host, where VIPs are, until vacate ADDRESS or the end of the story.
func (s *story) occupy(_ *testscript.TestScript, args []string) (string, error) {
	return "", s.Lab.Do(s.ctx, s.Balancer().Place(), func() error {
		listener, err := new(net.ListenConfig).Listen(s.ctx, "tcp", args[0])
		if err == nil {
			s.occupied[args[0]] = listener
		}
		return err
	})
}

func (s *story) vacate(_ *testscript.TestScript, args []string) (string, error) {
	listener, ok := s.occupied[args[0]]
	if !ok {
		return "", errors.New("vacate: it is not occupied")
	}
	delete(s.occupied, args[0])
	return "", listener.Close()
}

// certify AUTHORITY NAME... makes an authority and certificates of it: AUTHORITY.pem, and for each name AUTHORITY-NAME.crt, .key and .pem with both.
func (s *story) certify(ts *testscript.TestScript, args []string) (string, error) {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: args[0]}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	raw, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	if err != nil {
		return "", err
	}
	write := func(name string, blocks ...*pem.Block) error {
		var text []byte
		for _, block := range blocks {
			text = append(text, pem.EncodeToMemory(block)...)
		}
		return os.WriteFile(ts.MkAbs(name), text, 0o600)
	}
	if err := write(args[0]+".pem", &pem.Block{Type: "CERTIFICATE", Bytes: raw}); err != nil {
		return "", err
	}
	for i, name := range args[1:] {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", err
		}
		raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: authority.NotBefore,
			NotAfter: authority.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}, authority, &own.PublicKey, key)
		if err != nil {
			return "", err
		}
		secret, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			return "", err
		}
		base, cert, private := args[0]+"-"+name, &pem.Block{Type: "CERTIFICATE", Bytes: raw}, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}
		if err := errors.Join(write(base+".crt", cert), write(base+".key", private), write(base+".pem", cert, private)); err != nil {
			return "", err
		}
	}
	return "", nil
}
