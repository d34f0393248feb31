package rest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// maxFile is the longest file that is read.
const maxFile = 1 << 20

// File is a small text file, such as one secret, that is read again when it changes. It may be used by several goroutines.
type File struct {
	path string

	mu   sync.Mutex
	seen os.FileInfo
	text string
}

// NewFile names a file. It reads nothing.
func NewFile(path string) *File { return &File{path: path} }

// Read returns the text without white space at both ends. A changed file is one with another time, size or inode, which is what
// replacing a mounted Secret makes. An empty file is an error; the error names the path and nothing of what the file holds.
func (f *File) Read() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Stat(f.path)
	if err != nil {
		return "", err
	}
	if f.seen != nil && os.SameFile(f.seen, now) && f.seen.ModTime().Equal(now.ModTime()) && f.seen.Size() == now.Size() {
		return f.text, nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("%s: longer than %d MiB", f.path, maxFile>>20)
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return "", fmt.Errorf("%s: the file is empty", f.path)
	}
	f.seen, f.text = now, trimmed
	return trimmed, nil
}
