package client

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// full returns a client that has lists but no goroutines and no servers.
func full(tb testing.TB, services, hosts int) *Client {
	tb.Helper()
	c := &Client{cfg: DefaultConfig(), deliver: newDelivery()}
	c.cache = newCache(c.cfg, c.deliver)
	for n := range services {
		key := naming.ServiceKey{Namespace: "public", Group: naming.DefaultGroup, Name: fmt.Sprintf("service-%d", n)}
		e := c.cache.get(key)
		m, err := decodeMessage(bigPush(hosts, 0), nil)
		require.NoError(tb, err)
		e.push(m.service, 1)
		for _, clusters := range []string{"", "DEFAULT"} {
			c.pickers.add(key, clusters, &Picker{entry: e, clusters: clusters})
		}
	}
	return c
}

func BenchmarkSelect(b *testing.B) {
	c := full(b, 1000, 10)
	for _, clusters := range []string{"", "DEFAULT"} {
		b.Run(fmt.Sprintf("clusters=%q", clusters), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				svc := naming.ServiceKey{Name: "service-500"}
				for p.Next() {
					if _, err := c.Select(b.Context(), svc, clusters); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func TestSelect_DoesNotAllocate(t *testing.T) {
	c := full(t, 10, 10)
	for _, clusters := range []string{"", "DEFAULT"} {
		allocations := testing.AllocsPerRun(1000, func() {
			_, _ = c.Select(t.Context(), naming.ServiceKey{Name: "service-5"}, clusters)
		})
		require.Zero(t, allocations, "clusters %q", clusters)
	}
}

// A push of 10,000 instances, of which one has changed, decoded and compared. The same
// with nacos-sdk-go is in package integration.
func BenchmarkPush10000(b *testing.B) {
	bodies := [2][]byte{bigPush(10000, 1), bigPush(10000, 2)}
	first, err := decodeMessage(bodies[1], nil)
	require.NoError(b, err)
	known := first.service
	b.SetBytes(int64(len(bodies[0])))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		m, err := decodeMessage(bodies[n%2], func(string, string) *Service { return known })
		if err != nil {
			b.Fatal(err)
		}
		if _, _, changed := diff(known.Instances, m.service.Instances); len(changed) != 2 {
			b.Fatalf("%d changed", len(changed))
		}
		known = m.service
	}
}

// What one subscription to a service of its own costs, its list of one instance
// included.
func BenchmarkMemoryPerSubscription(b *testing.B) {
	const subscriptions = 10000
	one := list(1, 1)
	for b.Loop() {
		cfg := DefaultConfig()
		c := &Client{cfg: cfg, deliver: newDelivery()}
		c.cache = newCache(cfg, c.deliver)
		c.keep = newKeeper(cfg, nil, c.cache, newMetrics())
		before := inUse()
		for n := range subscriptions {
			key := naming.ServiceKey{Namespace: "public", Group: naming.DefaultGroup, Name: fmt.Sprintf("service-%d", n)}
			x := &kept{key: key, entry: c.cache.get(key), users: 1}
			c.keep.subscriptions[key] = x
			s := *one
			s.Instances = instances(1)
			x.entry.push(&s, 1)
			x.entry.attach(&Subscription{client: c, entry: x.entry, fn: func(Change) {}})
		}
		b.ReportMetric(float64(inUse()-before)/subscriptions, "B/subscription")
		runtime.KeepAlive(c)
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
