package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// descriptor, manifest and config are what of the OCI image format is judged here, read anew and not by the library that wrote it.
type descriptor struct {
	MediaType, Digest string
	Size              int64
	Platform          struct{ OS, Architecture string }
	Annotations       map[string]string
}

type manifest struct {
	Config    descriptor
	Layers    []descriptor
	Manifests []descriptor
}

type config struct {
	OS, Architecture string
	Created          string
	Config           struct {
		User, WorkingDir string
		Entrypoint, Cmd  []string
		Labels           map[string]string
	}
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// opened are the layouts that were read already.
var opened = map[string]map[string]oci{}

// oci is an image of a layout.
type oci struct {
	config
	files map[string]*tar.Header
	dir   string // its files, unpacked
}

// open reads the images of a layout by platform, checks every digest and size, and unpacks them where others may read.
func open(t *testing.T, name string) map[string]oci {
	t.Helper()
	if images, done := opened[name]; done {
		return images
	}
	layout := filepath.Join(output, name)
	var top manifest
	decode(t, read(t, filepath.Join(layout, "index.json")), &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != strings.TrimPrefix(version, "v") {
		t.Fatalf("%s has %+v, want one index, tagged", layout, top.Manifests)
	}
	var index manifest
	decode(t, blob(t, layout, top.Manifests[0]), &index)
	images := map[string]oci{}
	for _, d := range index.Manifests {
		var m manifest
		decode(t, blob(t, layout, d), &m)
		platform := d.Platform.OS + "/" + d.Platform.Architecture
		i := oci{files: map[string]*tar.Header{}, dir: filepath.Join(output, "unpacked", name, platform)}
		decode(t, blob(t, layout, m.Config), &i.config)
		if len(m.Layers) != len(i.RootFS.DiffIDs) {
			t.Fatalf("%d layers, %d of them in the configuration", len(m.Layers), len(i.RootFS.DiffIDs))
		}
		for n, l := range m.Layers {
			plain, err := gzip.NewReader(bytes.NewReader(blob(t, layout, l)))
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(plain)
			if err != nil {
				t.Fatal(err)
			}
			if got := digest(content); got != i.RootFS.DiffIDs[n] {
				t.Errorf("layer %d of %s is %s, the configuration says %s", n, name, got, i.RootFS.DiffIDs[n])
			}
			i.unpack(t, content)
		}
		images[platform] = i
	}
	opened[name] = images
	return images
}

func (i oci) unpack(t *testing.T, layer []byte) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		i.files["/"+strings.TrimSuffix(h.Name, "/")] = h
		to := filepath.Join(i.dir, h.Name)
		err = os.MkdirAll(filepath.Dir(to), 0o755)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else if err == nil {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, content, os.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// blob returns what a descriptor points to, having checked that it is that.
func blob(t *testing.T, layout string, d descriptor) []byte {
	t.Helper()
	algorithm, hash, _ := strings.Cut(d.Digest, ":")
	content := read(t, filepath.Join(layout, "blobs", algorithm, hash))
	if digest(content) != d.Digest || int64(len(content)) != d.Size {
		t.Errorf("%s is %d bytes with digest %s, want %d", d.Digest, len(content), digest(content), d.Size)
	}
	return content
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
