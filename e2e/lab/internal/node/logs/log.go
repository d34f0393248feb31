// Package logs keeps what containers print, and reads it back the way the kubelet API offers it.
package logs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxSize bounds one log, in bytes, because logs are in memory. What comes after is dropped, and the log says so.
const maxSize = 64 << 20

// Log receives the output of one run of a container through a pipe, as container runtimes do it: a program that opens
// its /dev/stdout must not be able to truncate what is in the log.
type Log struct {
	file      *os.File
	out, into *os.File
}

// Create makes the log's file and the directories above it.
func Create(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	out, into, err := os.Pipe()
	if err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return &Log{file, out, into}, nil
}

// Input is what to give to the program as its standard output and error.
func (l *Log) Input() *os.File { return l.into }

// Drain writes the log until every copy of Input that programs were given is closed. Call it once, after the program
// was started.
func (l *Log) Drain() {
	l.into.Close()       //nolint:errcheck // the program has its own
	defer l.out.Close()  //nolint:errcheck // opened for reading
	defer l.file.Close() //nolint:errcheck // a log that cannot be written is not worth failing for
	written, err := io.CopyN(l.file, l.out, maxSize)
	if err == nil && written == maxSize {
		fmt.Fprintf(l.file, "\n[log ends here: the lab keeps %d MiB of a container's output]\n", maxSize>>20)
	}
	io.Copy(io.Discard, l.out) //nolint:errcheck // so that the program never blocks on its output
}
