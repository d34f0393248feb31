package settings

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes the settings in force as a settings file; a comment on each says where its value came from.
func (v *Values) Print(w io.Writer) error {
	var b strings.Builder
	section := ""
	for _, s := range v.table.Settings {
		indent, key := "", s.Key
		if head, tail, nested := strings.Cut(s.Key, "."); nested {
			if head != section {
				fmt.Fprintf(&b, "%s:\n", head)
			}
			indent, key, section = "  ", tail, head
		}
		value, err := v.yaml(s)
		if err != nil {
			return fmt.Errorf("print %s: %w", s.Key, err)
		}
		fmt.Fprintf(&b, "%s%s: %s # %s\n", indent, key, value, v.source[s.Key])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// yaml returns a value as it stands behind "key: " in the file: JSON, which is YAML with nothing left to guess.
func (v *Values) yaml(s Setting) (string, error) {
	value := v.values[s.Key]
	switch typed := value.(type) {
	case time.Duration:
		return durationText(typed), nil
	case []string:
		value = append([]string{}, typed...) // [] rather than null
	case map[string]string:
		value = labelRecords(typed)
	case []*Values:
		value = v.written(s)
	case string:
		value = v.text(s)
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// Reference writes the table as the Markdown section of docs/reference/settings.md.
func (t Table) Reference(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", t.Program)
	b.WriteString("| File | Flag | Environment | Default | Meaning | Example |\n|---|---|---|---|---|---|\n")
	for _, s := range t.Settings {
		doc := s.Doc
		if s.Live {
			doc += ". Takes effect when the file changes"
		}
		flag, env := code("--"+s.Flag()), code(t.Env(s))
		if s.FileOnly() {
			flag, env = "", ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s (%s) | %s |\n",
			s.Key, flag, env, code(s.DefaultText()), cell(doc), s.Kind, code(s.Example))
	}
	for _, s := range t.Settings {
		if s.Kind != Records {
			continue
		}
		fmt.Fprintf(&b, "\n### Each record of %s\n\n| Key | Default | Meaning | Example |\n|---|---|---|---|\n", code(s.Key))
		for _, f := range s.Fields {
			if !strings.Contains(f.Key, ".") { // else it is above, a setting of its own
				fmt.Fprintf(&b, "| `%s` | %s | %s (%s) | %s |\n", f.Key, code(f.DefaultText()), cell(f.Doc), f.Kind, code(f.Example))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// DefaultText returns the default as a flag would take it; empty where there is none.
func (s Setting) DefaultText() string {
	switch d := s.Default.(type) {
	case nil:
		return ""
	case time.Duration:
		return durationText(d)
	case []string:
		return strings.Join(d, ",")
	default:
		return fmt.Sprint(d)
	}
}

// durationText writes 5m and 1h where Duration.String writes 5m0s and 1h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}
