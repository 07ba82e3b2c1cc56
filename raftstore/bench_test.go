package raftstore

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
)

// BenchmarkWrites measures persistent writes on the leader of one and of three nodes
// over TCP on one machine, from several writers at once: through the store ("store"),
// and with the library alone on the same kind of log with the same commands and a
// table that keeps nothing, as one Apply for each write ("bare") and with what waits
// put into one entry, two of them in flight ("batched").
func BenchmarkWrites(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, writers := range []int{1, 16, 256} {
			run := func(kind string, start func(b *testing.B) (write func(consistency.Publication) error)) {
				b.Run(fmt.Sprintf("nodes=%d/writers=%d/%s", nodes, writers, kind), func(b *testing.B) {
					measure(b, writers, start(b))
				})
			}
			run("store", func(b *testing.B) func(consistency.Publication) error {
				b.Helper()
				lead := storesOverTCP(b, nodes).leader(b)
				return func(p consistency.Publication) error { return lead.Publish(b.Context(), p) }
			})
			run("bare", func(b *testing.B) func(consistency.Publication) error {
				b.Helper()
				lead := bareRaft(b, nodes)
				return func(p consistency.Publication) error {
					op, err := proto.Marshal(publishOperation(p))
					if err != nil {
						return err
					}
					return lead.Apply(op, 0).Error()
				}
			})
			run("batched", func(b *testing.B) func(consistency.Publication) error {
				b.Helper()
				return batches(b, bareRaft(b, nodes))
			})
		}
	}
}

func storesOverTCP(b *testing.B, nodes int) *membership {
	b.Helper()
	m := &membership{nodes: make(map[string]*Store)}
	b.TempDir() // its removal comes after the cleanup
	b.Cleanup(func() {
		for _, s := range m.nodes {
			s.cfg.abruptShutdown = true
			require.NoError(b, s.Close())
		}
	})
	for n := range nodes {
		m.start(b, fmt.Sprint("n", n), b.TempDir(), nodes, func(*Config) {})
	}
	return m
}

// leader waits for a leader that takes writes.
func (m *membership) leader(b *testing.B) *Store {
	b.Helper()
	var lead *Store
	require.Eventually(b, func() bool {
		for _, s := range m.nodes {
			if l, _ := s.currentLeader(); l.self && s.State().Cluster != "" {
				lead = s
			}
		}
		return lead != nil
	}, wait, tick)
	return lead
}

// nothing is an FSM that keeps nothing.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                  { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error)  { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error        { return r.Close() }
func (nothing) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (nothing) Release()                             {}

// bareRaft starts the library alone and returns the node that leads.
func bareRaft(b *testing.B, nodes int) *raft.Raft {
	b.Helper()
	var all []*raft.Raft
	var configuration raft.Configuration
	for n := range nodes {
		logs, err := openLogStore(b.TempDir(), slog.New(slog.DiscardHandler))
		require.NoError(b, err)
		logs.oldestKept = func() (uint64, error) { return math.MaxUint64, nil }
		transport, err := raft.NewTCPTransport("127.0.0.1:0", nil, transportPool, transportTimeout, io.Discard)
		require.NoError(b, err)
		conf := raft.DefaultConfig()
		conf.LocalID = raft.ServerID(fmt.Sprint(n))
		conf.LogOutput = io.Discard
		conf.MaxAppendEntries = maxAppendEntries
		conf.NoLegacyTelemetry = true
		node, err := raft.NewRaft(conf, nothing{}, logs, logs, raft.NewInmemSnapshotStore(), transport)
		require.NoError(b, err)
		b.Cleanup(func() {
			require.NoError(b, node.Shutdown().Error())
			require.NoError(b, transport.Close())
			require.NoError(b, logs.Close())
		})
		configuration.Servers = append(configuration.Servers, raft.Server{ID: conf.LocalID, Address: transport.LocalAddr()})
		all = append(all, node)
	}
	require.NoError(b, all[0].BootstrapCluster(configuration).Error())
	var lead *raft.Raft
	require.Eventually(b, func() bool {
		for _, node := range all {
			if node.State() == raft.Leader && node.Barrier(0).Error() == nil {
				lead = node
			}
		}
		return lead != nil
	}, wait, tick)
	return lead
}

// batches returns a function that writes through raft with what waits in one entry.
func batches(b *testing.B, node *raft.Raft) func(consistency.Publication) error {
	b.Helper()
	type waiting struct {
		op     []byte
		doneCh chan error
	}
	waitingCh := make(chan waiting, maxWaiting)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for first := range waitingCh {
				batch := []waiting{first}
				for more := true; more && len(batch) < maxOperations; {
					select {
					case w, ok := <-waitingCh:
						if more = ok; ok {
							batch = append(batch, w)
						}
					default:
						more = false
					}
				}
				var command []byte
				for _, w := range batch {
					command = append(command, w.op...)
				}
				err := node.Apply(command, 0).Error()
				for _, w := range batch {
					w.doneCh <- err
				}
			}
		})
	}
	b.Cleanup(func() {
		close(waitingCh)
		wg.Wait()
	})
	return func(p consistency.Publication) error {
		op, err := proto.Marshal(publishOperation(p))
		if err != nil {
			return err
		}
		w := waiting{op, make(chan error, 1)}
		waitingCh <- w
		return <-w.doneCh
	}
}

// BenchmarkFailover measures how long after the death of the leader of three nodes
// another one takes a write.
func BenchmarkFailover(b *testing.B) {
	m := storesOverTCP(b, 3)
	var took []time.Duration
	for b.Loop() {
		lead := m.leader(b)
		name, dir := lead.cfg.Node, lead.cfg.Dir
		for _, s := range m.nodes { // it must be possible to lose one
			require.Eventually(b, func() bool { return s.fsm.index.load() == lead.fsm.index.load() }, wait, tick)
		}
		begin := time.Now()
		lead.cfg.abruptShutdown = true
		require.NoError(b, lead.Close())
		delete(m.nodes, name)
		for done := false; !done; {
			for _, s := range m.nodes {
				if l, _ := s.currentLeader(); l.self && s.Publish(b.Context(), publication(service(1), host(1))) == nil {
					done = true
				}
			}
			<-time.After(time.Millisecond)
		}
		took = append(took, time.Since(begin))
		m.start(b, name, dir, 3, func(*Config) {})
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[0].Milliseconds()), "min-ms")
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "median-ms")
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "max-ms")
	b.ReportMetric(0, "ns/op")
}

func measure(b *testing.B, writers int, write func(consistency.Publication) error) {
	b.Helper()
	var next atomic.Int64
	took := make([][]time.Duration, writers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
				p := publication(service(n%10_000), host(n))
				begin := time.Now()
				if err := write(p); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(begin))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSnapshot measures what a snapshot of 100,000 instances costs: the part
// that holds up Apply ("take"), and writing and reading it.
func BenchmarkSnapshot(b *testing.B) {
	f := filledFSM(b, 50_000)
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Snapshot()
			require.NoError(b, err)
		}
	})
	b.Run("persist", func(b *testing.B) {
		for b.Loop() {
			b.SetBytes(int64(len(persisted(b, f))))
		}
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			restored(b, f)
		}
	})
}
