package main

import (
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/providers"
)

// builder makes a provider for an owner. It has no side effects before it is called.
type builder func(providers.Owner, *zap.Logger, observer) (providers.Provider, error)

// kinds are the load balancers lbsync can drive, each with what turns settings into its builder.
var kinds = map[string]func(*settings.Values) (builder, error){
	"avi":       newAvi,
	"bigip":     newBigIP,
	kindHAProxy: newHAProxy,
}

const kindHAProxy = "haproxy"

// balancer is one load balancer as the settings describe it.
type balancer struct {
	name, kind string
	settings   *settings.Values
	build      builder
}

// balancers returns the load balancers that the settings name, in their order, at least one.
func balancers(v *settings.Values) ([]balancer, error) {
	records := v.Records("providers")
	if len(records) == 0 {
		b, err := newBalancer(v, "providerName", "provider")
		return []balancer{b}, err
	}
	for _, key := range []string{"provider", "providerName"} {
		if !v.Defaulted(key) {
			return nil, v.Reject(key, "providers is set as well; name each load balancer once, in providers")
		}
	}
	var out []balancer
	places := map[string]string{} // of the files of each HAProxy, by directory
	for _, record := range records {
		for _, key := range []string{"name", "kind"} {
			if record.String(key) == "" {
				return nil, record.Reject(key, "missing")
			}
		}
		b, err := newBalancer(record, "name", "kind")
		if err != nil {
			return nil, err
		}
		if b.kind == kindHAProxy {
			dir := haproxyPlace(record)
			if other, taken := places[dir]; taken {
				return nil, record.Reject("haproxy.dir", "is that of "+other+" too; give each HAProxy a directory and sockets of its own")
			}
			places[dir] = b.name
		}
		out = append(out, b)
	}
	return out, nil
}

func newBalancer(v *settings.Values, nameKey, kindKey string) (balancer, error) {
	b := balancer{name: v.String(nameKey), kind: v.String(kindKey), settings: v}
	kind, ok := kinds[b.kind]
	if !ok {
		return b, v.Reject(kindKey, "unknown provider; known: "+known())
	}
	var err error
	b.build, err = kind(v)
	return b, err
}

// known lists the load balancers, for people.
func known() string { return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") }
