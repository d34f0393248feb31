// Package container runs a program as a container runtime would: with a root of its own, in namespaces of its own, with
// the capabilities and the user asked for. There are no images: the root is made of the machine's own read-only system
// directories, and the program is a file of the machine.
//
// A container is started by running this very binary again. The copy recognises itself in [MaybeRun], prepares its
// namespaces from the inside and then becomes the program, which so is process 1 of its PID namespace: when it ends,
// however it ends, the kernel ends everything it has started.
package container

// Spec describes one container. All of it is decided by the caller; this package only carries it out.
type Spec struct {
	Hostname string `json:"hostname"`
	// Args is the command line; Args[0] is looked up in the container's PATH when it holds no slash.
	Args []string `json:"args"`
	Env  []string `json:"env"` // "NAME=value"
	Dir  string   `json:"dir"` // working directory, created when missing; empty means "/"
	User User     `json:"user"`

	// Rootfs is an empty directory that the root is mounted on, seen only inside the container.
	Rootfs string `json:"rootfs"`
	// Mounts are made in this order, after the system directories.
	Mounts []Mount `json:"mounts"`
	// Files are written into the root: path to content.
	Files map[string]string `json:"files"`
	// ReadOnlyRoot makes the root read-only once it is made; mounts keep their own mode.
	ReadOnlyRoot bool `json:"readOnlyRoot"`
	// Privileged leaves /sys and /proc/sys writable and shows the machine's /dev.
	Privileged bool `json:"privileged"`
}

// User is whom a container runs as, and with which rights.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`
	// Capabilities is the bounding set, by name without "CAP_"; they are effective only for UID 0.
	Capabilities []string `json:"capabilities"`
	NoNewPrivs   bool     `json:"noNewPrivs"`
}

// Mount binds a file or directory of the machine into the container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly"`
}

// Namespaces are the namespaces a container does not get afresh.
type Namespaces struct {
	// Net is the path of its network namespace; required.
	Net string
	// PID is the path of a PID namespace to join; empty for one of its own.
	PID string
}
