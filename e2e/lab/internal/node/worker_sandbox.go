package node

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
)

// attachRetry is how long to wait after a Pod's network could not be made.
const attachRetry = time.Second

// attach gives the Pod its network and, where its containers share one, a PID namespace.
func (w *worker) attach() bool {
	if w.sandbox == nil {
		if w.pod.Spec.HostNetwork {
			w.sandbox = &PodSandbox{NetNSPath: w.node.cfg.NetNSPath, IPs: w.node.cfg.hostIPs()}
		} else {
			sandbox, err := w.node.cfg.Network.Attach(string(w.pod.UID))
			if err != nil {
				w.complain("FailedCreatePodSandBox", fmt.Errorf("attach to the Pod network: %w", err))
				w.wakeBy(time.Now().Add(attachRetry))
				return false
			}
			w.sandbox = &sandbox
		}
	}
	if w.pause != nil {
		select {
		case <-w.pause.Done(): // a container ended it; like any other sandbox it is made anew
			w.pause = nil
		default:
		}
	}
	if share := w.pod.Spec.ShareProcessNamespace; share != nil && *share && w.pause == nil {
		pause, err := container.StartPause()
		if err != nil {
			w.complain("FailedCreatePodSandBox", fmt.Errorf("start the shared PID namespace: %w", err))
			w.wakeBy(time.Now().Add(attachRetry))
			return false
		}
		w.pause = pause
	}
	return true
}

// detach gives up the network once nothing of the Pod runs.
func (w *worker) detach() {
	if w.pause != nil {
		w.pause.Kill()
		<-w.pause.Done()
		w.pause = nil
	}
	if w.sandbox == nil {
		return
	}
	if !w.pod.Spec.HostNetwork {
		if err := w.node.cfg.Network.Detach(string(w.pod.UID)); err != nil {
			w.log.Error("detach from the Pod network", zap.Error(err))
		}
	}
	w.sandbox = nil
}
