package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// machinePaths are the parts of the machine that a hostPath shows as they are, read-only except for the kernel's own
// file systems; everything else is private to the Node.
var machinePaths = []string{"/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"}

// hostPath is where a hostPath volume really is.
func hostPath(stateDir, path string) (real string, readOnly bool) {
	path = filepath.Join("/", path)
	for _, dir := range machinePaths {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			kernel := dir == "/dev" || dir == "/proc" || dir == "/sys"
			return path, !kernel
		}
	}
	return filepath.Join(stateDir, "host", path), false
}

// makeHostPath sees to it that the path is what the volume's type says.
func makeHostPath(real string, v *corev1.HostPathVolumeSource) error {
	kind := ptr.Deref(v.Type, corev1.HostPathUnset)
	info, err := os.Stat(real)
	switch {
	case err == nil:
		return checkHostPath(info, kind, v.Path)
	case kind == corev1.HostPathUnset || kind == corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(real, 0o755)
	case kind == corev1.HostPathFileOrCreate:
		if err := os.MkdirAll(filepath.Dir(real), 0o755); err != nil {
			return err
		}
		return os.WriteFile(real, nil, 0o644)
	}
	return fmt.Errorf("hostPath %s: does not exist, and type %s does not create it", v.Path, kind)
}

func checkHostPath(info os.FileInfo, kind corev1.HostPathType, path string) error {
	var ok bool
	switch kind {
	case corev1.HostPathUnset:
		ok = true
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		ok = info.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		ok = info.Mode().IsRegular()
	case corev1.HostPathSocket:
		ok = info.Mode().Type() == os.ModeSocket
	case corev1.HostPathCharDev:
		ok = info.Mode()&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		ok = info.Mode().Type() == os.ModeDevice
	}
	if !ok {
		return fmt.Errorf("hostPath %s: is %s, not a %s", path, info.Mode(), kind)
	}
	return nil
}
