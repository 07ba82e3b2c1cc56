package raftstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// libraryLogger returns a logger for the Raft library that writes to log.
func libraryLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off})
	l.RegisterSink(bridge{log})
	return l
}

// bridge passes the library's messages on to slog. Those of its Info level tell
// each step of an election or snapshot and become Debug: the store itself tells
// of leadership.
type bridge struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (b bridge) Accept(_ string, level hclog.Level, msg string, args ...any) {
	l := bridgedLevel(level, msg)
	if !b.log.Enabled(context.Background(), l) {
		return
	}
	for n, a := range args {
		switch a := a.(type) {
		case hclog.Format:
			if text, ok := a[0].(string); ok {
				args[n] = fmt.Sprintf(text, a[1:]...)
			}
		case string:
			if n%2 == 0 && a == "error" {
				args[n] = "err"
			}
		}
	}
	b.log.Log(context.Background(), l, msg, args...) //nolint:sloglint // the message is the library's
}

func bridgedLevel(level hclog.Level, msg string) slog.Level {
	switch level {
	case hclog.Error:
		// About a peer that does not answer: repeated at each try, mends itself.
		for _, start := range []string{"failed to heartbeat", "failed to appendEntries", "failed to pipeline", "failed to make request", "failed to decode incoming"} {
			if strings.HasPrefix(msg, start) {
				return slog.LevelWarn
			}
		}
		return slog.LevelError
	case hclog.Warn:
		// How every node's life begins.
		if strings.HasPrefix(msg, "heartbeat timeout reached, starting election") {
			return slog.LevelDebug
		}
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
