package dataplane

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func TestWatchTellsOthersChangesFromOurs(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	conn, err := in(node, func() (*netlink.Conn, error) {
		return subscribe(unix.NETLINK_NETFILTER, []uint32{unix.NFNLGRP_NFTABLES})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d.apply(Change{Set: allMappings(), Cool: map[Key]time.Duration{sctp4: time.Hour}})
	d.apply(Change{Set: map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.99:1")}, Delete: []Key{udp6}})
	node.nft("table ip other { set s { type ipv4_addr; elements = { 192.0.2.9 }\n }\n }")
	node.nft("table ip marker { }")
	ours := 0
	for seen := false; !seen; {
		msgs, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if d.n.byOthers(msgs) {
			t.Errorf("taken for a change of ours by others: %+v", msgs)
		}
		for _, m := range msgs {
			seen = seen || strings.Contains(string(m.Data), "marker\x00")
			if strings.Contains(string(m.Data), TableName+"\x00") {
				ours++
			}
		}
	}
	if ours == 0 {
		t.Error("the kernel sent no notification about our own transactions, so nothing was tested")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var fired <-chan struct{}
	node.do(func() { fired = d.n.Watch(ctx) })
	await := func(what string) {
		t.Helper()
		select {
		case <-fired:
		case <-time.After(patience):
			t.Fatalf("not told about: %s", what)
		}
	}
	for _, script := range []string{
		"delete element ip nplbridge ports { tcp . 61000 }", "add rule ip6 nplbridge output accept", "flush chain ip nplbridge output",
		"add set ip nplbridge other { type ipv4_addr; }", "flush ruleset",
	} {
		node.nft(script)
		await(script)
		d.repair(allMappings())
		for len(fired) > 0 { // further notifications of the same script
			<-fired
		}
	}
	node.run("ip addr add 192.0.2.77/24 dev eth0")
	await("a new address")
	if got := d.repair(allMappings()); got != 0 {
		t.Errorf("following an address counts as %d repairs", got)
	}
	if self := d.n.Self(); !slices.Contains(self, netip.MustParseAddr("192.0.2.77")) {
		t.Errorf("not served: %v", self)
	}
	node.run("ip addr del 192.0.2.77/24 dev eth0")
	await("an address less")
	cancel()
	for range fired { // ends when the channel is closed
	}
}

func TestReserve(t *testing.T) {
	node := newNode(t)
	d, other := open(t, node, ""), open(t, node, "")
	for _, f := range bothFamilies {
		for _, p := range transports {
			k := Key{p, f, 61000}
			for range 2 { // holding it twice is holding it
				if err := d.reserve(k); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.reserve(k); !errors.Is(err, ErrPortBusy) || !strings.Contains(err.Error(), k.String()) {
				t.Errorf("%s: got %v, want ErrPortBusy", k, err)
			}
		}
	}
	for _, f := range bothFamilies {
		for _, p := range transports {
			k := Key{p, f, 61000}
			d.n.Release(k)
			d.n.Release(k)
			if err := other.reserve(k); err != nil {
				t.Errorf("%s, released: %v", k, err)
			}
		}
	}
	if err := d.reserve(sctp4); err != nil {
		t.Errorf("SCTP needs no socket: %v", err)
	}
	if err := other.n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.reserve(Key{npl.TCP, npl.IPv4, 61000}); err != nil {
		t.Errorf("after the other closed: %v", err)
	}
}
