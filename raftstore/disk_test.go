package raftstore

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

// faulty are faults of a disk that can be switched on and off.
type faulty struct{ op atomic.Pointer[string] }

// set makes an operation fail: "write" writes nothing, "sync" fails after it has
// written, "space" finds the disk full. Empty: all is well.
func (f *faulty) set(op string) { f.op.Store(&op) }

func (f *faulty) fault(op string) error {
	if set := f.op.Load(); set != nil && *set == op {
		return errors.New("no space left on device")
	}
	return nil
}

func TestDisk_OneNode_TurnsReadOnlyAndRecovers(t *testing.T) {
	for _, kind := range []string{"write", "sync", "space"} {
		t.Run(kind, func(t *testing.T) {
			var disk faulty
			cfg := testConfig(t.TempDir())
			cfg.faults = disk.fault
			cfg.Metrics = prometheus.NewRegistry()
			s := ready(t, start(t, cfg))
			writeAll(t, s, 0, 3)
			readOnly := func() float64 { return metric(t, cfg.Metrics, "rollcall_raft_read_only") }
			require.Zero(t, readOnly())

			disk.set(kind)
			require.Eventually(t, func() bool {
				return errors.Is(s.Publish(t.Context(), publication(service(1), host(9))), consistency.ErrReadOnly)
			}, wait, tick)
			want := content(s.table)
			begin := time.Now()
			err := s.Put(t.Context(), settings(service(1), 1))
			require.ErrorIs(t, err, consistency.ErrReadOnly)
			require.ErrorContains(t, err, cfg.Dir)
			require.Less(t, time.Since(begin), time.Second, "it does not wait for a leader in vain")
			require.NoError(t, s.Ready(), "it serves on")
			require.InDelta(t, 1, readOnly(), 0)
			require.Error(t, s.State().ReadOnly)
			require.ElementsMatch(t, want, content(s.table), "what was refused was not written")

			disk.set("")
			require.Eventually(t, func() bool { return s.Publish(t.Context(), publication(service(2), host(9))) == nil }, wait, tick)
			require.Zero(t, readOnly())
			require.NoError(t, s.State().ReadOnly)
			want = content(s.table)
			require.NoError(t, s.Close())
			_, cfg.Transport = raft.NewInmemTransport("")
			require.ElementsMatch(t, want, content(ready(t, start(t, cfg)).table))
		})
	}
}

func TestDisk_CloseWhileNothingCanBeWritten(t *testing.T) {
	var disk faulty
	cfg := testConfig(t.TempDir())
	cfg.faults = disk.fault
	s := ready(t, start(t, cfg))
	require.Eventually(t, func() bool { return *s.storedCluster.Load() != "" }, wait, tick, "a write of its own is under way")
	disk.set("write")
	require.Error(t, s.Publish(t.Context(), publication(service(1), host(1))))
	require.Eventually(t, func() bool { return s.raft.State() != raft.Leader }, wait, tick)
	begin := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begin), cfg.CloseTimeout)
}

// The leader's disk fails: another node leads, and the one with the bad disk catches
// up when it is well again.
func TestDisk_LeaderGivesWay(t *testing.T) {
	for _, kind := range []string{"write", "sync", "space"} {
		t.Run(kind, func(t *testing.T) {
			disks := make(map[string]*faulty)
			c := startCluster(t, 3, func(cfg *Config) {
				d := new(faulty)
				disks[cfg.Node] = d
				cfg.faults = d.fault
			})
			lead := c.leader()
			disk := disks[lead.name]
			disk.set(kind)
			if kind != "space" {
				require.ErrorIs(t, lead.Publish(t.Context(), publication(service(0), host(0))), consistency.ErrUnknownOutcome)
			}
			c.eventually(func() bool {
				for _, n := range c.running() {
					if l, _ := n.currentLeader(); l.self && n != lead {
						return true
					}
				}
				return false
			})
			for n, node := range c.running() {
				if node != lead {
					require.NoError(t, c.publish(node, publication(service(n), host(n))))
				}
			}
			disk.set("")
			require.NoError(t, c.publish(lead, publication(service(9), host(9))))
			c.same()
		})
	}
}

// The table hangs while the leader applies an entry. Raft's main loop and its
// heartbeats know nothing of it; another node must lead all the same.
func TestDisk_LeaderThatHangsGoesSilent(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.StallTimeout = 200 * time.Millisecond })
	hangs, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var hung atomic.Pointer[string]
	c.listen = func(name string, changed consistency.ServiceChanged) {
		if changed.Service == service(99) && hung.CompareAndSwap(nil, &name) {
			close(hangs)
			<-goOn
		}
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		c.start(name, 3)
	}
	c.awaitReady()
	lead := c.leader()
	lost := make(chan error, 1)
	go func() { lost <- lead.Publish(t.Context(), publication(service(99), host(1))) }()
	<-hangs
	require.Equal(t, lead.name, *hung.Load(), "the leader applies first")
	var next *node
	c.eventually(func() bool {
		for _, n := range c.running() {
			if l, _ := n.currentLeader(); l.self && n != lead {
				next = n
			}
		}
		return next != nil
	})
	require.NoError(t, c.publish(next, publication(service(1), host(1)))) // on a busy machine it may hang, too
	require.True(t, next.Stat(service(99)).Exists)
	release()
	if err := <-lost; err != nil {
		require.ErrorIs(t, err, consistency.ErrUnknownOutcome)
	}
	c.same()
}

func TestCommitNote(t *testing.T) {
	dir := t.TempDir()
	index, err := readCommit(dir)
	require.NoError(t, err)
	require.Zero(t, index)
	for _, want := range []uint64{1, 1 << 50, 77} {
		require.NoError(t, writeCommit(dir, want))
		index, err = readCommit(dir)
		require.NoError(t, err)
		require.Equal(t, want, index)
	}
	path := filepath.Join(dir, commitFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[n] ^= 1
		for _, b := range [][]byte{damaged, whole[:n]} {
			require.NoError(t, os.WriteFile(path, b, 0o600))
			index, err = readCommit(dir)
			require.NoError(t, err)
			require.Contains(t, []uint64{0, 77}, index, "%q", b) // 77: a line without its end
		}
	}
}

// metric returns the value of a gauge or counter without labels.
func metric(t testing.TB, reg prometheus.Registerer, name string) float64 {
	t.Helper()
	gatherer, ok := reg.(prometheus.Gatherer)
	require.True(t, ok)
	families, err := gatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	require.Fail(t, "no metric "+name)
	return 0
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := startCluster(t, 3, func(cfg *Config) {
		if cfg.Metrics == nil && cfg.Node == "n1" {
			cfg.Metrics = reg
		}
	})
	n := c.node("n1")
	for lead := c.leader(); lead != n; lead = c.leader() {
		_ = lead.raft.LeadershipTransferToServer(n.id, "").Error() // again when it failed
	}
	require.NoError(t, n.Publish(t.Context(), publication(service(1), host(1))))
	takeSnapshot(t, n.Store)
	for name, want := range map[string]float64{
		"leader": 1, "has_leader": 1, "voter": 1, "voters": 3, "read_only": 0, "stale": 0, "refused": 0, "snapshots_total": 1, "write_seconds": 1,
	} {
		require.InDelta(t, want, metric(t, reg, "rollcall_raft_"+name), 0, name)
	}
	for _, name := range []string{"term", "last_index", "commit_index", "applied_index", "applied_operations_total", "entry_operations", "snapshot_bytes", "snapshot_index", "snapshot_timestamp_seconds", "writes_total"} {
		require.Positive(t, metric(t, reg, "rollcall_raft_"+name), name)
	}
	c.eventually(func() bool {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "rollcall_raft_peer_lag_entries" {
				return len(f.GetMetric()) == 3
			}
		}
		return false
	})
	c.close("n1")
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Empty(t, families, "a closed store takes its metrics along")
}
