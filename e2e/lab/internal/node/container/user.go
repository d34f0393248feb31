package container

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// become takes on the user and the rights. It changes the calling thread only, which must be locked and is the one that
// becomes the program.
func (u User) become() error {
	sets, err := capability.NewPid2(0)
	if err != nil {
		return err
	}
	caps, err := capabilitySets(u.Capabilities)
	if err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	sets.Set(capability.BOUNDING, caps...)
	if u.UID == 0 {
		sets.Set(capability.EFFECTIVE|capability.PERMITTED, caps...)
	}
	if err := sets.Apply(capability.BOUNDS); err != nil {
		return fmt.Errorf("drop capabilities from the bounding set: %w", err)
	}
	if err := u.setIDs(); err != nil {
		return err
	}
	if err := sets.Apply(capability.AMBS); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := sets.Apply(capability.CAPS); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	if u.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	return nil
}

// setIDs uses the bare system calls: the standard library's would change every thread, and only this one goes on.
func (u User) setIDs() error {
	if groupsAllowed() {
		groups := make([]uint32, 0, len(u.Groups)+1)
		for _, g := range u.Groups {
			groups = append(groups, uint32(g))
		}
		first := unsafe.Pointer(unsafe.SliceData(groups))
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
			return fmt.Errorf("set supplementary groups %v: %w", u.Groups, errno)
		}
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("set group %d: %w", u.GID, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("set user %d: %w", u.UID, errno)
	}
	return nil
}

// groupsAllowed is false in a user namespace that an unprivileged user made for itself.
func groupsAllowed() bool {
	answer, err := os.ReadFile("/proc/self/setgroups")
	return err != nil || strings.TrimSpace(string(answer)) != "deny"
}

// Available returns the user as it can be had here. A lab without root has a single user, 0: a container that asked
// for another runs as that one, without any capability, and exact is false.
func (u User) Available() (available User, exact bool) {
	if mapped("/proc/self/uid_map", u.UID) && mapped("/proc/self/gid_map", u.GID) {
		return u, true
	}
	if u.UID == 0 { // only the group is out of reach
		u.GID, u.Groups = 0, nil
		return u, false
	}
	return User{NoNewPrivs: u.NoNewPrivs}, false
}

// mapped tells whether the user namespace knows the id.
func mapped(path string, id int) bool {
	f, err := os.Open(path)
	if err != nil {
		return true // a kernel without user namespaces maps everything
	}
	defer f.Close() //nolint:errcheck // opened for reading
	return mappedIn(f, id)
}

// mappedIn reads lines of "first id inside, first id outside, length", as user_namespaces(7) describes them.
func mappedIn(r io.Reader, id int) bool {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var inside, outside, length int64
		if _, err := fmt.Sscan(lines.Text(), &inside, &outside, &length); err != nil {
			continue
		}
		if int64(id) >= inside && int64(id) < inside+length {
			return true
		}
	}
	return false
}
