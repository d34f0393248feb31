package watermarks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// IdentityAnnotation names, on the ConfigMap of a local load balancer, the process beside it.
	IdentityAnnotation = "nplbridge.io/identity"

	managedBy = "app.kubernetes.io/managed-by"
	manager   = "lbsync"
)

// Name returns the name of the ConfigMap: of the lbsync whose Lease is named so, for a provider instance and, beside a local load balancer,
// the process.
func Name(lease, provider, identity string) string {
	return ObjectName(lease, "watermark", provider, identity)
}

// ObjectName returns a name for an object of one kind that belongs to a provider instance and, unless it is empty, to one process. It is
// valid whatever the words are, and different words make different names.
func ObjectName(lease, kind, provider, identity string) string {
	name := lease + "-" + kind + "-" + provider
	if identity == "" && name == strings.ToLower(name) && !strings.Contains(name, "_") {
		return name
	}
	sum := sha256.Sum256([]byte(provider + "\x00" + identity))
	clean := strings.Trim(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "-.")
	return fmt.Sprintf("%.200s-%s", clean, hex.EncodeToString(sum[:5]))
}

// LoadBalancer returns what tells one load balancer from the others of an installation, see watermark.Watermark.
func LoadBalancer(provider, identity string) string {
	if identity == "" {
		return provider
	}
	return provider + "/" + identity
}

// OwnPod returns a reference to the Pod that this process runs in, as the environment variables POD_NAMESPACE, POD_NAME and POD_UID say,
// for objects in namespace; nil outside of a Pod, or where its Namespace is another one.
func OwnPod(namespace string, getenv func(string) string) *metav1.OwnerReference {
	name, uid := getenv("POD_NAME"), getenv("POD_UID")
	if name == "" || uid == "" || getenv("POD_NAMESPACE") != namespace {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: name, UID: types.UID(uid)}
}
