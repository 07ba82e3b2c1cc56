package raftstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

// entry is a log entry that the test answers by hand.
type entry struct {
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
	close(e.doneCh)
}

// fakeLog is the Raft side of a batcher: entries appear on sentCh.
type fakeLog struct {
	*batcher
	sentCh chan *entry
}

func startBatcher(t *testing.T) *fakeLog {
	t.Helper()
	f := &fakeLog{batcher: newBatcher(), sentCh: make(chan *entry, maxInFlight)}
	f.apply = func(command []byte, _ time.Duration) raft.ApplyFuture {
		e := &entry{doneCh: make(chan struct{})}
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
	wg.Go(f.dispatch)
	wg.Go(f.collect)
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
	before, full := count(), len(f.slotCh) == maxInFlight
	doneCh := make(chan error, 1)
	go func() {
		_, err := f.submit(ctx, b)
		doneCh <- err
	}()
	if full { // nothing leaves the queue
		require.Eventually(t, func() bool { return count() > before }, wait, tick)
	}
	return doneCh
}

// fill puts maxInFlight entries under way, so that what follows has to wait.
func (f *fakeLog) fill(t *testing.T) (entries []*entry, doneChs []<-chan error) {
	t.Helper()
	for n := range maxInFlight {
		doneChs = append(doneChs, f.submitAsync(t.Context(), t, fmt.Sprint("first", n)))
		entries = append(entries, <-f.sentCh)
	}
	return entries, doneChs
}

func TestBatcher_WhatWaitsGoesIntoOneEntryInOrder(t *testing.T) {
	f := startBatcher(t)
	entries, first := f.fill(t)
	require.Equal(t, []string{"first0"}, entries[0].operations, "nothing waits for company")

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
	entries[0].answer(nil)
	require.NoError(t, <-first[0])
	merged := <-f.sentCh
	require.Equal(t, names, merged.operations)
	merged.answer(nil)
	entries[1].answer(nil)
	require.NoError(t, <-first[1])
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
	entries, _ := f.fill(t)
	var doneChs []<-chan error
	for range maxOperations + 1 {
		doneChs = append(doneChs, f.submitAsync(t.Context(), t, "x"))
	}
	large := strings.Repeat("x", maxEntryBytes)
	doneChs = append(doneChs, f.submitAsync(t.Context(), t, large))
	entries = append(entries, f.next(entries[0]))
	require.Len(t, entries[2].operations, maxOperations)
	entries = append(entries, f.next(entries[1]))
	require.Equal(t, []string{"x"}, entries[3].operations, "the large one does not fit")
	entries = append(entries, f.next(entries[2]))
	require.Equal(t, []string{large}, entries[4].operations, "but it goes alone")
	entries[3].answer(nil)
	entries[4].answer(nil)
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
	entries := []*entry{<-f.sentCh}
	f.submitAsync(t.Context(), t, "second")
	entries = append(entries, <-f.sentCh)
	waiting := f.submitAsync(ctx, t, "waiting")
	stays := f.submitAsync(t.Context(), t, "stays")
	cancel()
	err := <-waiting
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, consistency.ErrUnknownOutcome, "it was taken back")
	require.ErrorIs(t, <-inFlight, consistency.ErrUnknownOutcome)

	last := f.next(entries[0])
	require.Equal(t, []string{"stays"}, last.operations)
	entries[1].answer(nil)
	last.answer(nil)
	require.NoError(t, <-stays)
}

func TestBatcher_WaitingIsBounded(t *testing.T) {
	f := startBatcher(t)
	entries, _ := f.fill(t)
	for range maxWaiting {
		f.roomCh <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := f.submit(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, e := range entries {
		e.answer(nil)
	}
}

func TestBatcher_Stop(t *testing.T) {
	f := startBatcher(t)
	entries, first := f.fill(t)
	waiting := f.submitAsync(t.Context(), t, "waiting")
	close(f.stopCh)
	require.ErrorIs(t, <-waiting, consistency.ErrClosed)
	_, err := f.submit(t.Context(), nil)
	require.ErrorIs(t, err, consistency.ErrClosed)
	entries[0].answer(nil)
	require.NoError(t, <-first[0], "what is under way is finished")
	close(f.goneCh)
	require.ErrorIs(t, <-first[1], consistency.ErrUnknownOutcome)
	entries[1].answer(nil)
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
