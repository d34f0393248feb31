// Package echo is the server the lab puts behind every Service: it answers HTTP, TCP and UDP with who it is and who it
// saw, so that a client can tell which Pod answered and which source address reached it.
package echo

import (
	"encoding/json"
	"net/netip"
)

// Reply is the answer to one request, sent as a single line of JSON.
type Reply struct {
	// Pod, UID and Node identify the Pod that answered; empty outside a Pod.
	Pod  string `json:"pod"`
	UID  string `json:"uid"`
	Node string `json:"node"`
	// Protocol is "http", "tcp" or "udp".
	Protocol string `json:"protocol"`
	// Peer is the client's address as the server saw it, Local the server's own address of that exchange.
	Peer  netip.AddrPort `json:"peer"`
	Local netip.AddrPort `json:"local"`
}

// Identity is what a server says about itself.
type Identity struct{ Pod, UID, Node string }

// Line renders the reply as one line of JSON that ends with a newline.
func (r Reply) Line() []byte {
	line, err := json.Marshal(r)
	if err != nil { // strings and addresses always marshal
		panic(err)
	}
	return append(line, '\n')
}

func (id Identity) reply(protocol string, peer, local netip.AddrPort) Reply {
	return Reply{Pod: id.Pod, UID: id.UID, Node: id.Node, Protocol: protocol, Peer: plain(peer), Local: plain(local)}
}

// plain turns an IPv4-mapped IPv6 address, as a dual-stack socket reports it, into the IPv4 address it stands for.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
