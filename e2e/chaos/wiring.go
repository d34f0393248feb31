package chaos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// There are two lbsyncs, as on the hosts of a pair: each writes the HAProxy beside it, and the one that holds the Lease the Controller, the device and
// Services, too. All clients come to the HAProxy on "lb".

// dirOf is the directory of the files of a HAProxy and its lbsync.
func dirOf(b *lab.LoadBalancer) string { return filepath.Dir(b.AdminSocket()) }

// startRelays puts a relay in front of everything that the lbsyncs talk to, so that the way there can be cut, slowed down and made to fail.
func (s *site) startRelays(ctx context.Context) error {
	host, _, err := net.SplitHostPort(s.avi.Address())
	if err != nil {
		return err
	}
	tcp := map[string]string{"api": strings.TrimPrefix(s.Lab.RESTConfig().Host, "https://"), "avi": s.avi.Address(), "bigip": s.bigip.Address()}
	for name, target := range tcp {
		if s.relays[name], err = newRelay(ctx, s.Lab, "tcp", net.JoinHostPort(host, "0"), target); err != nil {
			return fmt.Errorf("relay to %s: %w", name, err)
		}
	}
	for _, b := range s.Lab.LoadBalancers() {
		for name, target := range map[string]string{"admin": b.AdminSocket(), "master": b.MasterSocket()} {
			at := name + "@" + b.Place()
			if s.relays[at], err = newRelay(ctx, s.Lab, "unix", filepath.Join(dirOf(b), "relay-"+name+".sock"), target); err != nil {
				return fmt.Errorf("relay to %s: %w", at, err)
			}
		}
	}
	return nil
}

// configure makes each lbsync drive its HAProxy, the Controller and the device, through the relays.
func (s *site) configure(ctx context.Context) error {
	for _, b := range s.Lab.LoadBalancers() {
		kubeconfig, err := s.kubeconfig(b)
		if err != nil {
			return err
		}
		haproxy := map[string]any{
			"adminSocket": s.relays["admin@"+b.Place()].address(), "masterSocket": s.relays["master@"+b.Place()].address(),
			"checkInterval": "1s", "connectTimeout": "1s", "minReloadInterval": "1s",
		}
		if s.openPorts {
			haproxy["openPorts"] = openPorts
		}
		providers := []map[string]any{
			{"name": viaHAProxy, "kind": "haproxy", "haproxy": haproxy},
			{"name": viaAvi, "kind": "avi", "avi": s.avi.Settings(s.relays["avi"].address())},
			{"name": viaBigIP, "kind": "bigip", "bigip": s.bigip.Settings(s.relays["bigip"].address())},
		}
		pools := []map[string]any{
			{"name": viaHAProxy, "ranges": []string{haproxyVIPs}, "providers": []string{viaHAProxy}},
			{"name": viaBigIP, "ranges": []string{bigipVIPs}, "providers": []string{viaBigIP}},
		}
		err = b.ConfigureLBSync(ctx,
			"provider=", "providerName=", "kubeconfig="+kubeconfig, "providers="+text(providers), "addressPools="+text(pools),
			"portRange="+portRange, "resync="+resync.String(), "drainLimit=8s", "guardHold=10s")
		if err != nil {
			return fmt.Errorf("lbsync on %s: %w", b.Place(), err)
		}
	}
	return nil
}

// kubeconfig leads an lbsync to the API server through the relay, and remembers by which token it is known there.
func (s *site) kubeconfig(b *lab.LoadBalancer) (path string, err error) {
	config, err := clientcmd.LoadFromFile(filepath.Join(dirOf(b), "kubeconfig"))
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			return "", err
		}
		cluster.Server, cluster.TLSServerName = "https://"+s.relays["api"].address(), server.Hostname()
	}
	for _, user := range config.AuthInfos {
		id, err := tokenID(user.Token)
		if err != nil {
			return "", err
		}
		s.tokens[id] = b.Place()
	}
	path = filepath.Join(dirOf(b), "kubeconfig-relay")
	return path, clientcmd.WriteToFile(*config, path)
}

// tokenID is what the API server's audit log calls the token of a ServiceAccount.
func tokenID(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("the token has %d parts, not the three of a JWT", len(parts))
	}
	var claims struct{ JTI string }
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(content, &claims)
	}
	return "JTI=" + claims.JTI, err
}
