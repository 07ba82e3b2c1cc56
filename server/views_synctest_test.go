package server

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// table is what views read; a service without instances is unknown.
type table struct {
	mu       sync.Mutex
	services map[naming.ServiceKey][]*naming.Instance
	reads    int
	watches  map[naming.ServiceKey]bool
	reading  func(naming.ServiceKey)
}

func newTable() *table {
	return &table{services: make(map[naming.ServiceKey][]*naming.Instance), watches: make(map[naming.ServiceKey]bool)}
}

func (b *table) set(k naming.ServiceKey, hosts ...*naming.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.services[k] = hosts
}

func (b *table) read(k naming.ServiceKey) (naming.Service, bool) {
	b.mu.Lock()
	b.reads++
	s, reading := naming.Service{Key: k, Instances: b.services[k]}, b.reading
	b.mu.Unlock()
	if reading != nil {
		reading(k)
	}
	return s, len(s.Instances) > 0
}

// hook has each read call fn after it has taken the state; nil: no more.
func (b *table) hook(fn func(naming.ServiceKey)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = fn
}

func (b *table) watched(k naming.ServiceKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watches[k]
}

func (b *table) views() *views { return newViews(b.read, b.watched, 10000) }

// weighted returns an instance whose weight tells states apart.
func weighted(w float64) *naming.Instance {
	return host("10.0.0.1", func(i *naming.Instance) { i.Weight = w })
}

func TestViews_OneValueUntilTheContentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable()
		vs := b.views()
		b.set(service("a"), host("10.0.0.1", cluster("c")))
		now := time.Now().UnixMilli()
		all, some := naming.Filter{}, naming.Filter{Clusters: "c"}
		first, other := vs.get(service("a"), all), vs.get(service("a"), some)
		require.Len(t, first.Hosts, 1)
		require.Equal(t, int64(10000), first.CacheMs)
		require.Equal(t, now, first.LastRefTimeMs)
		require.Equal(t, "c", other.Clusters)
		reads := b.reads

		time.Sleep(time.Hour)
		require.Same(t, first, vs.get(service("a"), all))
		require.Equal(t, reads, b.reads, "nothing is read without a change")

		b.set(service("a"), host("10.0.0.1", cluster("c"))) // an equal instance
		vs.changed(service("a"))
		require.Same(t, first, vs.get(service("a"), all), "equal content keeps the value and its time")

		b.set(service("a"), host("10.0.0.1", cluster("c")), host("10.0.0.2", cluster("d")))
		vs.changed(service("a"))
		second := vs.get(service("a"), all)
		require.Len(t, second.Hosts, 2)
		require.Greater(t, second.LastRefTimeMs, first.LastRefTimeMs)
		require.Same(t, other, vs.get(service("a"), some), "what this filter shows did not change")
		require.Equal(t, reads+2, b.reads, "one read for each change, whatever the number of filters")
	})
}

func TestViews_TimesRiseWithinAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable()
		vs := b.views()
		last := int64(0)
		for n := range 100 {
			b.set(service("a"), weighted(float64(n%2))) // back and forth
			vs.changed(service("a"))
			info := vs.get(service("a"), naming.Filter{})
			require.Greater(t, info.LastRefTimeMs, last)
			last = info.LastRefTimeMs
		}
		time.Sleep(time.Second)
		b.set(service("a"), weighted(7))
		vs.changed(service("a"))
		require.Equal(t, time.Now().UnixMilli(), vs.get(service("a"), naming.Filter{}).LastRefTimeMs, "then they follow the clock again")
	})
}

func TestViews_TimesRiseAcrossDropAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable()
		vs := b.views()
		last := int64(0)
		rises := func() {
			t.Helper()
			now := vs.get(service("a"), naming.Filter{}).LastRefTimeMs
			require.Greater(t, now, last)
			last = now
		}
		for n := range 20 { // all within one millisecond
			for m := range 5 {
				b.set(service("a"), weighted(float64(5*n+m)))
				vs.changed(service("a"))
				rises()
			}
			b.set(service("a"))
			vs.changed(service("a"))
			vs.drop(service("a"))
			rises() // unknown now
		}
		vs.drop(service("unknown"))
	})
}

func TestViews_AChangeWhileReadingIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable()
		vs := b.views()
		b.set(service("a"), weighted(1))
		vs.get(service("a"), naming.Filter{})
		vs.changed(service("a"))
		b.hook(func(k naming.ServiceKey) {
			b.set(k, weighted(2))
			vs.changed(k)
		})
		require.InDelta(t, 1, vs.get(service("a"), naming.Filter{}).Hosts[0].Weight, 0)
		b.hook(nil)
		require.InDelta(t, 2, vs.get(service("a"), naming.Filter{}).Hosts[0].Weight, 0)
	})
}

func TestViews_FiltersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable()
		vs := b.views()
		filter := func(n int) naming.Filter { return naming.Filter{Clusters: fmt.Sprintf("c%d", n)} }
		for round := range 3 {
			b.set(service("a"), weighted(float64(round)))
			vs.changed(service("a"))
			for n := range 3 * maxFilters {
				info := vs.get(service("a"), filter(n))
				require.Equal(t, n < maxFilters, info == vs.get(service("a"), filter(n)))
				require.Equal(t, filter(n).Clusters, info.Clusters)
			}
			v := vs.byKey[service("a")]
			require.Len(t, v.current, maxFilters)
			require.LessOrEqual(t, len(v.former), 2*maxFilters)
		}
		for n := range 10 * maxFilters { // other filters after each change
			vs.changed(service("a"))
			vs.get(service("a"), filter(1000+n))
			require.LessOrEqual(t, len(vs.byKey[service("a")].former), 2*maxFilters+1)
		}
	})
}

func TestViews_UnknownServicesAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable()
		vs := b.views()
		for n := range 1000 {
			info := vs.get(service(fmt.Sprint(n)), naming.Filter{Clusters: "c"})
			require.Empty(t, info.Hosts)
			require.Equal(t, "c", info.Clusters)
			require.Equal(t, int64(10000), info.CacheMs)
			require.InDelta(t, time.Now().UnixMilli(), info.LastRefTimeMs, 1)
		}
		require.Empty(t, vs.byKey)

		b.watches[service("a")] = true // but what somebody waits for is
		info := vs.get(service("a"), naming.Filter{})
		require.Same(t, info, vs.get(service("a"), naming.Filter{}))
		vs.changed(service("a"))
		require.Same(t, info, vs.get(service("a"), naming.Filter{}))
	})
}

// The registry's part: which services keep views.
func TestRegistry_ViewsGoWithServiceAndSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		has := func() bool {
			f.views.mu.RLock()
			defer f.views.mu.RUnlock()
			return f.views.byKey[service("a")] != nil
		}
		f.hosts(service("a"))
		require.False(t, has())
		f.register(t, service("a"), host("10.0.0.1"))
		f.hosts(service("a"))
		require.True(t, has())
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.False(t, has(), "gone with the service")

		f.watch(service("a"), true)
		before := f.ServiceInfo(service("a"), naming.Filter{})
		require.True(t, has())
		f.register(t, service("a"), host("10.0.0.1"))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.True(t, has(), "somebody waits for it")
		require.Same(t, before, f.ServiceInfo(service("a"), naming.Filter{}))

		f.register(t, service("a"), host("10.0.0.1"))
		f.watch(service("a"), false)
		f.Idle(service("a"))
		require.True(t, has(), "it exists")
		f.watch(service("b"), true)
		f.hosts(service("b"))
		f.watch(service("b"), false)
		f.Idle(service("b"))
		require.Nil(t, f.views.byKey[service("b")])
	})
}
