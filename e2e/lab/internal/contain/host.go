package contain

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// maxMessage bounds one message between launcher and inside, in bytes; a published document must fit.
const maxMessage = 128 << 10

// request is what the inside asks of the launcher, reply its answer; a listener travels as a descriptor beside it.
type request struct {
	Operation string // "hello", "listen", "publish", or "forward": PID 1 is ready for signals
	Network   string // listen: "tcp" or "unixpacket"
	Address   string // listen
	Name      string // publish
	Document  []byte // publish
}

type reply struct {
	Error string
	// InUse marks the one error that callers act on.
	InUse bool
	Path  string // publish
	Identity
}

// Identity is what the host sees of a containment.
type Identity struct {
	UID  int    // of the user who started it
	PID  int    // of the launcher
	Root string // path on the host of the containment's file system
}

// Host is what a contained process may use of the machine outside: sockets that listen in the host's network namespace,
// and documents that host programs can read. All of it ends with the launcher.
type Host struct {
	Identity

	mutex sync.Mutex
	conn  *net.UnixConn
}

// OpenHost connects a contained process to its launcher.
func OpenHost() (*Host, error) {
	fd, err := strconv.Atoi(os.Getenv(hostVariable))
	if err != nil {
		return nil, ErrNotContained
	}
	duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor %d: %w", ErrNotContained, fd, err)
	}
	conn, err := unixConn(os.NewFile(uintptr(duplicate), "host"))
	if err != nil {
		return nil, fmt.Errorf("socket to the launcher: %w", err)
	}
	host := &Host{conn: conn}
	_, answer, err := host.ask(request{Operation: "hello"})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	host.Identity = answer.Identity
	return host, nil
}

// Close ends this connection to the launcher; what was listened on or published stays.
func (h *Host) Close() error { return h.conn.Close() }

// Listen opens a listener in the host's network namespace: network "tcp", or "unixpacket" for an abstract socket
// ("@name"). An address in use is an error that is unix.EADDRINUSE.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	file, _, err := h.ask(request{Operation: "listen", Network: network, Address: address})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileListener(file)
}

// Publish makes a document readable to programs of the same user on the host, at the path it returns, until the
// launcher ends. It is kept in memory only.
func (h *Host) Publish(name string, document []byte) (path string, err error) {
	_, answer, err := h.ask(request{Operation: "publish", Name: name, Document: document})
	return answer.Path, err
}

// forward tells the launcher that PID 1 handles signals from now on; sooner they would be lost.
func (h *Host) forward() error {
	_, _, err := h.ask(request{Operation: "forward"})
	return err
}

func (h *Host) ask(question request) (*os.File, reply, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	failed := func(err error) (*os.File, reply, error) {
		return nil, reply{}, fmt.Errorf("host %s %s %s%s: %w", question.Operation, question.Network, question.Address, question.Name, err)
	}
	message, err := json.Marshal(question)
	if err != nil {
		return failed(err)
	}
	if len(message) > maxMessage {
		return failed(fmt.Errorf("%d bytes, at most %d fit", len(message), maxMessage))
	}
	if _, err := h.conn.Write(message); err != nil {
		return failed(err)
	}
	var answer reply
	files, err := Receive(h.conn, &answer)
	if err != nil {
		return failed(err)
	}
	switch {
	case answer.InUse:
		return failed(unix.EADDRINUSE)
	case answer.Error != "":
		return failed(errors.New(answer.Error))
	case len(files) == 0:
		return nil, answer, nil
	}
	return files[0], answer, nil
}

// serveHost answers the inside until it is gone; it calls forward when PID 1, whose ID on the host is given, is ready for
// signals.
func serveHost(socket *os.File, init int, forward func()) {
	conn, err := unixConn(socket)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		var question request
		if _, err := Receive(conn, &question); err != nil {
			return
		}
		var file *os.File
		var answer reply
		switch question.Operation {
		case "hello":
			answer.Identity = Identity{UID: os.Getuid(), PID: os.Getpid(), Root: fmt.Sprintf("/proc/%d/root", init)}
		case "forward":
			forward()
		default:
			file, answer = perform(question)
		}
		var files []*os.File
		if file != nil {
			files = append(files, file)
		}
		err := Send(conn, answer, files...)
		if file != nil {
			file.Close()
		}
		if err != nil {
			return
		}
	}
}

func perform(question request) (*os.File, reply) {
	var file *os.File
	var path string
	var err error
	switch question.Operation {
	case "listen":
		file, err = listenOnHost(question.Network, question.Address)
	case "publish":
		path, err = publish(question.Name, question.Document)
	default:
		err = fmt.Errorf("unknown operation %q", question.Operation)
	}
	if err != nil {
		return nil, reply{Error: err.Error(), InUse: errors.Is(err, unix.EADDRINUSE)}
	}
	return file, reply{Path: path}
}

// listenOnHost opens a socket and returns its descriptor alone.
func listenOnHost(network, address string) (*os.File, error) {
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	switch listener := listener.(type) {
	case *net.TCPListener:
		return listener.File()
	case *net.UnixListener:
		return listener.File()
	}
	return nil, fmt.Errorf("network %q is not offered", network)
}

// publish keeps the document in anonymous memory whose descriptor stays open in the launcher: /proc shows it as a file
// that only this user can open and that nothing can leave behind.
func publish(name string, document []byte) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("memory file %s: %w", name, err)
	}
	for written := 0; written < len(document); {
		n, err := unix.Write(fd, document[written:])
		if err != nil {
			unix.Close(fd)
			return "", fmt.Errorf("memory file %s: %w", name, err)
		}
		written += n
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}
