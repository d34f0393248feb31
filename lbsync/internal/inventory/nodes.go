package inventory

import "github.com/nplbridge/nplbridge/lbsync/internal/model"

// Nodes returns every Node, sorted by name: the same slice until one changes. It must not be changed.
func (x *Index) Nodes() []*model.Node {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.allNodes()
}
