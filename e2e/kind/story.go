package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// story is one run.
type story struct {
	options
	dir    string // of what the run needs in files
	arch   string
	runner runner
	out    io.Writer
}

// all runs steps in order and stops at the first that fails.
func (s *story) all(ctx context.Context, steps ...step) error {
	for _, each := range steps {
		if _, err := s.runner.run(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

// up makes the cluster, installs the chart, and starts HAProxy where it is outside.
func (s *story) up(ctx context.Context) error {
	if err := s.write("kind.yaml", kindConfig(), 0o644); err != nil {
		return err
	}
	if err := s.all(ctx, s.create()...); err != nil {
		return err
	}
	if s.haproxy == inside {
		return s.all(ctx, s.install(nil))
	}
	subnets, err := s.runner.run(ctx, s.network())
	if err != nil {
		return err
	}
	addresses, err := vips(subnets)
	if err != nil {
		return err
	}
	if err := s.all(ctx, s.install(addresses)); err != nil {
		return err
	}
	return s.startOutside(ctx, addresses)
}

func (s *story) startOutside(ctx context.Context, addresses []netip.Addr) error {
	internal, token := s.credentials()
	kubeconfig, err := s.runner.run(ctx, internal)
	if err != nil {
		return err
	}
	secret, err := s.runner.run(ctx, token)
	if err != nil {
		return err
	}
	login, err := withToken(kubeconfig, strings.TrimSpace(secret))
	if err != nil {
		return err
	}
	if err := errors.Join(
		s.write("haproxy/haproxy.cfg", haproxyConfig, 0o644), s.write("lbsync/settings.yaml", settings(addresses), 0o644),
		s.write("lbsync/kubeconfig", login, 0o600),
	); err != nil {
		return err
	}
	image := ""
	for _, each := range s.outsideHAProxy(addresses) {
		if at := slices.Index(each.argv, "IMAGE-OF-THE-NODES"); at >= 0 {
			each.argv[at] = image
		}
		answer, err := s.runner.run(ctx, each)
		if err != nil {
			return err
		}
		image = strings.TrimSpace(answer)
	}
	return nil
}

// withToken replaces the user of a kubeconfig: kind's is the administrator, lbsync's is a ServiceAccount.
func withToken(kubeconfig, token string) (string, error) {
	c, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return "", fmt.Errorf("the kubeconfig of kind: %w", err)
	}
	current, ok := c.Contexts[c.CurrentContext]
	if !ok || token == "" {
		return "", errors.New("the kubeconfig of kind has no current context, or kubectl made no token")
	}
	c.AuthInfos = map[string]*api.AuthInfo{"lbsync": {Token: token}}
	current.AuthInfo = "lbsync"
	text, err := clientcmd.Write(*c)
	return string(text), err
}

func (s *story) write(name, text string, mode os.FileMode) error {
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), mode)
}

// removeAll runs every step of the removal, whatever becomes of the others.
func (s *story) removeAll(ctx context.Context) error {
	var errs []error
	for _, each := range s.down() {
		_, err := s.runner.run(ctx, each)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
