package bigipsim

import (
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// view shows objects as a request asks for them. The Sim's lock is held while it is used.
type view struct {
	s     *Sim
	query url.Values
	only  string // the one partition that the user may see beside Common; empty is all
}

func (s *Sim) view(r *request) view {
	if r == nil {
		return view{s: s}
	}
	return view{s, r.query, r.user.Partition}
}

// option returns a query option, whose name may come with its dollar sign escaped.
func (v view) option(name string) string { return v.query.Get("$" + name) }

func (v view) number(name string) (int, bool) {
	n, err := strconv.Atoi(v.option(name))
	return n, err == nil && n >= 0
}

func (v view) expanded() bool { return v.query.Get("expandSubcollections") == "true" }

// url is where something below /mgmt/tm is, as every device says: on localhost.
func (v view) url(path string) string {
	return "https://localhost/mgmt/tm/" + path + "?ver=" + v.s.cfg.Version
}

// self is url with the request's own query.
func (v view) self(path string) string {
	var out strings.Builder
	out.WriteString("https://localhost/mgmt/tm/" + path + "?")
	for _, name := range []string{"$filter", "$select", "$top", "$skip", "expandSubcollections"} {
		if value := v.query.Get(name); value != "" {
			out.WriteString(name + "=" + url.QueryEscape(value) + "&")
		}
	}
	return out.String() + "ver=" + v.s.cfg.Version
}

func place(o *mcp.Object) string { return o.Kind.Path + "/" + naming.Escape(o.FullPath()) }

// head is what every object begins with.
func head(o *mcp.Object, self string) map[string]any {
	out := map[string]any{"kind": o.Kind.Type() + "state", "name": o.Name, "fullPath": o.FullPath(), "generation": o.Generation, "selfLink": self}
	if !o.Kind.Unfoldered {
		out["partition"] = o.Partition
	}
	if o.Folder != "" {
		out["subPath"] = o.Folder
	}
	return out
}

// object shows an object of a collection.
func (v view) object(o *mcp.Object) map[string]any {
	out := head(o, v.self(place(o)))
	v.properties(o, out)
	switch o.Kind.Path {
	case "ltm/pool":
		if monitor := o.Text("monitor"); monitor != "" && v.s.cfg.Rules.TrailingBlank {
			out["monitor"] = monitor + " "
		}
	case "ltm/node":
		v.s.showNode(o, out)
	}
	if child := o.Kind.Child; child != nil {
		reference := map[string]any{"link": v.url(place(o) + "/" + child.Element()), "isSubcollection": true}
		if items := v.childItems(o); v.expanded() && len(items) > 0 {
			reference["items"] = items
		}
		out[child.Element()+"Reference"] = reference
	}
	return out
}

// properties adds those that are set, and the links of those that lead somewhere.
func (v view) properties(o *mcp.Object, out map[string]any) {
	for name, value := range o.Properties {
		if strings.HasPrefix(name, "_") || mcp.Secret(o.Kind, name) {
			continue
		}
		out[name] = value
		switch targets := v.s.config.Targets(o, name); {
		case len(targets) == 0:
		case name == "rules" || name == "vlans":
			links := []any{}
			for _, t := range targets {
				links = append(links, map[string]any{"link": v.url(place(t))})
			}
			out[name+"Reference"] = links
		default:
			out[name+"Reference"] = map[string]any{"link": v.url(place(targets[0]))}
		}
	}
	if persist, ok := o.Properties["persist"].([]any); ok {
		out["persist"] = v.persist(persist)
	}
	if translation, ok := o.Properties["sourceAddressTranslation"].(map[string]any); ok && translation["pool"] != nil {
		out["sourceAddressTranslation"] = map[string]any{
			"type": translation["type"], "pool": translation["pool"],
			"poolReference": map[string]any{"link": v.url("ltm/snatpool/" + naming.Escape(translation["pool"].(string)))},
		}
	}
}

func (v view) persist(stored []any) []any {
	out := []any{}
	for _, item := range stored {
		entry := item.(map[string]any)
		out = append(out, map[string]any{
			"name": entry["name"], "partition": entry["partition"], "tmDefault": entry["tmDefault"],
			"nameReference": map[string]any{"link": v.url(entry["_kind"].(string) + "/" + naming.Escape(entry["_path"].(string)))},
		})
	}
	return out
}

// child shows an object of a sub-collection.
func (v view) child(owner, o *mcp.Object) map[string]any {
	out := head(o, v.url(place(owner)+"/"+o.Kind.Element()+"/"+naming.Escape(o.FullPath())))
	v.properties(o, out)
	if owner.Kind.Path == "ltm/pool" {
		v.s.showMember(owner, o, out)
		out["nameReference"] = map[string]any{"link": v.url("ltm/node/" + naming.Escape(mcp.NodeOf(o)))}
		return out
	}
	out["nameReference"] = map[string]any{"link": v.url(o.Text("_kind") + "/" + naming.Escape(o.FullPath()))}
	return out
}

func (v view) childItems(o *mcp.Object) []any {
	var items []any
	for _, c := range o.Children {
		items = append(items, v.selected(v.child(o, c)))
	}
	v.shuffle(items)
	return items
}

func (v view) shuffle(items []any) {
	if v.s.cfg.Rules.Shuffle {
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] }) //nolint:gosec // an order, no secret
	}
}

// selected leaves what $select names.
func (v view) selected(o map[string]any) map[string]any {
	names := v.option("select")
	if names == "" {
		return o
	}
	out := map[string]any{}
	for name := range strings.SplitSeq(names, ",") {
		if value, ok := o[strings.TrimSpace(name)]; ok {
			out[strings.TrimSpace(name)] = value
		}
	}
	return out
}

// collection shows a collection. Only a filter by partition filters.
func (v view) collection(k *mcp.Kind) *reply {
	partition, filtered := strings.CutPrefix(v.option("filter"), "partition eq ")
	partition = strings.Trim(partition, "' ")
	var items []any
	for _, o := range v.s.config.List(k.Path) {
		if (filtered && o.Partition != partition) || !v.visible(o) {
			continue
		}
		items = append(items, o)
	}
	items, paging := v.page(items, k.Path)
	for i, o := range items {
		items[i] = v.selected(v.object(o.(*mcp.Object)))
	}
	v.shuffle(items)
	return v.listed(k.Type(), v.self(k.Path), items, paging)
}

// visible reports whether a user of one partition sees an object.
func (v view) visible(o *mcp.Object) bool {
	partition := o.Partition
	if o.Kind.Unfoldered || partition == "/" {
		partition = o.Name
	}
	return v.only == "" || partition == v.only || partition == "Common"
}

func (v view) children(o *mcp.Object) *reply {
	path := place(o) + "/" + o.Kind.Child.Element()
	items, paging := v.page(v.childItems(o), path)
	return v.listed(o.Kind.Child.Type(), v.self(path), items, paging)
}

func (v view) listed(kind, self string, items []any, paging map[string]any) *reply {
	out := map[string]any{"kind": kind + "collectionstate", "selfLink": self}
	maps.Copy(out, paging)
	if len(items) > 0 || v.s.cfg.Rules.EmptyItems {
		out["items"] = append([]any{}, items...)
	}
	return ok(out)
}

// page is what $top and $skip leave, with what an answer says about it. Without them nothing is cut.
func (v view) page(items []any, path string) ([]any, map[string]any) {
	top, limited := v.number("top")
	skip, skipped := v.number("skip")
	if !limited && !skipped {
		return items, nil
	}
	total := len(items)
	items = items[min(skip, total):]
	if !limited {
		top = len(items)
	}
	rest := len(items) > top
	items = items[:min(top, len(items))]
	paging := map[string]any{"currentItemCount": len(items), "itemsPerPage": top, "startIndex": skip + 1, "totalItems": total}
	if top > 0 {
		paging["pageIndex"], paging["totalPages"] = skip/top+1, (total+top-1)/top
	}
	if rest {
		next := maps.Clone(v.query)
		next.Set("$skip", strconv.Itoa(skip+top))
		paging["nextLink"] = "https://localhost/mgmt/tm/" + path + "?" + next.Encode() + "&ver=" + v.s.cfg.Version
	}
	return items, paging
}
