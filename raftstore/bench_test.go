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

// BenchmarkApply measures persistent writes from several writers at once, through
// the store ("store") and as one bare raft.Apply for each write on the same kind
// of log, with the same commands and the same FSM ("bare").
func BenchmarkApply(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("store/writers=%d", writers), func(b *testing.B) {
			s := ready(b, start(b, testConfig(b.TempDir())))
			measure(b, writers, func(p consistency.Publication) error { return s.Publish(b.Context(), p) })
			b.ReportMetric(float64(b.N)/float64(s.raft.LastIndex()), "ops/entry")
		})
		b.Run(fmt.Sprintf("bare/writers=%d", writers), func(b *testing.B) {
			s := ready(b, start(b, testConfig(b.TempDir())))
			measure(b, writers, func(p consistency.Publication) error {
				op, err := proto.Marshal(publishOperation(p))
				if err != nil {
					return err
				}
				return s.raft.Apply(encodeCommand([][]byte{op}, time.Now()), 0).Error()
			})
		})
	}
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
