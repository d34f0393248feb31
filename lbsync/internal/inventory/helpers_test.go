package inventory

import (
	"time"

	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

func fixed(at time.Time) *clocktesting.FakePassiveClock { return clocktesting.NewFakePassiveClock(at) }

// nameOf returns the name of a Pod in shop, or of a Node.
func nameOf(name string) cache.ObjectName {
	if name[0] == 'n' {
		return cache.NewObjectName("", name)
	}
	return cache.NewObjectName("shop", name)
}

// named returns Pods as a list of them comes.
func named(pods map[string]*model.Pod) map[cache.ObjectName]*model.Pod {
	out := map[cache.ObjectName]*model.Pod{}
	for _, p := range pods {
		out[cache.NewObjectName(p.Namespace, p.Name)] = p
	}
	return out
}
