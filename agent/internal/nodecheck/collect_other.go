//go:build !linux

package nodecheck

import (
	"fmt"
	"runtime"
)

// Collect reports every check that needs Linux as unread.
func Collect(s Subject) Facts {
	f := Facts{Subject: s, Unread: map[Check]string{}}
	for _, d := range Checks() {
		if d.Check != NodePortRange {
			f.Unread[d.Check] = fmt.Sprintf("this check is made on Linux only, and this is %s", runtime.GOOS)
		}
	}
	return f
}
