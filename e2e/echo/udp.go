package echo

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// udpPart answers every datagram, from the very address it was sent to: on a wildcard socket the kernel would choose
// the source of the answer by its routing table, and a client that asked another address would not recognise it.
type udpPart struct {
	conn     *net.UDPConn
	identity Identity
}

func (s *Server) listenUDP(ctx context.Context, address string) (part, net.Addr, error) {
	var lc net.ListenConfig
	c, err := lc.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, nil, err
	}
	conn := c.(*net.UDPConn)
	if err := wantPacketInfo(conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return &udpPart{conn, s.cfg.Identity}, conn.LocalAddr(), nil
}

func (p *udpPart) serve() error {
	local := p.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	buf, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		_, n, _, peer, err := p.conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return closed(err)
		}
		addr, control := packetInfo(oob[:n])
		if !addr.IsValid() {
			addr = local.Addr()
		}
		reply := p.identity.reply("udp", peer, netip.AddrPortFrom(addr, local.Port()))
		p.conn.WriteMsgUDPAddrPort(reply.Line(), control, peer) //nolint:errcheck // the client went away
	}
}

func (p *udpPart) shutdown(context.Context) error { return closed(p.conn.Close()) }

// wantPacketInfo asks the kernel to tell the destination address of every datagram.
func wantPacketInfo(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		if domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_INET6 {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	})
	return errors.Join(err, set)
}

// packetInfo reads the destination address of a datagram from its control message, and makes the one that sends the
// answer from that address.
func packetInfo(oob []byte) (netip.Addr, []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, nil
	}
	var v4 netip.Addr
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
			a := netip.AddrFrom16([16]byte(m.Data[:16]))
			return a, unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			v4 = netip.AddrFrom4([4]byte(m.Data[8:12])) // struct in_pktinfo: ifindex, spec_dst, addr
		}
	}
	if !v4.IsValid() {
		return netip.Addr{}, nil
	}
	return v4, unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: v4.As4()})
}
