package inventory

import (
	"fmt"
	"strconv"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
)

// decode reads the annotations with the parsers that there are.
func decode(values map[string]string, spec annotations.Spec, _ []string) (annotations.Wishes, []annotations.Problem) {
	var out annotations.Wishes
	algorithm, err := annotations.ParseAlgorithm(values[annotations.Algorithm])
	out.Pool.Algorithm, out.Kept.Pool = algorithm, err != nil
	out.Unservable = len(spec.SourceRanges) > 0
	return out, nil
}

// weight reads annotations.Weight.
func weight(value string) (uint8, *annotations.Problem) {
	n, err := strconv.ParseUint(value, 10, 8)
	if err != nil || n < 1 || n > 20 {
		return 0, &annotations.Problem{Key: annotations.Weight, Value: value, Message: fmt.Sprintf("%q is not a weight; write a number from 1 to 20", value)}
	}
	return uint8(n), nil
}

// drain reads annotations.Drain.
func drain(value string) (bool, *annotations.Problem) {
	switch value {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	}
	return false, &annotations.Problem{Key: annotations.Drain, Value: value, Message: fmt.Sprintf(`%q is not an answer; write "true" to drain the Node, or remove it`, value)}
}
