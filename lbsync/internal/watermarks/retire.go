package watermarks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent/watermark"
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

// Object is one published watermark.
type Object struct {
	Name     string // of the ConfigMap
	Identity string // of the process beside a local load balancer; else empty
	watermark.Watermark
}

// List returns the watermarks of one installation's lbsync, as far as they can be read. Identity, if not empty, is of one process.
func List(ctx context.Context, client kubernetes.Interface, namespace, lease, instance, identity string) ([]Object, error) {
	selector := labels.Set{watermark.Label: watermark.LabelValue}.String()
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the watermarks in Namespace %s: %w", namespace, err)
	}
	var out []Object
	for _, m := range list.Items {
		o := Object{Name: m.Name, Identity: m.Annotations[IdentityAnnotation]}
		var err error
		o.Watermark, err = watermark.Decode(m.Data[watermark.DataKey])
		ours := strings.HasPrefix(m.Name, lease+"-watermark-") && (o.Instance == instance || err != nil)
		if ours && (identity == "" || o.Identity == identity) {
			out = append(out, o)
		}
	}
	return out, nil
}

// Retire deletes watermarks: the load balancers that they speak of list nothing of ours any more, or are gone for good. It returns the names
// of those that it deleted.
func Retire(ctx context.Context, client kubernetes.Interface, namespace string, objects []Object) (deleted []string, err error) {
	var errs []error
	for _, o := range objects {
		err := client.CoreV1().ConfigMaps(namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
		switch {
		case err == nil:
			deleted = append(deleted, o.Name)
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("delete the watermark %s/%s: %w", namespace, o.Name, err))
		}
	}
	return deleted, errors.Join(errs...)
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
