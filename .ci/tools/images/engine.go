package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// withEngine builds the Dockerfiles in the engine, for its own platform, or says why not. The context has everything already,
// so that a base of scratch needs no registry there either.
func withEngine(ctx context.Context, o options, at commit, out io.Writer) error {
	if !o.engine {
		return nil
	}
	platform, reason := engine(ctx)
	if reason == "" && !slices.ContainsFunc(o.platforms, func(p v1.Platform) bool { return p.String() == platform }) {
		reason = "its platform is " + platform
	}
	if reason != "" {
		fmt.Fprintf(out, "The Dockerfiles were not built in an engine: %s. The archives can be loaded into one.\n", reason)
		return nil
	}
	for _, name := range o.only {
		i, err := find(name)
		if err != nil {
			return err
		}
		dockerfile := filepath.Join(o.root, i.pkg, "Dockerfile")
		system, arch, _ := strings.Cut(platform, "/")
		args := []string{
			"build", "--file", dockerfile, "--tag", i.repository() + ":" + o.tag(),
			"--build-arg", "BASE=" + o.base, "--build-arg", "TARGETOS=" + system, "--build-arg", "TARGETARCH=" + arch,
			"--build-arg", "VERSION=" + o.tag(), "--build-arg", "REVISION=" + at.hash, "--build-arg", "CREATED=" + at.time.Format(time.RFC3339),
			o.context(),
		}
		command := exec.CommandContext(ctx, "docker", args...)
		if text, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("docker %s: %w\n%s", strings.Join(args, " "), err, text)
		}
		fmt.Fprintf(out, "%s:%s stands in the Docker engine, built from %s\n", i.repository(), o.tag(), filepath.Join(i.pkg, "Dockerfile"))
	}
	return nil
}

// engine returns the platform of the Docker engine, or why there is none to use.
func engine(ctx context.Context) (platform, reason string) {
	if _, err := exec.LookPath("docker"); err != nil {
		return "", "there is no program docker"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Os}}/{{.Server.Arch}}").CombinedOutput()
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Sprintf("docker says %q", first)
	}
	return strings.TrimSpace(string(out)), ""
}
