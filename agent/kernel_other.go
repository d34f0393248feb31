//go:build !linux && !windows

package agent

import (
	"fmt"
	"runtime"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
)

// openKernel reports that there is no dataplane here. The rest of npl-agent builds, so that status and help work.
func openKernel(dataplane.Config) (kernel, error) {
	return nil, fmt.Errorf("node ports on %s: %w: run npl-agent on a Linux or Windows Node", runtime.GOOS, dataplane.ErrUnsupported)
}
