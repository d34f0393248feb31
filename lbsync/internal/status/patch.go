package status

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// FieldManager names lbsync in managedFields.
const FieldManager = "nplbridge"

// patch writes the difference between two versions of a Service, if there is one, on condition that the API server still
// has the first, and on condition that the Fence is open. It returns the Service as it is then.
func (c *Controller) patch(ctx context.Context, from, to *corev1.Service, subresources ...string) (*corev1.Service, error) {
	base := from.DeepCopy()
	old, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encode Service %s: %w", keyOf(from), err)
	}
	same, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("encode Service %s: %w", keyOf(from), err)
	}
	if string(old) == string(same) {
		return from, nil
	}
	base.ResourceVersion, base.UID = "", "" // so that the patch holds both, and fails on another version or object
	if old, err = json.Marshal(base); err != nil {
		return nil, fmt.Errorf("encode Service %s: %w", keyOf(from), err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, same, corev1.Service{})
	if err != nil {
		return nil, fmt.Errorf("compute the patch of Service %s: %w", keyOf(from), err)
	}
	ctx, cancel, err := c.Fence.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("patch Service %s: %w", keyOf(from), err)
	}
	defer cancel()
	out, err := c.Client.CoreV1().Services(from.Namespace).Patch(ctx, from.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	if apierrors.IsNotFound(err) {
		return to, nil // gone meanwhile, and so is whatever we had to say
	}
	if err != nil {
		return nil, fmt.Errorf("patch Service %s: %w", keyOf(from), err)
	}
	return out, nil
}

func keyOf(s *corev1.Service) model.ServiceKey {
	return model.ServiceKey{Namespace: s.Namespace, Name: s.Name}
}
