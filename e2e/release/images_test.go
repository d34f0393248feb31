package release

import (
	"archive/tar"
	"debug/elf"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// limit is how large an image may be, unpacked.
const limit = 40 << 20

func TestImages(t *testing.T) {
	for name, want := range map[string]struct {
		user  string
		files []string
	}{
		"npl-agent": {"0:0", nil},
		"lbsync":    {"65532:65532", []string{"/etc", "/etc/ssl", "/etc/ssl/certs", "/etc/ssl/certs/ca-certificates.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			images := open(t, name)
			if got := slices.Sorted(maps.Keys(images)); !slices.Equal(got, platforms) {
				t.Fatalf("platforms %q, want %q", got, platforms)
			}
			for platform, i := range images {
				if i.OS+"/"+i.Architecture != platform {
					t.Errorf("the image for %s is for %s/%s", platform, i.OS, i.Architecture)
				}
				c := i.Config
				if c.User != want.user || !slices.Equal(c.Entrypoint, []string{"/" + name}) || !slices.Equal(c.Cmd, []string{"run"}) {
					t.Errorf("%s runs %q %q as %q, want /%s run as %s", platform, c.Entrypoint, c.Cmd, c.User, name, want.user)
				}
				if c.Labels["org.opencontainers.image.version"] != strings.TrimPrefix(version, "v") || c.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" {
					t.Errorf("%s: labels %q", platform, c.Labels)
				}
				files := append([]string{"/" + name, "/usr", "/usr/share", "/usr/share/nplbridge", "/usr/share/nplbridge/" + name + ".cdx.json"}, want.files...)
				slices.Sort(files)
				if diff := cmp.Diff(files, slices.Sorted(maps.Keys(i.files))); diff != "" {
					t.Errorf("%s has other files (-want +got):\n%s", platform, diff)
				}
				var size int64
				for file, h := range i.files {
					size += h.Size
					if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
						t.Errorf("%s: %s is %+v", platform, file, h)
					}
				}
				t.Logf("%s %s: %.1f MiB", name, platform, float64(size)/(1<<20))
				if size > limit {
					t.Errorf("%s is %d bytes, more than %d", platform, size, limit)
				}
				static(t, filepath.Join(i.dir, name), i.Architecture)
				bill(t, filepath.Join(i.dir, "usr/share/nplbridge", name+".cdx.json"), name)
			}
		})
	}
	for _, name := range []string{"npl-agent:", "lbsync:"} {
		if strings.Count(printed, "ghcr.io/nplbridge/"+name+"9.8.7 ") != len(platforms) {
			t.Errorf("no size of each %s was printed:\n%s", name, printed)
		}
	}
}

// static holds that a program needs no library and no loader, and is for the machine that the image says.
func static(t *testing.T, file, architecture string) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	loader := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if err != nil || len(libraries) > 0 || loader {
		t.Errorf("%s is not static: libraries %q, loader %v, %v", file, libraries, loader, err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[architecture]; f.Machine != want {
		t.Errorf("%s is for %s, want %s", file, f.Machine, want)
	}
}

// bill holds that a bill of materials names the program and what is in it.
func bill(t *testing.T, file, name string) {
	t.Helper()
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, Purl string }
	}
	decode(t, read(t, file), &bom)
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Name != name || bom.Metadata.Component.Version != version {
		t.Errorf("%s is of %+v", file, bom.Metadata)
	}
	for _, module := range []string{"k8s.io/client-go", "go.uber.org/zap", "std"} {
		if !slices.ContainsFunc(bom.Components, func(c struct{ Name, Version, Purl string }) bool {
			return c.Name == module && c.Version != "" && c.Purl == "pkg:golang/"+module+"@"+c.Version
		}) {
			t.Errorf("%s lacks %s", file, module)
		}
	}
}

// The Dockerfiles make the same images: each says what the configuration says.
func TestDockerfiles(t *testing.T) {
	variable := regexp.MustCompile(`\$\{(\w+)\}`)
	for _, name := range []string{"npl-agent", "lbsync"} {
		i := open(t, name)["linux/amd64"]
		labels := i.Config.Labels
		arguments := map[string]string{
			"BASE": "scratch", "TARGETOS": "linux", "TARGETARCH": "amd64", "VERSION": labels["org.opencontainers.image.version"],
			"REVISION": labels["org.opencontainers.image.revision"], "CREATED": labels["org.opencontainers.image.created"],
		}
		text := variable.ReplaceAllStringFunc(string(read(t, filepath.Join(root, "cmd", name, "Dockerfile"))), func(v string) string {
			value, ok := arguments[v[2:len(v)-1]]
			if !ok {
				t.Errorf("%s: the Dockerfile has %s, which nobody gives", name, v)
			}
			return value
		})
		got := map[string]string{}
		var files []string
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch rest = strings.TrimSpace(rest); word {
			case "LABEL":
				for _, m := range regexp.MustCompile(`([\w.]+)="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
					got["LABEL "+m[1]] = m[2]
				}
			case "COPY":
				source, to, _ := strings.Cut(rest, " ")
				files = append(files, to)
				if there, inImage := read(t, filepath.Join(output, "context", source)), read(t, filepath.Join(i.dir, to)); digest(there) != digest(inImage) {
					t.Errorf("%s: COPY %s: the image has another %s", name, source, to)
				}
			case "FROM", "USER", "WORKDIR", "ENTRYPOINT", "CMD":
				got[word] = rest
			case "", "#", "ARG":
			default:
				if !strings.HasPrefix(word, "#") {
					t.Errorf("%s: instruction %s is unknown to this test", name, word)
				}
			}
		}
		array := func(list []string) string {
			out, _ := json.Marshal(list)
			return string(out)
		}
		want := map[string]string{
			"FROM": "scratch", "USER": i.Config.User, "WORKDIR": i.Config.WorkingDir, "ENTRYPOINT": array(i.Config.Entrypoint), "CMD": array(i.Config.Cmd),
		}
		for key, value := range labels {
			want["LABEL "+key] = value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-image +Dockerfile):\n%s", name, diff)
		}
		for file, h := range i.files {
			if h.Typeflag == tar.TypeReg && !slices.Contains(files, file) {
				t.Errorf("%s: the Dockerfile does not copy %s", name, file)
			}
		}
	}
}

// The archives are what `docker load` and `ctr images import` take: a list with the name, the configuration and the layers.
func TestArchives(t *testing.T) {
	for _, platform := range platforms {
		name := "lbsync_" + strings.ReplaceAll(platform, "/", "_") + ".tar"
		f, err := os.Open(filepath.Join(output, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files := map[string]int64{}
		var list []struct {
			Config           string
			RepoTags, Layers []string
		}
		for r := tar.NewReader(f); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			files[h.Name] = h.Size
			if h.Name == "manifest.json" {
				if err := json.NewDecoder(r).Decode(&list); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(list) != 1 || !slices.Equal(list[0].RepoTags, []string{"ghcr.io/nplbridge/lbsync:9.8.7"}) || files[list[0].Config] == 0 {
			t.Fatalf("%s lists %+v", name, list)
		}
		for _, layer := range list[0].Layers {
			if files[layer] == 0 {
				t.Errorf("%s lacks the layer %s", name, layer)
			}
		}
	}
}

// The same commit gives the same image, wherever and whenever it is made.
func TestImagesAreReproducible(t *testing.T) {
	again, err := makeImages(t.Context(), t.TempDir(), "-engine=false", "-only", "npl-agent", "-platforms", "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`npl-agent:9\.8\.7 +linux/amd64 .*sha256:[0-9a-f]{64}`)
	was, is := strings.Fields(line.FindString(printed)), strings.Fields(line.FindString(again))
	if len(is) == 0 || !slices.Equal(was, is) {
		t.Errorf("the image was %q and is %q", was, is)
	}
}

func TestImagesRefuse(t *testing.T) {
	for flags, want := range map[string]string{
		"-only npl":            `-only: there is no image "npl", only npl-agent, lbsync, echo`,
		"-platforms windows/x": `-platforms: "windows/x" is not linux/ARCHITECTURE`,
		"-version a/b":         `-version: "a/b" cannot be a tag`,
		"-base :::":            "-base: could not parse reference",
		"more":                 `"more": there are only flags`,
	} {
		args := append([]string{"-only", "echo", "-platforms", "linux/amd64", "-engine=false"}, strings.Fields(flags)...)
		if out, err := makeImages(t.Context(), t.TempDir(), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", flags, err, want, out)
		}
	}
}

// With an engine the images of the Dockerfiles run in it; without one the reason is printed, and the container below stands in.
func TestInEngine(t *testing.T) {
	_, reason, none := strings.Cut(printed, "The Dockerfiles were not built in an engine: ")
	if none {
		t.Logf("not tried in an engine: %s", strings.TrimSpace(reason))
		return
	}
	for name, args := range map[string][]string{"npl-agent": {"--cap-add", "NET_ADMIN"}, "lbsync": nil} {
		base := append([]string{"run", "--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"}, args...)
		base = append(base, "ghcr.io/nplbridge/"+name+":9.8.7")
		answers(t, name, func(args ...string) (string, error) {
			return command(exec.CommandContext(t.Context(), "docker", append(slices.Clone(base), args...)...))
		})
	}
}
