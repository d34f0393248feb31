package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// Authority issues the certificates of one lab. It lives as long as the lab, in memory.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

// identity is a certificate with its key, both in PEM.
type identity struct{ cert, key []byte }

// validity is longer than anybody keeps a lab up.
const validity = 30 * 24 * time.Hour

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the certificate authority: %w", err)
	}
	template := template("nplbridge-lab")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return &authority{key: key, cert: cert, pem: encode("CERTIFICATE", der)}, nil
}

// client issues the identity of a user with groups, as the API server reads them from a certificate.
func (a *authority) client(user string, groups ...string) (identity, error) {
	t := template(user)
	t.Subject.Organization = groups
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(t)
}

// server issues the identity of a server with these names and addresses.
func (a *authority) server(name string, names []string, addresses []netip.Addr) (identity, error) {
	t := template(name)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	t.DNSNames = names
	for _, address := range addresses {
		t.IPAddresses = append(t.IPAddresses, net.IP(address.AsSlice()))
	}
	return a.issue(t)
}

func (a *authority) issue(t *x509.Certificate) (identity, error) {
	key, encoded, err := newKey()
	if err != nil {
		return identity{}, fmt.Errorf("key of %s: %w", t.Subject.CommonName, err)
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return identity{}, fmt.Errorf("certificate of %s: %w", t.Subject.CommonName, err)
	}
	return identity{cert: encode("CERTIFICATE", der), key: encoded}, nil
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // a clock set back a little does no harm
		NotAfter:     now.Add(validity),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
