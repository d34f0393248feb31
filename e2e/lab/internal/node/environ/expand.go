// Package environ computes what a container is told about itself: its environment, its command line and the fields of
// its Pod. It is pure: the objects that the Pod refers to are given.
package environ

import "strings"

// Expand replaces each $(NAME) that lookup knows by its value. An unknown one stays as it is written, and $$(NAME)
// stands for the text $(NAME), as the Kubernetes API documents for command, args and env.
func Expand(s string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, isReference := reference(rest)
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			s = rest[1:]
		case isReference:
			if value, known := lookup(name); known {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			s = after
		default:
			out.WriteByte('$')
			s = rest
		}
	}
}

// reference splits "(NAME)after", what follows a dollar sign.
func reference(s string) (name, after string, ok bool) {
	if !strings.HasPrefix(s, "(") {
		return "", "", false
	}
	name, after, ok = strings.Cut(s[1:], ")")
	return name, after, ok
}
