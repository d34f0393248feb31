package applied

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

// largest is the longest content that is read, in bytes before compression; a ConfigMap takes 1 MiB after it.
const largest = 64 << 20

// few is how many Services are looked up one by one. Where every Service fails with words of its own there are many such lists.
const few = 16

// Content is what a load balancer has of Services and addresses.
type Content struct {
	Instance string `json:"instance"` // these three as in Standing
	Identity string `json:"identity"`
	Provider string `json:"provider"`
	// Serves is sorted and has each Service once.
	Serves []Alike `json:"serves,omitempty"`
	// Holds are the addresses of Services that are on an interface of this host, where that is who announces them; sorted.
	Holds []netip.Addr `json:"holds,omitempty"`
	// Digest is that of all the rest.
	Digest string `json:"-"`

	many []Alike                  // those of Serves with more than a few Services
	few  map[string]onnode.Served // the others, by Service
}

// Alike are Services of which the load balancer has the same.
type Alike struct {
	onnode.Served
	Services []string `json:"services"` // "namespace/name", sorted
}

// NewContent returns the content that says, for each Service by "namespace/name", what the load balancer has of it.
func NewContent(instance, identity, provider string, serves map[string]onnode.Served, holds []netip.Addr) Content {
	c := Content{Instance: instance, Identity: identity, Provider: provider, Holds: holds}
	alike := map[string]*Alike{}
	for service, has := range serves {
		has = brief(has)
		form := string(marshal(has))
		if alike[form] == nil {
			alike[form] = &Alike{Served: has}
		}
		alike[form].Services = append(alike[form].Services, service)
	}
	for _, a := range alike {
		slices.Sort(a.Services)
		c.Serves = append(c.Serves, *a)
	}
	slices.SortFunc(c.Serves, func(a, b Alike) int { return cmp.Compare(a.Services[0], b.Services[0]) })
	return c
}

// Pack returns the one form of a content, and its Digest. The same content is the same bytes.
func (c Content) Pack() (packed []byte, digest string) {
	text := marshal(c)
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil { // a buffer takes everything
		panic("applied: " + err.Error())
	}
	return out.Bytes(), digestOf(text)
}

// Unpack reads what Pack returns, and unknown fields.
func Unpack(packed []byte) (Content, error) {
	const what = "what a load balancer has"
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Content{}, fmt.Errorf("%s: %w", what, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, largest+1))
	if err != nil {
		return Content{}, fmt.Errorf("%s: %w", what, err)
	}
	if len(text) > largest {
		return Content{}, fmt.Errorf("%s: it has more than %d bytes", what, largest)
	}
	var c Content
	if err := json.Unmarshal(text, &c); err != nil {
		return Content{}, fmt.Errorf("%s: %w", what, err)
	}
	c.Digest, c.few = digestOf(text), map[string]onnode.Served{}
	for _, a := range c.Serves {
		slices.Sort(a.Services)
		if len(a.Services) > few {
			c.many = append(c.many, a)
			continue
		}
		for _, service := range a.Services {
			c.few[service] = a.Served
		}
	}
	return c, named(what, c.Instance, c.Identity, c.Provider)
}

// digestOf is of the text and not of its compressed form, which another version of the compressor may choose otherwise.
func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// of returns what the load balancer has of a Service.
func (c *Content) of(service string) onnode.Served {
	for _, a := range c.many {
		if _, found := slices.BinarySearch(a.Services, service); found {
			return a.Served
		}
	}
	return c.few[service]
}

// share has c use the long lists of Services that another content has too, and reports whether it has them all: on most Nodes they are the
// same.
func (c *Content) share(other *Content) (all bool) {
	all = true
	for i, a := range c.many {
		at := slices.IndexFunc(other.many, func(b Alike) bool {
			return len(a.Services) == len(b.Services) && (&a.Services[0] == &b.Services[0] || slices.Equal(a.Services, b.Services))
		})
		if at < 0 {
			all = false
			continue
		}
		c.many[i].Services = other.many[at].Services
	}
	return all
}

// services returns every Service that it says something of.
func (c *Content) services(yield func(string) bool) {
	for _, a := range c.many {
		for _, service := range a.Services {
			if !yield(service) {
				return
			}
		}
	}
	for service := range c.few {
		if !yield(service) {
			return
		}
	}
}
