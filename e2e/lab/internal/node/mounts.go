package node

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/environ"
)

// podDir is where everything about one Pod is kept.
type podDir string

func (d podDir) volume(name string) string { return filepath.Join(string(d), "volumes", name) }

// rootfs is one empty directory for all of the Pod's containers: each mounts its root on it out of the others' sight.
func (d podDir) rootfs() string { return filepath.Join(string(d), "rootfs") }

func (d podDir) log(name string, run int32) string {
	return filepath.Join(string(d), "logs", name, fmt.Sprintf("%d.log", run))
}

func (d podDir) termination(name string, run int32) string {
	return filepath.Join(string(d), "termination", name, fmt.Sprint(run))
}

// volumeSource is where a volume's files are, and whether they may only be read.
func volumeSource(stateDir string, dir podDir, v *corev1.Volume) (path string, readOnly bool) {
	if v.HostPath != nil {
		return hostPath(stateDir, v.HostPath.Path)
	}
	return dir.volume(v.Name), v.EmptyDir == nil
}

// mountsOf lists the mounts of a container, outer ones first, as runtimes order them.
func mountsOf(stateDir string, dir podDir, pod *corev1.Pod, c *corev1.Container, lookup func(string) (string, bool)) ([]container.Mount, error) {
	var mounts []container.Mount
	for _, m := range c.VolumeMounts {
		volume := findVolume(pod, m.Name)
		if volume == nil {
			return nil, fmt.Errorf("volumeMount %q: the Pod has no such volume", m.Name)
		}
		source, readOnly := volumeSource(stateDir, dir, volume)
		subPath := m.SubPath
		if m.SubPathExpr != "" {
			subPath = environ.Expand(m.SubPathExpr, lookup)
		}
		if subPath != "" {
			var err error
			if source, err = below(source, subPath, volume.EmptyDir != nil || volume.HostPath != nil); err != nil {
				return nil, fmt.Errorf("volumeMount %q: %w", m.Name, err)
			}
		}
		mounts = append(mounts, container.Mount{Source: source, Target: m.MountPath, ReadOnly: readOnly || m.ReadOnly})
	}
	depth := func(m container.Mount) int { return strings.Count(filepath.Clean(m.Target), "/") }
	slices.SortStableFunc(mounts, func(a, b container.Mount) int { return cmp.Compare(depth(a), depth(b)) })
	return mounts, nil
}

func findVolume(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// below resolves a subPath without leaving the volume; create makes a missing one a directory.
func below(dir, subPath string, create bool) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close() //nolint:errcheck // opened for reading
	if _, err := root.Stat(subPath); err != nil {
		if !create || !os.IsNotExist(err) {
			return "", fmt.Errorf("subPath %q: %w", subPath, err)
		}
		if err := root.MkdirAll(subPath, 0o755); err != nil {
			return "", fmt.Errorf("subPath %q: %w", subPath, err)
		}
	}
	return filepath.Join(dir, subPath), nil
}

// group is who owns the Pod's volumes; -1 for nobody in particular.
func group(pod *corev1.Pod) int {
	if pod.Spec.SecurityContext == nil {
		return -1
	}
	g := int(ptr.Deref(pod.Spec.SecurityContext.FSGroup, -1))
	if g >= 0 {
		if _, exact := (container.User{GID: g}).Available(); !exact {
			return -1
		}
	}
	return g
}
