package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is what one of our programs is packed as. Its Dockerfile says the same.
type image struct {
	name, pkg string
	about     string
	user      string
	command   []string
	roots     bool // it meets servers whose certificates the usual authorities sign
}

func images() []image {
	return []image{
		{
			name: "npl-agent", pkg: "./cmd/npl-agent", about: "NodePortLocal for every CNI: a node port for each Pod port, in nftables",
			user: "0:0", command: []string{"run"}, // with any other user it would have no effective capability
		},
		{
			name: "lbsync", pkg: "./cmd/lbsync", about: "Keeps a load balancer's pools equal to the Pods",
			user: "65532:65532", command: []string{"run"}, roots: true,
		},
		{
			name: "echo", pkg: "./e2e/cmd/echo", about: "The server behind the Services of nplbridge's tests",
			user: "65532:65532",
		},
	}
}

func find(name string) (image, error) {
	var names []string
	for _, i := range images() {
		if i.name == name {
			return i, nil
		}
		names = append(names, i.name)
	}
	return image{}, fmt.Errorf("-only: there is no image %q, only %s", name, strings.Join(names, ", "))
}

const registry = "ghcr.io/nplbridge/"

func (i image) repository() string { return registry + i.name }

// labels are those that the Dockerfiles set, too.
func (i image) labels(o options, at commit) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       i.name,
		"org.opencontainers.image.description": i.about,
		"org.opencontainers.image.version":     o.tag(),
		"org.opencontainers.image.revision":    at.hash,
		"org.opencontainers.image.created":     at.time.Format(time.RFC3339),
		"org.opencontainers.image.source":      "https://github.com/nplbridge/nplbridge",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.base.name":   o.base,
	}
}

// made is an image for one platform.
type made struct {
	v1.Image
	platform v1.Platform
	sbom     []byte
}

type size struct {
	plain, compressed float64 // MiB
	digest            v1.Hash
}

func (m made) size() (size, error) {
	var s size
	layers, err := m.Layers()
	if err != nil {
		return s, err
	}
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			return s, err
		}
		s.compressed += float64(n) / (1 << 20)
		plain, err := l.Uncompressed()
		if err != nil {
			return s, err
		}
		n, err = io.Copy(io.Discard, plain)
		if err != nil {
			return s, err
		}
		s.plain += float64(n) / (1 << 20)
		if err := plain.Close(); err != nil {
			return s, err
		}
	}
	s.digest, err = m.Digest()
	return s, err
}

// context is where the programs and files for the images stand, in the form that the Dockerfiles want.
func (o options) context() string { return filepath.Join(o.output, "context") }

// file is where a file for one platform stands in the context, "linux/amd64/lbsync".
func (i image) file(p v1.Platform, suffix string) string {
	return filepath.Join(p.OS, p.Architecture, i.name+suffix)
}

// make compiles the program for every platform and packs it.
func (i image) make(ctx context.Context, o options, at commit) ([]made, error) {
	var out []made
	for _, p := range o.platforms {
		program := filepath.Join(o.context(), i.file(p, ""))
		if err := compile(ctx, o, i, p, program); err != nil {
			return nil, err
		}
		sbom, err := billOfMaterials(program, i, o, at)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(program+".cdx.json", sbom, 0o644); err != nil {
			return nil, err
		}
		packed, err := i.pack(ctx, o, at, p, program, sbom)
		if err != nil {
			return nil, err
		}
		out = append(out, made{packed, p, sbom})
	}
	return out, nil
}

// pack puts the program and what belongs to it on the base, as one layer.
func (i image) pack(ctx context.Context, o options, at commit, p v1.Platform, program string, sbom []byte) (v1.Image, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	files := []file{{i.name, 0o755, binary}, {"usr/share/nplbridge/" + i.name + ".cdx.json", 0o644, sbom}}
	if i.roots {
		roots := authorities()
		if err := os.WriteFile(filepath.Join(o.context(), "ca-certificates.crt"), roots, 0o644); err != nil {
			return nil, err
		}
		if o.base == scratch { // others have their own
			files = append(files, file{"etc/ssl/certs/ca-certificates.crt", 0o644, roots})
		}
	}
	content, err := archive(files, at.time)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base, err := from(ctx, o.base, p)
	if err != nil {
		return nil, err
	}
	packed, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{
		Author: "nplbridge", Created: v1.Time{Time: at.time}, CreatedBy: "make images",
	}})
	if err != nil {
		return nil, err
	}
	was, err := packed.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := was.DeepCopy()
	config.OS, config.Architecture, config.Variant, config.Created = p.OS, p.Architecture, p.Variant, v1.Time{Time: at.time}
	config.Config.Entrypoint, config.Config.Cmd = []string{"/" + i.name}, i.command
	config.Config.User, config.Config.WorkingDir = i.user, "/"
	config.Config.Labels = i.labels(o, at)
	return mutate.ConfigFile(packed, config)
}

// from returns the base, for a platform.
func from(ctx context.Context, base string, p v1.Platform) (v1.Image, error) {
	if base == scratch {
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	ref, err := name.ParseReference(base)
	if err != nil {
		return nil, fmt.Errorf("-base: %w", err)
	}
	i, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(p))
	if err != nil {
		return nil, fmt.Errorf("-base: fetch %s for %s: %w; without a registry, use scratch", base, p, err)
	}
	return i, nil
}

type file struct {
	path    string
	mode    int64
	content []byte
}

// archive writes files, and the directories above them, as a tar; everything is root's.
func archive(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var dirs []string
	for _, f := range files {
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
