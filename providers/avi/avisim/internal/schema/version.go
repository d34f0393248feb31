package schema

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is a version of the API, such as 22.1.3. The zero value is older than every other.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads "22.1.3"; a build or patch after it, as in "22.1.3-2p1", is ignored.
func ParseVersion(text string) (Version, error) {
	number, _, _ := strings.Cut(text, "-")
	parts := strings.Split(number, ".")
	var v Version
	if len(parts) != 3 {
		return v, fmt.Errorf("version %.40q: use three numbers, as 22.1.3", text)
	}
	for i, to := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			return Version{}, fmt.Errorf("version %.40q: use three numbers, as 22.1.3", text)
		}
		*to = n
	}
	return v, nil
}

// Zero reports whether v is no version.
func (v Version) Zero() bool { return v == Version{} }

// After reports whether v is newer than other.
func (v Version) After(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) > 0
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
