package rest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		`{"password":"geheim","user":"a"}`:                `{"password":"***","user":"a"}`,
		`{"Auth_Token" : "ge\"heim", "csrftoken":"x"}`:    `{"Auth_Token" : "***", "csrftoken":"***"}`,
		`{"loginProviderName":"tmos","sessionid":"geheim`: `{"loginProviderName":"tmos","sessionid":"***"`,
		"plain geheim text\n\twith lines":                 "plain *** text with lines",
		`{"error":"Pool object not found!"}`:              `{"error":"Pool object not found!"}`,
		`{"error":"the quoted q\"uote is also a secret"}`: `{"error":"the quoted *** is also a secret"}`,
		strings.Repeat("é", 400):                          strings.Repeat("é", 254) + "...",
	} {
		if got := Redact([]byte(in), "geheim", `q"uote`, ""); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"token":"geheim"}`))
	f.Add([]byte("\xff\xfegeheim"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Redact(body, "geheim")
		if len(got) > maxShown || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r") || strings.Contains(got, "geheim") {
			t.Errorf("%q", got)
		}
	})
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	f := NewFile(path)
	write := func(text string) {
		t.Helper()
		// As a mounted Secret: another file takes the name.
		if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, text := range []string{"one", "two"} {
		write(text + "\n")
		for range 2 {
			if got, err := f.Read(); got != text || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, text)
			}
		}
	}
	write("\n")
	if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
	write(strings.Repeat("x", maxFile+1))
	if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("a long file: %v", err)
	}
}
