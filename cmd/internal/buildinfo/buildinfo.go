// Package buildinfo says which build this is.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in released builds: -X github.com/nplbridge/nplbridge/cmd/internal/buildinfo.version=v1.2.3.
var version string

// Info describes the running build.
type Info struct {
	Version  string `json:"version"`            // "v1.2.3", or "devel" where nobody said
	Commit   string `json:"commit,omitempty"`   // full hash; absent when built outside a repository
	Date     string `json:"date,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // built with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // "linux/amd64"
}

// Read returns what the linker and the toolchain recorded in this binary.
func Read() Info {
	info := Info{
		Version:  version,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		if info.Version == "" && build.Main.Version != "(devel)" {
			info.Version = build.Main.Version
		}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Commit = s.Value
			case "vcs.time":
				info.Date = s.Value
			case "vcs.modified":
				info.Modified = s.Value == "true"
			}
		}
	}
	info.Version = cmp.Or(info.Version, "devel")
	return info
}

// String returns one line: "v1.2.3 (commit 0123456789ab, go1.26.8, linux/amd64)".
func (i Info) String() string {
	commit := ""
	if i.Commit != "" {
		commit = "commit " + i.Commit[:min(12, len(i.Commit))]
		if i.Modified {
			commit += " modified"
		}
		commit += ", "
	}
	return i.Version + " (" + commit + i.Go + ", " + i.Platform + ")"
}
