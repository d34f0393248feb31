// Package build makes the programs a lab runs, once, and keeps them in a cache: the Kubernetes control plane and helm
// (minutes the first time) and nplbridge's own programs (rebuilt whenever their source changed).
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Environment names the variable that points to a directory of programs built earlier; then nothing is built.
const Environment = "NPLBRIDGE_PROGRAMS"

// Programs are the absolute paths of the programs a lab runs.
type Programs struct {
	ControlPlane string // etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy and kubectl in one
	Helm         string
	NPLAgent     string
	LBSync       string
	Echo         string
	AviSim       string
	BigIPSim     string
}

// All builds what is missing or outdated below the cache directory and returns the paths. What takes long is told to
// progress. With NPLBRIDGE_PROGRAMS in the environment it only checks that this directory has every program.
func All(ctx context.Context, progress io.Writer) (Programs, error) {
	if dir := os.Getenv(Environment); dir != "" {
		return prebuilt(dir)
	}
	root, err := RepositoryRoot()
	if err != nil {
		return Programs{}, fmt.Errorf("%w; or set %s to a directory with prebuilt programs", err, Environment)
	}
	cache, err := CacheDir()
	if err != nil {
		return Programs{}, err
	}
	b := builder{root: root, cache: cache, progress: progress}
	if b.goVersion, err = goVersion(ctx, root); err != nil {
		return Programs{}, err
	}
	controlPlane, err := b.tool(ctx, controlPlane)
	if err != nil {
		return Programs{}, err
	}
	helm, err := b.tool(ctx, helm)
	if err != nil {
		return Programs{}, err
	}
	own, err := b.own(ctx)
	if err != nil {
		return Programs{}, err
	}
	programs := inDirectory(own)
	programs.ControlPlane, programs.Helm = controlPlane, helm
	return programs, nil
}

// Export puts every program into dir under the name that NPLBRIDGE_PROGRAMS expects, for users that cannot build.
// The files are readable and executable by everyone.
func (p Programs) Export(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("export programs: %w", err)
	}
	for name, path := range p.names() {
		if err := install(*path, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("export %s: %w", name, err)
		}
	}
	return nil
}

// Paths lists the programs in order of their names.
func (p Programs) Paths() []string {
	names := p.names()
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		paths = append(paths, *names[name])
	}
	return paths
}

func (p *Programs) names() map[string]*string {
	return map[string]*string{
		"controlplane": &p.ControlPlane,
		"helm":         &p.Helm,
		"npl-agent":    &p.NPLAgent,
		"lbsync":       &p.LBSync,
		"echo":         &p.Echo,
		"avisim":       &p.AviSim,
		"bigipsim":     &p.BigIPSim,
	}
}

func inDirectory(dir string) Programs {
	var p Programs
	for name, path := range p.names() {
		*path = filepath.Join(dir, name)
	}
	return p
}

func prebuilt(dir string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("%s=%q: %w", Environment, dir, err)
	}
	p := inDirectory(dir)
	var missing []string
	names := p.names()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !isExecutable(*names[name]) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return Programs{}, fmt.Errorf("%s=%q has no executable %s: make them with `lab build --output %s`",
			Environment, dir, strings.Join(missing, ", "), dir)
	}
	return p, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// install copies a program, replacing the destination at once.
func install(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	temporary, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = io.Copy(temporary, source)
	if err := errors.Join(err, temporary.Chmod(0o755), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), to)
}
