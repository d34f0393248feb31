package runtime

import "strings"

// AddRoute adds an entry to a map, which takes a second one of the same key as well.
func AddRoute(path, key, value string) Command {
	return Command{Text: "add map " + path + " " + key + " " + value}
}

// SetRoute changes an entry of a map, in one step for the connections that come meanwhile.
func SetRoute(path, key, value string) Command {
	return Command{Text: "set map " + path + " " + key + " " + value}
}

// DeleteRoute removes an entry from a map.
func DeleteRoute(path, key string) Command { return Command{Text: "del map " + path + " " + key} }

// AddBackend makes a backend with the settings of a named defaults section; since 3.4.
func AddBackend(name, defaults string) Command {
	return Command{Text: "add backend " + name + " from " + defaults, Expect: Notice}
}

// PublishBackend lets connections into a backend that was added.
func PublishBackend(name string) Command {
	return Command{Text: "publish backend " + name, Expect: Notice}
}

// ParseMap reads the answer of `show map <map>`. Of two entries with one key the first counts, as it does for HAProxy.
func ParseMap(text string) map[string]string {
	entries := map[string]string{}
	for line := range strings.Lines(text) {
		_, entry, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if key, value, ok := strings.Cut(entry, " "); ok {
			if _, twice := entries[key]; !twice {
				entries[key] = value
			}
		}
	}
	return entries
}
