package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// commit is what the images are built from.
type commit struct {
	hash string
	time time.Time
}

// committed asks git. Outside of a repository the images are of the epoch, and of no revision.
func committed(ctx context.Context, root string) (commit, error) {
	command := exec.CommandContext(ctx, "git", "-C", root, "show", "--no-patch", "--format=%H %cI", "HEAD")
	out, err := command.Output()
	if err != nil {
		return commit{time: time.Unix(0, 0).UTC()}, ctx.Err()
	}
	hash, at, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	t, err := time.Parse(time.RFC3339, at)
	return commit{hash, t.UTC()}, err
}

const versionPackage = "github.com/nplbridge/nplbridge/cmd/internal/buildinfo"

// compile builds the program of an image, static, for a platform.
func compile(ctx context.Context, o options, i image, p v1.Platform, to string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X "+versionPackage+".version="+o.version, "-o", to, i.pkg)
	command.Dir = o.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture)
	if p.Architecture == "arm" {
		command.Env = append(command.Env, "GOARM="+strings.TrimPrefix(p.Variant, "v"))
	}
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build %s for %s: %w\n%s", i.pkg, p, err, out)
	}
	return nil
}

// authorities returns Mozilla's certificate authorities in PEM form, as the pinned module has them, without those that Mozilla trusts
// only in part.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
	}
	return out.Bytes()
}
