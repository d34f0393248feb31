package rest

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxShown is how much of an answer stands in an error.
const maxShown = 512

const mask = "***"

// secretField matches a JSON member whose name says that it is a secret, also one that is cut off in the middle.
var secretField = regexp.MustCompile(`(?i)("[^"]*(?:passw|token|csrf|secret|cookie|session|credential|authorization)[^"]*"\s*:\s*)"(?:\\.|[^"\\])*("|\\?$)`)

// Redact makes an answer fit for an error: one line, at most 512 bytes of UTF-8, without the given secrets and without the values of
// JSON members that are named like one.
func Redact(body []byte, secrets ...string) string {
	text := secretField.ReplaceAllString(string(body), `${1}"`+mask+`"`)
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		text = strings.ReplaceAll(text, secret, mask)
		if escaped, err := json.Marshal(secret); err == nil {
			text = strings.ReplaceAll(text, string(escaped[1:len(escaped)-1]), mask)
		}
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= maxShown {
		return text
	}
	end := maxShown - len("...")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
