package akoimport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// form is which of the three ways to configure AKO an input is.
type form int

const (
	operator  form = iota // AKODeploymentConfig
	chart                 // values.yaml of AKO's chart
	configMap             // avi-k8s-config
)

// source is the configuration that was found.
type source struct {
	form            form
	name, namespace string         // of the object; empty for values.yaml
	apiVersion      string         // of the object
	at              string         // what stands before its keys: "spec.", "data.", ""
	tree            map[string]any // its keys
}

func (s source) title() string {
	switch s.form {
	case operator:
		return "AKODeploymentConfig " + s.name
	case configMap:
		return "ConfigMap " + s.namespace + "/" + s.name
	default:
		return "values.yaml of AKO's chart"
	}
}

const (
	kindOperator  = "AKODeploymentConfig"
	groupOperator = "networking.tkg.tanzu.vmware.com"
	groupOld      = "network.tanzu.vmware.com" // that of the operator's own sample
	configMapName = "avi-k8s-config"
	akoNamespace  = "avi-system" // where AKO's manual installs it
)

// sections are what the values of AKO's chart begin with.
var sections = []string{"AKOSettings", "ControllerSettings", "L4Settings", "L7Settings", "NetworkSettings", "avicredentials"}

// find returns the one configuration in the input, and a verdict on each object that stands beside it.
func find(input []byte) (source, []Key, error) {
	objects, err := decode(input)
	if err != nil {
		return source{}, nil, err
	}
	var found []source
	var others []Key
	for _, object := range objects {
		if s, ok, err := recognize(object); err != nil {
			return source{}, nil, err
		} else if ok {
			found = append(found, s)
		} else {
			others = append(others, other(object))
		}
	}
	const want = "give an AKODeploymentConfig, the values.yaml of AKO's chart, or its ConfigMap " + configMapName
	switch {
	case len(found) == 1:
		return found[0], others, nil
	case len(found) > 1:
		var titles []string
		for _, s := range found {
			titles = append(titles, s.title())
		}
		return source{}, nil, fmt.Errorf("it holds %d configurations of AKO, %s; give one of them", len(found), strings.Join(titles, ", "))
	case len(others) > 0:
		var names []string
		for _, k := range others {
			names = append(names, k.Key)
		}
		slices.Sort(names)
		return source{}, nil, fmt.Errorf("it holds no configuration of AKO, only %s; %s", strings.Join(slices.Compact(names), ", "), want)
	default:
		return source{}, nil, errors.New("it is empty; " + want)
	}
}

// decode returns the objects of the documents of a file, those of lists one by one.
func decode(input []byte) ([]map[string]any, error) {
	var objects []map[string]any
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(input)))
	for number := 1; ; number++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		var document any
		if err := yaml.UnmarshalStrict(text, &document); err != nil {
			return nil, fmt.Errorf("document %d is not YAML: %w", number, err)
		}
		switch document := document.(type) {
		case nil: // an empty document, or comments alone
		case map[string]any:
			objects = append(objects, flatten(document)...)
		default:
			return nil, fmt.Errorf("document %d holds no keys", number) // the text itself may be a secret
		}
	}
}

// flatten returns the objects of a list, or the object itself.
func flatten(object map[string]any) []map[string]any {
	items, ok := object["items"].([]any)
	if !ok || !strings.HasSuffix(textOf(object["kind"]), "List") {
		return []map[string]any{object}
	}
	var out []map[string]any
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}

// recognize reports whether an object is a configuration of AKO.
func recognize(object map[string]any) (source, bool, error) {
	metadata, _ := object["metadata"].(map[string]any)
	s := source{apiVersion: textOf(object["apiVersion"]), name: textOf(metadata["name"]), namespace: textOf(metadata["namespace"])}
	var section string
	switch kind := textOf(object["kind"]); {
	case kind == kindOperator:
		if group, _, _ := strings.Cut(s.apiVersion, "/"); group != groupOperator && group != groupOld {
			return s, false, fmt.Errorf("%s %s: apiVersion %q is not one of %s; correct it", kind, s.name, s.apiVersion, groupOperator)
		}
		s.form, section = operator, "spec"
	case kind == "ConfigMap" && s.name == configMapName:
		s.form, section = configMap, "data"
		if s.namespace == "" {
			s.namespace = akoNamespace
		}
	case object["kind"] == nil && slices.ContainsFunc(sections, func(name string) bool { return object[name] != nil }):
		s.form, s.tree = chart, object
		return s, true, nil
	default:
		return s, false, nil
	}
	tree, ok := object[section].(map[string]any)
	if !ok {
		return s, false, fmt.Errorf("%s has no keys below %s", s.title(), section)
	}
	s.at, s.tree = section+".", tree
	return s, true, nil
}

// other is the verdict on an object that is no configuration of AKO.
func other(object map[string]any) Key {
	metadata, _ := object["metadata"].(map[string]any)
	kind, name := textOf(object["kind"]), textOf(metadata["name"])
	if kind == "" {
		return Key{Key: "a document without kind", Verdict: Unknown, Note: "it has none of the sections of the values of AKO's chart, " + strings.Join(sections, ", ")}
	}
	k := Key{Key: strings.TrimSpace(kind + " " + name), Verdict: NotNeeded, Note: "no configuration of AKO"}
	if kind == "Secret" {
		k.Note = "Secrets are not read; see how to make the chart's own"
	}
	return k
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}
