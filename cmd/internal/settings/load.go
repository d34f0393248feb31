package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/lbsync/nearest"
)

// Values are the settings of one program as read once; they do not change.
type Values struct {
	table  Table
	file   string
	at     string            // of a record: what stands before its keys in messages, "providers[1]."
	own    map[string]any    // of a record: what it was given as
	short  bool              // of a record: it was given as a list of texts
	values map[string]any    // by key; string, bool, time.Duration, []string, map[string]string or []*Values
	source map[string]string // by key; see Error.Source
	given  map[string]string // by key; the value as its source has it
}

// Load reads the settings: flags over environment over file over default. flags must have parsed what AddFlags
// defined. Every error is an *Error.
func (t Table) Load(flags *pflag.FlagSet) (*Values, error) {
	file, err := flags.GetString(ConfigFlag)
	if err != nil {
		return nil, fmt.Errorf("settings of %s: %w", t.Program, err)
	}
	if file == "" {
		file = os.Getenv(t.ConfigEnv())
	}

	v := viper.New()
	structured := map[string]any{} // what is not for viper, which lower-cases the keys of everything
	if file != "" {
		inFile, err := t.readFile(file)
		if err != nil {
			return nil, err
		}
		for _, s := range t.Settings {
			if value, ok := inFile[s.Key]; ok && value != nil && (s.Kind == Labels || s.Kind == Records) {
				structured[s.Key] = value
				delete(inFile, s.Key)
			}
		}
		if err := v.MergeConfigMap(inFile); err != nil {
			return nil, &Error{Source: file, Reason: err.Error()}
		}
	}
	out := &Values{table: t, file: file, values: map[string]any{}, source: map[string]string{}, given: map[string]string{}}
	var records []func() error // they take from the other settings what they leave out
	for _, s := range t.Settings {
		raw, source, err := t.raw(v, flags, s, file, structured)
		if err != nil {
			return nil, err
		}
		out.source[s.Key], out.given[s.Key] = source, fmt.Sprint(raw)
		if s.Kind == Records {
			records = append(records, func() (err error) {
				out.values[s.Key], err = out.records(s, raw, source)
				return err
			})
			continue
		}
		value, reason := convert(s, raw)
		if reason == "" && s.Want != nil {
			reason = s.Want(value)
		}
		if reason != "" {
			return nil, out.wrong(s, fmt.Sprint(raw), source, reason)
		}
		out.values[s.Key] = value
	}
	for _, read := range records {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sourceDefault is the source of what nobody set.
const sourceDefault = "default"

// raw returns a setting's value as its source has it.
func (t Table) raw(v *viper.Viper, flags *pflag.FlagSet, s Setting, file string, structured map[string]any) (raw any, source string, err error) {
	inFile, isStructured := structured[s.Key]
	if s.FileOnly() {
		if !isStructured {
			return nil, sourceDefault, nil
		}
		return inFile, file, nil
	}
	env := t.Env(s)
	flag := flags.Lookup(s.Flag())
	v.SetDefault(s.Key, s.Default)
	if err := errors.Join(v.BindEnv(s.Key, env), v.BindPFlag(s.Key, flag)); err != nil {
		return nil, "", fmt.Errorf("settings of %s: %s: %w", t.Program, s.Key, err)
	}
	// An empty variable is no setting, as viper has it: a template that leaves one empty means the default.
	switch {
	case flag.Changed:
		return v.Get(s.Key), "--" + flag.Name, nil
	case os.Getenv(env) != "":
		return v.Get(s.Key), env, nil
	case isStructured:
		return inFile, file, nil
	case v.InConfig(s.Key):
		return v.Get(s.Key), file, nil
	default:
		return v.Get(s.Key), sourceDefault, nil
	}
}

// readFile returns the settings file as nested maps, after refusing keys that the table does not have: a misspelled
// setting would otherwise be silently its default.
func (t Table) readFile(file string) (map[string]any, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		fix := "name a readable YAML file in --" + ConfigFlag + " or " + t.ConfigEnv()
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		return nil, &Error{Source: file, Reason: "cannot read the settings file: " + err.Error(), Fix: fix}
	}
	out := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &out); err != nil {
		return nil, &Error{Source: file, Reason: err.Error(), Fix: "write the settings as YAML, one `key: value` per line"}
	}
	return out, t.known(out, "", file)
}

// known refuses keys that the table does not have; at is what stands before them in messages.
func (t Table) known(fields map[string]any, at, source string) error {
	for _, key := range leaves("", fields, t.sections()) {
		if _, known := t.find(key); known {
			continue
		}
		if t.sections()[key] {
			return &Error{
				Key: at + key, Value: fmt.Sprint(fields[key]), Source: source,
				Reason: "is a section, not a setting", Fix: "write its keys below it, one indented `key: value` per line",
			}
		}
		var known []string
		for _, s := range t.Settings {
			known = append(known, s.Key)
		}
		fix := "remove it; all keys are in docs/reference/settings.md"
		if near := nearest.To(key, known); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
		return &Error{Source: source, Reason: fmt.Sprintf("unknown setting %q", at+key), Fix: fix}
	}
	return nil
}

func (t Table) sections() map[string]bool {
	out := map[string]bool{}
	for _, s := range t.Settings {
		if section, _, nested := strings.Cut(s.Key, "."); nested {
			out[section] = true
		}
	}
	return out
}

// leaves returns the sorted dotted keys in m; it descends into sections only.
func leaves(prefix string, m map[string]any, sections map[string]bool) []string {
	var out []string
	for key, value := range m {
		if section, isMap := value.(map[string]any); isMap && prefix == "" && sections[key] {
			out = append(out, leaves(key+".", section, sections)...)
		} else if value != nil || !sections[prefix+key] { // `haproxy:` with nothing below it is an empty section
			out = append(out, prefix+key)
		}
	}
	slices.Sort(out)
	return out
}

// convert returns raw as the Go type of s, or why it is not one.
func convert(s Setting, raw any) (value any, reason string) {
	switch s.Kind {
	case Bool:
		switch b := raw.(type) {
		case nil:
			return false, ""
		case bool:
			return b, ""
		case string:
			if parsed, err := strconv.ParseBool(b); err == nil {
				return parsed, ""
			}
		}
		return nil, "want true or false"
	case Duration:
		const want = "want a duration with a unit"
		switch d := raw.(type) {
		case nil:
			return time.Duration(0), ""
		case time.Duration:
			return d, ""
		case string:
			if parsed, err := time.ParseDuration(d); err == nil {
				return parsed, ""
			}
		case int, int64, float64:
			if fmt.Sprint(d) == "0" {
				return time.Duration(0), ""
			}
		}
		return nil, want
	case List:
		return convertList(raw)
	case Labels:
		return convertLabels(raw)
	default:
		switch text := raw.(type) {
		case nil:
			return "", ""
		case string:
			return text, ""
		case []any, []string, map[string]any:
			return nil, "want one text"
		default: // a number or a boolean in YAML: take it as written
			return fmt.Sprint(text), ""
		}
	}
}

func convertList(raw any) (value any, reason string) {
	var out []string
	switch list := raw.(type) {
	case nil:
	case []string:
		out = append(out, list...)
	case string: // from the environment, or one bare text in the file
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
	case []any:
		for _, item := range list {
			switch item.(type) {
			case nil, []any, map[string]any:
				return nil, "want a list of texts"
			}
			out = append(out, fmt.Sprint(item))
		}
	default:
		return nil, "want a list of texts"
	}
	return out, ""
}

func (v *Values) wrong(s Setting, value, source, reason string) *Error {
	if s.Secret {
		value = redacted
	}
	e := &Error{Key: v.at + s.Key, Value: value, Source: source, Reason: reason}
	if source == sourceDefault && v.at == "" {
		e.Fix = fmt.Sprintf("set it with --%s or %s", s.Flag(), v.table.Env(s))
	}
	if s.Example != "" {
		e.Fix = strings.TrimPrefix(e.Fix+", for example "+s.Example, ", ")
	}
	return e
}

// String returns the value of a String setting. Like the other getters it panics on a key the table does not have.
func (v *Values) String(key string) string { return get[string](v, key) }

// Bool returns the value of a Bool setting.
func (v *Values) Bool(key string) bool { return get[bool](v, key) }

// Duration returns the value of a Duration setting.
func (v *Values) Duration(key string) time.Duration { return get[time.Duration](v, key) }

// List returns the value of a List setting.
func (v *Values) List(key string) []string { return get[[]string](v, key) }

// Defaulted reports whether nobody set the setting.
func (v *Values) Defaulted(key string) bool { return v.source[key] == sourceDefault }

// Has reports whether there is such a setting.
func (v *Values) Has(key string) bool {
	_, ok := v.table.find(key)
	return ok
}

func get[T any](v *Values, key string) T {
	value, ok := v.values[key].(T)
	if !ok {
		panic(fmt.Sprintf("settings of %s: no setting %s of type %T", v.table.Program, key, value))
	}
	return value
}

// Program returns the name of the program whose settings these are.
func (v *Values) Program() string { return v.table.Program }

// File returns the path of the settings file, or "".
func (v *Values) File() string { return v.file }

// Reject returns the error that blames a setting's present value: for a check that only the program can make.
func (v *Values) Reject(key, reason string) error {
	s, _ := v.table.find(key)
	return v.wrong(s, v.text(s), v.source[key], reason)
}

// Describe names a setting for an error message about its effect: `listen "0.0.0.0:1" (from default; set it with --listen or NPL_AGENT_LISTEN)`.
func (v *Values) Describe(key string) string {
	s, _ := v.table.find(key)
	return fmt.Sprintf("%s %q (from %s; set it with --%s or %s)", key, v.text(s), v.source[key], s.Flag(), v.table.Env(s))
}

const redacted = "(redacted)"

// text returns a value as a flag would take it.
func (v *Values) text(s Setting) string {
	if s.Secret && v.source[s.Key] != sourceDefault {
		return redacted
	}
	switch value := v.values[s.Key].(type) {
	case []string:
		return strings.Join(value, ",")
	case time.Duration:
		return durationText(value)
	case map[string]string:
		return labelText(value)
	case []*Values:
		return v.recordText(s)
	default:
		return fmt.Sprint(value)
	}
}

// Invalid turns what a configuration's own parsing or Validate found into an *Error of one line, and nil into nil. Where
// the message begins with a setting's key, the source of its value is added, and a duration stands as it was given: 25h, not
// 25h0m0s.
func (v *Values) Invalid(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if s, ok := v.named(line); ok {
			if d, ok := v.values[s.Key].(time.Duration); ok {
				line = strings.Replace(line, d.String(), v.given[s.Key], 1)
			}
			lines[i] = fmt.Sprintf("%s (from %s)", line, v.source[s.Key])
		}
	}
	source := "settings"
	if v.at != "" {
		source += ", " + v.At()
	}
	return &Error{Source: source, Reason: strings.Join(lines, "; ")}
}

// named returns the setting whose key a message begins with: "coolDown 1h: ..." or "haproxy dir: ...".
func (v *Values) named(message string) (Setting, bool) {
	first, rest, _ := strings.Cut(message, " ")
	first, _, _ = strings.Cut(first, "[") // a record of the setting
	second, _, _ := strings.Cut(rest, " ")
	for _, key := range []string{first, first + "." + second} {
		if s, ok := v.table.find(strings.ReplaceAll(key, ":", "")); ok {
			return s, true
		}
	}
	return Setting{}, false
}
