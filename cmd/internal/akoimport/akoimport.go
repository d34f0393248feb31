// Package akoimport turns the configuration of AKO, the Avi Kubernetes Operator, into values of the chart nplbridge, and says of every
// key what became of it. It is a pure function of its input, and takes no secret out of it.
package akoimport

import (
	"cmp"
	"slices"
)

// Options are what the input does not say.
type Options struct {
	// Namespace and Secret name where the chart is to find the account's password and the Controller's certificate authority.
	Namespace, Secret string
	// Username is the account that lbsync has on the Controller; empty takes the input's, or DefaultUsername where it names none.
	Username string
}

// DefaultUsername is the account that docs/how-to/avi.md makes.
const DefaultUsername = "lbsync"

// Verdict is what became of a key.
type Verdict string

// The verdicts, from what needs no attention to what does.
const (
	Mapped       Verdict = "mapped"        // it is in the values
	NotNeeded    Verdict = "not needed"    // it has no meaning here, or does what happens anyway
	NotSupported Verdict = "not supported" // what it asked for is not done; the note says what to do instead
	Unknown      Verdict = "unknown"       // no key of AKO; the note names the nearest one, if any is near
)

// Key is the verdict on one key of the input.
type Key struct {
	Key     string  `json:"key"`            // as the input has it, "spec.extraConfigs.cniPlugin"
	Value   string  `json:"value"`          // for people; secrets and the values of unknown keys are left out
	Verdict Verdict `json:"verdict"`        //
	To      string  `json:"to,omitempty"`   // the value of the chart that it became, "lbsync.config.avi.cloud"
	Note    string  `json:"note,omitempty"` // why, and what to do
}

// Report says what became of the input.
type Report struct {
	Source   string   `json:"source"`             // "AKODeploymentConfig npl-enabled"
	Keys     []Key    `json:"keys"`               // by verdict, then by key
	Commands []string `json:"commands,omitempty"` // what makes the Secret, and what installs
}

// Count returns how many keys have the verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, k := range r.Keys {
		if k.Verdict == v {
			n++
		}
	}
	return n
}

// Result is the outcome of an import.
type Result struct {
	Values map[string]any // of the chart
	Report Report
}

// Import reads an AKODeploymentConfig, the values.yaml of AKO's chart, or its ConfigMap avi-k8s-config, in YAML or JSON, alone or among other
// objects. An error says why the input holds none of them, or more than one.
func Import(input []byte, options Options) (Result, error) {
	found, others, err := find(input)
	if err != nil {
		return Result{}, err
	}
	im := &importer{options: options, source: found, values: map[string]any{}}
	im.take()
	im.keys = append(im.keys, others...)
	slices.SortStableFunc(im.keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(order[a.Verdict], order[b.Verdict]), cmp.Compare(a.Key, b.Key))
	})
	return Result{
		Values: im.values,
		Report: Report{Source: found.title(), Keys: im.keys, Commands: im.commands()},
	}, nil
}

var order = map[Verdict]int{Mapped: 0, NotNeeded: 1, NotSupported: 2, Unknown: 3}
