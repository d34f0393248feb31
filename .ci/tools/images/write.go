package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// write puts an image into the output directory: the layout NAME with an index of all platforms, and for each an archive
// NAME_OS_ARCH.tar and the bill of materials beside it.
func write(o options, i image, all []made) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, m := range all {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: m.Image, Descriptor: v1.Descriptor{Platform: &m.platform}})
	}
	dir := filepath.Join(o.output, i.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout %s: %w", dir, err)
	}
	// The layout lists one image, the index, under its tag: so tools that copy it take all platforms.
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.tag(), "io.containerd.image.name": i.repository() + ":" + o.tag(),
	}))
	if err != nil {
		return fmt.Errorf("write the layout %s: %w", dir, err)
	}
	tag, err := name.NewTag(i.repository() + ":" + o.tag())
	if err != nil {
		return err
	}
	for _, m := range all {
		file := filepath.Join(o.output, fmt.Sprintf("%s_%s_%s", i.name, m.platform.OS, m.platform.Architecture))
		if err := tarball.WriteToFile(file+".tar", tag, m.Image); err != nil {
			return fmt.Errorf("write %s.tar: %w", file, err)
		}
		if err := os.WriteFile(file+".cdx.json", m.sbom, 0o644); err != nil {
			return err
		}
	}
	return nil
}
