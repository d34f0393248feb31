// Package node runs Pods on a Linux network namespace: a small kubelet for the lab. It registers its Node, renews its
// Lease, watches the Pods bound to it and runs each container as processes in namespaces of their own, with the user,
// capabilities, mounts, environment, probes, hooks, restarts and grace that the Pod asks for.
//
// What is different from a kubelet with a container engine:
//
//   - An image is a local program: Config.Programs says which. The program is also found as /<its name> in the
//     container. Everything else that a container sees is the machine's own /usr, read-only, and an empty root. An image
//     runs as user 0, or as 65532 where the Pod demands runAsNonRoot without naming a user.
//   - hostPath "/x" means Config.StateDir/host/x, so that two Nodes of one machine do not share /run or /var/lib. Only
//     the machine's read-only parts are the real ones: /lib/modules, /usr, /proc, /sys, /dev and their like.
//   - Without root there is one user: a container that wants another runs as user 0 without any capability.
//   - No resource limits, seccomp, AppArmor or SELinux (accepted, not applied), no cluster DNS, no hostPort, no
//     Service environment variables except KUBERNETES_SERVICE_*.
//   - No exec, attach or port-forward; logs only.
//   - Refused, with the reason as the container's waiting message: gRPC probes, hostPID, and volumes other than
//     configMap, secret, projected, downwardAPI, emptyDir and hostPath.
//
// A program that uses this package must call [MaybeRunContainer] first thing in main.
package node

import "github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"

// MaybeRunContainer becomes a container when this process was started as one, and then never returns.
func MaybeRunContainer() { container.MaybeRun() }
