package distro

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quiet is how long a warning of the libraries is not repeated.
const quiet = 10 * time.Second

// libraryLog returns a logger for the libraries that writes to to.
func libraryLog(to *slog.Logger) *log.Logger {
	return log.New(&bridge{log: to}, "", 0)
}

// bridge passes the libraries' messages on to slog: an operator need act on none
// of them, and Members themselves tell who comes and goes, so that what is above
// Debug is what points at a fault in the network or the configuration.
type bridge struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[string]time.Time // by the beginning of the message
}

// Write takes one message, as log.Logger writes it.
func (b *bridge) Write(line []byte) (int, error) {
	level, text := bridged(strings.TrimSpace(string(line)))
	if b.log.Enabled(context.Background(), level) && (level < slog.LevelWarn || b.fresh(text)) {
		b.log.Log(context.Background(), level, text) //nolint:sloglint // the message is the library's
	}
	return len(line), nil
}

// bridged returns the level of a message, and the message without what stood for
// it.
func bridged(line string) (slog.Level, string) {
	tag, text := "", line
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if t, after, ok := strings.Cut(rest, "]"); ok {
			tag, text = t, strings.TrimSpace(after)
		}
	}
	for _, library := range []string{"memberlist: ", "yamux: ", "members: "} {
		text = strings.TrimPrefix(text, library)
	}
	if tag != "WARN" && tag != "ERR" && tag != "ERROR" {
		return slog.LevelDebug, text
	}
	for _, start := range []string{
		// A node that does not answer: seen at each attempt until its death is known.
		"Failed fallback TCP ping", "Failed to send", "Push/Pull with", "failed to receive", "Failed to receive",
		"keepalive failed", "Failed to write", "Failed to read", "aborted stream open",
		// A node that was restarted, renamed or suspected.
		"Refuting", "Got ping for unexpected node",
		// A conflict: Members report it.
		"Conflicting address",
		// Streams that were given up.
		"frame for missing stream", "Discarding data for stream",
	} {
		if strings.HasPrefix(text, start) && !strings.Contains(text, "crypt") {
			return slog.LevelDebug, text
		}
	}
	return slog.LevelWarn, text
}

// fresh reports whether a message that begins like this one was not logged lately.
func (b *bridge) fresh(text string) bool {
	start := text[:min(len(text), 40)]
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.told[start]) < quiet {
		return false
	}
	if b.told == nil || len(b.told) >= 64 {
		b.told = make(map[string]time.Time)
	}
	b.told[start] = time.Now()
	return true
}
