package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// SCTP is tried with packets made by hand, since the kernel of a test machine need not have SCTP sockets. Its connection
// tracking must have the protocol (CONFIG_NF_CT_PROTO_SCTP).

const (
	sctpInit, sctpInitAck = 1, 2
	clientPort            = 40001
)

// sctpPacket is a common header and one INIT or INIT ACK chunk, RFC 9260 sections 3.1, 3.3.2 and 3.3.3.
func sctpPacket(source, destination uint16, tag uint32, chunk byte) []byte {
	length := uint16(20)
	var cookie []byte
	if chunk == sctpInitAck {
		cookie = []byte{0, 7, 0, 8, 'c', 'o', 'o', 'k'} // parameter State Cookie
		length += uint16(len(cookie))
	}
	b := binary.BigEndian.AppendUint16(nil, source)
	b = binary.BigEndian.AppendUint16(b, destination)
	b = binary.BigEndian.AppendUint32(b, tag)
	b = append(b, 0, 0, 0, 0) // checksum
	b = append(b, chunk, 0)
	b = binary.BigEndian.AppendUint16(b, length)
	b = binary.BigEndian.AppendUint32(b, 0x01020304) // initiate tag
	b = binary.BigEndian.AppendUint32(b, 65536)      // receiver window
	b = append(b, 0, 1, 0, 1)                        // streams
	b = binary.BigEndian.AppendUint32(b, 1)          // initial TSN
	b = append(b, cookie...)
	binary.LittleEndian.PutUint32(b[8:], sctpChecksum(b))
	return b
}

// sctpChecksum is the CRC32c of a packet with its checksum taken as zero.
func sctpChecksum(b []byte) uint32 {
	zeroed := append([]byte(nil), b...)
	copy(zeroed[8:12], []byte{0, 0, 0, 0})
	return crc32.Checksum(zeroed, crc32.MakeTable(crc32.Castagnoli))
}

// sctpSocket is a raw socket for SCTP packets of one family.
type sctpSocket struct {
	fd int
	f  npl.Family
}

func openSCTP(t *testing.T, ns *namespace, f npl.Family, wait time.Duration) sctpSocket {
	t.Helper()
	fd, err := in(ns, func() (int, error) {
		domain := map[npl.Family]int{npl.IPv4: unix.AF_INET, npl.IPv6: unix.AF_INET6}[f]
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return -1, err
		}
		limit := unix.NsecToTimeval(wait.Nanoseconds())
		return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	})
	if err != nil {
		t.Fatalf("raw socket for SCTP in %s: %v", ns.name, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return sctpSocket{fd, f}
}

func (s sctpSocket) send(to netip.Addr, packet []byte) error {
	if s.f == npl.IPv4 {
		return unix.Sendto(s.fd, packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	}
	return unix.Sendto(s.fd, packet, 0, &unix.SockaddrInet6{Addr: to.As16()})
}

// sctpSeen is a packet as it arrived.
type sctpSeen struct {
	from, to netip.AddrPort
	chunk    byte
	valid    bool // its checksum
}

func (s sctpSocket) receive() (sctpSeen, error) {
	buf := make([]byte, 2048)
	n, from, err := unix.Recvfrom(s.fd, buf, 0)
	for errors.Is(err, unix.EINTR) { // by the runtime's own signals
		n, from, err = unix.Recvfrom(s.fd, buf, 0)
	}
	if err != nil {
		return sctpSeen{}, err
	}
	packet := buf[:n]
	var source, destination netip.Addr
	switch from := from.(type) {
	case *unix.SockaddrInet4: // comes with its IP header
		source, destination = netip.AddrFrom4(from.Addr), netip.AddrFrom4([4]byte(packet[16:20]))
		packet = packet[int(packet[0]&15)*4:]
	case *unix.SockaddrInet6:
		source = netip.AddrFrom16(from.Addr)
	}
	if len(packet) < 13 {
		return sctpSeen{}, fmt.Errorf("a packet of %d bytes", len(packet))
	}
	return sctpSeen{
		netip.AddrPortFrom(source, binary.BigEndian.Uint16(packet)), netip.AddrPortFrom(destination, binary.BigEndian.Uint16(packet[2:])),
		packet[12], binary.LittleEndian.Uint32(packet[8:]) == sctpChecksum(packet),
	}, nil
}

func TestSCTPPacketsAreTranslatedBothWays(t *testing.T) {
	n := newNetwork(t, routed)
	d := open(t, n.node, MasqueradeAuto)
	for _, f := range bothFamilies {
		t.Run(string(f), func(t *testing.T) {
			k := Key{npl.SCTP, f, 61000}
			client, pod := openSCTP(t, n.client, f, patience), openSCTP(t, n.pods[0], f, 300*time.Millisecond)
			init := sctpPacket(clientPort, k.NodePort, 0, sctpInit)
			// exchange sends INIT until the Pod has it, and the Pod's answer.
			exchange := func() (atPod, atClient sctpSeen, err error) {
				if err := client.send(nodeAddr[f], init); err != nil {
					return atPod, atClient, err
				}
				if atPod, err = pod.receive(); err != nil {
					return atPod, atClient, fmt.Errorf("INIT does not arrive at the Pod: %w", err)
				}
				if err := pod.send(atPod.from.Addr(), sctpPacket(podPort, atPod.from.Port(), 0x01020304, sctpInitAck)); err != nil {
					return atPod, atClient, err
				}
				if atClient, err = client.receive(); err != nil {
					err = fmt.Errorf("INIT ACK does not come back: %w", err)
				}
				return atPod, atClient, err
			}
			if _, _, err := exchange(); !errors.Is(err, unix.EAGAIN) {
				t.Fatalf("without a mapping: got %v, want nothing to arrive", err)
			}
			pod = openSCTP(t, n.pods[0], f, patience)
			d.apply(Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[0][f], podPort)}, FlushTCP: []Key{k}})
			atPod, atClient, err := exchange()
			if err != nil {
				t.Fatalf("%v: does the kernel's conntrack have SCTP (CONFIG_NF_CT_PROTO_SCTP)?", err)
			}
			to := netip.AddrPortFrom(podAddr[0][f], podPort)
			back := netip.AddrPortFrom(clientAddr[f], clientPort)
			if f == npl.IPv6 { // a raw socket of IPv6 does not show the destination
				to, back = netip.AddrPortFrom(netip.Addr{}, podPort), netip.AddrPortFrom(netip.Addr{}, clientPort)
			}
			if want := (sctpSeen{netip.AddrPortFrom(clientAddr[f], clientPort), to, sctpInit, true}); atPod != want {
				t.Errorf("the Pod got %+v, want %+v", atPod, want)
			}
			if want := (sctpSeen{netip.AddrPortFrom(nodeAddr[f], k.NodePort), back, sctpInitAck, true}); atClient != want {
				t.Errorf("the client got %+v, want %+v", atClient, want)
			}

			// The association outlives its rule, unless the Pod is gone: then what comes next starts anew.
			associations := func() int {
				t.Helper()
				count := 0
				request, err := conntrackMessage(familyOf(f), 1, unix.NLM_F_DUMP) // IPCTNL_MSG_CT_GET
				if err != nil {
					t.Fatal(err)
				}
				if err := d.n.kernel.dump(request, func(data []byte) {
					if e, ok := decodeEntry(data); ok && e.flow == k.flow() && e.from == netip.AddrPortFrom(podAddr[0][f], podPort) {
						count++
					}
				}); err != nil {
					t.Fatal(err)
				}
				return count
			}
			d.apply(Change{Delete: []Key{k}})
			if got := associations(); got != 1 {
				t.Errorf("%d associations after the rule went, want the one that is open", got)
			}
			d.apply(Change{FlushTCP: []Key{k}})
			if got := associations(); got != 0 {
				t.Errorf("%d associations after the Pod went, want none", got)
			}
		})
	}
}
