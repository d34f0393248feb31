package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernel is one lasting netlink socket to nf_tables. What the library lacks (table comments, the ruleset's generation)
// is spoken over the same socket, so that every change of ours carries one port ID.
type kernel struct {
	*nftables.Conn
	raw    *netlink.Conn
	portID atomic.Uint32 // of the socket; Watch tells our own notifications by it
}

// nftaTableUserdata is NFTA_TABLE_USERDATA of linux/netfilter/nf_tables.h, which x/sys lacks. Kernels from 5.10 keep it.
const nftaTableUserdata = 6

// socketBuffer is room for a transaction of many thousand elements, in bytes.
const socketBuffer = 4 << 20

// dial opens the socket, or a new one instead of one that may hold answers nobody waits for any more.
func (k *kernel) dial() error {
	k.hangUp()
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		k.raw = c
		// Acknowledgements without a copy of the request: they then never overrun the receive buffer. Sizes are a wish:
		// the kernel may cap them.
		_ = c.SetOption(netlink.CapAcknowledge, true)
		_ = c.SetReadBuffer(socketBuffer)
		_ = c.SetWriteBuffer(socketBuffer)
		return nil
	}))
	if err != nil {
		return explain("open a netlink socket to nf_tables", err)
	}
	k.Conn = conn
	_, err = k.generation() // tells the port ID, and whether nf_tables is there
	return err
}

// execute sends one request and returns its answers. It dials first when the last dialling has failed.
func (k *kernel) execute(m netlink.Message) ([]netlink.Message, error) {
	if k.raw == nil {
		if err := k.dial(); err != nil {
			return nil, err
		}
	}
	return k.raw.Execute(m)
}

// dump sends a request and hands the data of each answer to each, which must not keep it. There may be hundreds of thousands,
// so they are not collected.
func (k *kernel) dump(m netlink.Message, each func([]byte)) error {
	if k.raw == nil {
		if err := k.dial(); err != nil {
			return err
		}
	}
	sent, err := k.raw.Send(m)
	if err != nil {
		return err
	}
	socket, err := k.raw.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10) // the kernel fills half of that at most
	for {
		var size int
		var failure error
		if err := socket.Read(func(fd uintptr) bool {
			size, _, failure = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(failure, unix.EAGAIN)
		}); err != nil {
			return err
		}
		if failure != nil {
			return failure
		}
		answers, err := syscall.ParseNetlinkMessage(buf[:size])
		if err != nil {
			return err
		}
		for _, a := range answers {
			switch {
			case a.Header.Seq != sent.Header.Sequence:
			case a.Header.Type == unix.NLMSG_DONE || a.Header.Type == unix.NLMSG_ERROR:
				if len(a.Data) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(a.Data)); code != 0 {
						return unix.Errno(-code)
					}
				}
				return nil
			default:
				each(a.Data)
			}
		}
	}
}

func (k *kernel) hangUp() {
	if k.Conn != nil {
		_ = k.CloseLasting()
		k.Conn, k.raw = nil, nil
	}
}

func header(msg uint16, flags netlink.HeaderFlags) netlink.Header {
	return netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | msg), Flags: netlink.Request | flags}
}

// generic is struct nfgenmsg: family, version, resource.
func generic(family nftables.TableFamily, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{byte(family), unix.NFNETLINK_V0}, resource)
}

// generation returns the number of the ruleset, which every transaction of anybody in this network namespace changes.
func (k *kernel) generation() (uint32, error) {
	replies, err := k.execute(netlink.Message{
		Header: header(unix.NFT_MSG_GETGEN, 0), Data: generic(nftables.TableFamilyUnspecified, 0),
	})
	const doing = "read the generation of the nftables ruleset"
	if errors.Is(err, unix.EINVAL) {
		return 0, noTables(doing, err)
	}
	if err != nil {
		return 0, explain(doing, err)
	}
	for _, m := range replies {
		attrs, err := attributes(m)
		if err != nil {
			return 0, err
		}
		for attrs.Next() {
			if attrs.Type() == unix.NFTA_GEN_ID {
				k.portID.Store(m.Header.PID)
				return attrs.Uint32(), nil
			}
		}
	}
	return 0, errors.New(doing + ": the kernel sent none")
}

// tableInfo is what the library does not tell about a table.
type tableInfo struct {
	exists  bool
	flags   uint32
	comment string
}

func (k *kernel) tableInfo(f *family) (tableInfo, error) {
	name, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_TABLE_NAME, Data: []byte(TableName + "\x00")}})
	if err != nil {
		return tableInfo{}, err
	}
	replies, err := k.execute(netlink.Message{Header: header(unix.NFT_MSG_GETTABLE, 0), Data: append(generic(f.nf, 0), name...)})
	if errors.Is(err, unix.ENOENT) {
		return tableInfo{}, nil
	}
	if err != nil {
		return tableInfo{}, explain("read "+f.String(), err)
	}
	info := tableInfo{exists: true}
	for _, m := range replies {
		attrs, err := attributes(m)
		if err != nil {
			return tableInfo{}, err
		}
		for attrs.Next() {
			switch attrs.Type() {
			case unix.NFTA_TABLE_FLAGS:
				info.flags = attrs.Uint32()
			case nftaTableUserdata:
				info.comment = decodeComment(attrs.Bytes())
			}
		}
		if err := attrs.Err(); err != nil {
			return tableInfo{}, fmt.Errorf("read %s: %w", f, err)
		}
	}
	return info, nil
}

// kernelRule is a rule as the kernel reports it.
type kernelRule struct {
	handle  uint64
	comment string
	exprs   []kernelExpression
}

// rules returns the rules of a table by chain, in order; of one chain only, if it is given.
func (k *kernel) rules(f nftables.TableFamily, table, only string) (map[string][]kernelRule, error) {
	selected := []field{{unix.NFTA_RULE_TABLE, table}}
	if only != "" {
		selected = append(selected, field{unix.NFTA_RULE_CHAIN, only})
	}
	data, err := encode(selected)
	if err != nil {
		return nil, err
	}
	doing := fmt.Sprintf("read the rules of table %s %s", familyName(f), table)
	replies, err := k.execute(netlink.Message{Header: header(unix.NFT_MSG_GETRULE, netlink.Dump), Data: append(generic(f, 0), data...)})
	if err != nil {
		return nil, explain(doing, err)
	}
	out := map[string][]kernelRule{}
	for _, m := range replies {
		attrs, err := attributes(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		var chain string
		var r kernelRule
		selected := false
		for attrs.Next() {
			switch attrs.Type() {
			case unix.NFTA_RULE_HANDLE:
				r.handle = attrs.Uint64()
			case unix.NFTA_RULE_TABLE:
				selected = attrs.String() == table
			case unix.NFTA_RULE_CHAIN:
				chain = attrs.String()
			case unix.NFTA_RULE_USERDATA:
				r.comment = decodeComment(attrs.Bytes())
			case unix.NFTA_RULE_EXPRESSIONS:
				attrs.Nested(func(list *netlink.AttributeDecoder) error {
					for list.Next() {
						list.Nested(func(ad *netlink.AttributeDecoder) error {
							r.exprs = append(r.exprs, decodeExpression(ad))
							return nil
						})
					}
					return nil
				})
			}
		}
		if err := attrs.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		if selected && (only == "" || only == chain) {
			out[chain] = append(out[chain], r)
		}
	}
	return out, nil
}

func decodeExpression(ad *netlink.AttributeDecoder) (e kernelExpression) {
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_EXPR_NAME:
			e.name = ad.String()
		case unix.NFTA_EXPR_DATA:
			e.data = ad.Bytes()
		}
	}
	return e
}

// decodeComment finds the comment in user data (type, length, value, and so on), which anybody may have written: what
// does not parse has no comment.
func decodeComment(b []byte) string {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		value := b[2 : 2+int(b[1])]
		if userdata.Type(b[0]) == userdata.TypeComment {
			return strings.TrimRight(string(value), "\x00")
		}
		b = b[2+len(value):]
	}
	return ""
}

// attributes decodes what follows struct nfgenmsg.
func attributes(m netlink.Message) (*netlink.AttributeDecoder, error) {
	if len(m.Data) < 4 {
		return nil, fmt.Errorf("netlink message of type %#x: %d bytes are too short", m.Header.Type, len(m.Data))
	}
	attrs, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return nil, fmt.Errorf("netlink message of type %#x: %w", m.Header.Type, err)
	}
	attrs.ByteOrder = binary.BigEndian
	return attrs, nil
}
