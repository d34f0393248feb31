package dataplane

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Watch returns a channel that fires when somebody else changed or flushed one of our tables or a FORWARD chain that
// we keep open, or when the addresses of this Node changed: call Repair then. Events that come close together fire once; our own transactions do not fire. The
// channel is closed when ctx ends. Where the kernel gives no notifications the channel never fires, with one warning:
// repairing from time to time stays necessary anyway.
func (n *NFT) Watch(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	fire := func() {
		select {
		case out <- struct{}{}:
		default: // one is waiting already
		}
	}
	var listeners sync.WaitGroup
	for _, l := range []struct {
		protocol    int
		groups      []uint32
		interesting func([]netlink.Message) bool
	}{
		{unix.NETLINK_NETFILTER, []uint32{unix.NFNLGRP_NFTABLES}, n.byOthers},
		{unix.NETLINK_ROUTE, []uint32{unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR}, n.selfChanged},
	} {
		conn, err := subscribe(l.protocol, l.groups)
		if err != nil {
			n.cfg.Log.Warn("cannot follow changes of the kernel; they are noticed at the next repair only", zap.Error(err))
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		listeners.Go(func() {
			defer stop()
			for {
				msgs, err := conn.Receive()
				switch {
				case ctx.Err() != nil:
					return
				case errors.Is(err, unix.ENOBUFS):
					fire() // too many to keep: some may have been about us
				case err != nil:
					n.cfg.Log.Warn("stopped following changes of the kernel; they are noticed at the next repair only", zap.Error(err))
					_ = conn.Close()
					return
				case l.interesting(msgs):
					fire()
				}
			}
		})
	}
	go func() {
		<-ctx.Done()
		listeners.Wait()
		close(out)
	}()
	return out
}

func subscribe(protocol int, groups []uint32) (*netlink.Conn, error) {
	conn, err := netlink.Dial(protocol, nil)
	if err != nil {
		return nil, explain("open a netlink socket for notifications", err)
	}
	_ = conn.SetReadBuffer(socketBuffer)
	for _, g := range groups {
		if err := conn.JoinGroup(g); err != nil {
			_ = conn.Close()
			return nil, explain("subscribe to netlink notifications", err)
		}
	}
	return conn, nil
}

// byOthers reports whether a notification is about a table of our name, or a chain FORWARD that we keep open, and not caused
// by our own socket.
func (n *NFT) byOthers(msgs []netlink.Message) bool {
	return slices.ContainsFunc(msgs, func(m netlink.Message) bool {
		if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || m.Header.Type&0xff == unix.NFT_MSG_NEWGEN || m.Header.PID == n.kernel.portID.Load() {
			return false
		}
		attrs, err := attributes(m)
		if err != nil {
			return false
		}
		var table, chain string
		kind := uint16(m.Header.Type & 0xff)
		for attrs.Next() {
			// Tables, chains, rules, sets and elements all name their table in the attribute of this number.
			switch typ := attrs.Type(); {
			case typ == unix.NFTA_TABLE_NAME:
				table = attrs.String()
			case typ == chainName[kind]:
				chain = attrs.String()
			}
		}
		return table == TableName || n.cfg.ForwardAccept && table == xtTable && chain == xtChain
	})
}

// chainName is the attribute that names a chain in messages about chains and rules.
var chainName = map[uint16]uint16{
	unix.NFT_MSG_NEWCHAIN: unix.NFTA_CHAIN_NAME, unix.NFT_MSG_DELCHAIN: unix.NFTA_CHAIN_NAME,
	unix.NFT_MSG_NEWRULE: unix.NFTA_RULE_CHAIN, unix.NFT_MSG_DELRULE: unix.NFTA_RULE_CHAIN,
}

// selfChanged reports whether the served addresses differ from those in the table: routers renew addresses all the time.
func (n *NFT) selfChanged([]netlink.Message) bool {
	all, err := n.addresses()
	n.mu.Lock()
	defer n.mu.Unlock()
	return err != nil || !slices.Equal(served(all), n.self) || !slices.EqualFunc(all, n.links, func(a, b address) bool {
		return a.addr.Compare(b.addr) == 0 && a.index == b.index
	})
}
