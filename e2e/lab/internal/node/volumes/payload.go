// Package volumes computes what a Pod's volumes hold and writes it to disk the way a kubelet does.
package volumes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/environ"
)

// Payload is what a volume holds: path inside the volume to file.
type Payload map[string]File

// File is one file of a payload.
type File struct {
	Data string
	Mode os.FileMode
}

// Inputs are what payloads are computed from.
type Inputs struct {
	Pod     *corev1.Pod
	Facts   environ.Facts
	Objects environ.Objects
	// Token returns the Pod's token for a projection, which was requested before.
	Token func(*corev1.ServiceAccountTokenProjection) (string, error)
}

// Of computes the payload of a volume; ok is false for kinds that hold no files of the API: emptyDir, hostPath.
func Of(v *corev1.Volume, in Inputs) (p Payload, ok bool, err error) {
	p = Payload{}
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		err = p.addConfigMap(in, s.Name, s.Items, s.Optional, mode(s.DefaultMode))
	case v.Secret != nil:
		s := v.Secret
		err = p.addSecret(in, s.SecretName, s.Items, s.Optional, mode(s.DefaultMode))
	case v.DownwardAPI != nil:
		err = p.addDownward(in, v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if err = p.addProjection(in, source, mode(v.Projected.DefaultMode)); err != nil {
				break
			}
		}
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, true, fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return p, true, nil
}

func (p Payload) addProjection(in Inputs, s corev1.VolumeProjection, mode os.FileMode) error {
	switch {
	case s.ConfigMap != nil:
		return p.addConfigMap(in, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
	case s.Secret != nil:
		return p.addSecret(in, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode)
	case s.DownwardAPI != nil:
		return p.addDownward(in, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		token, err := in.Token(s.ServiceAccountToken)
		if err != nil {
			return err
		}
		return p.add(s.ServiceAccountToken.Path, token, mode)
	}
	return fmt.Errorf("this kind of projection is not supported by the lab's Node; use configMap, secret, downwardAPI or serviceAccountToken")
}

func (p Payload) addConfigMap(in Inputs, name string, items []corev1.KeyToPath, optional *bool, mode os.FileMode) error {
	cm := in.Objects.ConfigMaps[name]
	if cm == nil {
		return missing("configmap", name, optional)
	}
	data := make(map[string]string, len(cm.Data)+len(cm.BinaryData))
	maps.Copy(data, cm.Data)
	for key, value := range cm.BinaryData {
		data[key] = string(value)
	}
	return p.addKeys("configmap "+name, data, items, optional, mode)
}

func (p Payload) addSecret(in Inputs, name string, items []corev1.KeyToPath, optional *bool, mode os.FileMode) error {
	s := in.Objects.Secrets[name]
	if s == nil {
		return missing("secret", name, optional)
	}
	data := make(map[string]string, len(s.Data))
	for key, value := range s.Data {
		data[key] = string(value)
	}
	return p.addKeys("secret "+name, data, items, optional, mode)
}

func missing(kind, name string, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q not found", kind, name)
}

// addKeys adds the chosen keys, or all of them when none is chosen.
func (p Payload) addKeys(object string, data map[string]string, items []corev1.KeyToPath, optional *bool, mode os.FileMode) error {
	if len(items) == 0 {
		for key, value := range data {
			if err := p.add(key, value, mode); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("references non-existent key %q of %s", item.Key, object)
		}
		if err := p.add(item.Path, value, orMode(item.Mode, mode)); err != nil {
			return err
		}
	}
	return nil
}

func (p Payload) addDownward(in Inputs, items []corev1.DownwardAPIVolumeFile, mode os.FileMode) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = environ.Field(in.Pod, in.Facts, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resourceOf(in, item.ResourceFieldRef)
		}
		if err == nil {
			err = p.add(item.Path, value, orMode(item.Mode, mode))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func resourceOf(in Inputs, ref *corev1.ResourceFieldSelector) (string, error) {
	for i := range in.Pod.Spec.Containers {
		if c := &in.Pod.Spec.Containers[i]; c.Name == ref.ContainerName {
			return environ.Resource(c, in.Facts, ref)
		}
	}
	return "", fmt.Errorf("resourceFieldRef: no container %q in the Pod", ref.ContainerName)
}

// add refuses paths that would leave the volume or touch the names that the writer keeps for itself.
func (p Payload) add(path, data string, mode os.FileMode) error {
	if !filepath.IsLocal(path) || strings.HasPrefix(path, "..") {
		return fmt.Errorf("path %q: must stay inside the volume and not begin with \"..\"", path)
	}
	p[filepath.Clean(path)] = File{data, mode}
	return nil
}

func mode(m *int32) os.FileMode { return orMode(m, 0o644) }

func orMode(m *int32, otherwise os.FileMode) os.FileMode {
	if m == nil {
		return otherwise
	}
	return os.FileMode(*m)
}
