package client

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rollcall/naming"
)

// failoverSwitch is the file that switches failover on with a line 1 and off with a
// line 0 (C10).
const failoverSwitch = "00-00---000-VIPSRV_FAILOVER_SWITCH-000---00-00"

// failover shows lists from files in place of those of servers while an operator has it
// switched on (semantics.md 12.4). A service without a file goes on as usual.
type failover struct {
	dir       string
	namespace string
	interval  time.Duration
	log       *slog.Logger
	show      func(old, lists map[naming.ServiceKey]*Service) // applies a change to what is there
	wg        sync.WaitGroup
	endCh     chan struct{}
	touched   time.Time // of the switch file when it was read

	mu    sync.Mutex
	lists map[naming.ServiceKey]*Service // nil: off
}

func newFailover(cfg Config, log *slog.Logger) *failover {
	return &failover{
		dir: filepath.Join(cacheFolder(cfg), "failover"), namespace: cfg.Namespace, interval: cfg.FailoverInterval, log: log,
		endCh: make(chan struct{}),
	}
}

func (f *failover) start() {
	f.look()
	f.wg.Go(f.run)
}

func (f *failover) close() {
	close(f.endCh)
	f.wg.Wait()
}

// get returns what is shown of a service in place of servers' lists; nil: nothing.
func (f *failover) get(key naming.ServiceKey) *Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists[key]
}

func (f *failover) run() {
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.look()
		case <-f.endCh:
			return
		}
	}
}

// look reads the switch if it was touched since the last time, and with it the lists.
func (f *failover) look() {
	path := filepath.Join(f.dir, failoverSwitch)
	info, err := os.Stat(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn("the switch of failover cannot be read", "err", err)
			return
		}
		f.touched = time.Time{}
		f.set(nil)
		return
	}
	if info.ModTime().Equal(f.touched) {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.log.Warn("the switch of failover cannot be read", "err", err)
		return
	}
	f.touched = info.ModTime()
	for line := range strings.Lines(string(text)) {
		switch strings.TrimSpace(line) {
		case "1":
			f.set(readLists(f.dir, f.namespace, f.log))
			return
		case "0":
			f.set(nil)
			return
		}
	}
	f.log.Warn("the switch of failover has neither a line 1 nor a line 0; it stays as it was")
}

func (f *failover) set(lists map[naming.ServiceKey]*Service) {
	f.mu.Lock()
	old := f.lists
	f.lists = lists
	f.mu.Unlock()
	if (old == nil) != (lists == nil) || lists != nil {
		f.log.Info("failover", "on", lists != nil, "services", len(lists))
	}
	f.show(old, lists)
}
