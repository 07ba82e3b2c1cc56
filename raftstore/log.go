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
// each step of an election or snapshot and become Debug, and so does what is routine:
// the store itself tells of leadership.
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

// What is repeated at each try while another node does not answer, or is part of any
// election, of a snapshot that is being written or of one for a node that is far behind.
// The transport tells once that a node cannot be reached, the log store that it takes no
// writes.
func routine(msg string) bool {
	for _, start := range []string{
		"failed to heartbeat", "failed to appendEntries", "failed to pipeline", "failed to start pipeline",
		"failed to make request", "failed to decode incoming", "failed to contact", "failed to get previous log",
		"appendEntries rejected", "rejecting vote request", "rejecting pre-vote request", "previous log term mis-match",
		"failed to append to logs", "heartbeat timeout reached", "Election timeout reached", "no known peers", "not part of stable configuration",
		"found temporary snapshot", "failed to get log", "failed to send snapshot to",
	} {
		if strings.HasPrefix(msg, start) {
			return true
		}
	}
	return false
}

func bridgedLevel(level hclog.Level, msg string) slog.Level {
	switch {
	case level < hclog.Warn || routine(msg):
		return slog.LevelDebug
	case level == hclog.Warn:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}
