package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
)

// nonRootUser is what an image is taken to run as when its Pod demands a user other than root without naming one;
// it is the user of the usual minimal images.
const nonRootUser = 65532

// rights are what a container's security context comes to.
type rights struct {
	user         container.User
	privileged   bool
	readOnlyRoot bool
}

// rightsOf merges the security contexts of Pod and container; the container's wins.
func rightsOf(pod *corev1.Pod, c *corev1.Container) (rights, error) {
	outer, inner := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	r := rights{privileged: ptr.Deref(inner.Privileged, false), readOnlyRoot: ptr.Deref(inner.ReadOnlyRootFilesystem, false)}
	nonRoot := ptr.Deref(either(inner.RunAsNonRoot, outer.RunAsNonRoot), false)
	image := int64(0)
	if nonRoot {
		image = nonRootUser
	}
	r.user.UID = int(ptr.Deref(either(inner.RunAsUser, outer.RunAsUser), image))
	r.user.GID = int(ptr.Deref(either(inner.RunAsGroup, outer.RunAsGroup), image))
	if nonRoot && r.user.UID == 0 {
		return rights{}, fmt.Errorf("container has runAsNonRoot and runAsUser 0 (pod: %q, container: %q)", pod.Namespace+"/"+pod.Name, c.Name)
	}
	for _, g := range outer.SupplementalGroups {
		r.user.Groups = append(r.user.Groups, int(g))
	}
	if outer.FSGroup != nil {
		r.user.Groups = append(r.user.Groups, int(*outer.FSGroup))
	}
	r.user.NoNewPrivs = !ptr.Deref(inner.AllowPrivilegeEscalation, true)
	caps := ptr.Deref(inner.Capabilities, corev1.Capabilities{})
	var err error
	r.user.Capabilities, err = container.Capabilities(names(caps.Add), names(caps.Drop), r.privileged)
	return r, err
}

func either[T any](inner, outer *T) *T {
	if inner != nil {
		return inner
	}
	return outer
}

func names(caps []corev1.Capability) []string {
	out := make([]string, len(caps))
	for i, c := range caps {
		out[i] = string(c)
	}
	return out
}
