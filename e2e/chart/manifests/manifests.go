// Package manifests renders charts/nplbridge with the pinned helm and reads the outcome as Kubernetes objects. Its tests judge what is
// rendered; they need no lab.
package manifests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// Release and Namespace are those that Template renders for.
const (
	Release   = "nplbridge"
	Namespace = "nplbridge-system"
)

// Root returns the repository's directory: that of the module that the working directory is in.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository by go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Tool builds a program of a module below .ci/tools, unless it is built already, and returns its path. The flags are those of the lab,
// which so finds the packages compiled.
func Tool(ctx context.Context, root, module, name string) (string, error) {
	command := exec.CommandContext(ctx, "go", "tool", "-modfile="+filepath.Join(root, ".ci/tools", module, "go.mod"), "-n", name)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	out, err := run(command)
	if err != nil {
		return "", fmt.Errorf("build %s of .ci/tools/%s: %w", name, module, err)
	}
	return strings.TrimSpace(out), nil
}

// run returns what a program printed, or an error with what it complained about.
func run(command *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%w\n%s", err, &errs)
	}
	return out.String(), nil
}

// Arguments are those of `helm template` for the chart in a directory; set has values as for --set, and whole flags, which begin with --.
func Arguments(chart string, set ...string) []string {
	args := []string{"template", Release, chart, "--namespace", Namespace, "--kube-version", "v1.36.3"}
	for _, s := range set {
		if strings.HasPrefix(s, "--") {
			args = append(args, s)
		} else {
			args = append(args, "--set", s)
		}
	}
	return args
}

// Decode returns the rendered manifests as objects. A field that their types do not have is an error; kinds that are not Kubernetes' own
// come back unstructured.
func Decode(rendered string) ([]runtime.Object, error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for document := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if runtime.IsNotRegisteredError(err) {
			foreign := &unstructured.Unstructured{}
			object, err = foreign, yaml.UnmarshalStrict([]byte(document), &foreign.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
