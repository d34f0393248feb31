package contain

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// maxFiles is how many descriptors one message may carry.
const maxFiles = 4

// Send writes value as JSON in one message, with descriptors beside it.
func Send(conn *net.UnixConn, value any, files ...*os.File) error {
	message, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(message, rights, nil)
	return err
}

// Receive reads one message that Send wrote into value and returns the descriptors that came with it. The end of the
// connection is io.EOF.
func Receive(conn *net.UnixConn, value any) ([]*os.File, error) {
	message := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, rightsN, flags, _, err := conn.ReadMsgUnix(message, rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	if rightsN > 0 {
		if files, err = openRights(rights[:rightsN]); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return files, io.EOF
	}
	if flags&unix.MSG_TRUNC != 0 {
		return files, fmt.Errorf("message longer than %d bytes", maxMessage)
	}
	return files, json.Unmarshal(message[:n], value)
}

func openRights(control []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, message := range messages {
		fds, err := unix.ParseUnixRights(&message)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// unixConn wraps and closes a unix socket's file.
func unixConn(file *os.File) (*net.UnixConn, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
