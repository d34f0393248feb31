package akoimport

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/lbsync/nearest"
)

// importer turns one configuration into values, key by key.
type importer struct {
	options Options
	source  source
	kind    string // the effective type of Services
	values  map[string]any
	keys    []Key

	halves             map[string]string // of labels whose key and value stand apart, by key of the input
	password, ca       reference         // the Secrets that hold them
	token, accountSeen bool              // whether the account has a token, and a name
}

// name is a node of the tree of known keys.
type name struct {
	entry *entry
	below map[string]*name
}

func (f form) names() *name {
	root := &name{below: map[string]*name{}}
	for _, e := range entries() {
		path := map[form]string{operator: e.operator, chart: e.chart, configMap: e.configMap}[f]
		if path == "" {
			continue
		}
		at := root
		for segment := range strings.SplitSeq(path, ".") {
			next := at.below[segment]
			if next == nil {
				next = &name{below: map[string]*name{}}
				at.below[segment] = next
			}
			at = next
		}
		at.entry = &e
	}
	return root
}

// take judges every key, then what is missing and means something by that.
func (im *importer) take() {
	im.halves = map[string]string{}
	im.kind = im.effectiveServiceType()
	im.set("lbsync.config.provider", "avi")
	im.set("lbsync.config.providerName", "avi")
	im.set("lbsync.existingSecret", im.options.Secret)
	im.walk(im.source.form.names(), im.source.at, im.source.tree)
	im.labels()
	im.absent()
}

func (im *importer) walk(known *name, at string, tree map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		here, value := at+key, tree[key]
		next := known.below[key]
		switch below, isTree := value.(map[string]any); {
		case next == nil:
			im.unknown(here, key, slices.Sorted(maps.Keys(known.below)), value)
		case next.entry != nil:
			next.entry.judge(im, here, value)
		case isTree && len(below) > 0:
			im.walk(next, here+".", below)
		case isTree || value == nil:
			im.add(Key{Key: here, Verdict: NotNeeded, Note: "empty"})
		default:
			im.add(Key{Key: here, Value: "(" + shape(value) + ")", Verdict: NotSupported,
				Note: "it should hold keys, such as " + slices.Sorted(maps.Keys(next.below))[0]})
		}
	}
}

// unknown reports a key that AKO does not have, and every key below it. The values stay out: who mistyped "password" has a secret there.
func (im *importer) unknown(here, key string, known []string, value any) {
	if below, ok := value.(map[string]any); ok && len(below) > 0 {
		for _, next := range slices.Sorted(maps.Keys(below)) {
			im.unknown(here+"."+next, next, nil, below[next])
		}
		return
	}
	k := Key{Key: here, Value: "(" + shape(value) + ")", Verdict: Unknown, Note: "AKO has no such key, nothing was made of it"}
	if near := nearest.To(key, known); near != "" {
		k.Note += "; did you mean " + near + "?"
	}
	im.add(k)
}

func (im *importer) add(k Key) { im.keys = append(im.keys, k) }

// mapped sets a value of the chart and reports the key that it comes from.
func (im *importer) mapped(key string, value any, to string, set any, note string) {
	im.set(to, set)
	im.add(Key{Key: key, Value: show(value), Verdict: Mapped, To: to, Note: note})
}

// refused reports a key whose value cannot be used.
func (im *importer) refused(key string, value any, note string) {
	im.add(Key{Key: key, Value: show(value), Verdict: NotSupported, Note: note})
}

// set puts a value of the chart at a path with dots.
func (im *importer) set(path string, value any) {
	at := im.values
	segments := strings.Split(path, ".")
	last := len(segments) - 1
	for _, segment := range segments[:last] {
		next, ok := at[segment].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[segment] = next
		}
		at = next
	}
	at[segments[last]] = value
}

// key returns the name that the input would have for a setting of AKO's chart, for what it leaves out.
func (im *importer) key(chartName string) string {
	for _, e := range entries() {
		if e.chart == chartName {
			return im.source.at + map[form]string{operator: e.operator, chart: e.chart, configMap: e.configMap}[im.source.form]
		}
	}
	return chartName
}

// lookup returns the value of a setting of AKO's chart, by the name that the input has for it.
func (im *importer) lookup(chartName string) any {
	path := strings.TrimPrefix(im.key(chartName), im.source.at)
	var value any = im.source.tree
	for segment := range strings.SplitSeq(path, ".") {
		tree, _ := value.(map[string]any)
		value = tree[segment]
	}
	return value
}

// show returns a value for people: a text as it is, structures as JSON.
func show(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case bool:
		return strconv.FormatBool(value)
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprint(value)
		}
		return string(text)
	}
}

// shape says what kind of value it is, and nothing of the value itself.
func shape(value any) string {
	switch value := value.(type) {
	case nil:
		return "empty"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case float64:
		return "a number"
	case []any:
		return fmt.Sprintf("a list of %d", len(value))
	default:
		return "keys"
	}
}

// empty reports whether a value is as good as none.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(value) == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	default:
		return false
	}
}
