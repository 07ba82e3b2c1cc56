package server

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"rollcall/naming"
)

// logLevels are levels that operators set while the node runs, by component; "" is
// that of everything else. What nobody set is decided by the handler below.
type logLevels struct {
	mu     sync.RWMutex
	levels map[string]slog.Level
}

// components are the names that log lines carry. The others are what operators of the
// original call the same.
func logComponent(name string) (component string, ok bool) {
	switch name {
	case "root", "rollcall":
		return "", true
	case "naming-main", "naming-event":
		return "registry", true
	case "naming-push":
		return "udp", true
	case "naming-raft", "core-protocol-raft":
		return "raftstore", true
	case "core-cluster":
		return "members", true
	case "naming-distro", "core-protocol-distro":
		return "distro", true
	case "remote", "remote-core":
		return "grpc", true
	case "core-auth", "naming-server":
		return "http", true
	}
	return name, slices.Contains([]string{"distro", "grpc", "http", "life", "members", "peer", "raftstore", "registry", "udp"}, name)
}

// set sets the level of a component by name.
func (l *logLevels) set(name, level string) error {
	component, ok := logComponent(name)
	if !ok {
		return &naming.InvalidError{
			Fault: naming.FaultValue, Field: "logName",
			Text: "Param 'logName' is illegal, there is no log '" + clip(name) + "': it should be root, distro, grpc, http, life, members, peer, raftstore, registry or udp.",
		}
	}
	var parsed slog.Level
	switch strings.ToUpper(level) {
	case "TRACE", "DEBUG", "ALL":
		parsed = slog.LevelDebug
	case "INFO":
		parsed = slog.LevelInfo
	case "WARN", "WARNING":
		parsed = slog.LevelWarn
	case "ERROR":
		parsed = slog.LevelError
	case "OFF":
		parsed = slog.LevelError + 1
	default:
		return &naming.InvalidError{
			Fault: naming.FaultValue, Field: "logLevel",
			Text: "Param 'logLevel' is illegal, '" + clip(level) + "' should be TRACE, DEBUG, INFO, WARN, ERROR or OFF.",
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.levels == nil {
		l.levels = make(map[string]slog.Level)
	}
	l.levels[component] = parsed
	return nil
}

// get returns the level that counts for a component; ok is false when nobody set one.
func (l *logLevels) get(component string) (level slog.Level, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if level, ok = l.levels[component]; !ok {
		level, ok = l.levels[""]
	}
	return level, ok
}

func (l *logLevels) handler(below slog.Handler) slog.Handler {
	return &levelHandler{levels: l, below: below}
}

// levelHandler passes on what the levels let through.
type levelHandler struct {
	levels    *logLevels
	below     slog.Handler
	component string
}

// Enabled implements [slog.Handler].
func (h *levelHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if least, ok := h.levels.get(h.component); ok {
		return level >= least
	}
	return h.below.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *levelHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.below.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := &levelHandler{levels: h.levels, below: h.below.WithAttrs(attrs), component: h.component}
	for _, a := range attrs {
		if a.Key == "component" {
			next.component = a.Value.String()
		}
	}
	return next
}

// WithGroup implements [slog.Handler].
func (h *levelHandler) WithGroup(name string) slog.Handler {
	return &levelHandler{levels: h.levels, below: h.below.WithGroup(name), component: h.component}
}
