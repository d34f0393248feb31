package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

// options are the flags.
type options struct {
	addr, peerAddr, username, passwordFile, certDir, version string
	partitions                                               []string
	delay, monitorInterval                                   time.Duration
	proxy, logCalls, autoSync                                bool
}

func (o options) config() (bigipsim.Config, error) {
	cfg := bigipsim.Config{Username: o.username, Address: o.addr, Version: o.version, Delay: o.delay, AutoSync: o.autoSync}
	if o.username == "" {
		return cfg, errors.New("--username is empty: give the user a name")
	}
	if o.passwordFile == "" {
		return cfg, errors.New("--password-file is required: name a file with the user's password")
	}
	if o.delay < 0 || o.monitorInterval < 0 {
		return cfg, errors.New("--delay and --monitor-interval: use 0 or more, as 20ms")
	}
	if o.autoSync && o.peerAddr == "" {
		return cfg, errors.New("--auto-sync needs a pair: give --peer-addr")
	}
	content, err := os.ReadFile(o.passwordFile)
	if err != nil {
		return cfg, fmt.Errorf("--password-file: %w", err)
	}
	if cfg.Password = strings.TrimSpace(string(content)); cfg.Password == "" {
		return cfg, fmt.Errorf("--password-file %s is empty: write the user's password into it", o.passwordFile)
	}
	for _, name := range o.partitions {
		if name == "" || name == "Common" {
			return cfg, fmt.Errorf("--partition %q: give a name other than Common, which is always there", name)
		}
		cfg.Partitions = append(cfg.Partitions, bigipsim.Partition{Name: name})
	}
	return cfg, nil
}

// run serves until ctx ends.
func run(ctx context.Context, o options, cfg bigipsim.Config, out, errs io.Writer) error {
	log := &lines{to: errs}
	if o.logCalls {
		cfg.Observe = func(c bigipsim.Call) {
			log.print("%s %s %d %s?%s", time.Now().UTC().Format(time.RFC3339Nano), c.Method, c.Status, c.Path, c.Query)
		}
	}
	devices, failover, err := build(o, cfg)
	if err != nil {
		return err
	}
	for i, s := range devices {
		if o.certDir != "" {
			if err := writeCA(o.certDir, caName(i), s.CAPEM()); err != nil {
				return err
			}
		}
		url, err := s.Start()
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // the process ends
		fmt.Fprintf(out, "BIG-IP       %s, the page at %s/\n", url, url)
		if o.certDir != "" {
			fmt.Fprintf(out, "Certificate  %s\n", filepath.Join(o.certDir, caName(i)))
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	if o.proxy {
		for _, s := range devices {
			running.Go(func() {
				s.CarryTraffic(ctx, bigipsim.TrafficOptions{Interval: o.monitorInterval, Report: func(err error) { log.print("bigipsim: %s", err) }})
			})
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			failover()
		}
	}
}

// build returns one device, or a pair, and what makes the other one of it active.
func build(o options, cfg bigipsim.Config) (devices []*bigipsim.Sim, failover func(), err error) {
	if o.peerAddr == "" {
		s, err := bigipsim.New(cfg)
		return []*bigipsim.Sim{s}, func() {}, err
	}
	cfg.PeerAddress = o.peerAddr
	p, err := bigipsim.NewPair(cfg)
	if err != nil {
		return nil, nil, err
	}
	return []*bigipsim.Sim{p.A, p.B}, func() { p.Failover() }, nil
}

func caName(device int) string {
	if device == 0 {
		return "ca.crt"
	}
	return "ca-peer.crt"
}

// writeCA puts a certificate in place as a whole, for whoever waits for the file.
func writeCA(dir, name string, pem []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a certificate is public
		return fmt.Errorf("--cert-dir: %w", err)
	}
	path := filepath.Join(dir, name)
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
