package program

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/serve"
)

// maxNote is what the API server takes of an Event's note, in bytes.
const maxNote = 1024

// PodEvent is an Event about the Pod that this process runs in.
type PodEvent struct {
	Program              string // "npl-agent"
	Type, Reason, Action string
	Note                 string
}

// Write writes it, if the environment says which Pod this is: POD_NAME, POD_NAMESPACE and POD_UID. Elsewhere nobody waits for one.
func (e PodEvent) Write(ctx context.Context, client kubernetes.Interface) error {
	name, namespace, uid := os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE"), os.Getenv("POD_UID")
	if name == "" || namespace == "" || uid == "" {
		return nil
	}
	now := metav1.NowMicro()
	_, err := client.EventsV1().Events(namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", name, now.UnixNano())},
		EventTime:  now, ReportingController: "nplbridge.io/" + e.Program, ReportingInstance: name,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(uid)},
		Type:      e.Type, Reason: e.Reason, Action: e.Action, Note: strings.ToValidUTF8(e.Note[:min(len(e.Note), maxNote)], ""),
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("write the Event %s about Pod %s/%s: %w", e.Reason, namespace, name, err)
	}
	return nil
}

const (
	complainLook  = 5 * time.Second
	complainAgain = 10 * time.Minute
)

// complain says by an Event why the Pod is not ready, when the same check has failed for some time: of a probe that fails, the kubelet tells no
// reason. It returns when ctx ends.
func complain(ctx context.Context, program string, client kubernetes.Interface, checks []serve.Check, log *zap.Logger) {
	tick := time.NewTicker(complainLook)
	defer tick.Stop()
	before, told, at := "", "", time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			problem := ""
			for _, c := range checks {
				if err := c.Check(); err != nil {
					problem = cmp.Or(problem, c.Name+": "+err.Error())
				}
			}
			if problem != "" && problem == before && (problem != told || now.Sub(at) >= complainAgain) {
				told, at = problem, now
				event := PodEvent{Program: program, Type: corev1.EventTypeWarning, Reason: "NotReady", Action: "Checking", Note: problem}
				if err := event.Write(ctx, client); err != nil && ctx.Err() == nil {
					log.Warn("not ready, and no Event says why", zap.String("problem", problem), zap.Error(err))
				}
			}
			before = problem
		}
	}
}
