package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rollcall/consistency"
)

// fsm is what Raft applies committed entries to. Apply, Snapshot and Restore run
// on one goroutine of the library, which is the only writer of the table.
type fsm struct {
	table   *consistency.DataStore
	index   progress // the last command that was applied or restored
	cluster atomic.Pointer[string]

	// mu is held while an entry or a snapshot is taken in, listeners of the table
	// included, so that an image is of one moment.
	mu       sync.Mutex
	timeMs   uint64 // the largest time in any command
	requests requests

	// written is the cost of the entries since the last snapshot, in bytes; fullCh
	// gets a value when it is more than limit and more than kept, the size of that
	// snapshot. So snapshots never write more than the log does.
	written int64
	limit   int64
	kept    atomic.Int64
	fullCh  chan struct{} // of capacity 1

	// fault is why nothing is applied any more; nil while everything is. failed is
	// called with it once, and may be nil.
	fault  atomic.Pointer[error]
	failed func(error)

	watch   *stopwatch // of Apply, may be nil
	metrics *metrics   // may be nil
	noticed func()     // called when the configuration or the name of the nodes changed; may be nil
}

// entryCost is what an entry takes on the disk and at a start beside its bytes: a page.
const entryCost = 4 << 10

// result is what became of one operation.
type result struct {
	index uint64 // of the log entry that it is in, or was when it is a repetition
	err   error
}

func newFSM(table *consistency.DataStore, limit int64) *fsm {
	f := &fsm{table: table, limit: limit, fullCh: make(chan struct{}, 1), requests: newRequests()}
	f.index.init()
	f.cluster.Store(new(string))
	return f
}

// Apply applies one log entry and returns the result of each operation in it, as
// []result. An entry that was applied before the library ran is not applied again:
// it would show an older state for a moment. When Apply does not understand an
// entry it returns an error, and for every later one the same error: the store
// must be closed then.
func (f *fsm) Apply(entry *raft.Log) any {
	if entry.Index <= f.index.load() {
		return []result(nil)
	}
	if err := f.failure(); err != nil {
		return err
	}
	defer f.watch.start("applying a log entry")()
	f.mu.Lock()
	defer f.mu.Unlock()
	results, err := f.apply(entry)
	if err != nil {
		return f.fail(fmt.Errorf("log entry %d of term %d cannot be applied: %w; to go on without it would make this node "+
			"differ from the others: if a newer version of the program has written it, start that version; else the log is "+
			"damaged: restore a backup into an empty data folder", entry.Index, entry.Term, err))
	}
	return results
}

// fail ends the work of the FSM: what comes behind the fault must not be applied.
func (f *fsm) fail(err error) error {
	f.fault.Store(&err)
	if f.failed != nil {
		f.failed(err)
	}
	return err
}

// failure returns why nothing is applied any more; nil while everything is.
func (f *fsm) failure() error { return pointed(f.fault.Load()) }

func (f *fsm) apply(entry *raft.Log) ([]result, error) {
	command, err := decodeCommand(entry.Data)
	if err != nil {
		return nil, err
	}
	f.timeMs = max(f.timeMs, command.timeMs)
	f.requests.expire(f.timeMs)
	results := make([]result, len(command.operations))
	for n, op := range command.operations {
		v := versionAt(entry.Index, n)
		results[n].index = entry.Index
		if id := op.request; len(id) > 0 {
			if len(id) != requestBytes {
				return nil, fmt.Errorf("operation %d: %w: a request of %d bytes", n, errMalformed, len(id))
			}
			if version, ok := f.requests.find(id); ok {
				results[n].index = version >> positionBits
				continue
			}
			f.requests.add(id, f.timeMs, v.Time)
		}
		if c, ok := op.other.GetChange().(*Operation_SetCluster); ok {
			f.setCluster(c.SetCluster.GetId())
			continue
		}
		if err := applyOperation(f.table, op, v); err != nil {
			return nil, fmt.Errorf("operation %d: %w", n, err)
		}
	}
	f.index.advance(entry.Index)
	if f.metrics != nil {
		f.metrics.applied.Add(float64(len(results)))
		f.metrics.batch.Observe(float64(len(results)))
	}
	if f.written += int64(len(entry.Data)) + entryCost; f.written > max(f.limit, f.kept.Load()) {
		select {
		case f.fullCh <- struct{}{}:
		default:
		}
	}
	return results, nil
}

// setCluster names the nodes, unless they have a name.
func (f *fsm) setCluster(id string) {
	if *f.cluster.Load() == "" {
		f.cluster.Store(&id)
		f.notice()
	}
}

func (f *fsm) notice() {
	if f.noticed != nil {
		f.noticed()
	}
}

// StoreConfiguration implements raft.ConfigurationStore. With it the library counts
// configurations among what was applied; without it no snapshot could be taken
// between a change of the configuration and the next write.
func (f *fsm) StoreConfiguration(uint64, raft.Configuration) { f.notice() }

// Snapshot takes references to every datum; they are written by Persist, beside
// further calls of Apply.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	f.written = 0
	s := &snapshot{image: f.image()}
	s.written = func(bytes int64) {
		f.snapshotKept(s.index, bytes)
		if f.metrics != nil {
			f.metrics.snapshots.Inc()
		}
	}
	return s, nil
}

// image returns the present state. Safe for concurrent use.
func (f *fsm) image() image {
	f.mu.Lock()
	defer f.mu.Unlock()
	return image{
		index: f.index.load(), timeMs: f.timeMs, cluster: *f.cluster.Load(),
		requests: f.requests.all(), datums: f.table.Datums(),
	}
}

// Restore replaces the content of the table by that of a snapshot. A damaged
// snapshot changes nothing.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }()
	if err := f.failure(); err != nil {
		return err
	}
	counted := &countingReader{in: r}
	i, err := readSnapshot(counted)
	if errors.Is(err, errNewer) {
		return f.fail(err)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.Replace(i.datums)
	f.requests.replace(i.requests)
	f.timeMs = i.timeMs
	f.cluster.Store(&i.cluster)
	f.written = 0
	f.index.advance(i.index)
	f.notice()
	f.snapshotKept(i.index, counted.bytes)
	return nil
}

// snapshotKept notes the newest snapshot, which was taken here or received.
func (f *fsm) snapshotKept(index uint64, bytes int64) {
	f.kept.Store(bytes)
	if f.metrics != nil {
		f.metrics.snapshotKept(index, bytes, time.Now())
	}
}

// progress is how far the log is applied; others can wait for it.
type progress struct {
	index   atomic.Uint64
	waiting atomic.Int64

	mu      sync.Mutex
	movedCh chan struct{} // closed and replaced when the index moves while someone waits
}

func (p *progress) init()        { p.movedCh = make(chan struct{}) }
func (p *progress) load() uint64 { return p.index.Load() }

// advance sets the index. After a backup was restored it may be smaller than before.
func (p *progress) advance(index uint64) {
	p.index.Store(index)
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	close(p.movedCh)
	p.movedCh = make(chan struct{})
	p.mu.Unlock()
}

// wait waits until the index is reached, for ctx, or until stopCh is closed.
func (p *progress) wait(ctx context.Context, index uint64, stopCh <-chan struct{}) error {
	if p.index.Load() >= index {
		return nil
	}
	p.waiting.Add(1) // first: whoever moves the index from here on sees it
	defer p.waiting.Add(-1)
	for {
		p.mu.Lock()
		movedCh := p.movedCh
		p.mu.Unlock()
		if p.index.Load() >= index {
			return nil
		}
		select {
		case <-movedCh:
		case <-ctx.Done():
			return ctx.Err()
		case <-stopCh:
			return consistency.ErrClosed
		}
	}
}

// stopwatch tells of work that takes long, also while it is not done yet.
type stopwatch struct {
	log *slog.Logger

	mu    sync.Mutex
	begun time.Time // zero when nothing runs
	what  string
}

// start notes the start of some work; the function that it returns notes the end.
// A nil stopwatch notes nothing.
func (w *stopwatch) start(what string) func() {
	if w == nil {
		return func() {}
	}
	begun := time.Now()
	w.mu.Lock()
	w.begun, w.what = begun, what
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		w.begun = time.Time{}
		w.mu.Unlock()
		if took := time.Since(begun); took >= slowWork {
			w.log.Warn("raft was slow", "what", what, "took", took)
		}
	}
}

// running returns when the present work began and what it is; the zero time when
// there is none.
func (w *stopwatch) running() (begun time.Time, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun, w.what
}
