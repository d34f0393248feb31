package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// systemDirs are the machine's directories that every container sees, read-only.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// systemFiles are what programs need of /etc; the rest of it is written afresh.
var systemFiles = []string{
	"/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/protocols", "/etc/services", "/etc/ssl",
}

var usualDevices = []string{"/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}

// readOnlyProc are the parts of /proc that act on the whole machine.
var readOnlyProc = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// makeRoot builds the container's root and moves into it. The calling process must be alone in its mount namespace and
// already in its PID and network namespaces, which /proc and /sys are made for.
func makeRoot(spec *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Everything that comes from the machine is picked up before its root goes out of sight, and put in place after,
	// when a path cannot lead outside any more.
	parts, err := pickUp(spec)
	if err != nil {
		return err
	}
	if err := enterRoot(spec); err != nil {
		return err
	}
	if err := makeDirs(); err != nil {
		return err
	}
	// Before the mounts: one of them may be meant to hide such a file, and must not be written to.
	for path, content := range spec.Files {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write into the root: %w", err)
		}
	}
	var r root
	for _, p := range parts {
		if err := r.place(p); err != nil {
			return err
		}
	}
	if err := r.makeDir(spec.workDir()); err != nil {
		return fmt.Errorf("make the working directory %s: %w", spec.workDir(), err)
	}
	return r.protect(spec)
}

func (s *Spec) workDir() string { return filepath.Join("/", s.Dir) }

// pickUp opens everything that will be mounted.
func pickUp(spec *Spec) ([]*part, error) {
	var parts []*part
	add := func(m Mount) error {
		p, err := open(m)
		if err != nil {
			return err
		}
		parts = append(parts, p)
		return nil
	}
	devices := usualDevices
	if spec.Privileged {
		var err error
		if devices, err = allDevices(); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Concat(systemDirs, systemFiles, devices) {
		// Device nodes stay writable: a read-only mount would refuse to open them for writing.
		err := add(Mount{Source: path, Target: path, ReadOnly: !strings.HasPrefix(path, "/dev/")})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	for _, m := range spec.Mounts {
		if err := add(m); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// ownDev are the entries of /dev that every container has of its own.
var ownDev = []string{"fd", "shm", "stderr", "stdin", "stdout"}

// allDevices lists what the machine has in /dev, each to be mounted by itself: were the directory mounted as a whole,
// every mount point made in it would be left behind on the machine.
func allDevices() ([]string, error) {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !slices.Contains(ownDev, e.Name()) {
			paths = append(paths, filepath.Join("/dev", e.Name()))
		}
	}
	return paths, nil
}

// enterRoot mounts an empty root with /proc and /sys and makes it the root. Both are mounted while the machine's own are
// in sight: in a user namespace the kernel allows them only to those who see them already.
func enterRoot(spec *Spec) error {
	if err := unix.Mount("tmpfs", spec.Rootfs, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount the root on %s: %w", spec.Rootfs, err)
	}
	if err := os.Chdir(spec.Rootfs); err != nil {
		return err
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct{ kind, dir string }{{"proc", "proc"}, {"sysfs", "sys"}} {
		if err := os.Mkdir(m.dir, 0o555); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, safe, ""); err != nil {
			return fmt.Errorf("mount /%s: %w", m.dir, err)
		}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the machine's root: %w", err)
	}
	return os.Chdir("/")
}

func makeDirs() error {
	dirs := map[string]os.FileMode{
		"/dev": 0o755, "/etc": 0o755, "/home": 0o755, "/mnt": 0o755, "/opt": 0o755, "/root": 0o700, "/run": 0o755,
		"/srv": 0o755, "/tmp": 0o777 | os.ModeSticky, "/var/cache": 0o755, "/var/lib": 0o755, "/var/log": 0o755,
		"/var/tmp": 0o777 | os.ModeSticky, "/dev/shm": 0o777 | os.ModeSticky,
	}
	for dir, mode := range dirs {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, mode)); err != nil {
			return err
		}
	}
	if err := unix.Mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	links := map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2", "/var/run": "/run",
	}
	for link, to := range links {
		if err := os.Symlink(to, link); err != nil {
			return err
		}
	}
	return nil
}

// protect takes away the rights to write where a container must not.
func (r *root) protect(spec *Spec) error {
	var paths []string
	if !spec.Privileged {
		paths = append(paths, "/sys")
		for _, path := range readOnlyProc {
			p, err := open(Mount{Source: path, Target: path, ReadOnly: true})
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := r.place(p); err != nil {
				return err
			}
		}
	}
	if spec.ReadOnlyRoot {
		paths = append(append(paths, r.standIns...), "/")
	}
	for _, path := range paths {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	return nil
}

// standIn replaces a read-only directory of the machine by a writable one with the same entries, so that a mount point
// can be made in it.
func (r *root) standIn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	parts := make([]*part, 0, len(entries))
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		p, err := open(Mount{Source: path, Target: path, ReadOnly: true})
		if err != nil {
			return err
		}
		parts = append(parts, p)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount over %s: %w", dir, err)
	}
	r.standIns = append(r.standIns, dir)
	for _, p := range parts {
		if err := r.place(p); err != nil {
			return err
		}
	}
	return nil
}
