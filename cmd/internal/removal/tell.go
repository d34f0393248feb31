package removal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
)

// settingsKey is the file in the ConfigMaps of the chart.
const settingsKey = "settings.yaml"

// tell sets the state in a ConfigMap, and returns since when it is set, by the API server's clock. It is no error that there is none.
func (h *Hook) tell(ctx context.Context, name string) (since time.Time, exists bool, err error) {
	maps := h.Client.CoreV1().ConfigMaps(h.Config.LeaseNamespace)
	found, err := maps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		h.say("%s: there is no such ConfigMap, so nobody reads it", name)
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read ConfigMap %s/%s: %w", h.Config.LeaseNamespace, name, err)
	}
	content, changed, err := withState(found.Data[settingsKey])
	if err != nil {
		return time.Time{}, false, fmt.Errorf("ConfigMap %s/%s, %s: %w", h.Config.LeaseNamespace, name, settingsKey, err)
	}
	if changed {
		if found, err = h.write(ctx, found, content); err != nil {
			return time.Time{}, false, fmt.Errorf("set the state in ConfigMap %s/%s: %w", h.Config.LeaseNamespace, name, err)
		}
		h.say("%s: state is %s now", name, program.Removing)
	}
	return written(found), true, nil
}

// withState returns settings with the state removing, and whether that is a change.
func withState(settings string) (string, bool, error) {
	decoded := map[string]any{}
	if err := yaml.Unmarshal([]byte(settings), &decoded); err != nil {
		return "", false, err
	}
	if decoded[program.StateKey] == program.Removing {
		return settings, false, nil
	}
	decoded[program.StateKey] = program.Removing
	out, err := yaml.Marshal(decoded)
	return string(out), true, err
}

// write changes the settings under the name that has applied them, so that a later `helm upgrade` or `helm rollback` finds nobody else's changes.
func (h *Hook) write(ctx context.Context, found *corev1.ConfigMap, content string) (*corev1.ConfigMap, error) {
	data := map[string]any{settingsKey: content}
	options := metav1.PatchOptions{}
	kind, object := types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": found.UID}, "data": data}
	for _, m := range found.ManagedFields {
		if m.Operation == metav1.ManagedFieldsOperationApply && owns(m, settingsKey) {
			for key, value := range found.Data {
				if key != settingsKey {
					data[key] = value
				}
			}
			kind, options = types.ApplyPatchType, metav1.PatchOptions{FieldManager: m.Manager, Force: new(true)}
			object["apiVersion"], object["kind"] = "v1", "ConfigMap"
			object["metadata"] = map[string]any{"name": found.Name, "uid": found.UID, "labels": found.Labels, "annotations": found.Annotations}
		}
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return h.Client.CoreV1().ConfigMaps(found.Namespace).Patch(ctx, found.Name, kind, body, options)
}

// owns says whether an entry of managedFields is about a key of the data.
func owns(m metav1.ManagedFieldsEntry, key string) bool {
	return m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), `"f:`+key+`"`)
}

// written returns when the settings were written last.
func written(m *corev1.ConfigMap) time.Time {
	var last time.Time
	for _, e := range m.ManagedFields {
		if owns(e, settingsKey) && e.Time != nil && e.Time.After(last) {
			last = e.Time.Time
		}
	}
	if last.IsZero() { // nobody keeps account
		return m.CreationTimestamp.Time
	}
	return last
}
