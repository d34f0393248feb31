package winnat

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/windows"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// PowerShell runs each script in a Windows PowerShell of its own. That costs a start, a second or more, but nothing of an earlier
// script can be left in it, and one that hangs can be ended.
type PowerShell struct{}

// Run implements Runner.
func (PowerShell) Run(ctx context.Context, script string) (string, error) {
	path := filepath.Join(cmp.Or(os.Getenv("SystemRoot"), `C:\Windows`), "System32", "WindowsPowerShell", "v1.0", "powershell.exe")
	c := exec.CommandContext(ctx, path, "-NoLogo", "-NoProfile", "-NonInteractive", "-Command", "-")
	c.Stdin = strings.NewReader(script + "exit 0\n")
	c.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w; it wrote %q", path, err, excerpt(stderr.String()))
	}
	return stdout.String(), err
}

// soExclusiveAddrUse is SO_EXCLUSIVEADDRUSE of winsock2.h: without it Windows may let two processes bind one port.
const soExclusiveAddrUse = ^windows.SO_REUSEADDR

// Probe binds the port on all addresses and lets it go at once. Windows itself then says whether somebody listens there or the port is
// excluded (netsh int ipv4 show excludedportrange).
func Probe(k dataplane.Key) error {
	typ := windows.SOCK_STREAM
	if k.Protocol == npl.UDP {
		typ = windows.SOCK_DGRAM
	}
	s, err := windows.Socket(windows.AF_INET, typ, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = windows.Closesocket(s) }()
	if err := windows.SetsockoptInt(s, windows.SOL_SOCKET, soExclusiveAddrUse, 1); err != nil {
		return fmt.Errorf("set SO_EXCLUSIVEADDRUSE: %w", err)
	}
	switch err := windows.Bind(s, &windows.SockaddrInet4{Port: int(k.NodePort)}); err {
	case nil:
		return nil
	case windows.WSAEADDRINUSE:
		return dataplane.ErrPortBusy
	case windows.WSAEACCES:
		return fmt.Errorf("%w: or Windows has excluded it", dataplane.ErrPortBusy)
	default:
		return fmt.Errorf("bind: %w", err)
	}
}
