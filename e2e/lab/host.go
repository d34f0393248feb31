package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/controlplane"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/remote"
)

// maxDefaultNames bounds the search for a free name.
const maxDefaultNames = 100

// claimName takes the lab's name on this machine by listening on the socket that carries it.
func (l *Lab) claimName(context.Context) error {
	listen := func(name string) (net.Listener, error) {
		return l.host.Listen("unixpacket", remote.Socket(l.host.UID, name))
	}
	var listener net.Listener
	var err error
	if name := l.options.Name; name != "" {
		listener, err = listen(name)
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("a lab named %q is already running: choose another --name, or stop it with Ctrl-C where it runs", name)
		}
	}
	for n := 1; l.options.Name == "" && n <= maxDefaultNames; n++ {
		name := "lab"
		if n > 1 {
			name = fmt.Sprintf("lab-%d", n)
		}
		if listener, err = listen(name); err == nil {
			l.options.Name = name
		} else if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("name of the lab: %w", err)
	}
	server := remote.Server{Info: l.info, Run: func(ctx context.Context, where string, argv []string) *exec.Cmd {
		return l.Command(ctx, where, argv...)
	}}
	go server.Serve(listener.(*net.UnixListener))
	l.onClose(listener.Close)
	return nil
}

// openToHost gives the host kubectl: a relay to the API server and a kubeconfig that uses it.
func (l *Lab) openToHost(context.Context) error {
	address, err := l.Relay("", netip.AddrPortFrom(network.ControlPlane()[0], controlplane.Port).String())
	if err != nil {
		return err
	}
	document, err := l.controlPlane.Kubeconfig(l.admin, "https://"+address)
	if err != nil {
		return err
	}
	path, err := l.host.Publish("kubeconfig", document)
	if err != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.hostConfig = path
	return nil
}

func (l *Lab) info() remote.Info {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return remote.Info{
		Name:         l.options.Name,
		PID:          l.host.PID,
		Kubeconfig:   l.hostConfig,
		KubectlCache: l.host.Root + kubectlCache,
		ControlPlane: l.options.Programs.ControlPlane,
		LogDir:       l.logDir(),
		Nodes:        l.options.Nodes,
		PodNetwork:   string(l.options.PodNetwork),
		Seconds:      time.Since(l.began).Seconds(),
	}
}
