// Package logging builds the logger of a program: zap to standard error, for people on a terminal and as JSON
// elsewhere, with a level that can change while the program runs.
package logging

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
	"k8s.io/klog/v2"
)

// Levels are the values of the setting logLevel, most talkative first.
var Levels = []string{"debug", "info", "warn", "error"}

// Formats are the values of the setting logFormat. "auto" is console on a terminal and JSON elsewhere.
var Formats = []string{"auto", "console", "json"}

// ParseLevel returns the level of one of Levels.
func ParseLevel(text string) (zapcore.Level, error) {
	for _, level := range Levels {
		if text == level {
			return zapcore.ParseLevel(level)
		}
	}
	return 0, fmt.Errorf("want one of %s", strings.Join(Levels, ", "))
}

// ParseFormat reports whether out gets lines for people rather than JSON.
func ParseFormat(text string, out *os.File) (console bool, err error) {
	switch text {
	case "auto":
		return term.IsTerminal(int(out.Fd())), nil
	case "console":
		return true, nil
	case "json":
		return false, nil
	default:
		return false, fmt.Errorf("want one of %s", strings.Join(Formats, ", "))
	}
}

// New returns a logger that writes to out. Its fields are ts, level, msg, logger and, for errors below the top,
// what the caller adds; console lines hold the same without names.
func New(out zapcore.WriteSyncer, console bool, level zap.AtomicLevel) *zap.Logger {
	config := zapcore.EncoderConfig{
		TimeKey: "ts", LevelKey: "level", MessageKey: "msg", NameKey: "logger",
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
		EncodeName:     zapcore.FullNameEncoder,
	}
	encoder := zapcore.NewJSONEncoder(config)
	if console {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		config.ConsoleSeparator = " "
		encoder = zapcore.NewConsoleEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(out), level), zap.ErrorOutput(zapcore.Lock(out)))
}

// Klog sends what client-go logs through klog to log, under the name "client-go". klog is process-wide, so a main
// calls this once.
func Klog(log *zap.Logger) { klog.SetLogger(zapr.NewLogger(log.Named("client-go"))) }
