package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/logs"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/netns"
)

// logPort is where the API server asks kubelets for logs.
const logPort = 10250

// serveLogs answers the part of the kubelet's API that `kubectl logs` needs, on the Node's address.
func (n *Node) serveLogs(ctx context.Context) (*http.Server, error) {
	cert := n.cfg.ServingCert
	if cert == nil {
		made, err := selfSigned(n.cfg.Name, n.cfg.Addresses)
		if err != nil {
			return nil, fmt.Errorf("node %s: serving certificate: %w", n.cfg.Name, err)
		}
		cert = made
	}
	address := netip.AddrPortFrom(n.cfg.Addresses[0], logPort).String()
	listener, err := netns.Listen(ctx, n.cfg.NetNSPath, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("node %s: listen for log requests on %s: %w", n.cfg.Name, address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.containerLogs)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "the lab's Node serves logs only, not "+r.URL.Path+"; to run a command beside a Pod use the lab's own command for its network namespace", http.StatusNotImplemented)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12},
		ErrorLog:  zap.NewStdLog(n.log.Named("logs").WithOptions(zap.IncreaseLevel(zap.ErrorLevel))),
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("serve logs", zap.Error(err))
		}
	}()
	return server, nil
}

func (n *Node) containerLogs(w http.ResponseWriter, r *http.Request) {
	path, options, err := n.findLog(r)
	var refused badRequest
	switch {
	case errors.As(err, &refused):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := func() { http.NewResponseController(w).Flush() } //nolint:errcheck // the client went away
	switch err := logs.Copy(r.Context(), w, flush, path, options); {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "the log of that run is gone", http.StatusNotFound)
	case err != nil:
		n.log.Debug("send log", zap.String("path", path), zap.Error(err))
	}
}

// badRequest is a request that cannot be answered whatever the state of the Pod.
type badRequest struct{ error }

// findLog finds the log that a request asks for.
func (n *Node) findLog(r *http.Request) (path string, o logs.Options, err error) {
	query := r.URL.Query()
	for _, name := range []string{"timestamps", "sinceSeconds", "sinceTime"} {
		if v := query.Get(name); v != "" && v != "false" {
			return "", o, badRequest{fmt.Errorf("%s is not supported: the lab's logs carry no times", name)}
		}
	}
	if o.TailLines, err = number(query.Get("tailLines"), -1); err != nil {
		return "", o, badRequest{fmt.Errorf("tailLines: %w", err)}
	}
	if o.LimitBytes, err = number(query.Get("limitBytes"), 0); err != nil {
		return "", o, badRequest{fmt.Errorf("limitBytes: %w", err)}
	}
	o.Follow = query.Get("follow") == "true"
	namespace, pod, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	for _, v := range n.views() {
		if v.pod.Namespace != namespace || v.pod.Name != pod {
			continue
		}
		run, ran := v.runs[container]
		if query.Get("previous") == "true" {
			run--
		}
		if !ran || run < 0 {
			return "", o, badRequest{fmt.Errorf("container %q in pod %q has no such run to show the log of", container, pod)}
		}
		if now, runs := v.running[container]; runs && run == v.runs[container] {
			o.Done = now.logged
		} else {
			o.Follow = false
		}
		return n.podDir(v.pod).log(container, run), o, nil
	}
	return "", o, fmt.Errorf("pod %s/%s is not on Node %s", namespace, pod, n.cfg.Name)
}

func number(s string, otherwise int64) (int64, error) {
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d: must be 0 or more", n)
	}
	return n, err
}

// selfSigned makes a serving certificate for API servers that do not verify kubelets.
func selfSigned(name string, addresses []netip.Addr) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
