package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func passwordFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writer passes what is written to a channel.
type writer chan string

func (w writer) Write(p []byte) (int, error) { w <- string(p); return len(p), nil }

func TestServesAPairWithCertificatesThatItWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	o := options{
		addr: "127.0.0.1:0", peerAddr: "127.0.0.1:0", username: "admin", passwordFile: passwordFile(t, "secret\n"), certDir: dir, version: "16.1.4",
		partitions: []string{"kubernetes"}, proxy: true, logCalls: true,
	}
	cfg, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, errs, done := make(writer, 10), make(writer, 100), make(chan error, 1)
	go func() { done <- run(ctx, o, cfg, out, errs) }()
	for _, ca := range []string{"ca.crt", "ca-peer.crt"} {
		var url string
		for url == "" {
			select {
			case line := <-out:
				url = regexp.MustCompile(`https://[0-9.:]+`).FindString(line)
			case err := <-done:
				t.Fatal(err)
			case <-time.After(30 * time.Second):
				t.Fatal("nothing was printed")
			}
		}
		login(t, url, filepath.Join(dir, ca))
		if line := <-errs; !strings.Contains(line, "POST 200 /mgmt/shared/authn/login") || strings.Contains(line, "secret") {
			t.Errorf("logged %q", line)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func login(t *testing.T, url, caFile string) {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	response, err := client.Post(url+"/mgmt/shared/authn/login", "application/json", strings.NewReader(`{"username":"admin","password":"secret","loginProviderName":"tmos"}`))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("login: %d", response.StatusCode)
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	good := passwordFile(t, "secret")
	for want, args := range map[string][]string{
		"--password-file is required": {},
		"--password-file: open":       {"--password-file", "/nonexistent/file"},
		"is empty: write":             {"--password-file", passwordFile(t, " \n")},
		"--username is empty":         {"--password-file", good, "--username", ""},
		"--partition \"Common\"":      {"--password-file", good, "--partition", "Common"},
		"--auto-sync needs a pair":    {"--password-file", good, "--auto-sync"},
		"--delay":                     {"--password-file", good, "--delay", "-1s"},
		"unknown flag":                {"--nonsense"},
	} {
		var failed error
		c := command(&failed)
		c.SetArgs(args)
		c.SetContext(t.Context())
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if got := execute(t.Context(), []string{"--nonsense"}); got != exitUsage {
		t.Errorf("exit %d, want %d", got, exitUsage)
	}
	if got := execute(t.Context(), []string{"--password-file", good, "--addr", "nowhere:x"}); got != exitFailure {
		t.Errorf("exit %d, want %d", got, exitFailure)
	}
}
