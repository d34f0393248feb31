package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// part is a piece of the machine on its way into a container's root: a detached mount, or a symbolic link to copy.
type part struct {
	target string
	link   string // set for a symbolic link
	dir    bool
	mount  int
}

// root is the container's root while it is being made, from inside.
type root struct {
	standIns []string // read-only directories of the machine that were replaced
}

// open clones the tree at the mount's source, with everything mounted in it, without attaching it anywhere yet. System
// directories that are symbolic links are copied as such; a volume's source is followed.
func open(m Mount) (*part, error) {
	p := &part{target: filepath.Clean(m.Target)}
	if m.Source == m.Target {
		if to, err := os.Readlink(m.Source); err == nil {
			p.link = to
			return p, nil
		}
	}
	info, err := os.Stat(m.Source)
	if err != nil {
		return nil, fmt.Errorf("mount on %s: %w", m.Target, err)
	}
	p.dir = info.IsDir()
	p.mount, err = unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, fmt.Errorf("mount %s on %s: open tree: %w", m.Source, m.Target, err)
	}
	if m.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(p.mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return nil, fmt.Errorf("mount %s on %s: make it read-only: %w", m.Source, m.Target, err)
		}
	}
	return p, nil
}

// place attaches a part to its target, making the mount point where it is missing.
func (r *root) place(p *part) error {
	if p.link != "" {
		return os.Symlink(p.link, p.target)
	}
	defer unix.Close(p.mount) //nolint:errcheck // attached or not, the descriptor is of no more use
	if err := r.makeTarget(p); err != nil {
		return fmt.Errorf("make the mount point %s: %w", p.target, err)
	}
	if err := unix.MoveMount(p.mount, "", unix.AT_FDCWD, p.target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS); err != nil {
		return fmt.Errorf("mount on %s: %w", p.target, err)
	}
	return nil
}

func (r *root) makeTarget(p *part) error {
	if info, err := os.Stat(p.target); err == nil {
		if info.IsDir() != p.dir {
			return errors.New("a directory cannot be mounted on a file, nor a file on a directory")
		}
		return nil
	}
	if err := r.makeDir(filepath.Dir(p.target)); err != nil {
		return err
	}
	create := func() error {
		if p.dir {
			return os.Mkdir(p.target, 0o755)
		}
		f, err := os.OpenFile(p.target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return r.writable(filepath.Dir(p.target), create)
}

// makeDir is os.MkdirAll that also works inside read-only directories of the machine.
func (r *root) makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	if err := r.makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return r.writable(filepath.Dir(dir), func() error { return os.Mkdir(dir, 0o755) })
}

// writable tries f, and once more with a stand-in for dir when that is read-only.
func (r *root) writable(dir string, f func() error) error {
	err := f()
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if err := r.standIn(dir); err != nil {
		return err
	}
	return f()
}
