package runtime

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestReplies: answers of any size, however they arrive.
func TestReplies(t *testing.T) {
	var want []string
	var all strings.Builder
	for _, size := range []int{0, 1, 70_000, 3, 300_000, 0, 20_000, 20_000, 5} {
		text := strings.Repeat("a > b\n", size/6) + strings.Repeat("x", size%6)
		want = append(want, strings.Trim(text, "\n"))
		all.WriteString(text + "\n> ")
	}
	for name, from := range map[string]io.Reader{
		"at once":      strings.NewReader(all.String()),
		"byte by byte": iotest.OneByteReader(strings.NewReader(all.String())),
		"halves":       iotest.HalfReader(strings.NewReader(all.String())),
	} {
		r := replies{from: from}
		for i := range want {
			if got, err := r.next(); err != nil || got != want[i] {
				t.Fatalf("%s: answer %d has %d bytes, want %d, %v", name, i, len(got), len(want[i]), err)
			}
		}
		if _, err := r.next(); err == nil {
			t.Errorf("%s: an answer after the last", name)
		}
	}
}
