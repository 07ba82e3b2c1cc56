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
	maxInFlight   = 2         // log entries that are under way at once
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
// no timer: an entry leaves as soon as fewer than maxInFlight are under way, and
// takes along what has come in the meantime. Operations keep their order.
type batcher struct {
	apply func(command []byte, timeout time.Duration) raft.ApplyFuture

	wakeCh   chan struct{} // of capacity 1: something waits
	roomCh   chan struct{} // holds one value for each waiting operation
	slotCh   chan struct{} // holds one value for each entry in flight
	flightCh chan flight   // to the collector, in the order of the log
	stopCh   chan struct{} // closed: take in and send nothing more
	goneCh   chan struct{} // closed: nobody will answer what is still in flight

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

// flight is a log entry under way.
type flight struct {
	future raft.ApplyFuture
	writes []*write
}

func newBatcher() *batcher {
	return &batcher{
		wakeCh:   make(chan struct{}, 1),
		roomCh:   make(chan struct{}, maxWaiting),
		slotCh:   make(chan struct{}, maxInFlight),
		flightCh: make(chan flight, maxInFlight),
		stopCh:   make(chan struct{}),
		goneCh:   make(chan struct{}),
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

// dispatch sends entries to Raft until the batcher is stopped.
func (b *batcher) dispatch() {
	defer close(b.flightCh)
	for {
		select {
		case <-b.wakeCh:
		case <-b.stopCh:
			return
		}
		for b.dispatchOne() {
		}
	}
}

// dispatchOne sends what waits as one entry. It returns false when nothing waits
// or the batcher is stopped.
func (b *batcher) dispatchOne() bool {
	select {
	case b.slotCh <- struct{}{}:
	case <-b.stopCh:
		return false
	}
	select {
	case <-b.stopCh:
		return false
	default:
	}
	writes := b.take()
	if len(writes) == 0 {
		<-b.slotCh
		return false
	}
	operations := make([][]byte, len(writes))
	for n, w := range writes {
		operations[n] = w.operation
	}
	b.flightCh <- flight{b.apply(encodeCommand(operations, time.Now()), enqueueTimeout), writes}
	return true
}

// collect hands the results of entries to the callers. It ends after dispatch has,
// when nothing is in flight any more.
func (b *batcher) collect() {
	for f := range b.flightCh {
		err := f.future.Error()
		<-b.slotCh
		if err != nil {
			err = outcome(err)
			for _, w := range f.writes {
				w.doneCh <- result{err: err}
			}
			continue
		}
		if fault, ok := f.future.Response().(error); ok {
			for _, w := range f.writes {
				w.doneCh <- result{err: fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, fault)}
			}
			continue
		}
		results, ok := f.future.Response().([]result)
		if !ok || len(results) != len(f.writes) {
			panic(fmt.Sprintf("log entry %d: %d operations have the results %v", f.future.Index(), len(f.writes), f.future.Response()))
		}
		for n, w := range f.writes {
			w.doneCh <- results[n]
		}
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
