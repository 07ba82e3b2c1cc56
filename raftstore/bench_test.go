package raftstore

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
)

// BenchmarkWrites measures persistent writes on the leader of one and of three nodes
// over TCP on one machine, from several writers at once: through the store ("store"),
// and with the library alone on the same kind of log with the same commands and a
// table that keeps nothing, as one Apply for each write ("bare") and with what waits
// put into one entry, two of them in flight ("batched"), which also tells the store's
// rate in relation to its own.
func BenchmarkWrites(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, writers := range []int{1, 16, 256} {
			rates := make(map[string]float64)
			run := func(kind string, start func(b *testing.B) (write func(consistency.Publication) error)) {
				b.Run(fmt.Sprintf("nodes=%d/writers=%d/%s", nodes, writers, kind), func(b *testing.B) {
					rates[kind] = measure(b, writers, start(b))
					if store := rates["store"]; kind == "batched" && store > 0 {
						b.ReportMetric(store/rates[kind], "ratio")
					}
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
					return lead.Apply(op)
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

// bareRaft starts the library alone.
func bareRaft(b *testing.B, nodes int) *Bare {
	b.Helper()
	dirs := make([]string, nodes)
	for n := range dirs {
		dirs[n] = b.TempDir()
	}
	bare, err := NewBare(dirs...)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, bare.Close()) })
	return bare
}

// batches returns a function that writes through raft with what waits in one entry.
func batches(b *testing.B, bare *Bare) func(consistency.Publication) error {
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
				err := bare.Apply(command)
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

// measure returns the writes per second.
func measure(b *testing.B, writers int, write func(consistency.Publication) error) float64 {
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
	rate := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(rate, "ops/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
	return rate
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
