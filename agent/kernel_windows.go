package agent

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/dataplane/winnat"
)

// openKernel opens the host's own NAT. It has no masquerading and no FORWARD chain, so those settings do nothing.
func openKernel(cfg dataplane.Config) (kernel, error) {
	nat, err := winnat.Open(winnat.Config{
		ClusterUID: cfg.ClusterUID,
		Dir:        filepath.Join(cmp.Or(os.Getenv("ProgramData"), `C:\ProgramData`), "nplbridge"),
		Runner:     winnat.PowerShell{},
		Probe:      winnat.Probe,
		Log:        cfg.Log,
	})
	if err != nil {
		return nil, err // not a nil *NAT inside an interface
	}
	return nat, nil
}
