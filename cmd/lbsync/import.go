package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/cmd/internal/akoimport"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/cmd/internal/statusview"
)

// maxImport is more than a configuration can have; etcd takes less than that for an object.
const maxImport = 4 << 20

func importCommand(by caller) *cobra.Command {
	var options akoimport.Options
	var report string
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Turn the configuration of AKO into values of the chart",
		Long: `Reads an AKODeploymentConfig, the values.yaml of AKO's chart, or its ConfigMap avi-k8s-config, from a file or, with "-", from stdin, and writes
the values of this chart to stdout. What became of every key goes to stderr: mapped, not needed, not supported and what to do instead, or
unknown. Nothing is connected to. Passwords, tokens and certificates are not read: the report ends with the line that makes the chart's
Secret of AKO's.`,
		Example: by.lines(`  lbsync import akodeploymentconfig.yaml > values.yaml
  kubectl -n avi-system get configmap avi-k8s-config -o yaml | lbsync import - > values.yaml
  lbsync import values-of-ako.yaml -o json --report json`),
		Args: cobra.ExactArgs(1),
	}
	output := command.Flags().StringP("output", "o", "yaml", "yaml or json, of the values")
	command.Flags().StringVar(&report, "report", "table", "table or json, of the report")
	command.Flags().StringVar(&options.Namespace, "namespace", "nplbridge-system", "Namespace that the chart will be installed in")
	command.Flags().StringVar(&options.Secret, "secret", "avi-account", "name of the Secret there with the account's password and the Controller's certificate authority")
	command.Flags().StringVar(&options.Username, "username", "", "account that lbsync has on the Controller; empty means the one in FILE, else "+akoimport.DefaultUsername)
	command.PreRunE = func(*cobra.Command, []string) error {
		for _, f := range []struct {
			flag, value, reason string
			wrong               bool
		}{
			{"output", *output, "want one of yaml, json", *output != "yaml" && *output != "json"},
			{"report", report, "want one of table, json", report != "table" && report != "json"},
			{"namespace", options.Namespace, "want the name of a Namespace", len(validation.IsDNS1123Label(options.Namespace)) > 0},
			{"secret", options.Secret, "want the name of a Secret", len(validation.IsDNS1123Subdomain(options.Secret)) > 0},
		} {
			if f.wrong {
				return &settings.Error{Key: f.flag, Value: f.value, Source: "--" + f.flag, Reason: f.reason}
			}
		}
		return nil
	}
	command.RunE = func(c *cobra.Command, args []string) error {
		input, err := readImport(c.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		result, err := akoimport.Import(input, options)
		if err != nil {
			return &settings.Error{Source: args[0], Reason: err.Error()}
		}
		if err := writeValues(c.OutOrStdout(), *output, result); err != nil {
			return err
		}
		return writeReport(c.ErrOrStderr(), report, result.Report)
	}
	return command
}

func readImport(stdin io.Reader, file string) ([]byte, error) {
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, &settings.Error{Source: file, Reason: err.Error()}
		}
		defer f.Close()
		from = f
	}
	input, err := io.ReadAll(io.LimitReader(from, maxImport+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", file, err)
	case len(input) > maxImport:
		return nil, &settings.Error{Source: file, Reason: "it is larger than 4 MiB", Fix: "give the configuration of AKO alone"}
	default:
		return input, nil
	}
}

func writeValues(w io.Writer, format string, result akoimport.Result) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(result.Values)
	}
	text, err := yaml.Marshal(result.Values)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "# Values of the chart nplbridge, from the %s.\n%s", result.Report.Source, text)
	return err
}

// writeReport writes the report; the table is followed by what to type, as it is typed.
func writeReport(w io.Writer, format string, report akoimport.Report) error {
	document := report
	if format == "table" {
		document.Commands = nil
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if err := statusview.Write(w, format, text); err != nil || format != "table" {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%d mapped, %d not needed, %d not supported, %d unknown. Next, in bash:\n\n%s\n",
		report.Count(akoimport.Mapped), report.Count(akoimport.NotNeeded), report.Count(akoimport.NotSupported), report.Count(akoimport.Unknown),
		strings.Join(report.Commands, "\n\n"))
	return err
}
