package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/avi/avisim/dataplane"
)

// options are the flags.
type options struct {
	addr, username, passwordFile, certDir, version, network, vipRange string
	tenants                                                           []string
	delay, monitorInterval                                            time.Duration
	proxy, logCalls                                                   bool
}

func (o options) config() (avisim.Config, error) {
	cfg := avisim.Config{Username: o.username, Address: o.addr, Version: o.version, Tenants: o.tenants, Delay: o.delay}
	if o.username == "" {
		return cfg, errors.New("--username is empty: give the user a name")
	}
	if o.passwordFile == "" {
		return cfg, errors.New("--password-file is required: name a file with the user's password")
	}
	if o.delay < 0 || o.monitorInterval < 0 {
		return cfg, errors.New("--delay and --monitor-interval: use 0 or more, as 20ms")
	}
	content, err := os.ReadFile(o.passwordFile)
	if err != nil {
		return cfg, fmt.Errorf("--password-file: %w", err)
	}
	if cfg.Password = strings.TrimSpace(string(content)); cfg.Password == "" {
		return cfg, fmt.Errorf("--password-file %s is empty: write the user's password into it", o.passwordFile)
	}
	first, last, err := parseRange(o.vipRange)
	if err != nil {
		return cfg, fmt.Errorf("--vip-range %q: %w", o.vipRange, err)
	}
	cfg.Networks = []avisim.Network{{Name: o.network, Prefix: around(first, last), First: first, Last: last}}
	return cfg, nil
}

func parseRange(text string) (first, last netip.Addr, err error) {
	from, to, _ := strings.Cut(text, "-")
	first, errFirst := netip.ParseAddr(strings.TrimSpace(from))
	last, errLast := netip.ParseAddr(strings.TrimSpace(to))
	if errFirst != nil || errLast != nil || first.Is4() != last.Is4() || last.Less(first) {
		return first, last, errors.New("use the first and the last address of one family, as 192.0.2.10-192.0.2.99")
	}
	return first, last, nil
}

// around is the subnet of a range: a /24, or a /64, or what is larger and holds both.
func around(first, last netip.Addr) netip.Prefix {
	bits := 24
	if first.Is6() {
		bits = 64
	}
	for ; bits > 0; bits-- {
		if p, err := first.Prefix(bits); err == nil && p.Contains(last) {
			return p
		}
	}
	return netip.PrefixFrom(first, 0).Masked()
}

// run serves until ctx ends.
func run(ctx context.Context, o options, cfg avisim.Config, out, errs io.Writer) error {
	log := &lines{to: errs}
	if o.logCalls {
		cfg.Observe = func(c avisim.Call) {
			log.print("%s %s %d %s?%s", time.Now().UTC().Format(time.RFC3339Nano), c.Method, c.Status, c.Path, c.Query)
		}
	}
	s, err := avisim.New(cfg)
	if err != nil {
		return err
	}
	if o.certDir != "" {
		if err := writeCA(o.certDir, s.CAPEM()); err != nil {
			return err
		}
	}
	url, err := s.Start()
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // the process ends
	fmt.Fprintf(out, "Controller   %s, the page at %s/\n", url, url)
	if o.certDir != "" {
		fmt.Fprintf(out, "Certificate  %s\n", filepath.Join(o.certDir, "ca.crt"))
	}
	if o.proxy {
		dataplane.Run(ctx, s, dataplane.Options{Interval: o.monitorInterval, Report: func(err error) { log.print("avisim: %s", err) }})
	}
	<-ctx.Done()
	return nil
}

// writeCA puts the certificate in place as a whole, for whoever waits for the file.
func writeCA(dir string, pem []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a certificate is public
		return fmt.Errorf("--cert-dir: %w", err)
	}
	path := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(path+".new", pem, 0o644); err != nil { //nolint:gosec // as above
		return fmt.Errorf("--cert-dir: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return nil
}

// lines writes whole lines from several goroutines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) print(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.to, format+"\n", args...)
}
