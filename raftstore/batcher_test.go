package raftstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

// entry is a log entry that the test answers by hand.
type entry struct {
	log        *fakeLog
	operations []string
	doneCh     chan struct{}
	err        error
	results    []result
}

func (e *entry) Error() error  { <-e.doneCh; return e.err }
func (e *entry) Response() any { return e.results }
func (e *entry) Index() uint64 { return 1 }
func (e *entry) answer(err error) {
	e.err = err
	e.log.busy.Store(false)
	close(e.doneCh)
}

// fakeLog is the Raft side of a batcher: entries appear on sentCh.
type fakeLog struct {
	*batcher
	sentCh chan *entry
	busy   atomic.Bool // an entry is under way
}

func startBatcher(t *testing.T) *fakeLog {
	t.Helper()
	f := &fakeLog{batcher: newBatcher(), sentCh: make(chan *entry, 1)}
	f.apply = func(command []byte, _ time.Duration) raft.ApplyFuture {
		e := &entry{log: f, doneCh: make(chan struct{})}
		f.busy.Store(true)
		decoded, err := decodeCommand(command)
		if err != nil {
			panic(err)
		}
		for n, op := range decoded.operations {
			name := op.other.GetDelete().GetPublisher()
			e.operations = append(e.operations, name)
			r := result{index: uint64(n)}
			if strings.HasPrefix(name, "refused") {
				r.err = fmt.Errorf("result %d", n)
			}
			e.results = append(e.results, r)
		}
		f.sentCh <- e
		return e
	}
	var wg sync.WaitGroup
	wg.Go(f.run)
	t.Cleanup(func() {
		select {
		case <-f.stopCh:
		default:
			close(f.stopCh)
		}
		wg.Wait()
	})
	return f
}

// submitAsync submits an operation with a name and waits until it is in the queue.
func (f *fakeLog) submitAsync(ctx context.Context, t *testing.T, name string) <-chan error {
	t.Helper()
	op, err := deleteOperation(consistency.Key{Kind: consistency.KindInstance, Publisher: name})
	require.NoError(t, err)
	b := encoded(t, op)
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.waiting)
	}
	before, busy := count(), f.busy.Load()
	doneCh := make(chan error, 1)
	go func() {
		_, err := f.submit(ctx, b)
		doneCh <- err
	}()
	if busy { // nothing leaves the queue
		require.Eventually(t, func() bool { return count() > before }, wait, tick)
	}
	return doneCh
}

// fill puts an entry under way, so that what follows has to wait.
func (f *fakeLog) fill(t *testing.T) (*entry, <-chan error) {
	t.Helper()
	doneCh := f.submitAsync(t.Context(), t, "first")
	return <-f.sentCh, doneCh
}

func TestBatcher_WhatWaitsGoesIntoOneEntryInOrder(t *testing.T) {
	f := startBatcher(t)
	entry, first := f.fill(t)
	require.Equal(t, []string{"first"}, entry.operations, "nothing waits for company")

	var names []string
	var rest []<-chan error
	for n := range 10 {
		name := fmt.Sprint("op", n)
		if n == 3 {
			name = "refused"
		}
		names = append(names, name)
		rest = append(rest, f.submitAsync(t.Context(), t, name))
	}
	merged := f.next(entry)
	require.NoError(t, <-first)
	require.Equal(t, names, merged.operations)
	merged.answer(nil)
	for n, doneCh := range rest {
		if n == 3 {
			require.EqualError(t, <-doneCh, "result 3", "each operation has its own result")
		} else {
			require.NoError(t, <-doneCh)
		}
	}
}

func TestBatcher_EntriesAreBounded(t *testing.T) {
	f := startBatcher(t)
	entry, _ := f.fill(t)
	var doneChs []<-chan error
	for range maxOperations + 1 {
		doneChs = append(doneChs, f.submitAsync(t.Context(), t, "x"))
	}
	large := strings.Repeat("x", maxEntryBytes)
	doneChs = append(doneChs, f.submitAsync(t.Context(), t, large))
	entry = f.next(entry)
	require.Len(t, entry.operations, maxOperations)
	entry = f.next(entry)
	require.Equal(t, []string{"x"}, entry.operations, "the large one does not fit")
	entry = f.next(entry)
	require.Equal(t, []string{large}, entry.operations, "but it goes alone")
	entry.answer(nil)
	for _, doneCh := range doneChs {
		require.NoError(t, <-doneCh)
	}
}

// next answers an entry and returns the one that is sent in its place.
func (f *fakeLog) next(e *entry) *entry {
	e.answer(nil)
	return <-f.sentCh
}

func TestBatcher_Outcomes(t *testing.T) {
	for _, c := range []struct {
		raft, want error
	}{
		{nil, nil},
		{raft.ErrNotLeader, errNotAccepted},
		{raft.ErrLeadershipTransferInProgress, errNotAccepted},
		{raft.ErrEnqueueTimeout, errNotAccepted},
		{raft.ErrAbortedByRestore, errNotAccepted},
		{raft.ErrLeadershipLost, consistency.ErrUnknownOutcome},
		{raft.ErrRaftShutdown, consistency.ErrUnknownOutcome},
		{errors.New("disk full"), consistency.ErrUnknownOutcome},
	} {
		f := startBatcher(t)
		doneCh := f.submitAsync(t.Context(), t, "op")
		(<-f.sentCh).answer(c.raft)
		require.ErrorIs(t, <-doneCh, c.want)
	}
}

func TestBatcher_CallerGoesAway(t *testing.T) {
	f := startBatcher(t)
	ctx, cancel := context.WithCancel(t.Context())
	inFlight := f.submitAsync(ctx, t, "in flight")
	first := <-f.sentCh
	waiting := f.submitAsync(ctx, t, "waiting")
	stays := f.submitAsync(t.Context(), t, "stays")
	cancel()
	err := <-waiting
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, consistency.ErrUnknownOutcome, "it was taken back")
	require.ErrorIs(t, <-inFlight, consistency.ErrUnknownOutcome)

	last := f.next(first)
	require.Equal(t, []string{"stays"}, last.operations)
	last.answer(nil)
	require.NoError(t, <-stays)
}

func TestBatcher_WaitingIsBounded(t *testing.T) {
	f := startBatcher(t)
	entry, _ := f.fill(t)
	for range maxWaiting {
		f.roomCh <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := f.submit(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	entry.answer(nil)
}

func TestBatcher_Stop(t *testing.T) {
	f := startBatcher(t)
	entry, first := f.fill(t)
	waiting := f.submitAsync(t.Context(), t, "waiting")
	close(f.stopCh)
	require.ErrorIs(t, <-waiting, consistency.ErrClosed)
	_, err := f.submit(t.Context(), nil)
	require.ErrorIs(t, err, consistency.ErrClosed)
	entry.answer(nil)
	require.NoError(t, <-first, "what is under way is finished")
}

func TestBatcher_NobodyAnswers(t *testing.T) {
	f := startBatcher(t)
	entry, first := f.fill(t)
	close(f.stopCh)
	close(f.goneCh)
	require.ErrorIs(t, <-first, consistency.ErrUnknownOutcome)
	entry.answer(nil)
}

func TestStore_ConcurrentWritesShareEntries(t *testing.T) {
	s := ready(t, start(t, testConfig(t.TempDir())))
	before := s.raft.LastIndex()
	const writers, rounds = 64, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				if err := s.Publish(t.Context(), publication(service(w), host(r))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries := s.raft.LastIndex() - before
	t.Logf("%d writes in %d entries", writers*rounds, entries)
	require.Less(t, entries, uint64(writers*rounds/2))
	require.Len(t, s.Services(""), writers)
}
