package providers

// Owner says whose objects on a load balancer are ours. A provider marks everything it creates with both fields and
// touches nothing that lacks them: a name alone proves nothing.
type Owner struct {
	ClusterUID string // UID of the Namespace kube-system: which cluster
	Instance   string // "namespace/name" of the installation: which lbsync in that cluster
}

// String returns "<cluster UID>/<instance>".
func (o Owner) String() string { return o.ClusterUID + "/" + o.Instance }
