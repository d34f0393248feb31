package akoimport

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// fromText decodes what the ConfigMap has as JSON in a text. Other texts stay as they are.
func fromText(value any) (decoded any, note string) {
	text := strings.TrimSpace(textOf(value))
	if !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "{") {
		return value, ""
	}
	if json.Unmarshal([]byte(text), &decoded) != nil {
		return value, "it looks like JSON and is none"
	}
	return decoded, ""
}

// list reads a list, also one in JSON, or a single object where a list of one belongs, as the operator's own sample has it.
func list(value any) (items []any, note string, err error) {
	value, note = fromText(value)
	switch value := value.(type) {
	case nil:
		return nil, note, nil
	case []any:
		return value, note, nil
	case map[string]any:
		return []any{value}, join("it should be a list, it was taken as a list of one", note), nil
	default:
		return nil, note, errNotAList
	}
}

// networks reads a list of networks and reports fields that a network does not have.
func (im *importer) networks(at string, value any, fields ...string) (out []map[string]any, note string, err error) {
	items, note, err := list(value)
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, note, fmt.Errorf("entry %d is %s; want {%s: ...}", i, shape(item), strings.Join(fields, ", "))
		}
		for _, field := range slices.Sorted(maps.Keys(object)) {
			if !slices.Contains(fields, field) {
				im.unknown(fmt.Sprintf("%s[%d].%s", at, i, field), field, fields, object[field])
			}
		}
		out = append(out, object)
	}
	return out, note, err
}

const (
	toNetwork = "lbsync.config.avi.network"
	toSubnets = "lbsync.config.avi.subnets"
)

// vipNetworks takes the first network: a virtual service of ours has one.
func vipNetworks(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		networks, note, err := im.networks(at, value, "networkName", "networkUUID", "cidr", "v6cidr")
		if err != nil {
			im.refused(at, value, join(err.Error(), note))
			return
		}
		if len(networks) == 0 {
			im.add(Key{Key: at, Value: show(value), Verdict: NotNeeded, Note: join("empty: the cloud's IPAM profile has the choice", note)})
			return
		}
		for i, network := range networks {
			here := fmt.Sprintf("%s[%d]", at, i)
			switch {
			case i > 0:
				im.refused(here, network, "a virtual service has one network; run a second release of the chart for this one, or use its addresses in addressPools")
			case !empty(network["networkName"]):
				im.mapped(here+".networkName", network["networkName"], toNetwork, show(network["networkName"]), note)
				im.subnets(here+".cidr", network["cidr"])
				im.subnets(here+".v6cidr", network["v6cidr"])
				if !empty(network["networkUUID"]) {
					im.add(Key{Key: here + ".networkUUID", Value: show(network["networkUUID"]), Verdict: NotNeeded, Note: "the network's name is enough"})
				}
			default:
				im.refused(here, network, "set "+toNetwork+" to the name of the network, and "+toSubnets+" to its subnets: lbsync knows networks by name")
			}
		}
	})(im, at, value)
}

func subnet(im *importer, at string, value any) {
	if textOf(im.lookupRaw("dataNetwork", "name")) == "" {
		given(func(im *importer, at string, value any) {
			im.refused(at, value, "subnets need a network; set "+toNetwork+" and "+toSubnets)
		})(im, at, value)
		return
	}
	im.subnets(at, value)
}

// subnets adds a subnet that VIPs are taken from.
func (im *importer) subnets(at string, value any) {
	if empty(value) {
		return
	}
	prefix, err := netip.ParsePrefix(show(value))
	if err != nil {
		im.refused(at, value, "no subnet such as 192.0.2.0/24")
		return
	}
	note := ""
	if prefix != prefix.Masked() {
		prefix, note = prefix.Masked(), "without the bits behind its mask"
	}
	have := im.lookupValue(toSubnets)
	for _, other := range have {
		if netip.MustParsePrefix(other.(string)).Addr().Is4() == prefix.Addr().Is4() {
			im.refused(at, value, "there is one of its family already")
			return
		}
	}
	im.mapped(at, value, toSubnets, append(have, prefix.String()), note)
}

// nodeNetworks are not needed; their form is looked at nevertheless.
func nodeNetworks(im *importer, at string, value any) {
	_, note, err := im.networks(at, value, "networkName", "networkUUID", "cidrs")
	if err != nil {
		im.refused(at, value, join(err.Error(), note))
		return
	}
	why := "AKO needs them in vCenter clouds when it routes to Pods; with node ports the service engines reach the Nodes as they reach any server"
	if im.kind == "ClusterIP" {
		im.refused(at, value, join("pools are not placed in networks; the service engines must have routes to the Pods", note))
		return
	}
	im.add(Key{Key: at, Value: show(value), Verdict: NotNeeded, Note: join(why, note)})
}

func blockedNamespaces(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		items, note, err := list(value)
		if err != nil {
			im.refused(at, value, "want a list of names of Namespaces")
			return
		}
		var names []any
		for _, item := range items {
			if name := textOf(item); len(validation.IsDNS1123Label(name)) > 0 || slices.Contains(names, any(name)) {
				im.refused(at, item, "no name of a Namespace, or named twice")
			} else {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			im.add(Key{Key: at, Value: show(value), Verdict: NotNeeded, Note: join("empty", note)})
			return
		}
		im.mapped(at, value, "lbsync.config.blockedNamespaces", names, note)
	})(im, at, value)
}

// half remembers the key or the value of a label; labels puts them together.
func half(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) { im.halves[at] = show(value) })(im, at, value)
}

// labels puts together what was given in halves.
func (im *importer) labels() {
	for _, l := range []struct{ key, value, to string }{
		{"nodePortSelector.key", "nodePortSelector.value", "lbsync.config.nodePortSelector"},
		{"AKOSettings.namespaceSelector.labelKey", "AKOSettings.namespaceSelector.labelValue", "lbsync.config.namespaceSelector"},
	} {
		keyAt, valueAt := im.key(l.key), im.key(l.value)
		key, hasKey := im.halves[keyAt]
		value, hasValue := im.halves[valueAt]
		problem := ""
		switch {
		case !hasKey && !hasValue:
			continue
		case !hasKey:
			problem = "a label's value without its key; set " + l.to
		case len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0:
			problem = "no label; set " + l.to
		}
		for _, h := range []struct {
			at, value string
			given     bool
		}{{keyAt, key, hasKey}, {valueAt, value, hasValue}} {
			switch {
			case !h.given:
			case problem != "":
				im.refused(h.at, h.value, problem)
			default:
				im.mapped(h.at, h.value, l.to, []any{map[string]any{"key": key, "value": value}}, "")
			}
		}
	}
}

// lookupRaw returns a value of the input.
func (im *importer) lookupRaw(path ...string) any {
	var value any = im.source.tree
	for _, segment := range path {
		tree, _ := value.(map[string]any)
		value = tree[segment]
	}
	return value
}

// lookupValue returns a list that was set already.
func (im *importer) lookupValue(path string) []any {
	var value any = im.values
	for segment := range strings.SplitSeq(path, ".") {
		tree, _ := value.(map[string]any)
		value = tree[segment]
	}
	list, _ := value.([]any)
	return list
}
