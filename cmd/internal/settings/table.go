// Package settings reads what a user can set, from a YAML file, the environment and flags, in this order of rising
// precedence. One Table per program names every setting once; flags, environment variables, --help, --print-config and
// docs/reference/settings.md all follow from it.
package settings

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
)

// Kind is the type of a setting's value.
type Kind int

// The kinds. A value of another form is an error that names the setting; nothing is converted silently.
const (
	String   Kind = iota // any text
	Bool                 // true or false
	Duration             // a Go duration: 90s, 5m, 1h30m; a bare number has no unit and is refused, except 0
	List                 // texts; a YAML list, or separated by commas in flags and environment
	Labels               // labels; a list of {key, value} in the file, key=value separated by commas in flags and environment
	Records              // a list of records, see Setting.Fields; in the file only, except for Setting.Short
)

// String names the kind in documentation.
func (k Kind) String() string {
	switch k {
	case Bool:
		return "boolean"
	case Duration:
		return "duration"
	case List:
		return "list"
	case Labels:
		return "labels"
	case Records:
		return "list of records"
	default:
		return "text"
	}
}

// Setting is one thing a user can set.
type Setting struct {
	// Key is the name in the file, in camelCase; a dot separates a section from its keys: "haproxy.masterSocket".
	Key  string
	Kind Kind
	// Default is a string, bool, time.Duration or []string, as Kind says; nil is the zero value. Labels and Records have none.
	Default any
	// Doc is one sentence or a few, without a final full stop: what it is, unit, valid range.
	Doc string
	// Example is a value as it stands in the YAML file.
	Example string
	// Want says what a value that cannot be used should be instead, and "" of a good one; it gets the Go type that Kind
	// says. Nil takes every value. What needs several settings or the machine is not for here.
	Want func(value any) string
	// Secret values are never printed.
	Secret bool
	// Fields are the keys of each record of a Records setting.
	Fields []Setting
	// Short is the key of the List field that a list of bare texts stands for, in flags and environment too; empty takes records only.
	Short string
	// Live settings take effect when the file changes, without a restart.
	Live bool
}

// Table is every setting of one program.
type Table struct {
	Program   string // "npl-agent"
	EnvPrefix string // "NPL_AGENT"
	Settings  []Setting
}

// ConfigFlag is the flag that names the settings file. It is not a setting: a file cannot name itself.
const ConfigFlag = "config"

// Flag returns the flag that sets s, without dashes: "haproxy.masterSocket" is "haproxy-master-socket".
func (s Setting) Flag() string { return strings.Join(words(s.Key), "-") }

// Env returns the environment variable that sets s: "haproxy.masterSocket" is "LBSYNC_HAPROXY_MASTER_SOCKET".
func (t Table) Env(s Setting) string {
	return t.EnvPrefix + "_" + strings.ToUpper(strings.Join(words(s.Key), "_"))
}

// ConfigEnv returns the environment variable that names the settings file.
func (t Table) ConfigEnv() string { return t.EnvPrefix + "_CONFIG" }

// words splits a camelCase, dotted key into lower-case words; a run of capitals is one word.
func words(key string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			out = append(out, word.String())
			word.Reset()
		}
	}
	previous := '.'
	for _, r := range key {
		if r == '.' || unicode.IsUpper(r) && !unicode.IsUpper(previous) {
			flush()
		}
		if r != '.' {
			word.WriteRune(unicode.ToLower(r))
		}
		previous = r
	}
	flush()
	return out
}

// AddFlags defines --config and one flag per setting. Booleans and durations are texts to pflag: a bad value is then
// reported like one from the file or the environment.
func (t Table) AddFlags(flags *pflag.FlagSet) {
	flags.String(ConfigFlag, "", fmt.Sprintf("settings file, YAML (%s)", t.ConfigEnv()))
	for _, s := range t.Settings {
		if s.FileOnly() {
			continue
		}
		// pflag would take what is between backquotes for the name of the value.
		usage := strings.ReplaceAll(fmt.Sprintf("%s (%s)", s.Doc, t.Env(s)), "`", "'")
		switch s.Kind {
		case Bool:
			text := boolText(fmt.Sprint(zero[bool](s.Default)))
			flags.VarPF(&text, s.Flag(), "", usage).NoOptDefVal = "true"
		case Duration:
			flags.String(s.Flag(), durationText(zero[time.Duration](s.Default)), usage)
		case List, Labels, Records:
			flags.StringSlice(s.Flag(), zero[[]string](s.Default), usage)
		default:
			flags.String(s.Flag(), zero[string](s.Default), usage)
		}
	}
}

// boolText is the flag of a Bool. Its type is not pflag's "bool", of which viper makes false whatever the text is.
type boolText string

func (b *boolText) Set(text string) error { *b = boolText(text); return nil }
func (b *boolText) String() string        { return string(*b) }
func (b *boolText) Type() string          { return "boolean" }

// zero returns v as a T, or T's zero value where a setting has no default.
func zero[T any](v any) T {
	t, _ := v.(T)
	return t
}

func (t Table) find(key string) (Setting, bool) {
	for _, s := range t.Settings {
		if s.Key == key {
			return s, true
		}
	}
	return Setting{}, false
}
