package distro

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// quietCore returns a core that nobody runs, with so many peers.
func quietCore(peers int) *core {
	now := time.UnixMilli(simStart)
	cfg := DefaultConfig()
	cfg.Node = "n1"
	c := newCore(cfg, origin{"n1", 1}, consistency.NewDataStore(), hooks{wake: func(string) {}}, now)
	for n := range peers {
		c.observe(now, Member{Name: "n" + strconv.Itoa(n+2), Boot: 1, Alive: true})
	}
	c.tick(now)
	return c
}

// fill registers instances with one connection each, ten to a service.
func (c *core) fill(from, to int) {
	for n := from; n < to; n++ {
		p := publication(n)
		c.local(c.now, func() { c.publish(p, false) })
	}
}

func publication(n int) consistency.Publication {
	p := consistency.Publication{Service: service("com.example.service-" + strconv.Itoa(n/10)), Publisher: fmt.Sprintf("1700000000000_10.0.0.1_%d", n)}
	p.Instances = append(p.Instances, host(n))
	return p
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkCore_Publish is a registration, with two peers that are up to date.
func BenchmarkCore_Publish(b *testing.B) {
	for _, have := range []int{0, 100_000, 1_000_000} {
		b.Run(strconv.Itoa(have), func(b *testing.B) {
			c := quietCore(2)
			c.fill(0, have)
			for _, p := range c.alive {
				c.seek(p, c.seq)
			}
			i := have
			for b.Loop() {
				p := publication(i % (have + 1000))
				i++
				c.local(c.now, func() { c.publish(p, false) })
				if i%100 == 0 {
					for _, p := range c.alive {
						c.next(c.now, p)
					}
				}
			}
		})
	}
}

// BenchmarkCore_Merge takes batches of another node, and shows the cost of one
// datum and the memory that it takes, the table included.
func BenchmarkCore_Merge(b *testing.B) {
	for _, count := range []int{10_000, 100_000, 1_000_000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				from := quietCore(1)
				from.fill(0, count)
				to := newCore(from.cfg, origin{"n2", 1}, consistency.NewDataStore(), hooks{wake: func(string) {}}, from.now)
				to.observe(from.now, Member{Name: "n1", Boot: 1, Alive: true})
				p := from.alive[0]
				var messages [][]byte
				for p.cursor < from.seq {
					out, _ := from.next(from.now, p)
					messages = append(messages, out.message)
				}
				from, p = nil, nil
				before := heapInUse()
				b.StartTimer()
				begin := time.Now()
				for _, message := range messages {
					m, err := decodeMessage("n1", message)
					require.NoError(b, err)
					to.handle(to.now, "n1", m)
				}
				spent := time.Since(begin)
				b.StopTimer()
				size := 0
				for _, message := range messages {
					size += len(message)
				}
				require.Equal(b, count, to.owners[origin{"n1", 1}].live)
				b.ReportMetric(float64(spent.Nanoseconds())/float64(count), "ns/datum")
				b.ReportMetric(float64(heapInUse()-before)/float64(count), "heap-B/datum")
				b.ReportMetric(float64(size)/float64(count), "wire-B/datum")
				runtime.KeepAlive(to)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkCluster_Latency is the time from a registration on one node until
// another one shows it, over loopback, at rest and at a rate of changes.
func BenchmarkCluster_Latency(b *testing.B) {
	for _, rate := range []int{0, 1000, 5000} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) {
			arrivedCh := make(chan struct{}, 1)
			all := loopback(b, 3, func(i int, s *Store) {
				s.Listen(func(c consistency.ServiceChanged) {
					if i == 1 && c.Service.Name == "probe" {
						arrivedCh <- struct{}{}
					}
				})
			})
			var latencies []time.Duration
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				if rate == 0 {
					return
				}
				ticker := time.NewTicker(10 * time.Millisecond)
				defer ticker.Stop()
				for n := 0; ; {
					select {
					case <-stop:
						return
					case <-ticker.C:
					}
					for range rate / 100 {
						n++
						err := all[n%3].Publish(b.Context(), consistency.Publication{
							Service: service("busy" + strconv.Itoa(n%100)), Publisher: "b" + strconv.Itoa(n%20000), Instances: []*naming.Instance{host(n % 20000)},
						})
						if err != nil {
							b.Error(err)
						}
					}
				}
			}()
			n := 0
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for b.Loop() {
				n++
				b.StopTimer()
				<-pause.C
				b.StartTimer()
				svc, conn := "probe", "c"+strconv.Itoa(n)
				begin := time.Now()
				all[0].register(b, svc, conn, host(n))
				<-arrivedCh
				latencies = append(latencies, time.Since(begin))
			}
			close(stop)
			<-done
			slices.Sort(latencies)
			b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// loopback returns nodes over sockets that see each other.
func loopback(tb testing.TB, n int, before func(i int, s *Store)) []*replica {
	tb.Helper()
	var all []*replica
	var join []string
	for i := range n {
		name := "n" + strconv.Itoa(i+1)
		mc := fast(name, uint64(i+1))
		mc.Join = join
		m, err := NewMembers(mc)
		require.NoError(tb, err)
		cfg := replicaConfig(name)
		cfg.Members = m
		s, err := New(cfg)
		require.NoError(tb, err)
		before(i, s)
		tb.Cleanup(func() {
			require.NoError(tb, s.Close())
			require.NoError(tb, m.Close())
		})
		require.NoError(tb, m.Start())
		require.NoError(tb, s.Start())
		join = append(join, m.Self().gossip())
		all = append(all, &replica{Store: s, node: &node{Members: m}})
	}
	for _, r := range all {
		require.Eventually(tb, func() bool { return len(r.node.Alive()) == n && r.Ready() == nil }, soon, time.Millisecond)
	}
	return all
}

// BenchmarkCluster_Join is the time from the start of a node until it is ready and
// has what two others have, over loopback.
func BenchmarkCluster_Join(b *testing.B) {
	for _, count := range []int{50_000, 200_000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			all := loopback(b, 2, func(int, *Store) {})
			for n := range count {
				require.NoError(b, all[n%2].Publish(b.Context(), publication(n)))
			}
			for _, r := range all {
				require.Eventually(b, func() bool { _, n := r.Counts(); return n == count }, soon, time.Millisecond)
			}
			boot := uint64(100)
			for b.Loop() {
				b.StopTimer()
				boot++
				mc := fast("n3", boot)
				for _, r := range all {
					mc.Join = append(mc.Join, r.node.Self().gossip())
				}
				m, err := NewMembers(mc)
				require.NoError(b, err)
				cfg := replicaConfig("n3")
				cfg.Members = m
				s, err := New(cfg)
				require.NoError(b, err)
				b.StartTimer()
				begin := time.Now()
				require.NoError(b, m.Start())
				joined := time.Since(begin)
				require.NoError(b, s.Start())
				require.Eventually(b, func() bool { return s.Ready() == nil }, soon, time.Millisecond)
				b.StopTimer()
				_, n := s.Counts()
				require.Equal(b, count, n)
				b.ReportMetric(float64(joined.Milliseconds()), "gossip-ms")
				require.NoError(b, s.Close())
				require.NoError(b, m.Close())
				b.StartTimer()
			}
		})
	}
}
