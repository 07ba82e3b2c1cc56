package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
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
	slowWrite   = time.Second
)

// ErrInUse means that another process has the data folder open.
var ErrInUse = errors.New("data folder is in use by another process")

// logStore is the log and stable store on disk. It adds the prefix clamp and a
// stopwatch to raft-boltdb.
type logStore struct {
	*raftboltdb.BoltStore
	// oldestKept returns the index up to which a prefix may be deleted.
	oldestKept func() (uint64, error)
	log        *slog.Logger
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
	return &logStore{BoltStore: store, log: log}, nil
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

// StoreLogs writes entries, and says so when the disk is slow.
func (l *logStore) StoreLogs(entries []*raft.Log) error {
	start := time.Now()
	err := l.BoltStore.StoreLogs(entries)
	if took := time.Since(start); took > slowWrite {
		l.log.Warn("writing the log was slow", "took", took, "entries", len(entries))
	}
	return err
}
