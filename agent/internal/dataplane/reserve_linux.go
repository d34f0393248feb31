package dataplane

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// sockets holds ports so that no other process gets them, without ever accepting anything on them: a node port without
// its rule refuses at once.
type sockets struct {
	mu   sync.Mutex
	held map[Key]int // file descriptors
}

// Reserve takes a port for itself; a port that it holds already stays so. ErrPortBusy means that another process has it.
// There are no sockets for SCTP: those ports are held by the table alone.
func (n *NFT) Reserve(k Key) error {
	if err := k.validate(); err != nil {
		return err
	}
	if err := n.checkFamilies([]Key{k}); err != nil || k.Protocol == npl.SCTP {
		return err
	}
	return n.sockets.hold(k)
}

// Release gives a port back; one that is not held is ignored.
func (n *NFT) Release(k Key) { n.sockets.release(k) }

func (s *sockets) hold(k Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.held[k]; held {
		return nil
	}
	fd, err := refusing(k)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("reserve node port %s: %w", k, ErrPortBusy)
	}
	if err != nil {
		return fmt.Errorf("reserve node port %s: %w", k, err)
	}
	if s.held == nil {
		s.held = map[Key]int{}
	}
	s.held[k] = fd
	return nil
}

func (s *sockets) release(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd, held := s.held[k]; held {
		delete(s.held, k)
		_ = unix.Close(fd)
	}
}

func (s *sockets) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, fd := range s.held {
		errs = append(errs, unix.Close(fd))
	}
	s.held = nil
	return errors.Join(errs...)
}

// refusing returns a socket that is bound to the port on all addresses of its family only. TCP: it never listens, so a
// connect is reset. UDP: it is connected to itself, so a datagram of anybody else finds no socket and is answered by ICMP
// "port unreachable". Connecting narrows the binding to the loopback address, which still keeps others from binding the
// port on all addresses, or being given it as an ephemeral one.
func refusing(k Key) (int, error) {
	domain, typ := unix.AF_INET, unix.SOCK_STREAM
	var all, itself unix.Sockaddr = &unix.SockaddrInet4{Port: int(k.NodePort)}, &unix.SockaddrInet4{Port: int(k.NodePort), Addr: [4]byte{127, 0, 0, 1}}
	if k.Family == npl.IPv6 {
		domain = unix.AF_INET6
		all, itself = &unix.SockaddrInet6{Port: int(k.NodePort)}, &unix.SockaddrInet6{Port: int(k.NodePort), Addr: [16]byte{15: 1}}
	}
	if k.Protocol == npl.UDP {
		typ = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket: %w", err)
	}
	err = func() error {
		if k.Family == npl.IPv6 {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
				return fmt.Errorf("set IPV6_V6ONLY: %w", err)
			}
		}
		if err := unix.Bind(fd, all); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		if k.Protocol != npl.UDP {
			return nil
		}
		if err := unix.Connect(fd, itself); err != nil {
			return fmt.Errorf("connect to itself (is the loopback interface up?): %w", err)
		}
		return nil
	}()
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
