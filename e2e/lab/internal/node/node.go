package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/objects"
)

// Node runs the Pods of one Node.
type Node struct {
	cfg     Config
	log     *zap.Logger
	client  kubernetes.Interface
	objects *objects.Store
	events  record.EventRecorder
	boot    string // as if the machine had booted when this Node was made

	paused     atomic.Bool   // no heartbeats, and no word of Pods
	resumed    chan struct{} // heartbeats were switched on again
	sayOneUser sync.Once

	mu      sync.Mutex
	workers map[types.UID]*worker
}

// New prepares a Node; a setting that cannot work is an error that names it.
func New(cfg Config) (*Node, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	rc := rest.CopyConfig(cfg.RESTConfig)
	if rc.QPS == 0 {
		rc.QPS, rc.Burst = 200, 400
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("node %s: API client: %w", cfg.Name, err)
	}
	return newNode(cfg, client), nil
}

func newNode(cfg Config, client kubernetes.Interface) *Node {
	log := cfg.Log.With(zap.String("node", cfg.Name))
	return &Node{
		cfg: cfg, log: log, client: client, objects: objects.NewStore(client, log), boot: string(uuid.NewUUID()),
		resumed: make(chan struct{}, 1), workers: map[types.UID]*worker{},
	}
}

// Run registers the Node and runs its Pods until ctx ends; then it kills what it has started and returns nil. It
// returns an error when it cannot begin.
func Run(ctx context.Context, cfg Config) error {
	n, err := New(cfg)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// Run is like the function Run. Call it once.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := os.MkdirAll(n.cfg.StateDir, 0o755); err != nil {
		return fmt.Errorf("node %s: %w", n.cfg.Name, err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")})
	n.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: n.cfg.Name})

	server, err := n.serveLogs(ctx)
	if err != nil {
		return err
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() { <-ctx.Done(); server.Close() }) //nolint:errcheck // the Node ends
	if err := n.register(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(n.cfg.Heartbeat)
	defer ticker.Stop()
	tasks.Go(func() { n.heartbeat(ctx, ticker.C) })
	return n.watchPods(ctx)
}

// watchPods hands every version of every Pod of this Node to the Pod's worker, until ctx ends and all workers have.
func (n *Node) watchPods(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.cfg.Name).String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	var workers sync.WaitGroup
	see := func(object any) { n.see(ctx, &workers, object.(*corev1.Pod)) }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, object any) { see(object) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if w := n.worker(object.(*corev1.Pod).UID); w != nil {
				w.vanish()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("node %s: watch Pods: %w", n.cfg.Name, err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown() // no handler runs after this, so no worker is added behind Wait's back
	workers.Wait()
	return nil
}

func (n *Node) see(ctx context.Context, workers *sync.WaitGroup, pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.workers[pod.UID]; w != nil {
		w.observe(pod)
		return
	}
	w := newWorker(n, pod)
	n.workers[pod.UID] = w
	workers.Go(func() {
		w.run(ctx)
		n.mu.Lock()
		delete(n.workers, pod.UID)
		n.mu.Unlock()
	})
}

func (n *Node) worker(uid types.UID) *worker {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.workers[uid]
}

// views returns what may be seen of every Pod.
func (n *Node) views() []view {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]view, 0, len(n.workers))
	for _, w := range n.workers {
		all = append(all, w.look())
	}
	return all
}

func (n *Node) podDir(pod *corev1.Pod) podDir {
	return podDir(filepath.Join(n.cfg.StateDir, "pods", string(pod.UID)))
}

// imageID reports an image by the program it stands for.
func (n *Node) imageID(image string) string {
	path, err := program(n.cfg.Programs, image)
	if err != nil {
		return ""
	}
	return "file://" + path
}

// PauseHeartbeats stops the Node from renewing its Lease and reporting its status and that of its Pods, or lets it go on, at once. Its Pods
// are not touched: to everyone else the Node looks lost.
func (n *Node) PauseHeartbeats(paused bool) {
	if n.paused.Swap(paused) && !paused {
		select {
		case n.resumed <- struct{}{}:
		default:
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range n.workers {
			w.post(func() {}) // a step, and with it a report
		}
	}
}

// PID is the process id of a running container, as this process sees it.
func (n *Node) PID(podUID, containerName string) (pid int, ok bool) {
	p := n.process(podUID, containerName)
	if p == nil {
		return 0, false
	}
	return p.PID(), true
}

// SignalContainer sends a signal to a running container; with SIGKILL it is as if it had crashed.
func (n *Node) SignalContainer(podUID, containerName string, signal syscall.Signal) error {
	p := n.process(podUID, containerName)
	if p == nil {
		return fmt.Errorf("signal container %q of Pod %s on %s: it is not running", containerName, podUID, n.cfg.Name)
	}
	p.Signal(signal)
	return nil
}

func (n *Node) process(podUID, containerName string) *container.Process {
	if w := n.worker(types.UID(podUID)); w != nil {
		return w.look().running[containerName].process
	}
	return nil
}

// PodNetNS is the path of a Pod's network namespace; ok is false for a Pod that is not here or has no network yet.
func (n *Node) PodNetNS(namespace, name string) (path string, ok bool) {
	for _, v := range n.views() {
		if v.pod.Namespace == namespace && v.pod.Name == name && v.netNS != "" {
			return v.netNS, true
		}
	}
	return "", false
}
