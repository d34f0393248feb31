package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/cmd/internal/akoimport"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

const akoTestdata = "../internal/akoimport/testdata/"

// imported runs the command and returns what it writes to stdout and stderr.
func imported(t *testing.T, stdin io.Reader, args ...string) (values, report string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	command := root(callerOf("lbsync"))
	command.SetArgs(append([]string{"import"}, args...))
	command.SetOut(&out)
	command.SetErr(&errs)
	command.SetIn(stdin)
	command.SilenceErrors, command.SilenceUsage = true, true
	err = command.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestImport(t *testing.T) {
	values, report, err := imported(t, nil, akoTestdata+"akodeploymentconfig.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &decoded); err != nil || decoded["serviceType"] != "NodePortLocal" {
		t.Errorf("%v in\n%s", err, values)
	}
	if want := "# Values of the chart nplbridge, from the AKODeploymentConfig npl-enabled.\n"; !strings.HasPrefix(values, want) {
		t.Errorf("the values begin otherwise than with %q:\n%s", want, values)
	}
	for _, want := range []string{
		"source   AKODeploymentConfig npl-enabled\n", "KEYS (15)\n", "mapped, 5 not needed, 0 not supported, 0 unknown. Next, in bash:\n",
		"\nkubectl -n nplbridge-system create secret generic avi-account \\\n", "--values values.yaml\n",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

// From stdin, in JSON, with other names.
func TestImportFormats(t *testing.T) {
	input, err := os.Open(akoTestdata + "configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	values, report, err := imported(t, input, "-", "-o", "json", "--report", "json", "--namespace", "lb", "--secret", "core", "--username", "nplbridge")
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		LBSync struct {
			ExistingSecret string
			Config         struct {
				Avi struct{ Username, Tenant string }
			}
		}
	}
	if err := json.Unmarshal([]byte(values), &decoded); err != nil {
		t.Fatalf("%v in\n%s", err, values)
	}
	if l := decoded.LBSync; l.ExistingSecret != "core" || l.Config.Avi.Username != "nplbridge" || l.Config.Avi.Tenant != "prod" {
		t.Errorf("values %+v", l)
	}
	var document akoimport.Report
	if err := json.Unmarshal([]byte(report), &document); err != nil || document.Count(akoimport.Unknown) != 1 || len(document.Commands) != 2 {
		t.Errorf("%v in\n%s", err, report)
	}
	if !strings.Contains(document.Commands[0], "\nkubectl -n lb create secret generic core ") {
		t.Errorf("commands %q", document.Commands)
	}
}

func TestImportRefuses(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxImport+1), 0o600); err != nil {
		t.Fatal(err)
	}
	const file = akoTestdata + "configmap.yaml"
	for args, want := range map[string]string{
		"missing.yaml":                "missing.yaml: open missing.yaml: no such file or directory",
		large:                         "it is larger than 4 MiB; give the configuration of AKO alone",
		"import.go":                   "import.go: document 1 is not YAML",
		file + " -o xml":              `output: "xml" (from --output): want one of yaml, json`,
		file + " --report yaml":       `report: "yaml" (from --report): want one of table, json`,
		file + " --secret $(reboot)":  `secret: "$(reboot)" (from --secret): want the name of a Secret`,
		file + " --namespace a;b":     `namespace: "a;b" (from --namespace): want the name of a Namespace`,
		akoTestdata + "quirks.golden": "it holds no configuration of AKO, only a document without kind; give an AKODeploymentConfig",
	} {
		values, report, err := imported(t, nil, strings.Fields(args)...)
		var setting *settings.Error
		if !errors.As(err, &setting) || !strings.Contains(err.Error(), want) || values+report != "" {
			t.Errorf("%s: %v, want %q\n%s%s", args, err, want, values, report)
		}
	}
}

// The commands at the end work in bash as they stand, and show no secret to whoever lists processes.
func TestImportCommands(t *testing.T) {
	const secret = "hunter2"
	dir := t.TempDir()
	argv := filepath.Join(dir, "argv")
	for program, text := range map[string]string{
		"kubectl": `echo kubectl "$@" >> "$ARGV"
case "$*" in
*" get secret "*) echo ` + secret + ` | base64 ;;
*" create secret "*) for a in "$@"; do case "$a" in --from-file=*) f=${a#--from-file=}; echo "${f%%=*}: $(cat "${f#*=}")" ;; esac; done ;;
esac`,
		"helm": `echo helm "$@" >> "$ARGV"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string][]string{
		"akodeploymentconfig.yaml": {
			"kubectl --context MANAGEMENT-CLUSTER -n tkg-system-networking get secret avi-controller-credentials -o jsonpath={.data.password}\n",
			"kubectl --context MANAGEMENT-CLUSTER -n tkg-system-networking get secret avi-controller-ca -o jsonpath={.data.certificateAuthorityData}\n",
		},
		"configmap.yaml": { // with a comment before it
			"kubectl -n avi-system get secret avi-secret -o jsonpath={.data.certificateAuthorityData}\n",
		},
		"ako-values.yaml": {
			"kubectl -n avi-system get secret avi-secret -o jsonpath={.data.password}\n",
			"kubectl -n avi-system get secret avi-secret -o jsonpath={.data.certificateAuthorityData}\n",
		},
	} {
		_, report, err := imported(t, nil, akoTestdata+file, "--report", "json")
		if err != nil {
			t.Fatal(err)
		}
		var document akoimport.Report
		if err := json.Unmarshal([]byte(report), &document); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(argv, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		bash := exec.CommandContext(t.Context(), "bash", "-euc", strings.Join(document.Commands, "\n"))
		bash.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ARGV="+argv)
		out, err := bash.CombinedOutput()
		if got, wantOut := string(out), "password: "+secret+"\nca.crt: "+secret+"\n"; err != nil || got != wantOut {
			t.Errorf("%s: %v, the Secret is\n%swant\n%s", file, err, got, wantOut)
		}
		seen, err := os.ReadFile(argv)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "helm upgrade --install nplbridge charts/nplbridge --namespace nplbridge-system --values values.yaml\n")
		for _, line := range want {
			if !strings.Contains(string(seen), line) {
				t.Errorf("%s: no %q in\n%s", file, line, seen)
			}
		}
		if strings.Contains(string(seen), secret) {
			t.Errorf("%s: a secret in arguments:\n%s", file, seen)
		}
	}
}
