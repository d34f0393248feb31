package node

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// unsupported says what of the Pod this Node cannot do; running it without would be a lie. Nil when it can do all.
func unsupported(pod *corev1.Pod) error {
	if pod.Spec.HostPID {
		return fmt.Errorf("hostPID is not supported by the lab's Node; use shareProcessNamespace, or leave it out")
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for kind, p := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} {
			if p != nil && p.GRPC != nil {
				return fmt.Errorf("container %q: %s: grpc is not supported by the lab's Node; use httpGet, tcpSocket or exec", c.Name, kind)
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		known := v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.HostPath != nil
		if !known {
			return fmt.Errorf("volume %q: this kind is not supported by the lab's Node; use configMap, secret, projected, downwardAPI, emptyDir or hostPath", v.Name)
		}
	}
	return nil
}
