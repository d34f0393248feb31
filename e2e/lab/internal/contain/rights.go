package contain

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// needUserNamespace tells whether this process may not create the other namespaces itself.
func needUserNamespace() (bool, error) {
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		return false, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return !own.Get(capability.EFFECTIVE, capability.CAP_SYS_ADMIN) ||
		!own.Get(capability.EFFECTIVE, capability.CAP_NET_ADMIN), nil
}

// settings that forbid user namespaces to unprivileged users, with the value that does, by path below /proc/sys.
var forbidding = []struct{ path, value, allow string }{
	{"kernel/unprivileged_userns_clone", "0", "1"},
	{"user/max_user_namespaces", "0", "10000"},
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
}

// explain turns a refused containment into the one message that helps; sys is /proc/sys.
func explain(sys fs.FS, needUser bool, err error) error {
	if !needUser {
		return fmt.Errorf("cannot create mount, PID and network namespaces although this user is privileged: %w", err)
	}
	for _, setting := range forbidding {
		content, readErr := fs.ReadFile(sys, setting.path)
		if readErr != nil || strings.TrimSpace(string(content)) != setting.value {
			continue
		}
		name := strings.ReplaceAll(setting.path, "/", ".")
		return fmt.Errorf("this user may not create a user namespace: %s is %s: run as root, or allow it with `sudo sysctl -w %s=%s` (%w)",
			name, setting.value, name, setting.allow, err)
	}
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("cannot create a user namespace: the limit user.max_user_namespaces or a nesting limit is reached: run as root, or raise it (%w)", err)
	}
	return fmt.Errorf("cannot create a user namespace and mount in it: the kernel or a container runtime forbids it: run as root, in a container with --privileged (%w)", err)
}
