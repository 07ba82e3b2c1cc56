package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

const (
	logFile     = "raft.db"
	lockTimeout = time.Second
	initialMmap = 64 << 20 // growing the map stops readers for a moment
	diskRetry   = 100 * time.Millisecond

	keyCurrentTerm = "CurrentTerm" // the library's key
)

// ErrInUse means that another process has the data folder open.
var ErrInUse = errors.New("data folder is in use by another process")

// logStore is the log and stable store on disk. To raft-boltdb it adds the prefix
// clamp, a stopwatch, what is known of the disk's health, and patience with a disk
// that takes no writes.
type logStore struct {
	*raftboltdb.BoltStore
	dir string
	// oldestKept returns the index up to which a prefix may be deleted.
	oldestKept func() (uint64, error)
	log        *slog.Logger
	watch      *stopwatch
	faults     func(op string) error // injected by tests, else nil
	failing    atomic.Pointer[error] // why the last write failed; nil or to nil when it did not
	space      atomic.Pointer[error] // why there is too little space; nil or to nil when there is enough
	// stopCh is nil until Raft runs, and closed when the store closes. In between
	// the stable store does not return an error, see retry.
	stopCh <-chan struct{}
}

func openLogStore(dir string, log *slog.Logger) (*logStore, error) {
	path := filepath.Join(dir, logFile)
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:         lockTimeout,
			NoFreelistSync:  true,
			FreelistType:    bbolt.FreelistMapType,
			InitialMmapSize: initialMmap,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &logStore{BoltStore: store, dir: dir, log: log, watch: &stopwatch{log: log}}, nil
}

// DeleteRange deletes entries. A prefix is deleted only as far as the oldest
// snapshot that is kept reaches: the library would delete more, and could not
// start from that snapshot when the newer one is damaged. The removal of a
// suffix, which conflicts with what the leader has, is left as it is.
func (l *logStore) DeleteRange(from, to uint64) error {
	first, err := l.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	if from <= first && to < last {
		kept, err := l.oldestKept()
		if err != nil {
			return err
		}
		if to = min(to, kept); to < from {
			return nil
		}
	}
	return l.BoltStore.DeleteRange(from, to)
}

// StoreLog writes one entry; see StoreLogs.
func (l *logStore) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs writes entries.
func (l *logStore) StoreLogs(entries []*raft.Log) error {
	return l.note(func() error { return l.BoltStore.StoreLogs(entries) })
}

// Set writes a value of the stable store. While Raft runs it waits for the disk to
// take it.
func (l *logStore) Set(key, value []byte) error {
	return l.retry(key, func() error { return l.BoltStore.Set(key, value) })
}

// SetUint64 writes a value of the stable store as Set does.
func (l *logStore) SetUint64(key []byte, value uint64) error {
	return l.retry(key, func() error { return l.BoltStore.SetUint64(key, value) })
}

// retry writes until the disk takes it: the library panics when it cannot write a
// term. The node answers nobody meanwhile, which is what Raft takes for a node that
// is away. When the store is closed, a term that was not written does no harm, as
// the library votes in no term and acknowledges no entry without another write;
// anything else fails.
func (l *logStore) retry(key []byte, write func() error) error {
	for {
		err := l.note(write)
		if err == nil || l.stopCh == nil {
			return err
		}
		select {
		case <-time.After(diskRetry):
		case <-l.stopCh:
			if string(key) == keyCurrentTerm {
				return nil
			}
			return err
		}
	}
}

// note runs a write and keeps its outcome in mind.
func (l *logStore) note(write func() error) error {
	defer l.watch.start("writing to disk")()
	var err error
	if l.faults != nil {
		err = l.faults("write")
	}
	if err == nil {
		err = write()
	}
	if err == nil && l.faults != nil {
		err = l.faults("sync")
	}
	was := l.broken()
	if err != nil && was == nil {
		failing := fmt.Errorf("write to %s: %w", filepath.Join(l.dir, logFile), err)
		l.failing.Store(&failing)
		l.log.Error("persistent data is read-only", "err", failing)
	} else if err == nil && was != nil {
		l.failing.Store(nil)
		l.log.Info("persistent data can be written again")
	}
	return err
}

// broken returns why the last write failed; nil when it did not.
func (l *logStore) broken() error { return pointed(l.failing.Load()) }

// full returns why there is too little space; nil when there is enough.
func (l *logStore) full() error { return pointed(l.space.Load()) }

func pointed(err *error) error {
	if err == nil {
		return nil
	}
	return *err
}
