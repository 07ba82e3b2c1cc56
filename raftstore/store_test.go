package raftstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/consistency/storetest"
	"rollcall/naming"
)

func TestStore_Contract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) consistency.Store {
		t.Helper()
		return start(t, testConfig(t.TempDir()))
	})
}

func TestStore_FirstWriteComesSoonAfterStart(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Dir = t.TempDir()
	cfg.Bind = "127.0.0.1:0"
	for _, round := range []string{"empty folder", "restart"} {
		begin := time.Now()
		s, err := New(cfg)
		require.NoError(t, err)
		opened := time.Since(begin)
		require.NoError(t, s.Start())
		started := time.Since(begin)
		require.NoError(t, s.Publish(t.Context(), publication(service(1), host(1))))
		t.Logf("%s: opened after %s, started after %s, first write after %s", round, opened, started, time.Since(begin))
		require.Less(t, time.Since(begin), 5*time.Second)
		ready(t, s)
		require.NoError(t, s.Close())
	}
}

func TestStore_RestartKeepsEverything(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Dir = t.TempDir()
	cfg.Bind = "127.0.0.1:0" // another port each time, as of a container that was moved
	first, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, first.Start())
	writeAll(t, first, 0, 30)
	require.NoError(t, first.Delete(t.Context(), settings(service(3), 0).Key))
	require.NoError(t, first.Publish(t.Context(), publication(service(4))))
	newer := consistency.Publication{Service: service(5), Publisher: "other", Instances: []*naming.Instance{host(5).With(func(i *naming.Instance) { i.Weight = 3 })}}
	require.NoError(t, first.Publish(t.Context(), newer))
	want := content(first.table)
	id := first.ID()
	require.NoError(t, first.Close())

	for _, snapshot := range []bool{true, false} {
		s, err := New(cfg)
		require.NoError(t, err)
		require.NoError(t, s.Start())
		ready(t, s)
		require.ElementsMatch(t, want, content(s.table))
		require.Equal(t, id, s.ID())
		five, _ := s.Service(service(5))
		require.InDelta(t, 3, five.Find(host(5).Key()).Weight, 0, "versions are kept")
		if snapshot {
			takeSnapshot(t, s)
		}
		require.NoError(t, s.Close())
	}
}

func TestStore_NoticesFollowRestart(t *testing.T) {
	dir := t.TempDir()
	s, err := New(testConfig(dir))
	require.NoError(t, err)
	require.NoError(t, s.Start())
	writeAll(t, s, 0, 3)
	takeSnapshot(t, s)
	writeAll(t, s, 3, 1)
	require.NoError(t, s.Close())

	s, err = New(testConfig(dir))
	require.NoError(t, err)
	var mu sync.Mutex
	seen := make(map[naming.ServiceKey]bool)
	s.Listen(func(c consistency.ServiceChanged) {
		_, ok := s.Service(c.Service)
		mu.Lock()
		defer mu.Unlock()
		seen[c.Service] = ok
	})
	require.NoError(t, s.Start())
	defer func() { require.NoError(t, s.Close()) }()
	_, ok := s.Service(service(2))
	require.True(t, ok, "a snapshot is served before there is a leader")
	ready(t, s)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[naming.ServiceKey]bool{service(0): true, service(1): true, service(2): true, service(3): true}, seen)
}

func TestStore_Lifecycle(t *testing.T) {
	t.Run("close without start", func(t *testing.T) {
		s, err := New(testConfig(t.TempDir()))
		require.NoError(t, err)
		require.ErrorIs(t, s.Ready(), consistency.ErrNotReady)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Start(), consistency.ErrClosed)
		require.ErrorIs(t, s.Publish(t.Context(), publication(service(1), host(1))), consistency.ErrClosed)
	})
	t.Run("close right after start", func(t *testing.T) {
		for range 20 {
			s, err := New(testConfig(t.TempDir()))
			require.NoError(t, err)
			require.NoError(t, s.Start())
			require.NoError(t, s.Close())
		}
	})
	t.Run("start twice", func(t *testing.T) {
		s := start(t, testConfig(t.TempDir()))
		require.ErrorContains(t, s.Start(), "started twice")
	})
	t.Run("write before start waits", func(t *testing.T) {
		s, err := New(testConfig(t.TempDir()))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		doneCh := make(chan error)
		go func() { doneCh <- s.Publish(t.Context(), publication(service(1), host(1))) }()
		require.NoError(t, s.Start())
		require.NoError(t, <-doneCh)
	})
	t.Run("reads after close", func(t *testing.T) {
		s := start(t, testConfig(t.TempDir()))
		writeAll(t, s, 0, 1)
		require.NoError(t, s.Close())
		require.Equal(t, 2, s.Stat(service(0)).Instances)
	})
}

func TestStore_CloseWithWritesUnderWay(t *testing.T) {
	dir := t.TempDir()
	s := start(t, testConfig(dir))
	var acknowledged [32]atomic.Int64
	var writers sync.WaitGroup
	var outcomes sync.Map
	for n := range acknowledged {
		writers.Go(func() {
			for round := 0; ; round++ {
				err := s.Publish(t.Context(), publication(service(n), host(round)))
				if err != nil {
					outcomes.Store(n, err)
					return
				}
				acknowledged[n].Store(int64(round))
			}
		})
	}
	require.Eventually(t, func() bool { return acknowledged[0].Load() > 5 }, wait, tick)
	require.NoError(t, s.Close())
	writers.Wait()
	outcomes.Range(func(_, v any) bool {
		err, _ := v.(error)
		require.True(t, errors.Is(err, consistency.ErrClosed) || errors.Is(err, consistency.ErrUnknownOutcome), err)
		return true
	})

	s = ready(t, start(t, testConfig(dir)))
	for n := range acknowledged {
		require.Equal(t, []*naming.Instance{host(int(acknowledged[n].Load()))}, s.Published(service(n), "10.0.0.1:8080"),
			"what was refused with ErrClosed was not written, what was acknowledged was")
	}
}

func TestStore_WithoutLeader(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Expect = 0
	cfg.LeaderWait = 50 * time.Millisecond
	s := start(t, cfg)
	require.ErrorIs(t, s.Publish(t.Context(), publication(service(1), host(1))), consistency.ErrNoLeader)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	err := s.Put(ctx, settings(service(1), 1))
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, s.Ready(), consistency.ErrNotReady)
}

func TestStore_RefusesWhatItCannotStore(t *testing.T) {
	s := start(t, testConfig(t.TempDir()))
	require.ErrorContains(t, s.Put(t.Context(), consistency.Datum{Key: consistency.Key{Kind: consistency.KindSettings}}), "without its value")
	require.ErrorContains(t, s.Put(t.Context(), consistency.Datum{Key: consistency.Key{Kind: 99}}), "kind 99")
	require.ErrorContains(t, s.Delete(t.Context(), consistency.Key{Kind: 99}), "kind 99")
	large := host(1).With(func(i *naming.Instance) {
		i.Metadata = map[string]string{"k": string(make([]byte, maxOperationBytes))}
	})
	require.ErrorContains(t, s.Publish(t.Context(), publication(service(1), large)), "too large")
	require.ErrorContains(t, s.Publish(t.Context(), publication(naming.ServiceKey{Name: "\xff"}, host(1))), "UTF-8")
	require.Empty(t, s.Services(""))
}

// A new node gets the state as a snapshot when the log no longer reaches back.
func TestStore_SnapshotIsInstalledOnANewNode(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.TrailingLogs = 1
	lead := ready(t, start(t, cfg))
	for n := range 3 {
		writeAll(t, lead, 10*n, 10)
		takeSnapshot(t, lead)
	}
	first, err := lead.logs.FirstIndex()
	require.NoError(t, err)
	require.Greater(t, first, uint64(1))

	joined := testConfig(t.TempDir())
	joined.Expect = 0
	s := start(t, joined)
	a, b := cfg.Transport.(*raft.InmemTransport), joined.Transport.(*raft.InmemTransport)
	a.Connect(b.LocalAddr(), b)
	b.Connect(a.LocalAddr(), a)
	require.NoError(t, lead.raft.AddNonvoter(s.id, raft.ServerAddress(s.Addr()), 0, wait).Error())
	require.Eventually(t, func() bool { return len(s.Services("")) == 30 }, wait, tick)
	require.ElementsMatch(t, content(lead.table), content(s.table))
}

func TestStore_ReplicatesOverTCP(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Dir, cfg.Bind = t.TempDir(), "127.0.0.1:0"
	lead := ready(t, start(t, cfg))
	cfg.Dir, cfg.Expect = t.TempDir(), 0
	s := start(t, cfg)
	require.NoError(t, lead.raft.AddNonvoter(s.id, raft.ServerAddress(s.Addr()), 0, wait).Error())
	writeAll(t, lead, 0, 10)
	require.Eventually(t, func() bool { return len(s.Services("")) == 10 }, wait, tick)
	require.NoError(t, lead.Close()) // closes the connections of both sides
	require.NoError(t, s.Close())
}
