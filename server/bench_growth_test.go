package server

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// BenchmarkGrowth measures one operation of a standalone node's registry, below the
// front ends, as what it holds grows: instances of clients with heartbeats, ten in a
// service, and instances of one service. docs/benchmarks.md shows the results.
func BenchmarkGrowth(b *testing.B) {
	for _, instances := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("instances=%d", instances), func(b *testing.B) { growInstances(b, instances) })
	}
	for _, members := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) { growService(b, members) })
	}
}

func growingNode(b *testing.B) *Registry {
	b.Helper()
	cfg := DefaultConfig()
	cfg.DataDir, cfg.Bind, cfg.Port = b.TempDir(), "127.0.0.1", 0
	n, err := New(cfg, "bench", slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, n.Close()) })
	require.NoError(b, n.Start())
	require.Eventually(b, func() bool { return n.Ready() == nil }, 10*time.Second, time.Millisecond)
	return n.registry
}

// member is an instance with metadata; the version makes it another one.
func member(n, version int) *naming.Instance {
	i := naming.NewInstance(fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255), 8080)
	i.Weight = float64(1 + version%2)
	i.Metadata = map[string]string{naming.MetaBeatTimeout: "3600000", naming.MetaDeleteTimeout: "7200000"} // it outlives the benchmark
	return &i
}

func growInstances(b *testing.B, instances int) {
	b.Helper()
	const perService = 10
	registry := growingNode(b)
	svc := func(n int) naming.ServiceKey {
		return naming.ServiceKey{Namespace: naming.DefaultNamespace, Group: naming.DefaultGroup, Name: "grow-" + strconv.Itoa(n/perService)}
	}
	register := func(n, version int) {
		i := member(n, version)
		if err := registry.Register(b.Context(), svc(n), i.Key().Address(), i); err != nil {
			b.Fatal(err)
		}
	}
	before := heap()
	for n := range instances {
		register(n, 0)
	}
	perInstance := float64(heap()-before) / float64(instances)
	random := rand.New(rand.NewPCG(1, 2))
	b.Run("register", func(b *testing.B) {
		b.ReportAllocs()
		for version := 1; b.Loop(); version++ {
			register(random.IntN(instances), version)
		}
		b.ReportMetric(perInstance, "B/instance")
	})
	b.Run("beat", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := random.IntN(instances)
			i := member(n, 0)
			answer, err := registry.Beat(b.Context(), svc(n), i.IP, i.Port, nil)
			if err != nil || !answer.Known {
				b.Fatal(answer, err)
			}
		}
	})
	b.Run("query", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n := len(registry.ServiceInfo(svc(random.IntN(instances)), naming.Filter{}).Hosts); n != perService {
				b.Fatal(n)
			}
		}
	})
}

func growService(b *testing.B, members int) {
	b.Helper()
	registry := growingNode(b)
	svc := naming.ServiceKey{Namespace: naming.DefaultNamespace, Group: naming.DefaultGroup, Name: "grow"}
	register := func(n, version int) {
		i := member(n, version)
		if err := registry.Register(b.Context(), svc, "conn-"+strconv.Itoa(n), i); err != nil {
			b.Fatal(err)
		}
	}
	for n := range members {
		register(n, 0)
	}
	random := rand.New(rand.NewPCG(1, 2))
	b.Run("register", func(b *testing.B) {
		b.ReportAllocs()
		for version := 1; b.Loop(); version++ {
			register(random.IntN(members), version)
		}
	})
	b.Run("list", func(b *testing.B) { // made anew after a change
		b.ReportAllocs()
		for version := 1; b.Loop(); version++ {
			register(random.IntN(members), version)
			if n := len(registry.ServiceInfo(svc, naming.Filter{}).Hosts); n != members {
				b.Fatal(n)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(members), "ns/member")
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
