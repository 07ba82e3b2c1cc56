package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

const (
	wait = 10 * time.Second
	tick = time.Millisecond
)

// Run checks a store against the contract. open returns an empty store that takes
// writes, and closes it by t.Cleanup; it is called once for each subtest. Run adds
// its listeners before its first write.
func Run(t *testing.T, open func(t *testing.T) consistency.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(f *fixture)
	}{
		{"becomes ready", becomesReady},
		{"an unknown service is absent", unknownService},
		{"publish replaces what the publisher had", publishReplaces},
		{"publish leaves other publishers and services alone", publishIsScoped},
		{"publish takes a batch", publishBatch},
		{"an empty publication withdraws", publishEmpty},
		{"within a batch the later of equal addresses counts", publishDoubles},
		{"put and delete change one instance", putAndDeleteInstance},
		{"put settings", putSettings},
		{"put overrides", putOverride},
		{"put settings of clusters", putCluster},
		{"put namespaces", putNamespace},
		{"publications are told by publisher", publicationsSorted},
		{"deleting what is absent is no error", deleteAbsent},
		{"the newest version of an address wins", newestWins},
		{"instances are sorted", instancesSorted},
		{"stat counts", statCounts},
		{"services are sorted and per namespace", servicesSorted},
		{"text comes back byte for byte", textUnchanged},
		{"a notice follows the change", noticeFollowsChange},
		{"an equal publication gives no notice", noNoticeWithoutChange},
		{"a service that was read stays as it was", readsAreCopies},
		{"a publication may be reused", publicationReused},
		{"a write whose context has ended does nothing", contextEnded},
		{"concurrent use", concurrentUse},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			f := &fixture{T: t, Store: s, changes: make(map[naming.ServiceKey]int)}
			s.Listen(f.note)
			c.test(f)
		})
	}
}

// fixture is one subtest: its store, and the notices that it has given.
type fixture struct {
	*testing.T
	consistency.Store

	mu      sync.Mutex
	changes map[naming.ServiceKey]int
	onNote  func(naming.ServiceKey)
}

func (f *fixture) note(c consistency.ServiceChanged) {
	f.mu.Lock()
	f.changes[c.Service]++
	fn := f.onNote
	f.mu.Unlock()
	if fn != nil {
		fn(c.Service)
	}
}

func (f *fixture) setOnNote(fn func(naming.ServiceKey)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onNote = fn
}

func (f *fixture) notices(svc naming.ServiceKey) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes[svc]
}

func (f *fixture) publish(svc naming.ServiceKey, publisher string, instances ...*naming.Instance) {
	f.Helper()
	require.NoError(f, f.Publish(f.Context(), consistency.Publication{Service: svc, Publisher: publisher, Instances: instances}))
}

// weights returns "cluster/ip:port=weight" for each instance of the service.
func (f *fixture) weights(svc naming.ServiceKey) []string {
	f.Helper()
	s, ok := f.Service(svc)
	require.Equal(f, len(s.Instances) > 0 || s.Settings != nil || len(s.Overrides) > 0, ok)
	require.Equal(f, svc, s.Key)
	return weights(s.Instances)
}

func weights(instances []*naming.Instance) []string {
	out := make([]string, 0, len(instances))
	for _, i := range instances {
		out = append(out, fmt.Sprintf("%s/%s=%v", i.Cluster, i.Key().Address(), i.Weight))
	}
	return out
}

func key(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "DEFAULT_GROUP", Name: name}
}

// host returns an instance whose address ends in n.
func host(n int, weight float64) *naming.Instance {
	i := naming.NewInstance("10.0.0."+strconv.Itoa(n), 80)
	i.Weight = weight
	return &i
}

func instanceDatum(svc naming.ServiceKey, publisher string, i *naming.Instance) consistency.Datum {
	return consistency.Datum{Key: consistency.Key{
		Service: svc, Kind: consistency.KindInstance, Publisher: publisher, Instance: i.Key(),
	}, Instance: i}
}

func becomesReady(f *fixture) {
	require.Eventually(f, func() bool { return f.Ready() == nil }, wait, tick)
}

func unknownService(f *fixture) {
	s, ok := f.Service(key("none"))
	require.False(f, ok)
	require.Equal(f, key("none"), s.Key)
	require.Empty(f, s.Instances)
	require.Zero(f, f.Stat(key("none")))
	require.Empty(f, f.Services(""))
	require.Empty(f, f.Services("public"))
	require.Nil(f, f.Published(key("none"), "p"))
}

func publishReplaces(f *fixture) {
	svc := key("a")
	f.publish(svc, "p", host(1, 1), host(2, 1))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1", "DEFAULT/10.0.0.2:80=1"}, f.weights(svc))
	f.publish(svc, "p", host(2, 5), host(3, 1))
	require.Equal(f, []string{"DEFAULT/10.0.0.2:80=5", "DEFAULT/10.0.0.3:80=1"}, f.weights(svc))
	require.ElementsMatch(f, []string{"DEFAULT/10.0.0.2:80=5", "DEFAULT/10.0.0.3:80=1"}, weights(f.Published(svc, "p")))
}

func publishIsScoped(f *fixture) {
	f.publish(key("a"), "p", host(1, 1))
	f.publish(key("a"), "q", host(2, 1))
	f.publish(key("b"), "p", host(3, 1))
	f.publish(key("a"), "p", host(4, 1))
	require.Equal(f, []string{"DEFAULT/10.0.0.2:80=1", "DEFAULT/10.0.0.4:80=1"}, f.weights(key("a")))
	require.Equal(f, []string{"DEFAULT/10.0.0.3:80=1"}, f.weights(key("b")))
	require.Equal(f, []string{"DEFAULT/10.0.0.2:80=1"}, weights(f.Published(key("a"), "q")))
	require.Nil(f, f.Published(key("b"), "q"))
}

func publishBatch(f *fixture) {
	const size = 300
	batch := make([]*naming.Instance, size)
	for n := range batch {
		batch[n] = host(n, 1)
	}
	f.publish(key("a"), "p", batch...)
	s, ok := f.Service(key("a"))
	require.True(f, ok)
	require.Len(f, s.Instances, size)
	require.Equal(f, size, f.Stat(key("a")).Instances)
	require.Equal(f, 1, f.notices(key("a")), "a batch is one change")
}

func publishEmpty(f *fixture) {
	svc := key("a")
	f.publish(svc, "p", host(1, 1))
	f.publish(svc, "q", host(2, 1))
	f.publish(svc, "p")
	require.Equal(f, []string{"DEFAULT/10.0.0.2:80=1"}, f.weights(svc))
	require.Nil(f, f.Published(svc, "p"))
	f.publish(svc, "q")
	require.Empty(f, f.weights(svc))
	require.False(f, f.Stat(svc).Exists)
	require.Empty(f, f.Services(""))
	f.publish(svc, "q") // again, of a service that is gone
	require.False(f, f.Stat(svc).Exists)
}

func publishDoubles(f *fixture) {
	f.publish(key("a"), "p", host(1, 1), host(2, 2), host(1, 3))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=3", "DEFAULT/10.0.0.2:80=2"}, f.weights(key("a")))
	require.Equal(f, 2, f.Stat(key("a")).Instances)
}

func putAndDeleteInstance(f *fixture) {
	svc := key("a")
	f.publish(svc, "p", host(1, 1), host(2, 1))
	require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "p", host(3, 1))))
	require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "p", host(1, 7))))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=7", "DEFAULT/10.0.0.2:80=1", "DEFAULT/10.0.0.3:80=1"}, f.weights(svc))

	require.NoError(f, f.Delete(f.Context(), instanceDatum(svc, "p", host(2, 1)).Key))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=7", "DEFAULT/10.0.0.3:80=1"}, f.weights(svc))
	require.NoError(f, f.Delete(f.Context(), instanceDatum(svc, "p", host(1, 1)).Key))
	require.NoError(f, f.Delete(f.Context(), instanceDatum(svc, "p", host(3, 1)).Key))
	require.Zero(f, f.Stat(svc))

	require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "q", host(4, 1))))
	require.Equal(f, []string{"DEFAULT/10.0.0.4:80=1"}, f.weights(svc), "put makes the service")
}

func putSettings(f *fixture) {
	svc := key("a")
	k := consistency.Key{Service: svc, Kind: consistency.KindSettings}
	want := &naming.Settings{
		Kind: naming.KindPersistent, ProtectThreshold: 0.5, Metadata: map[string]string{"k": "v"},
		Selector: naming.Selector{Type: "label", Expression: "CONSUMER.label.a = PROVIDER.label.a", Labels: []string{"a", "b"}},
	}
	require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: k, Settings: want}))
	s, ok := f.Service(svc)
	require.True(f, ok)
	require.Equal(f, want, s.Settings)
	require.Equal(f, consistency.Stat{Exists: true, Settings: want, Key: svc}, f.Stat(svc))
	require.Equal(f, []naming.ServiceKey{svc}, f.Services(""))
	require.Equal(f, 1, f.notices(svc))

	f.publish(svc, "p", host(1, 1))
	f.publish(svc, "p")
	require.True(f, f.Stat(svc).Exists, "settings outlive the instances")

	for _, kind := range []naming.Kind{naming.KindNone, naming.KindEphemeral} {
		require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: k, Settings: &naming.Settings{Kind: kind}}))
		require.Equal(f, &naming.Settings{Kind: kind}, f.Stat(svc).Settings)
	}
	require.NoError(f, f.Delete(f.Context(), k))
	require.Zero(f, f.Stat(svc))
}

func putOverride(f *fixture) {
	svc := key("a")
	i := host(1, 1)
	k := consistency.Key{Service: svc, Kind: consistency.KindOverride, Instance: i.Key()}
	o := &naming.Override{Weight: 9, Enabled: false, Metadata: map[string]string{"by": "an operator"}}
	require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: k, Override: o}))
	require.Equal(f, consistency.Stat{Exists: true, Overrides: 1, Key: svc}, f.Stat(svc), "an override may precede its instance")
	f.publish(svc, "p", i)
	s, ok := f.Service(svc)
	require.True(f, ok)
	require.Equal(f, map[naming.InstanceKey]*naming.Override{i.Key(): o}, s.Overrides)
	require.InDelta(f, 1, s.Instances[0].Weight, 0, "what is published stays as it is")
	effective := s.Find(i.Key())
	require.InDelta(f, 9, effective.Weight, 0)
	require.False(f, effective.Enabled)
	require.Equal(f, o.Metadata, effective.Metadata)

	require.NoError(f, f.Delete(f.Context(), k))
	s, ok = f.Service(svc)
	require.True(f, ok)
	require.Empty(f, s.Overrides)
	f.publish(svc, "p")
	require.Zero(f, f.Stat(svc))
}

func putCluster(f *fixture) {
	svc := key("a")
	k := consistency.ClusterKey(svc, "c1")
	want := &naming.Cluster{CheckPort: 81, Checker: naming.Checker{
		Type: naming.CheckHTTP, Path: "/ping?x=1", Headers: "A:b|C:d", ExpectedCode: 204, User: "u", Password: "p", Command: "select 1",
	}, Metadata: map[string]string{"k": "v"}}
	require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: k, Cluster: want}))
	other := naming.DefaultClusterSettings()
	require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: consistency.ClusterKey(svc, "c2"), Cluster: other}))
	s, ok := f.Service(svc)
	require.True(f, ok)
	require.Equal(f, map[string]*naming.Cluster{"c1": want, "c2": other}, s.Clusters)
	require.Equal(f, consistency.Stat{Exists: true, Key: svc}, f.Stat(svc))
	require.Equal(f, 2, f.notices(svc))

	require.NoError(f, f.Delete(f.Context(), k))
	require.NoError(f, f.Delete(f.Context(), k), "an absent one is no error")
	s, _ = f.Service(svc)
	require.Equal(f, map[string]*naming.Cluster{"c2": other}, s.Clusters)
	require.NoError(f, f.Delete(f.Context(), consistency.ClusterKey(svc, "c2")))
	require.Zero(f, f.Stat(svc))
	require.Equal(f, 4, f.notices(svc))
}

func putNamespace(f *fixture) {
	require.Empty(f, f.Namespaces())
	put := func(n naming.Namespace) {
		require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: consistency.NamespaceKey(n.ID), Namespace: &n}))
	}
	dev, qa := naming.Namespace{ID: "dev", Name: "Dev \u00e9", Description: "d"}, naming.Namespace{ID: "a-qa"}
	put(dev)
	put(qa)
	if f.Namespaces() == nil {
		f.Skip("a store of ephemeral data holds no namespaces")
	}
	require.Equal(f, []naming.Namespace{qa, dev}, f.Namespaces())
	dev.Name = "other"
	put(dev)
	require.Equal(f, []naming.Namespace{qa, dev}, f.Namespaces())
	require.Empty(f, f.Services(""), "a namespace is no service")
	require.NoError(f, f.Delete(f.Context(), consistency.NamespaceKey("dev")))
	require.NoError(f, f.Delete(f.Context(), consistency.NamespaceKey("dev")), "an absent one is no error")
	require.Equal(f, []naming.Namespace{qa}, f.Namespaces())
}

func publicationsSorted(f *fixture) {
	svc := key("a")
	require.Empty(f, f.Publications(svc))
	f.publish(svc, "q", host(2, 1), host(3, 1))
	f.publish(svc, "p", host(1, 1))
	f.publish(key("b"), "r", host(1, 1))
	require.Equal(f, []consistency.Publication{
		{Service: svc, Publisher: "p", Instances: []*naming.Instance{host(1, 1)}},
		{Service: svc, Publisher: "q", Instances: []*naming.Instance{host(2, 1), host(3, 1)}},
	}, f.Publications(svc))
}

func deleteAbsent(f *fixture) {
	keys := func(svc naming.ServiceKey) []consistency.Key {
		return []consistency.Key{
			instanceDatum(svc, "p", host(9, 1)).Key,
			instanceDatum(svc, "unknown", host(1, 1)).Key,
			{Service: svc, Kind: consistency.KindSettings},
			{Service: svc, Kind: consistency.KindOverride, Instance: host(1, 1).Key()},
		}
	}
	for _, k := range keys(key("unknown")) {
		require.NoError(f, f.Delete(f.Context(), k))
	}
	f.publish(key("a"), "p", host(1, 1))
	before := f.notices(key("a"))
	for _, k := range keys(key("a")) {
		require.NoError(f, f.Delete(f.Context(), k))
	}
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1"}, f.weights(key("a")))
	require.Equal(f, []naming.ServiceKey{key("a")}, f.Services(""))
	require.Equal(f, before, f.notices(key("a")))
	require.Zero(f, f.notices(key("unknown")))
}

func newestWins(f *fixture) {
	svc := key("a")
	f.publish(svc, "p", host(1, 1))
	f.publish(svc, "q", host(1, 2))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=2"}, f.weights(svc))
	require.Equal(f, 2, f.Stat(svc).Instances)
	f.publish(svc, "p", host(1, 1))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1"}, f.weights(svc), "an equal registration is still the newest")
	require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "q", host(1, 3))))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=3"}, f.weights(svc))
	f.publish(svc, "q")
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1"}, f.weights(svc), "what the other one published shows again")
}

func instancesSorted(f *fixture) {
	svc := key("a")
	var batch []*naming.Instance
	for _, cluster := range []string{"b", "a"} {
		for _, ip := range []string{"10.0.0.2", "10.0.0.10", "10.0.0.1"} {
			for _, port := range []int{443, 80} {
				i := naming.NewInstance(ip, port)
				i.Cluster = cluster
				batch = append(batch, &i)
			}
		}
	}
	f.publish(svc, "p", batch...)
	require.Equal(f, []string{
		"a/10.0.0.1:80=1", "a/10.0.0.1:443=1", "a/10.0.0.10:80=1", "a/10.0.0.10:443=1", "a/10.0.0.2:80=1", "a/10.0.0.2:443=1",
		"b/10.0.0.1:80=1", "b/10.0.0.1:443=1", "b/10.0.0.10:80=1", "b/10.0.0.10:443=1", "b/10.0.0.2:80=1", "b/10.0.0.2:443=1",
	}, f.weights(svc))
}

func statCounts(f *fixture) {
	svc := key("a")
	for _, c := range []struct {
		do   func()
		want int
	}{
		{func() { f.publish(svc, "p", host(1, 1), host(2, 1)) }, 2},
		{func() { f.publish(svc, "q", host(2, 1), host(3, 1)) }, 4},
		{func() { f.publish(svc, "p", host(1, 1)) }, 3},
		{func() { require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "p", host(5, 1)))) }, 4},
		{func() { require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "p", host(5, 2)))) }, 4},
		{func() { require.NoError(f, f.Delete(f.Context(), instanceDatum(svc, "p", host(5, 2)).Key)) }, 3},
		{func() { f.publish(svc, "q") }, 1},
		{func() { f.publish(svc, "p") }, 0},
	} {
		c.do()
		st := f.Stat(svc)
		require.Equal(f, c.want > 0, st.Exists)
		require.Equal(f, c.want, st.Instances)
	}
	with := host(7, 1).With(func(i *naming.Instance) { i.Metadata = map[string]string{"k": "v"} })
	f.publish(svc, "p", with)
	require.Equal(f, with.Metadata, f.Stat(svc).Metadata)
}

func servicesSorted(f *fixture) {
	keys := []naming.ServiceKey{
		{Namespace: "a", Group: "g", Name: "x"},
		{Namespace: "b", Group: "g", Name: "y"},
		{Namespace: "b", Group: "g", Name: "z"},
		{Namespace: "b", Group: "h", Name: "a"},
		{Namespace: "c", Group: "g", Name: "b"},
	}
	for _, n := range []int{3, 0, 4, 2, 1} {
		f.publish(keys[n], "p", host(1, 1))
		f.Services("b") // what is remembered must follow the changes
	}
	require.Equal(f, keys, f.Services(""))
	require.Equal(f, keys[1:4], f.Services("b"))
	require.Empty(f, f.Services("unknown"))
	f.publish(keys[2], "p")
	require.Equal(f, []naming.ServiceKey{keys[1], keys[3]}, f.Services("b"))
}

func textUnchanged(f *fixture) {
	svc := naming.ServiceKey{Namespace: "n_1-a", Group: "g:1.2", Name: "providers:com.example.Api:1.0:" + "é"}
	i := &naming.Instance{
		ID: "an id # with @@ marks", IP: "fe80::1%eth0", Port: 65535, Cluster: "c-1", Weight: 0.1,
		Healthy: false, Enabled: false, Ephemeral: true,
		Metadata: map[string]string{"": "empty key", "empty": "", "line\nbreak\t": "\x00\x7f\u2028", "emoji": "\U0001F600", "quote": `"\`},
	}
	f.publish(svc, "1700000000000_127.0.0.1_52004", i)
	s, ok := f.Service(svc)
	require.True(f, ok)
	require.Equal(f, []*naming.Instance{i}, s.Instances)

	j := naming.NewInstance("host.example", 0)
	f.publish(svc, "1700000000000_127.0.0.1_52004", &j)
	s, _ = f.Service(svc)
	require.Equal(f, []*naming.Instance{&j}, s.Instances, "no metadata stays nil")
}

func noticeFollowsChange(f *fixture) {
	svc := key("a")
	var mu sync.Mutex
	var seen []string
	f.setOnNote(func(k naming.ServiceKey) {
		s, _ := f.Service(k)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(weights(s.Instances), f.Stat(k).Instances, f.Services("")))
	})
	sees := func(instances []string, services ...naming.ServiceKey) {
		f.Helper()
		want := fmt.Sprint(instances, len(instances), services)
		require.Eventually(f, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) > 0 && seen[len(seen)-1] == want
		}, wait, tick, want)
	}
	f.publish(svc, "p", host(1, 1))
	sees([]string{"DEFAULT/10.0.0.1:80=1"}, svc)
	f.publish(svc, "p", host(1, 2))
	sees([]string{"DEFAULT/10.0.0.1:80=2"}, svc)
	require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "p", host(1, 3))))
	sees([]string{"DEFAULT/10.0.0.1:80=3"}, svc)
	require.NoError(f, f.Delete(f.Context(), instanceDatum(svc, "p", host(1, 3)).Key))
	sees([]string{})
	require.Equal(f, 4, f.notices(svc))
}

func noNoticeWithoutChange(f *fixture) {
	svc := key("a")
	batch := func() []*naming.Instance {
		i, j := host(1, 1), host(2, 1)
		i.Metadata = map[string]string{"a": "1", "b": "2"}
		return []*naming.Instance{i, j}
	}
	f.publish(svc, "p", batch()...)
	require.Eventually(f, func() bool { return f.notices(svc) == 1 }, wait, tick)
	f.publish(svc, "p", batch()...)
	f.publish(key("unknown"), "p")
	f.publish(key("marker"), "p", host(1, 1)) // notices keep the order of changes
	require.Eventually(f, func() bool { return f.notices(key("marker")) == 1 }, wait, tick)
	require.Equal(f, 1, f.notices(svc))
	require.Zero(f, f.notices(key("unknown")))
}

func readsAreCopies(f *fixture) {
	svc := key("a")
	k := consistency.Key{Service: svc, Kind: consistency.KindOverride, Instance: host(1, 1).Key()}
	f.publish(svc, "p", host(1, 1), host(2, 1))
	require.NoError(f, f.Put(f.Context(), consistency.Datum{Key: k, Override: &naming.Override{Weight: 2}}))
	before, _ := f.Service(svc)
	published := f.Published(svc, "p")

	f.publish(svc, "p", host(2, 8))
	require.NoError(f, f.Put(f.Context(), instanceDatum(svc, "p", host(3, 1))))
	require.NoError(f, f.Delete(f.Context(), k))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1", "DEFAULT/10.0.0.2:80=1"}, weights(before.Instances))
	require.Len(f, before.Overrides, 1)
	require.ElementsMatch(f, []string{"DEFAULT/10.0.0.1:80=1", "DEFAULT/10.0.0.2:80=1"}, weights(published))

	after, _ := f.Service(svc)
	clear(after.Instances) // the value is the caller's
	require.Equal(f, []string{"DEFAULT/10.0.0.2:80=8", "DEFAULT/10.0.0.3:80=1"}, f.weights(svc))
}

func publicationReused(f *fixture) {
	batch := []*naming.Instance{host(1, 1), host(2, 1)}
	f.publish(key("a"), "p", batch...)
	batch[0], batch[1] = host(8, 1), host(9, 1)
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1", "DEFAULT/10.0.0.2:80=1"}, f.weights(key("a")))
}

func contextEnded(f *fixture) {
	svc := key("a")
	f.publish(svc, "p", host(1, 1))
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	require.ErrorIs(f, f.Publish(ctx, consistency.Publication{Service: svc, Publisher: "p"}), context.Canceled)
	require.ErrorIs(f, f.Put(ctx, instanceDatum(svc, "p", host(2, 1))), context.Canceled)
	require.ErrorIs(f, f.Delete(ctx, instanceDatum(svc, "p", host(1, 1)).Key), context.Canceled)
	f.publish(key("later"), "p", host(1, 1))
	require.Equal(f, []string{"DEFAULT/10.0.0.1:80=1"}, f.weights(svc))
}

// concurrentUse has publishers that each write a service list of their own and
// readers of everything; in the end each publisher's last word must stand.
func concurrentUse(f *fixture) {
	const publishers, rounds, services = 8, 40, 5
	var writers, readers sync.WaitGroup
	doneCh := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				for n := range services {
					s, ok := f.Service(key(strconv.Itoa(n)))
					if ok && len(s.Instances) > publishers*2 {
						f.Errorf("%d instances of %d publishers with 2 each", len(s.Instances), publishers)
					}
					f.Stat(s.Key)
					f.Published(s.Key, "p0")
				}
				f.Services("")
				f.Services("public")
				select {
				case <-doneCh:
					return
				default:
				}
			}
		})
	}
	last := make([][services][]*naming.Instance, publishers)
	for p := range publishers {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(p), 1))
			name := "p" + strconv.Itoa(p)
			for r := range rounds {
				n := random.IntN(services)
				svc := key(strconv.Itoa(n))
				var batch []*naming.Instance
				for i := range random.IntN(3) {
					batch = append(batch, host(p*10+i, float64(r+1)))
				}
				err := f.Publish(f.Context(), consistency.Publication{Service: svc, Publisher: name, Instances: batch})
				if err == nil && len(batch) > 0 && random.IntN(4) == 0 {
					err = f.Delete(f.Context(), instanceDatum(svc, name, batch[0]).Key)
					batch = batch[1:]
				}
				if err != nil {
					f.Errorf("publisher %d: %v", p, err)
				}
				last[p][n] = batch
			}
		})
	}
	writers.Wait()
	close(doneCh)
	readers.Wait()
	for n := range services {
		svc := key(strconv.Itoa(n))
		count := 0
		for p := range publishers {
			require.ElementsMatch(f, weights(last[p][n]), weights(f.Published(svc, "p"+strconv.Itoa(p))))
			count += len(last[p][n])
		}
		require.Equal(f, count, f.Stat(svc).Instances)
		require.Len(f, f.weights(svc), count)
	}
}
