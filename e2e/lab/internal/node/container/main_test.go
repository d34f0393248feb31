package container

import (
	"os"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
)

// Containers need rights over mounts and namespaces, so the tests run contained, as the lab does.
func TestMain(m *testing.M) {
	MaybeRun()
	contain.Run(nil, os.Stderr, m.Run)
}
