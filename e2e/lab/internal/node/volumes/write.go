package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dataLink is the link that makes an update atomic: every visible name leads through it.
const dataLink = "..data"

// Write makes the directory hold the payload, all at once for whoever reads it: the files go into a fresh directory,
// the link ..data is switched over to it, and the visible names are links through ..data. The layout is a kubelet's, so
// programs that watch for updates work. With group 0 or more, the files belong to that group, which may read them.
func Write(dir string, p Payload, group int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	before, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if before != "" && holds(filepath.Join(dir, before), p, group) {
		return nil
	}
	fresh, err := os.MkdirTemp(dir, "..files-")
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(fresh, 0o755), fill(fresh, p, group)); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(fresh), next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	if err := link(dir, p); err != nil {
		return err
	}
	if before == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, before))
}

// holds tells whether the directory already holds exactly the payload.
func holds(dir string, p Payload, group int) bool {
	found := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		want, ok := p[name]
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !ok || string(data) != want.Data || info.Mode().Perm() != want.mode(group) {
			return errors.New("differs")
		}
		found++
		return nil
	})
	return err == nil && found == len(p)
}

func (f File) mode(group int) os.FileMode {
	if group >= 0 {
		return f.Mode | 0o440
	}
	return f.Mode
}

func fill(dir string, p Payload, group int) error {
	for name, file := range p {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(file.Data), 0o600); err != nil {
			return err
		}
		if group >= 0 {
			if err := os.Chown(path, -1, group); err != nil {
				return fmt.Errorf("give %s to group %d: %w", name, group, err)
			}
		}
		if err := os.Chmod(path, file.mode(group)); err != nil {
			return err
		}
	}
	return nil
}

// link makes the visible names those of the payload's first path elements.
func link(dir string, p Payload) error {
	var want []string
	for name := range p {
		first, _, _ := strings.Cut(name, string(filepath.Separator))
		want = append(want, first)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if i, have := slices.BinarySearch(want, e.Name()); have {
			want = slices.Delete(want, i, i+1)
		} else if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for _, name := range want {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
