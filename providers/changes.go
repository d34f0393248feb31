package providers

import (
	"cmp"
	"net/netip"
)

// MemberOp is one step on a member.
type MemberOp string

// The steps, see MemberChange.
const (
	AddMember    MemberOp = "Add"    // the member is new; it enters in its State
	EnableMember MemberOp = "Enable" // Draining becomes Enabled
	DrainMember  MemberOp = "Drain"  // Enabled becomes Draining
	WeighMember  MemberOp = "Weigh"  // its Weight changes; nothing else does
	RemoveMember MemberOp = "Remove" // the member leaves; connections it still has are closed
)

// MemberChange is one step on one member.
type MemberChange struct {
	Op     MemberOp
	Member Member
}

// PoolChange turns Old into New. Old nil creates the pool, New nil deletes it. Members lists the steps between
// the two in the order in which they must take effect; a provider that writes whole pools in one atomic call may
// ignore it. Old and New never differ in Attached: that is another pool, deleted in one change and created in the next.
type PoolChange struct {
	Key     Key
	Old     *Pool
	New     *Pool
	Members []MemberChange
}

// VirtualServerChange turns Old into New. Old nil creates, New nil deletes.
type VirtualServerChange struct {
	Key Key
	Old *VirtualServer
	New *VirtualServer
}

// Changes is what a provider applies: at most one PoolChange and one VirtualServerChange per Key, each slice
// sorted by Key. A provider creates pools before their virtual servers and deletes in the reverse order.
type Changes struct {
	Pools          []PoolChange
	VirtualServers []VirtualServerChange
}

// Empty reports whether there is nothing to do.
func (c Changes) Empty() bool { return len(c.Pools) == 0 && len(c.VirtualServers) == 0 }

func compareKeys(a, b Key) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Service, b.Service),
		cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.Protocol, b.Protocol),
	)
}

// CompareMembers orders members by Address, then UID: the order of Pool.Members.
func CompareMembers(a, b Member) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.UID, b.UID))
}

// CompareAddrs orders addresses, IPv4 before IPv6: the order of VirtualServer.VIPs.
func CompareAddrs(a, b netip.Addr) int { return a.Compare(b) }
