package lab

import (
	"bytes"
	"cmp"
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
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
)

// managementAddress is where a simulated load balancer serves its API. lbsync in the cluster reaches it, too.
var managementAddress = netip.AddrPortFrom(network.LoadBalancerAddresses()[0], 9443).String()

// simulatorUser is the one account there.
const simulatorUser = "lbsync"

// What the simulators begin with: the Controller takes VIPs out of a network of its own, the device has a partition for lbsync and one for others.
const (
	aviNetwork      = "vips"
	aviVIPRange     = "172.31.0.10-172.31.0.199"
	bigipPartition  = "k8s"
	otherPartition  = "apps"
	monitorInterval = time.Second
)

// simulatorEngine writes the password's file, for this user only; the simulator writes its certificate.
func (b *LoadBalancer) simulatorEngine() (engine, error) {
	if err := os.WriteFile(b.file("password"), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return engine{}, err
	}
	e := engine{name: string(b.kind) + "sim", ready: b.SimulatorReady, settings: map[string]any{}}
	common := map[string]any{"username": simulatorUser, "passwordFile": b.file("password"), "caFile": b.file("ca.crt")}
	flags := []string{
		"--addr=" + managementAddress, "--username=" + simulatorUser, "--password-file=" + b.file("password"), "--cert-dir=" + b.dir,
		"--proxy", "--monitor-interval=" + monitorInterval.String(), "--log-calls",
	}
	switch b.kind {
	case Avi:
		e.argv = append([]string{b.lab.options.Programs.AviSim}, flags...)
		e.argv = append(e.argv, "--network="+aviNetwork, "--vip-range="+aviVIPRange)
		common["url"], common["network"] = "https://"+managementAddress, aviNetwork
	default:
		e.argv = append([]string{b.lab.options.Programs.BigIPSim}, flags...)
		e.argv = append(e.argv, "--partition="+bigipPartition, "--partition="+otherPartition)
		common["urls"], common["partition"] = []string{"https://" + managementAddress}, bigipPartition
		common["shareNodes"] = true // a Service may name a pool in the other partition, too
		e.settings["addressPools"] = vips()
	}
	e.settings[string(b.kind)] = common
	return e, nil
}

// ManagementAddress is where a simulated load balancer serves its API, and at / a page for people, with TLS.
func (b *LoadBalancer) ManagementAddress() string { return managementAddress }

// Password is the one of the account on a simulated load balancer.
func (b *LoadBalancer) Password() (string, error) {
	content, err := os.ReadFile(b.file("password"))
	return strings.TrimSpace(string(content)), err
}

// CA is the certificate that signed the one of a simulated load balancer, in PEM form.
func (b *LoadBalancer) CA() ([]byte, error) { return os.ReadFile(b.file("ca.crt")) }

// SimulatorUser is the name of the account.
func (b *LoadBalancer) SimulatorUser() string { return simulatorUser }

// SimulatorPID is the process ID of a simulated load balancer.
func (b *LoadBalancer) SimulatorPID() int { return b.balancer.Current().PID() }

// KillSimulator kills a simulated load balancer with SIGKILL; it is started again, with nothing of what it had.
func (b *LoadBalancer) KillSimulator() { b.balancer.Current().Kill() }

// SimulatorReady returns nil when a simulated load balancer answers, else why not.
func (b *LoadBalancer) SimulatorReady(ctx context.Context) error {
	client, err := b.managementClient()
	if err != nil {
		return err
	}
	_, err = send(ctx, client, http.MethodGet, "/", nil, nil)
	return err
}

// SimulatorLog has a line for each call that a simulated load balancer was sent, "TIME METHOD STATUS PATH?QUERY", in all its runs.
func (b *LoadBalancer) SimulatorLog() string { return b.log(string(b.kind) + "sim") }

// session is what Administer is known by at a Controller.
type session struct {
	mutex   sync.Mutex
	cookies []*http.Cookie
}

// Administer calls a simulated load balancer's API as its administrator would, with JSON or nothing (nil) in the body, and returns the answer. A status
// that is not 2xx is an error.
func (b *LoadBalancer) Administer(ctx context.Context, method, path string, body any) ([]byte, error) {
	b.session.mutex.Lock()
	defer b.session.mutex.Unlock()
	client, err := b.managementClient()
	if err != nil {
		return nil, err
	}
	password, err := b.Password()
	if err != nil {
		return nil, err
	}
	if b.kind == BigIP {
		return send(ctx, client, method, path, body, func(r *http.Request) { r.SetBasicAuth(simulatorUser, password) })
	}
	answer, err := send(ctx, client, method, path, body, b.session.sign)
	var refused *statusError
	if !errors.As(err, &refused) || refused.status != http.StatusUnauthorized {
		return answer, err
	}
	_, err = send(ctx, client, http.MethodPost, "/login", map[string]string{"username": simulatorUser, "password": password}, nil, func(r *http.Response) {
		b.session.cookies = r.Cookies()
	})
	if err != nil {
		return nil, err
	}
	return send(ctx, client, method, path, body, b.session.sign)
}

// sign puts into a request what a Controller wants of a session.
func (s *session) sign(r *http.Request) {
	r.Header.Set("X-Avi-Version", "22.1.3")
	r.Header.Set("Referer", "https://"+managementAddress+"/")
	for _, c := range s.cookies {
		r.AddCookie(c)
		if c.Name == "csrftoken" {
			r.Header.Set("X-CSRFToken", c.Value)
		}
	}
}

// managementClient trusts the certificate that the simulator has now.
func (b *LoadBalancer) managementClient() (*http.Client, error) {
	pem, err := os.ReadFile(b.file("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", b.file("ca.crt"))
	}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, protocol, _ string) (net.Conn, error) {
			return b.lab.Dial(ctx, network.LoadBalancer, protocol, managementAddress)
		},
	}}, nil
}

type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func send(ctx context.Context, client *http.Client, method, path string, body any, sign func(*http.Request), seen ...func(*http.Response)) ([]byte, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+managementAddress+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if sign != nil {
		sign(request)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		text := cmp.Or(string(bytes.TrimSpace(answer)), "nothing")
		return nil, &statusError{response.StatusCode, fmt.Sprintf("%s %s answers %s: %s", method, path, response.Status, text)}
	}
	for _, f := range seen {
		f(response)
	}
	return answer, nil
}
