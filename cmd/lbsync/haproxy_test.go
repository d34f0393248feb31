package main

import (
	"bytes"
	"errors"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// haproxyValues loads flags.
func haproxyValues(t *testing.T, flags ...string) *settings.Values {
	t.Helper()
	set := pflag.NewFlagSet("lbsync", pflag.ContinueOnError)
	table().AddFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	values, err := table().Load(set)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestHAProxyPeers(t *testing.T) {
	cfg, err := haproxyConfig(haproxyValues(t, "--haproxy-peer-address", "192.0.2.11:10363", "--haproxy-peers", "lb-2=192.0.2.12:10363,lb-3=[2001:db8::3]:10363"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]netip.AddrPort{
		"lb-2": netip.MustParseAddrPort("192.0.2.12:10363"), "lb-3": netip.MustParseAddrPort("[2001:db8::3]:10363"),
	}
	if !maps.Equal(cfg.Peers, want) || cfg.PeerAddress != netip.MustParseAddrPort("192.0.2.11:10363") {
		t.Errorf("peers %v, own %v", cfg.Peers, cfg.PeerAddress)
	}
	for _, bad := range []string{"lb-2", "lb-2=host:1", "lb-2=192.0.2.12", "a=192.0.2.1:1,a=192.0.2.2:1", "a b=192.0.2.1:1", "=192.0.2.1:1", "a=192.0.2.1:0"} {
		if _, err := haproxyConfig(haproxyValues(t, "--haproxy-peers", bad)); err == nil || !strings.Contains(err.Error(), "peers") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Without an haproxy each command says so, by its exit code too.
func TestHAProxyCommandsWithoutOne(t *testing.T) {
	dir := t.TempDir()
	flags := []string{"--haproxy-dir", filepath.Join(dir, "npl.d"), "--haproxy-admin-socket", filepath.Join(dir, "a"), "--haproxy-master-socket", filepath.Join(dir, "m")}
	run := func(args ...string) (string, error) {
		command := root(callerOf("lbsync"))
		command.SilenceErrors, command.SilenceUsage = true, true
		var out bytes.Buffer
		command.SetOut(&out)
		command.SetArgs(append([]string{"haproxy"}, append(args, flags...)...))
		err := command.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run("doctor")
	if !errors.Is(err, program.ErrReported) || !strings.Contains(out, "stats socket") || !strings.Contains(out, "npl.d") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	if _, err := run("dump"); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "a")) {
		t.Errorf("dump: %v", err)
	}
	var exit *program.ExitError
	if _, err := run("diff"); !errors.As(err, &exit) || exit.Code != exitFailed {
		t.Errorf("diff: %v", err)
	}
	if out, err := run("doctor", "--provider", "avi"); err == nil || !strings.Contains(err.Error(), "no HAProxy") {
		t.Errorf("without one in the settings: %v\n%s", err, out)
	}
	if entries, _ := filepath.Glob(filepath.Join(dir, "*")); len(entries) > 0 {
		t.Errorf("looking made %v", entries)
	}
}

// The example of the page about a pair is taken as it is.
func TestHAProxyExample(t *testing.T) {
	cfg, err := haproxyConfig(haproxyValues(t, "--config", "../../docs/how-to/haproxy/lbsync.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Peers) != 1 || !strings.HasPrefix(cfg.PeerAddress.String(), "192.0.2.11:") {
		t.Errorf("%+v", cfg)
	}
}
