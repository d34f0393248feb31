package release

import (
	"bufio"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// The layouts go into a registry as they are, with the pinned crane, as a release and an air-gapped site do it: what is pulled has the digests that
// were printed when the images were made, for every platform.
func TestPush(t *testing.T) {
	crane, err := manifests.Tool(t.Context(), root, "images", "crane")
	if err != nil {
		t.Fatal(err)
	}
	registry := serve(t, crane)
	for _, name := range []string{"npl-agent", "lbsync"} {
		to := registry + "/mirror/" + name + ":9.8.7"
		if _, err := command(exec.CommandContext(t.Context(), crane, "push", output+"/"+name, to)); err != nil {
			t.Fatal(err)
		}
		for _, platform := range platforms {
			digest, err := command(exec.CommandContext(t.Context(), crane, "digest", "--platform", platform, to))
			if err != nil {
				t.Fatal(err)
			}
			line := regexp.MustCompile(`(?m)^ghcr\.io/nplbridge/` + name + `:9\.8\.7 +` + platform + ` .*` + strings.TrimSpace(digest) + `$`)
			if !line.MatchString(printed) {
				t.Errorf("%s %s has digest %s, but printed was\n%s", to, platform, digest, printed)
			}
		}
	}
	// One archive alone, for a registry that is to have one platform.
	to := registry + "/mirror/lbsync:arm64"
	if _, err := command(exec.CommandContext(t.Context(), crane, "push", output+"/lbsync_linux_arm64.tar", to)); err != nil {
		t.Fatal(err)
	}
	config, err := command(exec.CommandContext(t.Context(), crane, "config", to))
	if err != nil || !strings.Contains(config, `"architecture":"arm64"`) {
		t.Errorf("%v, the configuration is %s", err, config)
	}
}

// serve starts a registry on a free port of this machine and returns its address.
func serve(t *testing.T, crane string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), crane, "registry", "serve", "--address", "127.0.0.1:0")
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`serving on port (\d+)`)
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		m := address.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, log)
		}()
		t.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			<-drained
			_ = c.Wait() // how it was ended
		})
		return "127.0.0.1:" + m[1]
	}
	t.Fatalf("crane registry serve ended without an address: %v", c.Wait())
	return ""
}
