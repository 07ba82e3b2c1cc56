package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rollcall/consistency"
)

const (
	maxOperations = 256       // in one log entry
	maxEntryBytes = 128 << 10 // in one log entry, unless one operation is larger alone
	maxWaiting    = 4096      // operations; more callers wait for room

	// enqueueTimeout bounds the wait for Raft's main loop to take an entry. When it
	// is over nothing was written.
	enqueueTimeout = time.Second
)

// errNotAccepted means that nothing was written and that the write can be tried
// again once there is a leader.
var errNotAccepted = errors.New("not accepted by the leader")

// batcher puts operations that wait at the same time into one log entry. There is
// no timer: an entry leaves as soon as the one before is written, and takes along what
// has come in the meantime. Operations keep their order.
type batcher struct {
	apply func(command []byte, timeout time.Duration) raft.ApplyFuture

	wakeCh chan struct{} // of capacity 1: something waits
	roomCh chan struct{} // holds one value for each waiting operation
	stopCh chan struct{} // closed: take in and send nothing more
	goneCh chan struct{} // closed: nobody will answer what is still under way

	mu      sync.Mutex
	waiting []*write
}

// write is one operation on its way into the log.
type write struct {
	operation []byte
	doneCh    chan result // of capacity 1
	taken     bool        // is in an entry; guarded by batcher.mu
	withdrawn bool        // its caller has gone; guarded by batcher.mu
}

func newBatcher() *batcher {
	return &batcher{
		wakeCh: make(chan struct{}, 1),
		roomCh: make(chan struct{}, maxWaiting),
		stopCh: make(chan struct{}),
		goneCh: make(chan struct{}),
	}
}

// submit writes one encoded operation and waits until it is applied here, or for
// ctx; it returns the index of its log entry. errNotAccepted, ErrClosed and the
// error of ctx mean that nothing was written, ErrUnknownOutcome that it may have
// been.
func (b *batcher) submit(ctx context.Context, operation []byte) (index uint64, err error) {
	select {
	case <-b.stopCh: // first: with room left the select below would choose at random
		return 0, consistency.ErrClosed
	default:
	}
	select {
	case b.roomCh <- struct{}{}:
	case <-b.stopCh:
		return 0, consistency.ErrClosed
	case <-ctx.Done():
		return 0, fmt.Errorf("nothing was written, too many writes wait: %w", ctx.Err())
	}
	w := &write{operation: operation, doneCh: make(chan result, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case b.wakeCh <- struct{}{}:
	default:
	}

	select {
	case r := <-w.doneCh:
		return r.index, r.err
	case <-ctx.Done():
		if b.withdraw(w) {
			return 0, fmt.Errorf("nothing was written: %w", ctx.Err())
		}
		return 0, fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, ctx.Err())
	case <-b.stopCh:
	}
	if b.withdraw(w) {
		return 0, consistency.ErrClosed
	}
	select {
	case r := <-w.doneCh:
		return r.index, r.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, ctx.Err())
	case <-b.goneCh:
	}
	select {
	case r := <-w.doneCh: // both are there
		return r.index, r.err
	default:
		return 0, fmt.Errorf("%w: the store is closed", consistency.ErrUnknownOutcome)
	}
}

// withdraw takes back a write that is in no entry yet. It returns false when it
// is too late for that.
func (b *batcher) withdraw(w *write) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.withdrawn = !w.taken
	return w.withdrawn
}

// take removes the writes for the next entry from those that wait; nil when none
// do.
func (b *batcher) take() []*write {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*write
	n, size := 0, 0
	for n < len(b.waiting) && len(batch) < maxOperations {
		w := b.waiting[n]
		if len(batch) > 0 && size+len(w.operation) > maxEntryBytes {
			break
		}
		n++
		<-b.roomCh
		if !w.withdrawn {
			w.taken = true
			size += len(w.operation)
			batch = append(batch, w)
		}
	}
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	return batch
}

// run sends entries to Raft until the batcher is stopped, and then waits for the one
// that is under way.
func (b *batcher) run() {
	for {
		select {
		case <-b.wakeCh:
		case <-b.stopCh:
			return
		}
		for b.writeOne() {
		}
	}
}

// writeOne writes what waits as one entry. It returns false when nothing waits or the
// batcher is stopped.
func (b *batcher) writeOne() bool {
	select {
	case <-b.stopCh:
		return false
	default:
	}
	writes := b.take()
	if len(writes) == 0 {
		return false
	}
	operations := make([][]byte, len(writes))
	for n, w := range writes {
		operations[n] = w.operation
	}
	answer(writes, b.apply(encodeCommand(operations, time.Now()), enqueueTimeout))
	return true
}

// answer waits for an entry and hands its results to the callers.
func answer(writes []*write, future raft.ApplyFuture) {
	err := future.Error()
	if err != nil {
		err = outcome(err)
	} else if fault, ok := future.Response().(error); ok {
		err = fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, fault)
	}
	if err != nil {
		for _, w := range writes {
			w.doneCh <- result{err: err}
		}
		return
	}
	results, ok := future.Response().([]result)
	if !ok || len(results) != len(writes) {
		panic(fmt.Sprintf("log entry %d: %d operations have the results %v", future.Index(), len(writes), future.Response()))
	}
	for n, w := range writes {
		w.doneCh <- results[n]
	}
}

// outcome turns an error of Raft into one of ours.
func outcome(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrAbortedByRestore):
		return fmt.Errorf("%w: %w", errNotAccepted, err)
	}
	return fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
}
