package container

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
)

// maxExecOutput bounds what is kept of a command's output, in bytes.
const maxExecOutput = 10 << 10

// Exec runs a command inside the running container, as spec's user, with its environment and working directory, and
// returns its exit status and the beginning of its combined output. When ctx ends first the command is killed and the
// context's error returned.
func (p *Process) Exec(ctx context.Context, spec Spec) (code int, output []byte, err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close() //nolint:errcheck // opened for reading
		}
	}()
	base := fmt.Sprintf("/proc/%d/ns/", p.PID())
	for _, kind := range []string{"net", "mnt", "uts", "ipc"} {
		f, err := os.Open(base + kind)
		if err != nil {
			return 0, nil, fmt.Errorf("open the container's namespaces: %w", err)
		}
		files = append(files, f)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer read.Close() //nolint:errcheck // opened for reading
	cmd := copyOfSelf(modeExec)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = launch(cmd, &spec, base+"pid", files...)
	write.Close() //nolint:errcheck // the child has its own
	if err != nil {
		return 0, nil, err
	}
	run := watch(cmd, false)
	collected := make(chan []byte, 1)
	go func() { collected <- beginning(read) }()
	select {
	case <-run.Done():
	case <-ctx.Done():
		run.Kill()
		<-run.Done()
		err = ctx.Err()
	}
	// What outlives the command and still holds its output was killed with its session: the pipe ends.
	return run.Exit().Code, <-collected, err
}

// beginning reads all and keeps the first part.
func beginning(from *os.File) []byte {
	var kept bytes.Buffer
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		kept.Write(buf[:min(n, maxExecOutput-kept.Len())])
		if err != nil {
			return kept.Bytes()
		}
	}
}
