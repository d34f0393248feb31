package environ

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Objects holds the ConfigMaps and Secrets of the Pod's namespace by name; one that does not exist is absent.
type Objects struct {
	ConfigMaps map[string]*corev1.ConfigMap
	Secrets    map[string]*corev1.Secret
}

// path is where container runtimes look for programs when an image says nothing else.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Variables computes a container's environment as sorted "NAME=value". Later sources win over earlier ones: the
// defaults, the API server's address, envFrom, env. A reference to something that does not exist is an error unless it
// is optional.
func Variables(pod *corev1.Pod, c *corev1.Container, facts Facts, objects Objects) ([]string, error) {
	port := strconv.Itoa(facts.ServicePort)
	vars := map[string]string{
		"PATH": path, "HOME": "/root", "HOSTNAME": pod.Name,
		"KUBERNETES_SERVICE_HOST": facts.ServiceHost, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port,
	}
	for _, from := range c.EnvFrom {
		values, err := whole(from, objects)
		if err != nil {
			return nil, err
		}
		for name, value := range values {
			vars[from.Prefix+name] = value
		}
	}
	for _, e := range c.Env {
		value, set, err := one(pod, c, e, facts, objects, vars)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
		}
		if set {
			vars[e.Name] = value
		}
	}
	out := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, name+"="+vars[name])
	}
	return out, nil
}

// whole reads all the keys of a ConfigMap or Secret.
func whole(from corev1.EnvFromSource, objects Objects) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := configMap(objects, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if cm == nil {
			return nil, err
		}
		return cm.Data, nil
	case from.SecretRef != nil:
		s, err := secret(objects, from.SecretRef.Name, from.SecretRef.Optional)
		if s == nil {
			return nil, err
		}
		return text(s.Data), nil
	}
	return nil, nil
}

// one computes the value of one entry of env; set is false for an optional one that does not exist.
func one(pod *corev1.Pod, c *corev1.Container, e corev1.EnvVar, facts Facts, objects Objects, vars map[string]string) (value string, set bool, err error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return Expand(e.Value, func(name string) (string, bool) { v, ok := vars[name]; return v, ok }), true, nil
	case from.FieldRef != nil:
		value, err = Field(pod, facts, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = Resource(c, facts, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := configMap(objects, ref.Name, ref.Optional)
		if cm == nil {
			return "", false, err
		}
		return key(cm.Data, ref.Key, "ConfigMap", ref.Name, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := secret(objects, ref.Name, ref.Optional)
		if s == nil {
			return "", false, err
		}
		return key(text(s.Data), ref.Key, "Secret", ref.Name, ref.Optional)
	}
	return "", false, fmt.Errorf("this kind of valueFrom is not supported by the lab's Node; use fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef")
}

func configMap(objects Objects, name string, optional *bool) (*corev1.ConfigMap, error) {
	cm := objects.ConfigMaps[name]
	if cm == nil && !isTrue(optional) {
		return nil, fmt.Errorf("configmap %q not found", name)
	}
	return cm, nil
}

func secret(objects Objects, name string, optional *bool) (*corev1.Secret, error) {
	s := objects.Secrets[name]
	if s == nil && !isTrue(optional) {
		return nil, fmt.Errorf("secret %q not found", name)
	}
	return s, nil
}

func key(data map[string]string, key, kind, name string, optional *bool) (string, bool, error) {
	value, ok := data[key]
	if !ok && !isTrue(optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s", key, kind, name)
	}
	return value, ok, nil
}

func text(data map[string][]byte) map[string]string {
	out := make(map[string]string, len(data))
	for k, v := range data {
		out[k] = string(v)
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }

// Lookup finds the value of a variable among "NAME=value".
func Lookup(variables []string) func(name string) (string, bool) {
	values := make(map[string]string, len(variables))
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

// CommandLine is what the container runs: command, or the image's own program in its place, and args, with references
// to the container's variables expanded.
func CommandLine(c *corev1.Container, program string, lookup func(name string) (string, bool)) []string {
	command := c.Command
	if len(command) == 0 {
		command = []string{program}
	}
	line := make([]string, 0, len(command)+len(c.Args))
	for _, arg := range slices.Concat(command, c.Args) {
		line = append(line, Expand(arg, lookup))
	}
	return line
}
