package paths

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine says where and when was measured.
type Machine struct {
	Date, CPU, Kernel, HAProxy string
	Cores                      int
	Load                       string // load averages of 1, 5 and 15 minutes at the start
}

func thisMachine(now time.Time) Machine {
	m := Machine{Date: now.UTC().Format("January 2, 2006"), Cores: runtime.NumCPU(), CPU: "not known", Kernel: "not known", HAProxy: "not known"}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(text)), "-") // what is behind it is a build's own name
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(text))[:3], ", ")
	}
	for _, haproxy := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if text, err := exec.Command(haproxy, "-v").Output(); err == nil {
			m.HAProxy, _, _ = strings.Cut(string(text), " 20") // "HAProxy version 2.6.12-1 2023/..."
			break
		}
	}
	return m
}
