package settings

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

var table = Table{
	Program:   "demo",
	EnvPrefix: "DEMO",
	Settings: []Setting{
		{Key: "portRange", Default: "61000-62000", Doc: "range", Example: "61000-62000"},
		{Key: "coolDown", Kind: Duration, Default: time.Minute, Doc: "cool", Example: "90s"},
		{Key: "unclassed", Kind: Bool, Doc: "unclassed", Example: "true"},
		{Key: "retries", Default: "3", Doc: "retries", Example: "3", Want: func(value any) string {
			if strings.HasPrefix(value.(string), "-") {
				return "want no sign"
			}
			return ""
		}},
		{Key: "addressPools", Kind: List, Doc: "pools", Example: "[192.0.2.0/24]"},
		{Key: "logLevel", Default: "info", Doc: "level", Live: true},
		{Key: "token", Doc: "secret", Secret: true},
		{Key: "haproxy.masterSocket", Default: "/run/m.sock", Doc: "socket"},
		{Key: "haproxy.configFiles", Kind: List, Default: []string{"/etc/h.cfg"}, Doc: "files"},
	},
}

// load parses args as the command line; a "@" in args is replaced by a settings file with the given content.
func load(t *testing.T, content string, args ...string) (*Values, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "@", file)
	}
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	table.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return table.Load(flags)
}

func TestPrecedence(t *testing.T) {
	const file = "coolDown: 2m\nhaproxy:\n  masterSocket: /file\n  configFiles: [/a, /b]\naddressPools:\n- 192.0.2.1\n"
	t.Setenv("DEMO_HAPROXY_MASTER_SOCKET", "/env")
	t.Setenv("DEMO_COOL_DOWN", "3m")
	v, err := load(t, file, "--config=@", "--cool-down=4m")
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Duration("coolDown"); got != 4*time.Minute {
		t.Errorf("coolDown = %v, want the flag's", got)
	}
	if got := v.String("haproxy.masterSocket"); got != "/env" {
		t.Errorf("haproxy.masterSocket = %q, want the environment's", got)
	}
	if got := v.List("haproxy.configFiles"); !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("haproxy.configFiles = %q, want the file's", got)
	}
	if got := v.String("portRange"); got != "61000-62000" {
		t.Errorf("portRange = %q, want the default", got)
	}
	t.Setenv("DEMO_ADDRESS_POOLS", "198.51.100.0/24, 2001:db8::/64")
	if v, err = load(t, file, "--config=@"); err != nil {
		t.Fatal(err)
	}
	if got := v.List("addressPools"); !slices.Equal(got, []string{"198.51.100.0/24", "2001:db8::/64"}) {
		t.Errorf("addressPools = %q, want the environment's", got)
	}
}

func TestErrorsNameSettingValueSourceAndFix(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"unknown key":          {file: "portrange: 1-2", want: []string{"settings.yaml", `"portrange"`, "did you mean portRange?"}},
		"unknown nested key":   {file: "haproxy: {masterSock: x}", want: []string{`"haproxy.masterSock"`, "haproxy.masterSocket?"}},
		"nothing like it":      {file: "zzzzzzzzzzz: 1", want: []string{`"zzzzzzzzzzz"`, "docs/reference/settings.md"}},
		"section under a leaf": {file: "portRange: {first: 1}", want: []string{"portRange", "want one text"}},
		"leaf for a section":   {file: "haproxy: 3", want: []string{`haproxy: "3"`, "settings.yaml", "is a section", "below it"}},
		"twice":                {file: "coolDown: 1s\ncoolDown: 2s", want: []string{"settings.yaml", "coolDown"}},
		"not yaml":             {file: "{{", want: []string{"settings.yaml", "YAML"}},
		"number as duration":   {file: "coolDown: 60", want: []string{`coolDown: "60"`, "settings.yaml", "unit", "90s"}},
		"bad duration flag":    {args: []string{"--cool-down=soon"}, want: []string{`coolDown: "soon"`, "--cool-down", "90s"}},
		"bad bool":             {file: "unclassed: maybe", want: []string{`unclassed: "maybe"`, "true or false"}},
		"bad bool flag":        {args: []string{"--unclassed=maybe"}, want: []string{`unclassed: "maybe"`, "--unclassed", "want true or false; for example true"}},
		"not what it wants":    {args: []string{"--retries=-1"}, want: []string{`retries: "-1" (from --retries): want no sign; for example 3`}},
		"bad list":             {file: "addressPools: {a: b}", want: []string{"addressPools", "list", "[192.0.2.0/24]"}},
		"secret stays hidden":  {file: "token: [hunter2]", want: []string{"token", "(redacted)"}},
		"missing file":         {args: []string{"--config=/nonexistent/x.yaml"}, want: []string{"/nonexistent/x.yaml", "--config", "DEMO_CONFIG"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if args == nil {
				args = []string{"--config=@"}
			}
			_, err := load(t, test.file, args...)
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("got %v, want an *Error", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q shows a secret", err)
			}
		})
	}
}

func TestEnvironmentError(t *testing.T) {
	t.Setenv("DEMO_COOL_DOWN", "never")
	_, err := load(t, "")
	if want := `coolDown: "never" (from DEMO_COOL_DOWN): want a duration with a unit; for example 90s`; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestInvalidAddsTheSource(t *testing.T) {
	v, err := load(t, "", "--cool-down=48h")
	if err != nil {
		t.Fatal(err)
	}
	if v.Invalid(nil) != nil {
		t.Error("an error out of nothing")
	}
	err = v.Invalid(errors.Join(
		errors.New(`coolDown 48h0m0s: write a duration from 0s to 24h`),
		errors.New(`haproxy masterSocket: "x" is not absolute`),
		errors.New(`something else`),
	))
	want := `settings: coolDown 48h: write a duration from 0s to 24h (from --cool-down); ` +
		`haproxy masterSocket: "x" is not absolute (from default); something else`
	var e *Error
	if !errors.As(err, &e) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// What --print-config writes is a settings file that means the same.
func TestPrintReadsBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`[ -~]{1,12}`)
		item := rapid.StringMatching(`[!-+\--~]{1,8}`)
		args := []string{
			"--port-range=" + text.Draw(r, "portRange"),
			"--cool-down=" + rapid.Custom(func(r *rapid.T) time.Duration {
				return time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "ns"))
			}).Draw(r, "coolDown").String(),
			"--haproxy-master-socket=" + text.Draw(r, "socket"),
			"--token=hunter2",
		}
		flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
		table.AddFlags(flags)
		if err := flags.Parse(args); err != nil {
			r.Fatal(err)
		}
		first, err := table.Load(flags)
		if err != nil {
			r.Fatal(err)
		}
		first.values["addressPools"] = rapid.SliceOfN(item, 1, 3).Draw(r, "pools")
		var printed strings.Builder
		if err := first.Print(&printed); err != nil {
			r.Fatal(err)
		}
		if strings.Contains(printed.String(), "hunter2") {
			r.Fatalf("a secret is printed:\n%s", &printed)
		}
		second, err := load(t, printed.String(), "--config=@")
		if err != nil {
			r.Fatalf("%v in\n%s", err, &printed)
		}
		first.values["token"] = redacted
		if diff := cmp.Diff(first.values, second.values); diff != "" {
			r.Fatalf("read back differs (-printed +read):\n%s\n%s", diff, &printed)
		}
	})
}

func TestWatchFollowsAReplacedFile(t *testing.T) {
	// As the kubelet mounts a ConfigMap: settings.yaml -> ..data/settings.yaml, ..data -> a directory per version.
	dir := t.TempDir()
	version := func(name, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "settings.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, "..next")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("v1", "logLevel: info\n")
	if err := os.Symlink("..data/settings.yaml", filepath.Join(dir, "settings.yaml")); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	table.AddFlags(flags)
	if err := flags.Parse([]string{"--config=" + filepath.Join(dir, "settings.yaml")}); err != nil {
		t.Fatal(err)
	}
	first, err := table.Load(flags)
	if err != nil {
		t.Fatal(err)
	}

	type outcome struct {
		values *Values
		err    error
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcomes := make(chan outcome, 16)
	go first.Watch(ctx, flags, func(v *Values, err error) { outcomes <- outcome{v, err} })

	// The watch starts in the goroutine, so the first version may come too early for it: write versions until one is seen.
	deadline := time.After(time.Minute)
	for n := 2; ; n++ {
		name := "v" + string(rune('a'+n))
		version(name, "logLevel: debug\ncoolDown: 2m\n")
		select {
		case got := <-outcomes:
			if got.err != nil {
				t.Fatal(got.err)
			}
			live, restart := first.Changed(got.values)
			if len(live)+len(restart) == 0 {
				continue // what Watch loads when it begins
			}
			if !slices.Equal(live, []string{"logLevel"}) || !slices.Equal(restart, []string{"coolDown"}) {
				t.Fatalf("live %q, restart %q", live, restart)
			}
			return
		case <-time.After(200 * time.Millisecond):
		case <-deadline:
			t.Fatal("no change seen")
		}
	}
}

// pflag takes what is between backquotes for the name of the value; in a sentence they are quotes.
func TestHelpKeepsBackquotedWords(t *testing.T) {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	Table{Settings: []Setting{{Key: "socket", Doc: "`stats socket` of haproxy"}}}.AddFlags(flags)
	if got := flags.FlagUsages(); !strings.Contains(got, "--socket string ") || !strings.Contains(got, "'stats socket' of haproxy") {
		t.Error(got)
	}
}

func TestBoolFlag(t *testing.T) {
	for arg, want := range map[string]bool{"--unclassed": true, "--unclassed=true": true, "--unclassed=false": false, "--retries=1": false} {
		if v, err := load(t, "", arg); err != nil || v.Bool("unclassed") != want {
			t.Errorf("%s: %v, want %v", arg, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	for key, want := range map[string][2]string{
		"portRange":            {"port-range", "DEMO_PORT_RANGE"},
		"haproxy.masterSocket": {"haproxy-master-socket", "DEMO_HAPROXY_MASTER_SOCKET"},
		"kubeAPIQPS":           {"kube-apiqps", "DEMO_KUBE_APIQPS"},
	} {
		s := Setting{Key: key}
		if got := [2]string{s.Flag(), table.Env(s)}; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestReferenceHasEverySetting(t *testing.T) {
	var b strings.Builder
	if err := table.Reference(&b); err != nil {
		t.Fatal(err)
	}
	for _, s := range table.Settings {
		if !strings.Contains(b.String(), "| `"+s.Key+"` | `--"+s.Flag()+"` |") {
			t.Errorf("no row for %s in\n%s", s.Key, &b)
		}
	}
}
