package raftstore

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"rollcall/consistency"
)

// fsm is what Raft applies committed entries to. Apply, Snapshot and Restore run
// on one goroutine of the library, which is the only writer of the table.
type fsm struct {
	table *consistency.DataStore
	index atomic.Uint64 // of the last command that was applied or restored

	// written counts the bytes of commands since the last snapshot; fullCh gets a
	// value when there are more than limit.
	written int64
	limit   int64
	fullCh  chan struct{} // of capacity 1
}

func newFSM(table *consistency.DataStore, limit int64) *fsm {
	return &fsm{table: table, limit: limit, fullCh: make(chan struct{}, 1)}
}

// Apply applies one log entry and returns one error (or nil) for each operation
// in it, as []error. It panics when it does not understand the entry.
func (f *fsm) Apply(entry *raft.Log) any {
	results, err := f.apply(entry)
	if err != nil {
		panic(fmt.Sprintf("log entry %d of term %d cannot be applied: %v. Stopped, because to go on without it would "+
			"make this node differ from the others. If a newer version of the program has written it, start that version; "+
			"else the log is damaged: restore a backup into an empty data folder", entry.Index, entry.Term, err))
	}
	return results
}

func (f *fsm) apply(entry *raft.Log) ([]error, error) {
	operations, err := decodeCommand(entry.Data)
	if err != nil {
		return nil, err
	}
	results := make([]error, len(operations))
	for n, op := range operations {
		if err := applyOperation(f.table, op, versionAt(entry.Index, n)); err != nil {
			return nil, fmt.Errorf("operation %d: %w", n, err)
		}
	}
	f.index.Store(entry.Index)
	if f.written += int64(len(entry.Data)); f.written > f.limit {
		select {
		case f.fullCh <- struct{}{}:
		default:
		}
	}
	return results, nil
}

// Snapshot takes references to every datum; they are written by Persist, beside
// further calls of Apply.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.written = 0
	return &snapshot{index: f.index.Load(), datums: f.table.Datums()}, nil
}

// Restore replaces the content of the table by that of a snapshot. A damaged
// snapshot changes nothing.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }()
	index, datums, err := readSnapshot(r)
	if err != nil {
		return err
	}
	f.table.Replace(datums)
	f.index.Store(index)
	return nil
}
