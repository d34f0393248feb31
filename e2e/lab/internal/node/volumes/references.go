package volumes

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Reference names a ConfigMap or Secret of the Pod's namespace.
type Reference struct {
	Secret bool // else a ConfigMap
	Name   string
}

// References lists every ConfigMap and Secret that the Pod's volumes and environments refer to, sorted, each once.
func References(pod *corev1.Pod) []Reference {
	var refs []Reference
	configMap := func(name string) { refs = append(refs, Reference{Name: name}) }
	secret := func(name string) { refs = append(refs, Reference{Secret: true, Name: name}) }
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			configMap(v.ConfigMap.Name)
		case v.Secret != nil:
			secret(v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					configMap(s.ConfigMap.Name)
				}
				if s.Secret != nil {
					secret(s.Secret.Name)
				}
			}
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				configMap(from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				secret(from.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				configMap(e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				secret(e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	slices.SortFunc(refs, func(a, b Reference) int {
		if a.Secret != b.Secret {
			return cmp.Compare(kind(a), kind(b))
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return slices.Compact(refs)
}

func kind(r Reference) int {
	if r.Secret {
		return 1
	}
	return 0
}
