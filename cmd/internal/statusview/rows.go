package statusview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// row is one object of a list. When the list is inside another row, parent is what tells that one apart.
type row struct{ parent, own []field }

func (r row) all() []field { return slices.Concat(r.parent, r.own) }

// renderTables writes a list of objects as a table. Lists of objects inside its rows become tables of their own, one for
// each key, in which the rows of all parents follow each other; the parent's cell says how many there are.
func renderTables(key string, rows []row) string {
	out := fmt.Sprintf("\n%s (%d)\n", strings.ToUpper(heading(key)), len(rows))
	if len(rows) == 0 {
		return out
	}
	columns, inherited := columnsOf(rows), len(rows[0].parent)
	var header table.Row
	for _, f := range rows[0].parent {
		header = append(header, strings.ToUpper(heading(f.key)))
	}
	for _, column := range columns {
		header = append(header, strings.ToUpper(heading(column)))
	}
	cells := make([]table.Row, len(rows))
	for i, r := range rows {
		cells[i] = make(table.Row, len(header))
		for j := range cells[i] {
			cells[i][j] = ""
		}
		for j, f := range r.parent {
			cells[i][j] = text(f.value)
		}
		for _, f := range r.own {
			cells[i][inherited+slices.Index(columns, f.key)] = text(f.value)
		}
	}
	var nested strings.Builder
	keys := keyLength(rows)
	for j, column := range columns {
		lists, ok := listsIn(rows, column)
		if !ok {
			continue
		}
		var children []row
		for i, list := range lists {
			if list == nil {
				continue
			}
			cells[i][inherited+j] = count(list)
			for _, object := range list {
				all := rows[i].all()
				children = append(children, row{parent: all[:keys], own: object})
			}
		}
		if len(children) > 0 {
			nested.WriteString(renderTables(column, children))
		}
	}
	t := newTable()
	t.AppendHeader(header)
	t.AppendRows(cells)
	return out + t.Render() + "\n" + nested.String()
}

// columnsOf returns the keys of all rows in the order of their first appearance.
func columnsOf(rows []row) []string {
	var columns []string
	for _, r := range rows {
		for _, f := range r.own {
			if !slices.Contains(columns, f.key) {
				columns = append(columns, f.key)
			}
		}
	}
	return columns
}

// keyLength returns how many of the first fields tell the rows apart; all rows have them, they are plain values, and they
// are more than those of the parent, if the rows have as many.
func keyLength(rows []row) int {
	inherited := len(rows[0].parent)
	first := rows[0].all()
	least := inherited
	for n := inherited + 1; n <= len(first); n++ {
		seen := map[string]bool{}
		for _, r := range rows {
			all := r.all()
			if len(all) < n || all[n-1].key != first[n-1].key || strings.ContainsRune("[{", rune(all[n-1].value[0])) {
				return least
			}
			var id strings.Builder
			for _, f := range all[:n] {
				id.Write(f.value)
				id.WriteByte(0)
			}
			seen[id.String()] = true
		}
		if len(seen) == len(rows) {
			return n
		}
		if n == inherited+1 {
			least = n
		}
	}
	return least
}

// listsIn returns a column's lists of objects, nil for rows without the column; not ok if it has anything else.
func listsIn(rows []row, column string) (lists [][][]field, ok bool) {
	lists = make([][][]field, len(rows))
	for i, r := range rows {
		for _, f := range r.own {
			if f.key != column || string(f.value) == "null" {
				continue
			}
			if lists[i], ok = decodeRows(f.value); !ok {
				return nil, false
			}
		}
	}
	return lists, ok
}

// count says how many rows a list has, and how many in each state where each has one: "3: 1 draining, 2 enabled".
func count(list [][]field) string {
	states := map[string]int{}
	withState := 0
	for _, object := range list {
		for _, f := range object {
			var state string
			if f.key == "state" && json.Unmarshal(f.value, &state) == nil {
				states[state]++
				withState++
			}
		}
	}
	out := fmt.Sprint(len(list))
	if withState != len(list) || len(list) == 0 {
		return out
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	return out + ": " + strings.Join(parts, ", ")
}
