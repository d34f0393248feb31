package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/process"
)

// Beside is a simulated load balancer that runs on the load balancer's host beside what StartLoadBalancer started, for an lbsync that
// drives several. It carries traffic to its virtual servers, as those of StartLoadBalancerOf do.
type Beside struct {
	lab     *Lab
	kind    Kind
	dir     string
	address string
	program *process.Supervisor

	mutex   sync.Mutex
	cookies []*http.Cookie // of Administer at a Controller
}

// besidePorts are where they serve their APIs.
var besidePorts = map[Kind]uint16{Avi: 9453, BigIP: 9454}

// StartBeside starts a simulated load balancer of kind Avi or BigIP. vips is the range of addresses, FIRST-LAST, that a Controller gives to Services; a
// device is given them by lbsync.
func (l *Lab) StartBeside(ctx context.Context, kind Kind, vips string) (*Beside, error) {
	b := &Beside{lab: l, kind: kind, dir: filepath.Join(workDir, "beside-"+string(kind))}
	b.address = netip.AddrPortFrom(network.LoadBalancerAddresses()[0], besidePorts[kind]).String()
	where, err := l.network.Namespace(network.LoadBalancer)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.WriteFile(b.PasswordFile(), []byte(rand.Text()+"\n"), 0o600)); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	program, more := l.options.Programs.AviSim, []string{"--network=" + aviNetwork, "--vip-range=" + vips}
	if kind == BigIP {
		program, more = l.options.Programs.BigIPSim, []string{"--partition=" + bigipPartition}
	}
	b.program, err = process.Supervise(process.Spec{
		Name: string(kind),
		Argv: append([]string{
			program, "--addr=" + b.address, "--username=" + simulatorUser, "--password-file=" + b.PasswordFile(), "--cert-dir=" + b.dir,
			"--proxy", "--monitor-interval=" + monitorInterval.String(), "--log-calls",
		}, more...),
		Env: []string{"PATH=" + sbinPath(), "HOME=" + b.dir}, Dir: b.dir, Log: b.logFile(), In: where,
	})
	if err != nil {
		return nil, err
	}
	l.onClose(func() error { b.program.Stop(0); return nil })
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = b.Ready(ctx)
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s is not ready: %w\n%s", kind, errors.Join(last, err), process.Tail(b.logFile(), 15))
	}
	return b, nil
}

func (b *Beside) logFile() string { return b.lab.logFile("beside-" + string(b.kind)) }

// Kind is what it is.
func (b *Beside) Kind() Kind { return b.kind }

// Address is where it serves its API, with TLS.
func (b *Beside) Address() string { return b.address }

// PasswordFile and CAFile are for lbsync's settings, with SimulatorUser.
func (b *Beside) PasswordFile() string { return filepath.Join(b.dir, "password") }

// CAFile is the certificate that signed its own.
func (b *Beside) CAFile() string { return filepath.Join(b.dir, "ca.crt") }

// Settings are those of lbsync for it, for a record in the list of providers. url is where lbsync is to reach it, Address or a relay to it.
func (b *Beside) Settings(url string) map[string]any {
	host, _, _ := strings.Cut(b.address, ":")
	settings := map[string]any{"username": simulatorUser, "passwordFile": b.PasswordFile(), "caFile": b.CAFile(), "serverName": host}
	if b.kind == Avi {
		settings["url"], settings["network"] = "https://"+url, aviNetwork
	} else {
		settings["urls"], settings["partition"] = []string{"https://" + url}, bigipPartition
	}
	return settings
}

// Kill kills it with SIGKILL; it is started again, with nothing of what it had.
func (b *Beside) Kill() { b.program.Current().Kill() }

// Signal sends it a signal, such as SIGSTOP.
func (b *Beside) Signal(signal syscall.Signal) error {
	return syscall.Kill(b.program.Current().PID(), signal)
}

// Log has a line for each call that it was sent, "TIME METHOD STATUS PATH?QUERY", in all its runs.
func (b *Beside) Log() (string, error) {
	content, err := os.ReadFile(b.logFile())
	return string(content), err
}

// Ready returns nil when it answers, else why not.
func (b *Beside) Ready(ctx context.Context) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	_, _, err = b.send(ctx, client, http.MethodGet, "/", nil, nil)
	return err
}

// Administer calls its API as its administrator would, with JSON or nothing (nil) in the body, and returns the answer. A status that is not
// 2xx is an error.
func (b *Beside) Administer(ctx context.Context, method, path string, body any) ([]byte, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	client, err := b.client()
	if err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(b.PasswordFile())
	if err != nil {
		return nil, err
	}
	password := strings.TrimSpace(string(secret))
	if b.kind == BigIP {
		answer, _, err := b.send(ctx, client, method, path, body, func(r *http.Request) { r.SetBasicAuth(simulatorUser, password) })
		return answer, err
	}
	answer, _, err := b.send(ctx, client, method, path, body, b.sign)
	var refused *statusError
	if !errors.As(err, &refused) || refused.status != http.StatusUnauthorized {
		return answer, err
	}
	_, cookies, err := b.send(ctx, client, http.MethodPost, "/login", map[string]string{"username": simulatorUser, "password": password}, nil)
	if err != nil {
		return nil, err
	}
	b.cookies = cookies
	answer, _, err = b.send(ctx, client, method, path, body, b.sign)
	return answer, err
}

// sign puts into a request what a Controller wants of a session.
func (b *Beside) sign(r *http.Request) {
	r.Header.Set("X-Avi-Version", "22.1.3")
	r.Header.Set("Referer", "https://"+b.address+"/")
	for _, c := range b.cookies {
		r.AddCookie(c)
		if c.Name == "csrftoken" {
			r.Header.Set("X-CSRFToken", c.Value)
		}
	}
}

// client trusts the certificate that it has now.
func (b *Beside) client() (*http.Client, error) {
	pem, err := os.ReadFile(b.CAFile())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", b.CAFile())
	}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, protocol, _ string) (net.Conn, error) {
			return b.lab.Dial(ctx, network.LoadBalancer, protocol, b.address)
		},
	}}, nil
}

// send returns the answer and the cookies that came with it.
func (b *Beside) send(ctx context.Context, client *http.Client, method, path string, body any, sign func(*http.Request)) ([]byte, []*http.Cookie, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+b.address+path, bytes.NewReader(content))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if sign != nil {
		sign(request)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, nil, &statusError{response.StatusCode, fmt.Sprintf("%s %s answers %s: %s", method, path, response.Status, bytes.TrimSpace(answer))}
	}
	return answer, response.Cookies(), nil
}
