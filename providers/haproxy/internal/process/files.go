// Package process changes what HAProxy loads: the files in our directory, the check of a candidate, and the reload of
// the master process. It never decides what should be loaded.
package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files in our directory. HAProxy reads only *.cfg from it, so the others are invisible to it.
const (
	configName    = "50-npl.cfg"
	backupName    = "50-npl.cfg.bak"
	candidateName = "50-npl.cfg.candidate"
	mapName       = "50-npl.map"
	drainsName    = "50-npl.drains"
)

// Files is our directory, which HAProxy loads with -f after the administrator's files.
type Files struct {
	Admin []string // the administrator's files, in HAProxy's order
	Dir   string
	State string // file through which server states survive a reload
}

// Path returns the path of the file that HAProxy loads.
func (f Files) Path() string { return filepath.Join(f.Dir, configName) }

// BackupPath returns the path of the file before the last change of structure.
func (f Files) BackupPath() string { return filepath.Join(f.Dir, backupName) }

// Current returns the file that HAProxy loads, or nil when there is none.
func (f Files) Current() ([]byte, error) { return readIfThere(f.Path()) }

// Backup returns the file before the last change of structure, or nil when there is none.
func (f Files) Backup() ([]byte, error) { return readIfThere(f.BackupPath()) }

// WriteCurrent replaces the file that HAProxy loads, atomically.
func (f Files) WriteCurrent(text []byte) error { return writeAtomically(f.Path(), text) }

// WriteBackup replaces the backup, atomically.
func (f Files) WriteBackup(text []byte) error { return writeAtomically(f.BackupPath(), text) }

// WriteCandidate writes the file that Check reads instead of the current one, and returns its path.
func (f Files) WriteCandidate(text []byte) (string, error) {
	path := filepath.Join(f.Dir, candidateName)
	return path, writeAtomically(path, text)
}

// MapPath returns the path of the map file with this ending; with none, what the endings follow.
func (f Files) MapPath(ending string) string {
	path := filepath.Join(f.Dir, mapName)
	if ending != "" {
		path += "." + ending
	}
	return path
}

// WriteMap replaces a map file, atomically.
func (f Files) WriteMap(ending string, text []byte) error {
	return writeAtomically(f.MapPath(ending), text)
}

// RestoreMap writes a map file that is missing.
func (f Files) RestoreMap(ending string, text []byte) error {
	if _, err := os.Stat(f.MapPath(ending)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.WriteMap(ending, text)
}

// WriteState replaces the server state file.
func (f Files) WriteState(text string) error { return writeAtomically(f.State, []byte(text)) }

// Drains returns the list of drains that the current file need not tell of yet, or nil when there is none.
func (f Files) Drains() ([]byte, error) { return readIfThere(f.drainsPath()) }

// WriteDrains replaces that list, atomically, and waits for no disk: it is for an lbsync that is killed. When the machine goes down the worker
// goes as well, and with it what the list is about.
func (f Files) WriteDrains(text []byte) error {
	s := Staged{tmp: filepath.Join(f.Dir, "."+drainsName), path: f.drainsPath()}
	if err := os.WriteFile(s.tmp, text, 0o644); err != nil {
		s.Discard()
		return err
	}
	return s.Commit()
}

// RemoveDrains removes the list, if it is there.
func (f Files) RemoveDrains() error {
	if err := os.Remove(f.drainsPath()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f Files) drainsPath() string { return filepath.Join(f.Dir, drainsName) }

// RemoveCandidate removes the candidate.
func (f Files) RemoveCandidate() { _ = os.Remove(filepath.Join(f.Dir, candidateName)) }

// arguments returns the -f options with candidate in the place of our file: the order HAProxy loads in.
func (f Files) arguments(candidate string) ([]string, error) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return nil, err
	}
	names := []string{configName}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, ".cfg") && !strings.HasPrefix(name, ".") && name != configName && !e.IsDir() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var args []string
	for _, path := range f.Admin {
		args = append(args, "-f", path)
	}
	for _, name := range names {
		path := filepath.Join(f.Dir, name)
		if name == configName {
			path = candidate
		}
		args = append(args, "-f", path)
	}
	return args, nil
}

func readIfThere(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// writeAtomically writes, syncs and renames, so that a reader and a crash see the old file or the new one.
func writeAtomically(path string, text []byte) error {
	staged, err := stage(path, text)
	if err != nil {
		return err
	}
	return staged.Commit()
}

// Staged is a file that is written and synced, and not yet in its place. The zero value is none.
type Staged struct{ tmp, path string }

// StageCurrent prepares a new file for HAProxy to load; Commit or Discard it.
func (f Files) StageCurrent(text []byte) (Staged, error) { return stage(f.Path(), text) }

// StageMap prepares a map file.
func (f Files) StageMap(ending string, text []byte) (Staged, error) {
	return stage(f.MapPath(ending), text)
}

// Commit puts the file into its place.
func (s Staged) Commit() error {
	if s == (Staged{}) {
		return nil
	}
	err := os.Rename(s.tmp, s.path)
	if err != nil {
		s.Discard()
	}
	return err
}

// Discard removes the file.
func (s Staged) Discard() {
	if s.tmp != "" {
		_ = os.Remove(s.tmp)
	}
}

func stage(path string, text []byte) (s Staged, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return s, err
	}
	s = Staged{tmp: tmp.Name(), path: path}
	_, writing := tmp.Write(text)
	if err = errors.Join(writing, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		s.Discard()
	}
	return s, err
}
