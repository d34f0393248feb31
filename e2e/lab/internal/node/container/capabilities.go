package container

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
)

// defaultCapabilities are what container runtimes leave a container that asks for nothing (Docker's and containerd's list).
var defaultCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// Capabilities computes a container's bounding set from its security context: the default set, or all of them when
// privileged, minus drop, plus add. Names come with or without "CAP_"; "ALL" stands for every one. The answer is sorted.
func Capabilities(add, drop []string, privileged bool) ([]string, error) {
	all := capabilityNames()
	if privileged {
		return all, nil
	}
	set := map[string]bool{}
	for _, name := range defaultCapabilities {
		set[name] = true
	}
	change := func(names []string, to bool) error {
		for _, name := range names {
			switch name = strings.TrimPrefix(strings.ToUpper(name), "CAP_"); {
			case name == "ALL":
				for _, each := range all {
					set[each] = to
				}
			case slices.Contains(all, name):
				set[name] = to
			default:
				return fmt.Errorf("capability %q: no such capability; use a name as in capabilities(7), without CAP_, such as NET_ADMIN", name)
			}
		}
		return nil
	}
	// As runtimes do it: dropping ALL clears the default set, and what is added by name comes after.
	if err := change(drop, false); err != nil {
		return nil, err
	}
	if err := change(add, true); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(name string) bool { return !set[name] }), nil
}

func capabilityNames() []string {
	var names []string
	for _, c := range capability.ListKnown() {
		names = append(names, strings.ToUpper(c.String()))
	}
	slices.Sort(names)
	return names
}

// capabilitySets turns names into what the kernel takes, leaving out those that this process does not hold itself:
// a container cannot get more than its runtime has.
func capabilitySets(names []string) ([]capability.Cap, error) {
	own, err := capability.NewPid2(0)
	if err != nil {
		return nil, err
	}
	if err := own.Load(); err != nil {
		return nil, err
	}
	var caps []capability.Cap
	for _, c := range capability.ListKnown() {
		if slices.Contains(names, strings.ToUpper(c.String())) && own.Get(capability.PERMITTED, c) {
			caps = append(caps, c)
		}
	}
	return caps, nil
}
