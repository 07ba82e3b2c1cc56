package distro

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pair returns a node with the default timings that has a peer n2 on loopback, and a
// channel of as many places as messages may be under way: who sends takes one, which
// the arrival gives back.
func pair(b *testing.B) (first *Members, windowCh chan struct{}) {
	b.Helper()
	windowCh = make(chan struct{}, 256)
	var nodes []*Members
	for i, name := range []string{"n1", "n2"} {
		cfg := DefaultMembersConfig()
		cfg.Self = Member{Name: name, Boot: uint64(i + 1)}
		cfg.Bind = "127.0.0.1"
		cfg.LeaveDelay = 0
		if i > 0 {
			cfg.Join = []string{nodes[0].Self().gossip()}
		}
		m, err := NewMembers(cfg)
		require.NoError(b, err)
		m.Receive(func(string, []byte) { <-windowCh })
		require.NoError(b, m.Start())
		b.Cleanup(func() { require.NoError(b, m.Close()) })
		nodes = append(nodes, m)
	}
	require.Eventually(b, func() bool { return len(nodes[0].Alive()) == 2 }, soon, time.Millisecond)
	return nodes[0], windowCh
}

func BenchmarkMembers_Send(b *testing.B) {
	for _, size := range []int{256, 4 << 10, 64 << 10, 1 << 20} {
		for _, senders := range []int{1, 8} {
			b.Run(fmt.Sprintf("bytes=%d/senders=%d", size, senders), func(b *testing.B) {
				first, windowCh := pair(b)
				payload := make([]byte, size)
				b.SetBytes(int64(size))
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range senders {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							windowCh <- struct{}{}
							if err := first.Send(b.Context(), "n2", payload); err != nil {
								b.Errorf("send: %v", err)
								return
							}
						}
					})
				}
				wg.Wait()
				for range cap(windowCh) { // all have arrived
					windowCh <- struct{}{}
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkMembers_Membership measures with the default timings: the start of a
// third node until all know it, its death until all know of it, and until it is
// back under its name at another address.
func BenchmarkMembers_Membership(b *testing.B) {
	var joins, leaves, deaths, returns time.Duration
	for range b.N {
		var nodes []*Members
		open := func(name string, boot uint64) *Members {
			cfg := DefaultMembersConfig()
			cfg.Self = Member{Name: name, Boot: boot}
			cfg.Bind = "127.0.0.1"
			cfg.LeaveDelay = 0
			for _, o := range nodes {
				cfg.Join = append(cfg.Join, o.Self().gossip())
			}
			m, err := NewMembers(cfg)
			require.NoError(b, err)
			require.NoError(b, m.Start())
			return m
		}
		knows := func(count int, boot uint64) {
			require.Eventually(b, func() bool {
				for _, m := range nodes {
					o, _ := m.Get("n3")
					if len(m.Alive()) != count || count == 3 && o.Boot != boot {
						return false
					}
				}
				return true
			}, time.Minute, time.Millisecond)
		}
		for i, name := range []string{"n1", "n2"} {
			nodes = append(nodes, open(name, uint64(i+1)))
		}
		began := time.Now()
		third := open("n3", 3)
		knows(3, 3)
		joins += time.Since(began)
		began = time.Now()
		require.NoError(b, third.Close())
		knows(2, 0)
		leaves += time.Since(began)
		third = open("n3", 4)
		knows(3, 4)

		third.mu.Lock()
		third.refused = &ConflictError{} // leaves without a word
		third.mu.Unlock()
		began = time.Now()
		require.NoError(b, third.Close())
		again := open("n3", 5)
		knows(2, 0)
		deaths += time.Since(began)
		knows(3, 5)
		returns += time.Since(began)
		for _, m := range append(nodes, again) {
			require.NoError(b, m.Close())
		}
	}
	for name, sum := range map[string]time.Duration{"join": joins, "leave": leaves, "death": deaths, "back": returns} {
		b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms-"+name)
	}
}
