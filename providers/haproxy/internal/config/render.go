package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// layout is the version of what this package writes; Parse reads only this one.
const layout = 1

const (
	headMark    = "# nplbridge "
	serviceMark = "# service "
	serverMark  = "    server "
)

// headLine and serviceLine are the JSON behind the marks; Parse reads them back.
type headLine struct {
	Layout     int    `json:"layout"`
	ClusterUID string `json:"clusterUID"`
	Instance   string `json:"instance"`
	Generation string `json:"generation"`
}

type serviceLine struct {
	Namespace string                 `json:"namespace"`
	Service   string                 `json:"service"`
	Port      uint16                 `json:"port"`
	Protocol  providers.Protocol     `json:"protocol"`
	Pool      providers.PoolSettings `json:"pool,omitzero"`
	VIPs      []netip.Addr           `json:"vips,omitempty"`
	Listen    uint16                 `json:"listen,omitempty"`
	Shared    string                 `json:"shared,omitempty"`
	// Algorithm is where files of before Pool have it.
	Algorithm providers.Algorithm             `json:"algorithm,omitempty"`
	Virtual   providers.VirtualServerSettings `json:"virtual,omitzero"`
	Spare     string                          `json:"spare,omitempty"`
}

// Hash returns the hash of the file's structure under these settings: of everything but its generation and what changes without a reload.
func Hash(f File, s Settings) string {
	f = f.structure()
	f.Generation = Generation{}
	sum := sha256.Sum256(Render(f, s))
	return hex.EncodeToString(sum[:6])
}

// structure returns the file without its servers, and without spare backends and the Services that have them.
func (f File) structure() File {
	f = f.withoutServers()
	f.Map, f.Spares = "", nil
	f.Services = slices.DeleteFunc(f.Services, func(s Service) bool { return s.Spare != "" })
	return f
}

func (f File) withoutServers() File {
	f = f.Clone()
	for i := range f.Services {
		f.Services[i].Servers = nil
	}
	return f
}

// Render returns the text of the file.
func Render(f File, s Settings) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	mark := func(mark string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // strings, numbers and addresses always marshal
		}
		line("%s%s", mark, text)
	}
	line("# Written by nplbridge's lbsync, which overwrites changes. Put your own configuration into another file.")
	mark(headMark, headLine{layout, f.Owner.ClusterUID, f.Owner.Instance, f.Generation.String()})
	line("global")
	line("    setenv %s %s", GenerationVariable, f.Generation)
	line("    server-state-file %s", s.StateFile)
	line("")
	line("defaults %s", DefaultsName)
	line("    mode tcp")
	line("    log global")
	line("    option tcplog")
	line("    option dontlognull")
	line("    option redispatch 1")
	line("    retries 3")
	line("    timeout connect %s", duration(s.ConnectTimeout))
	line("    timeout check %s", duration(s.ConnectTimeout))
	line("    timeout queue %s", duration(s.ConnectTimeout))
	line("    timeout client %s", duration(s.IdleTimeout))
	line("    timeout server %s", duration(s.IdleTimeout))
	line("    timeout client-fin 30s")
	line("    timeout server-fin 30s")
	line("    load-server-state-from-file global")
	if f.Persistent() {
		line("")
		line("peers %s", peersName)
		line("    peer \"${HAPROXY_LOCALPEER}\" %s", s.Peers.Bind)
		for _, peer := range s.Peers.Others {
			line("    peer %s %s", peer.Name, peer.Address)
		}
	}
	if len(s.OpenPorts) > 0 || len(f.Open) > 0 {
		f.renderOpen(line, s)
	}
	for _, service := range f.Services {
		key := service.Key
		line("")
		mark(serviceMark, serviceLine{
			key.Namespace, key.Service, key.Port, key.Protocol, service.Pool, service.VIPs, service.Port, service.Shared, "", service.Virtual, service.Spare,
		})
		if service.HasFrontend() && service.Spare == "" {
			service.renderFrontend(line)
		}
		service.renderBackend(line, s)
	}
	return b.Bytes()
}

// DefaultsName names the settings that all sections begin with.
const DefaultsName = "npl-tcp"

const drainedMark = " disabled"

func duration(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }
