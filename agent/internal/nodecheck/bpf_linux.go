package nodecheck

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// queryEffective is BPF_F_QUERY_EFFECTIVE of linux/bpf.h: with it a cgroup tells the programs of its ancestors, too.
const queryEffective = 1

// programs looks for eBPF programs where packets of node ports pass. Only what the kernel tells without CAP_BPF is asked; what it
// refuses is noted in Unseen.
func (c collector) programs(h *netlink.Handle, links []netlink.Link) {
	f, kind := c.facts, ""
	for _, l := range links {
		switch name := l.Attrs().Name; {
		case name == "cilium_host":
			kind = "cilium"
			f.Programs = append(f.Programs, Program{Hook: "interface", Device: name})
		case name == "bpfin.cali":
			kind = "calico"
			f.Programs = append(f.Programs, Program{Hook: "interface", Device: name})
		}
	}
	var unseen []string
	for _, l := range links {
		a := l.Attrs()
		if a.Xdp != nil && a.Xdp.Attached {
			f.Programs = append(f.Programs, Program{Hook: "xdp", Device: a.Name})
		}
		if !slices.ContainsFunc(f.Uplinks, func(u Uplink) bool { return u.Name == a.Name }) {
			continue
		}
		for _, hook := range []struct {
			name   string
			parent uint32
			attach uint32
		}{{"ingress", netlink.HANDLE_MIN_INGRESS, unix.BPF_TCX_INGRESS}, {"egress", netlink.HANDLE_MIN_EGRESS, unix.BPF_TCX_EGRESS}} {
			filters, err := h.FilterList(l, hook.parent)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // both: no filters can be there
				unseen = append(unseen, fmt.Sprintf("tc programs on %s: %v", a.Name, err))
			}
			for _, filter := range filters {
				if program, ok := filter.(*netlink.BpfFilter); ok {
					f.Programs = append(f.Programs, Program{Hook: "tc " + hook.name, Device: a.Name, Name: program.Name})
				}
			}
			switch n, err := attached(uint32(a.Index), hook.attach, 0); {
			case err != nil:
				unseen = append(unseen, fmt.Sprintf("tcx programs (%v)", err))
			case n > 0:
				f.Programs = append(f.Programs, Program{Hook: "tcx " + hook.name, Device: a.Name})
			}
		}
	}
	unseen = append(unseen, c.cgroupPrograms()...)
	slices.Sort(unseen)
	f.Unseen = slices.Compact(unseen)
	for i := range f.Programs {
		f.Programs[i].Kind = kind
	}
}

// cgroupPrograms looks for programs that translate addresses when a program of the Node connects.
func (c collector) cgroupPrograms() (unseen []string) {
	group, err := os.Open("/sys/fs/cgroup")
	if err != nil {
		return []string{"cgroup programs: " + err.Error()}
	}
	defer func() { _ = group.Close() }()
	for _, hook := range []struct {
		name   string
		attach uint32
	}{{"connect4", unix.BPF_CGROUP_INET4_CONNECT}, {"connect6", unix.BPF_CGROUP_INET6_CONNECT}} {
		switch n, err := attached(uint32(group.Fd()), hook.attach, queryEffective); {
		case errors.Is(err, unix.EBADF):
			unseen = append(unseen, "cgroup programs (/sys/fs/cgroup is not cgroup v2)")
		case err != nil:
			unseen = append(unseen, fmt.Sprintf("cgroup programs (%v)", err))
		case n > 0:
			c.facts.Programs = append(c.facts.Programs, Program{Hook: "cgroup " + hook.name})
		}
	}
	return unseen
}

// attached returns how many programs are attached to an interface or a cgroup; 0 where the kernel has no such hook.
func attached(target, hook, flags uint32) (int, error) {
	// The part of union bpf_attr that BPF_PROG_QUERY reads and writes, linux/bpf.h.
	query := struct {
		target, attachType, queryFlags, attachFlags uint32
		programs                                    uint64
		count, _                                    uint32
		programFlags, links, linkFlags, revision    uint64
	}{target: target, attachType: hook, queryFlags: flags}
	_, _, number := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	switch number {
	case 0, unix.ENOSPC: // ENOSPC: more than there was room for
		return int(query.count), nil
	case unix.EINVAL, unix.ENOSYS, unix.ENOENT, unix.E2BIG:
		return 0, nil
	default:
		return 0, number
	}
}
