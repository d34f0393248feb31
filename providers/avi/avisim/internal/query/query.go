// Package query is the query string of a list: filters, order, pages, and what of each object is shown.
package query

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// MaxPageSize is the longest page.
const MaxPageSize = 200

// Query is a query string that was understood.
type Query struct {
	Page, PageSize, LimitBy int // LimitBy 0: no limit
	View                    View
	sort                    []string
	filters                 []filter
	labelKey, labelValue    string
}

// View is what of each object is shown.
type View struct {
	Fields, Exclude []string // nil: all, none
	SkipDefault     bool
	IncludeName     bool
	Runtime         bool // join_subresources=runtime
}

type filter struct {
	field, op string
	values    []string
	refField  bool
}

// Item is what a query is applied to.
type Item struct {
	UUID string
	Body map[string]any
	// References are what the object refers to, and Referrers what refers to it.
	References, Referrers []schema.Reference
}

// Parse reads values for a list of k. Parameters without a value are flags and no filters. The error says which parameter is wrong.
func Parse(k *schema.Kind, values url.Values, pageSize int) (Query, error) {
	q := Query{Page: 1, PageSize: pageSize, View: View{}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values.Get(name)
		var err error
		switch name {
		case "page":
			q.Page, err = whole(name, value, 1, 1<<31)
		case "page_size":
			q.PageSize, err = whole(name, value, 1, MaxPageSize)
		case "limit_by":
			q.LimitBy, err = whole(name, value, 1, 1<<31)
		case "sort":
			q.sort = list(value)
		case "label_key":
			q.labelKey = value
		case "label_value":
			q.labelValue = value
		case "search", "isearch":
			err = q.search(k, name, value)
		case "refers_to", "referred_by":
			kind, uuid, ok := strings.Cut(value, ":")
			if !ok || kind == "" || uuid == "" {
				err = fmt.Errorf("%s=%q: use <type>:<uuid>", name, value)
			}
			q.filters = append(q.filters, filter{op: name, values: []string{kind, uuid}})
		default:
			if !view(&q.View, name, value) && value != "" {
				err = q.filter(k, name, value)
			}
		}
		if err != nil {
			return q, err
		}
	}
	for _, by := range q.sort {
		if name := strings.TrimPrefix(by, "-"); k.Field(name) == nil {
			return q, fmt.Errorf("sort=%s: %s has no field %q", by, k.Type, name)
		}
	}
	return q, nil
}

// ParseView reads what a GET of one object may ask for, and ignores the rest.
func ParseView(values url.Values) View {
	var v View
	for name := range values {
		view(&v, name, values.Get(name))
	}
	return v
}

func view(v *View, name, value string) bool {
	switch name {
	case "fields":
		v.Fields = list(value)
	case "exclude":
		v.Exclude = list(value)
	case "skip_default":
		v.SkipDefault = value != "false"
	case "include_name":
		v.IncludeName = value != "false"
	case "join_subresources":
		v.Runtime = slices.Contains(list(value), "runtime")
	case "include_refs", "export_key", "detail", "_":
	default:
		return false
	}
	return true
}

// search understands "text" and "(field,text)".
func (q *Query) search(k *schema.Kind, op, value string) error {
	field := "name"
	if inner, ok := strings.CutPrefix(value, "("); ok {
		name, text, ok := strings.Cut(strings.TrimSuffix(inner, ")"), ",")
		if !ok || k.Field(name) == nil {
			return fmt.Errorf("%s=%q: use a text, or (field,text)", op, value)
		}
		field, value = name, text
	}
	q.filters = append(q.filters, filter{field: field, op: map[string]string{"search": "contains", "isearch": "icontains"}[op], values: []string{value}})
	return nil
}

func (q *Query) filter(k *schema.Kind, name, value string) error {
	base, op, _ := strings.Cut(name, ".")
	f := k.Field(base)
	if f == nil {
		return fmt.Errorf("%s: %s has no field %q to filter by", name, k.Type, base)
	}
	isRef := f.Type == schema.Ref
	switch {
	case isRef && (op == "" || op == "uuid" || op == "name"):
	case !isRef && (op == "" || op == "contains" || op == "icontains" || op == "in" || op == "startswith"):
	default:
		return fmt.Errorf("%s: no such filter", name)
	}
	values := []string{value}
	if op == "in" {
		values = list(value)
	}
	q.filters = append(q.filters, filter{base, op, values, isRef})
	return nil
}

// Select returns the items that pass, in order. name tells the name of what a reference leads to.
func (q Query) Select(items []Item, name func(schema.Reference) string) []Item {
	var out []Item
	for _, item := range items {
		if q.passes(item, name) {
			out = append(out, item)
		}
	}
	slices.SortStableFunc(out, func(a, b Item) int {
		for _, by := range q.sort {
			field, down := strings.CutPrefix(by, "-")
			order := strings.Compare(text(a.Body[field]), text(b.Body[field]))
			if x, ok := a.Body[field].(int64); ok {
				y, _ := b.Body[field].(int64)
				order = cmp.Compare(x, y)
			}
			if down {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return cmp.Or(strings.Compare(text(a.Body["name"]), text(b.Body["name"])), strings.Compare(a.UUID, b.UUID))
	})
	if q.LimitBy > 0 && len(out) > q.LimitBy {
		out = out[:q.LimitBy]
	}
	return out
}

// Cut returns the page of selected items, and whether another one follows.
func (q Query) Cut(items []Item) ([]Item, bool) {
	from := (q.Page - 1) * q.PageSize
	if from >= len(items) {
		return nil, false
	}
	to := min(from+q.PageSize, len(items))
	return items[from:to], to < len(items)
}

func (q Query) passes(item Item, name func(schema.Reference) string) bool {
	if q.labelKey != "" && !labelled(item.Body, q.labelKey, q.labelValue) {
		return false
	}
	for _, f := range q.filters {
		if !f.passes(item, name) {
			return false
		}
	}
	return true
}

func (f filter) passes(item Item, name func(schema.Reference) string) bool {
	switch f.op {
	case "refers_to":
		return slices.Contains(item.References, schema.Reference{Kind: f.values[0], UUID: f.values[1]})
	case "referred_by":
		return slices.Contains(item.Referrers, schema.Reference{Kind: f.values[0], UUID: f.values[1]})
	}
	if f.refField {
		to, ok := item.Body[f.field].(schema.Reference)
		if !ok {
			return false
		}
		if f.op == "name" {
			return name(to) == f.values[0]
		}
		wanted, _, _ := strings.Cut(f.values[0], "#")
		return wanted[strings.LastIndex(wanted, "/")+1:] == to.UUID
	}
	value := text(item.Body[f.field])
	if f.field == "uuid" {
		value = item.UUID
	}
	switch f.op {
	case "contains":
		return strings.Contains(value, f.values[0])
	case "icontains":
		return strings.Contains(strings.ToLower(value), strings.ToLower(f.values[0]))
	case "startswith":
		return strings.HasPrefix(value, f.values[0])
	}
	return slices.Contains(f.values, value)
}

func labelled(body map[string]any, key, value string) bool {
	markers, _ := body["markers"].([]any)
	return slices.ContainsFunc(markers, func(m any) bool {
		marker, _ := m.(map[string]any)
		values, _ := marker["values"].([]any)
		return marker["key"] == key && (value == "" || slices.Contains(values, any(value)))
	})
}

func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(value)
}

func list(value string) []string {
	var out []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func whole(name, value string, low, high int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s=%q: use a number from %d to %d", name, value, low, high)
	}
	return n, nil
}
