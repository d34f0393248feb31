// Package statusview shows a status document to people. It knows no document in particular: the keys are the headings
// and their order is the document's.
package statusview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"sigs.k8s.io/yaml"
)

// Formats are the values of -o.
var Formats = []string{"table", "json", "yaml"}

// Write writes a JSON document in one of Formats.
func Write(w io.Writer, format string, document []byte) error {
	switch format {
	case "json":
		var out bytes.Buffer
		if err := json.Indent(&out, document, "", "  "); err != nil {
			return fmt.Errorf("status document: %w", err)
		}
		out.WriteByte('\n')
		_, err := out.WriteTo(w)
		return err
	case "yaml":
		out, err := yaml.JSONToYAML(document)
		if err != nil {
			return fmt.Errorf("status document: %w", err)
		}
		_, err = w.Write(out)
		return err
	default:
		fields, err := decodeObject(document)
		if err != nil {
			return fmt.Errorf("status document: %w", err)
		}
		_, err = io.WriteString(w, render(fields))
		return err
	}
}

// field is one key of an object, in the document's order.
type field struct {
	key   string
	value json.RawMessage
}

// render writes the plain fields as one block, then one block per object and the tables of each list of objects.
func render(fields []field) string {
	plain := newTable()
	var sections strings.Builder
	for _, f := range fields {
		if objects, ok := decodeRows(f.value); ok {
			rows := make([]row, 0, len(objects))
			for _, object := range objects {
				rows = append(rows, row{own: object})
			}
			sections.WriteString(renderTables(f.key, rows))
		} else if object, err := decodeObject(f.value); err == nil && len(object) > 0 {
			fmt.Fprintf(&sections, "\n%s\n%s", strings.ToUpper(heading(f.key)), render(object))
		} else {
			plain.AppendRow(table.Row{heading(f.key), text(f.value)})
		}
	}
	out := ""
	if plain.Length() > 0 {
		out = plain.Render() + "\n"
	}
	return out + sections.String()
}

const (
	cellWidth   = 72 // columns; longer texts go on below
	columnLimit = 64 // of a table; later ones are not wrapped
)

// Wrap breaks a text between words. A word that is longer than width stays whole: it is a name to be copied.
func Wrap(s string, width int) string {
	var lines []string
	for word := range strings.FieldsSeq(s) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}

// newTable has columns and no lines, like kubectl's.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "   "
	t.SetStyle(style)
	var columns []table.ColumnConfig
	for n := range columnLimit {
		columns = append(columns, table.ColumnConfig{Number: n + 1, WidthMax: cellWidth, WidthMaxEnforcer: Wrap})
	}
	t.SetColumnConfigs(columns)
	t.SuppressTrailingSpaces()
	return t
}

// decodeObject returns the fields of a JSON object in their order.
func decodeObject(raw json.RawMessage) ([]field, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil {
		return nil, err
	} else if token != json.Delim('{') {
		return nil, fmt.Errorf("want an object, got %.40s", raw)
	}
	var fields []field
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		fields = append(fields, field{fmt.Sprint(key), value})
	}
	return fields, nil
}

// decodeRows returns the rows of a list of objects; a list of anything else is no table.
func decodeRows(raw json.RawMessage) ([][]field, bool) {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, false
	}
	rows := make([][]field, 0, len(items))
	for _, item := range items {
		row, err := decodeObject(item)
		if err != nil {
			return nil, false
		}
		rows = append(rows, row)
	}
	return rows, true
}

// text returns a value for one cell: texts without quotes, lists joined by commas, objects as key=value.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil { // also null, which is empty
		return s
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) == nil {
		parts := make([]string, 0, len(items))
		for _, item := range items {
			parts = append(parts, text(item))
		}
		return strings.Join(parts, ", ")
	}
	if fields, err := decodeObject(raw); err == nil {
		parts := make([]string, 0, len(fields))
		for _, f := range fields {
			parts = append(parts, f.key+"="+text(f.value))
		}
		return strings.Join(parts, " ")
	}
	return string(raw)
}

// heading turns a key into words: "nodePort" is "node port", "podUID" is "pod UID".
func heading(key string) string {
	var b strings.Builder
	var previous rune
	for i, r := range key {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(previous) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		previous = r
	}
	words := strings.Fields(strings.ReplaceAll(b.String(), "_", " "))
	for i, w := range words {
		if w != strings.ToUpper(w) {
			words[i] = strings.ToLower(w)
		}
	}
	return strings.Join(words, " ")
}
