package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// inParallel calls f with 0 to n-1, eight at a time.
func inParallel(n int, f func(int) error) error { return parallel(8, n, f) }

func parallel(workers, n int, f func(int) error) error {
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

// smallPod is a Pod of the site's Node with one container.
func smallPod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeName:    nodeName,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "app", Image: "registry.example/app:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}},
		},
	}
}

// realisticPod is about as large as the Pods of a service mesh are: an init container and two containers with
// environment, probes, resources and volumes. Its managed fields are the API server's.
func realisticPod(namespace, name, app string) *corev1.Pod {
	p := smallPod(namespace, name, app)
	for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart", "pod-template-hash"} {
		p.Labels[key] = app
	}
	p.Annotations = map[string]string{
		"checksum/config":      strings.Repeat("0123456789abcdef", 4),
		"prometheus.io/scrape": "true",
		"prometheus.io/port":   "9090",
		"sidecar.example/spec": strings.Repeat(`{"name":"value"},`, 20),
	}
	p.Spec.InitContainers = []corev1.Container{realisticContainer("prepare", 0)}
	p.Spec.Containers = []corev1.Container{realisticContainer("app", 8080), realisticContainer("proxy", 15001)}
	for i := range 4 {
		volume := fmt.Sprintf("volume-%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app + "-" + volume}}}})
	}
	return p
}

func realisticContainer(name string, port int32) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example/team/" + name + "@sha256:" + strings.Repeat("0123456789abcdef", 4),
		Args: []string{"--config=/etc/" + name + "/config.yaml", "--log-level=info", "--listen=:8080"},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
	}
	for i := range 5 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%s_%d", strings.ToUpper(name[:3]), i), Value: "http://backend.namespace.svc:8080/path"})
	}
	for i := range 4 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", i), MountPath: fmt.Sprintf("/etc/%s/%d", name, i), ReadOnly: true})
	}
	if port != 0 {
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: port}, {Name: "metrics", ContainerPort: port + 1}}
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}}
		c.ReadinessProbe, c.LivenessProbe = probe, probe
	}
	return c
}

// running is the status of a Pod as a kubelet reports it, with the addresses that belong to i, 0 to 65,000.
func running(p *corev1.Pod, i int) *corev1.PodStatus {
	now := metav1.Now()
	status := &corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: lab.NodeAddress(host).String(), StartTime: &now,
		HostIPs: []corev1.HostIP{{IP: lab.NodeAddress(host).String()}, {IP: lab.NodeAddress6(host).String()}},
		PodIPs:  []corev1.PodIP{{IP: fmt.Sprintf("10.250.%d.%d", i/250, i%250+1)}, {IP: fmt.Sprintf("fd00:250::%x", i+1)}},
	}
	status.PodIP = status.PodIPs[0].IP
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + strings.Repeat("0123456789abcdef", 4),
			Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

// createPod makes a Pod, with a status unless it is nil.
func (s *site) createPod(ctx context.Context, p *corev1.Pod, status *corev1.PodStatus) error {
	_, err := s.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil || status == nil {
		return err
	}
	return s.patchStatus(ctx, p, status)
}

// patchStatus writes the status of a Pod as a kubelet does.
func (s *site) patchStatus(ctx context.Context, p *corev1.Pod, status *corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	return err
}

// annotate sets the annotation of a Pod as npl-agent does, or removes it.
func (s *site) annotate(ctx context.Context, namespace, name string, set bool) error {
	patch := []byte(`{"metadata":{"annotations":{"` + npl.Annotation + `":null}}}`)
	if set {
		mapping := npl.Mapping{PodPort: 8080, NodeIP: lab.NodeAddress(host), NodePort: 61000, Protocol: npl.TCP, Family: npl.IPv4}
		var err error
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{npl.Annotation: npl.Encode([]npl.Mapping{mapping})}}})
		if err != nil {
			return err
		}
	}
	_, err := s.agentClient.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "npl-agent"}, "status")
	return err
}

// service is a Service that selects the Pods with the label app and is not enabled.
func service(namespace, app string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: app,
			Labels: map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": app + "-1.2.3"},
			Annotations: map[string]string{
				"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": namespace,
				"example.com/description": strings.Repeat("what this Service is for and who runs it. ", 10),
			},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)},
			},
		},
	}
}

func enabledService(namespace, app string) *corev1.Service {
	svc := service(namespace, app)
	svc.Annotations[npl.EnabledAnnotation] = "true"
	return svc
}

func (s *site) createService(ctx context.Context, svc *corev1.Service) error {
	_, err := s.client.CoreV1().Services(svc.Namespace).Create(ctx, svc, metav1.CreateOptions{FieldManager: "helm"})
	return err
}

// foreignService is a Service that is not enabled. It has no selector, so that the control plane makes no EndpointSlices for the many of
// them: that would take most of a measurement's time, and the agent reads none.
func foreignService(namespace, app string) *corev1.Service {
	svc := service(namespace, app)
	svc.Spec.Selector = nil
	return svc
}
