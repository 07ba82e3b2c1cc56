package integration

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sdkInstance is what a test registers through an SDK.
type sdkInstance struct {
	service, group, cluster string
	ip                      string
	port                    int
	weight                  float64
	metadata                map[string]string
	persistent              bool
}

// sdk is the part that both official Go SDKs have; the stories below are told
// through it.
type sdk interface {
	register(sdkInstance) error
	deregister(sdkInstance) error
	// all returns every instance of the clusters, as the SDK sees it; the SDK caches
	// and is told of changes.
	all(service, group string, clusters ...string) ([]Host, error)
	healthy(service, group string, clusters ...string) ([]Host, error)
	one(service, group string) (Host, error)
	subscribe(service, group string, clusters []string, fn func([]Host)) error
	services(group string, page, size int) (count int, names []string, err error)
}

// sdkMaker makes a client for a namespace ("" for public) of a node.
type sdkMaker func(t *testing.T, n *Node, namespace string) sdk

// patience is enough for a poll of the SDK of 1.x, which makes good a datagram that
// was lost; how soon pushes come is measured elsewhere.
const patience = 15 * time.Second

// watch collects the lists that a callback is given.
type watch struct {
	mu    sync.Mutex
	lists []ServiceInfo
	at    []time.Time
}

func (w *watch) callback(hosts []Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, ServiceInfo{Hosts: slices.Clone(hosts)})
	w.at = append(w.at, time.Now())
}

func (w *watch) last() (ServiceInfo, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lists) == 0 {
		return ServiceInfo{}, 0
	}
	return w.lists[len(w.lists)-1], len(w.lists)
}

// await waits until the newest list satisfies the condition.
func (w *watch) await(t *testing.T, timeout time.Duration, want func(ServiceInfo) bool) {
	t.Helper()
	eventually(t, timeout, func() error {
		info, count := w.last()
		if count == 0 || !want(info) {
			return fmt.Errorf("%d callbacks, the last with %+v", count, info.Hosts)
		}
		return nil
	})
}

// requireSubscribed subscribes and waits for the first callback. The SDK of 2.x
// works on answers and pushes in several goroutines without a lock around the
// callback: a change in the first milliseconds could be told before the list that
// it changed.
func requireSubscribed(t *testing.T, c sdk, s Service, clusters ...string) *watch {
	t.Helper()
	w := &watch{}
	require.NoError(t, c.subscribe(s.Name, s.Group, clusters, w.callback))
	w.await(t, patience, func(ServiceInfo) bool { return true })
	return w
}

// sdkLife registers, selects, changes and deregisters.
func sdkLife(t *testing.T, make sdkMaker) {
	t.Helper()
	n := sharedNode(t)
	s := newService(t)
	provider, other, consumer := make(t, n, ""), make(t, n, ""), make(t, n, "")
	metadata := map[string]string{"plus": "1+,2", "list": "a,b", "amp": "x&y=z", "text": "é 日本"}
	first := sdkInstance{service: s.Name, ip: "10.0.0.1", port: 8080, weight: 3, metadata: metadata}
	require.NoError(t, provider.register(first))
	require.NoError(t, other.register(sdkInstance{service: s.Name, ip: "10.0.0.2", port: 8080, weight: 1}))

	hosts, err := consumer.all(s.Name, "")
	require.NoError(t, err)
	info := ServiceInfo{Hosts: hosts}
	require.Equal(t, []string{"10.0.0.1:8080", "10.0.0.2:8080"}, info.Addrs())
	h, _ := info.Host("10.0.0.1:8080")
	require.Equal(t, metadata, h.Metadata)
	require.InDelta(t, 3, h.Weight, 0)
	require.True(t, h.Healthy)
	require.True(t, h.Enabled)
	require.True(t, h.Ephemeral)
	require.Equal(t, "DEFAULT", h.ClusterName)
	h, _ = list(t, n, s.Params()).Host("10.0.0.1:8080")
	require.Equal(t, metadata, h.Metadata)

	hosts, err = consumer.healthy(s.Name, "")
	require.NoError(t, err)
	require.Len(t, hosts, 2)
	picks := map[string]int{}
	for range 400 {
		h, err := consumer.one(s.Name, "")
		require.NoError(t, err)
		picks[h.Addr()]++
	}
	require.Greater(t, picks["10.0.0.1:8080"], picks["10.0.0.2:8080"], "by weight")
	require.Positive(t, picks["10.0.0.2:8080"])

	// Registering again replaces weight and metadata; the consumer hears of it.
	first.weight, first.metadata = 0.5, map[string]string{"v": "2"}
	require.NoError(t, provider.register(first))
	sees(t, consumer, s, func(i ServiceInfo) bool {
		h, ok := i.Host("10.0.0.1:8080")
		return ok && h.Weight == 0.5 && h.Metadata["v"] == "2" && len(h.Metadata) == 1
	})

	require.NoError(t, provider.deregister(first))
	requireHosts(t, n, s, "10.0.0.2:8080")
	sees(t, consumer, s, has("10.0.0.2:8080"))
	require.NoError(t, provider.deregister(first), "twice is no error")
}

// sees waits until the SDK's own list satisfies the condition.
func sees(t *testing.T, c sdk, s Service, want func(ServiceInfo) bool) {
	t.Helper()
	eventually(t, patience, func() error {
		hosts, err := c.all(s.Name, s.Group)
		if err != nil {
			return err
		}
		if info := (ServiceInfo{Hosts: hosts}); !want(info) {
			return fmt.Errorf("the SDK sees %+v", hosts)
		}
		return nil
	})
}

// sdkSubscription lets a subscriber's callback see every kind of change.
func sdkSubscription(t *testing.T, make sdkMaker) {
	t.Helper()
	n := sharedNode(t)
	s := newService(t)
	consumer := make(t, n, "")
	before := make(t, n, "")
	require.NoError(t, before.register(sdkInstance{service: s.Name, ip: "10.0.0.9", port: 9, weight: 1}))
	w := requireSubscribed(t, consumer, s)
	w.await(t, patience, has("10.0.0.9:9"))

	provider := make(t, n, "")
	one := sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1, metadata: map[string]string{"v": "1"}}
	require.NoError(t, provider.register(one))
	w.await(t, patience, has("10.0.0.1:1", "10.0.0.9:9"))
	host := func(check func(Host) bool) func(ServiceInfo) bool {
		return func(i ServiceInfo) bool { h, ok := i.Host("10.0.0.1:1"); return ok && check(h) }
	}
	one.metadata = map[string]string{"v": "2"}
	require.NoError(t, provider.register(one))
	w.await(t, patience, host(func(h Host) bool { return h.Metadata["v"] == "2" }))
	one.weight = 7
	require.NoError(t, provider.register(one))
	w.await(t, patience, host(func(h Host) bool { return h.Weight == 7 }))

	// An operator's changes over HTTP arrive the same way.
	update(t, n, s.at("10.0.0.1", 1).With(Params{"weight": "9", "metadata": metadataJSON(t, "by", "operator")}))
	w.await(t, patience, host(func(h Host) bool { return h.Weight == 9 && h.Metadata["by"] == "operator" }))
	update(t, n, s.at("10.0.0.1", 1).With(Params{"enabled": "false"}))
	w.await(t, patience, has("10.0.0.9:9"))
	update(t, n, s.at("10.0.0.1", 1).With(Params{"enabled": "true"}))
	w.await(t, patience, has("10.0.0.1:1", "10.0.0.9:9"))
	register(t, n, s.at("10.0.0.3", 3)) // another protocol's publisher
	w.await(t, patience, has("10.0.0.1:1", "10.0.0.3:3", "10.0.0.9:9"))

	require.NoError(t, provider.deregister(one))
	w.await(t, patience, has("10.0.0.3:3", "10.0.0.9:9"))
	deregister(t, n, s.at("10.0.0.3", 3))
	require.NoError(t, before.deregister(sdkInstance{service: s.Name, ip: "10.0.0.9", port: 9}))
	w.await(t, patience, has())
}

// sdkClustersAndGroups keeps clusters and groups apart.
func sdkClustersAndGroups(t *testing.T, make sdkMaker) {
	t.Helper()
	n := sharedNode(t)
	s := newService(t)
	grouped := Service{Group: uniqueName(t), Name: s.Name}
	consumer := make(t, n, "")
	// Two filters and none, by one client.
	w1, w2, all := requireSubscribed(t, consumer, s, "c1"), requireSubscribed(t, consumer, s, "c2"), requireSubscribed(t, consumer, s)
	both := requireSubscribed(t, consumer, s, "c1", "c2")
	ofGroup := requireSubscribed(t, consumer, grouped)
	for port, cluster := range []string{"c1", "c2", "c3", "c1"} {
		require.NoError(t, make(t, n, "").register(sdkInstance{service: s.Name, cluster: cluster, ip: "10.0.0.1", port: port, weight: 1}))
	}
	require.NoError(t, make(t, n, "").register(sdkInstance{service: s.Name, group: grouped.Group, ip: "10.0.0.7", port: 7, weight: 1}))
	w1.await(t, patience, has("10.0.0.1:0", "10.0.0.1:3"))
	w2.await(t, patience, has("10.0.0.1:1"))
	both.await(t, patience, has("10.0.0.1:0", "10.0.0.1:1", "10.0.0.1:3"))
	all.await(t, patience, has("10.0.0.1:0", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"))
	ofGroup.await(t, patience, has("10.0.0.7:7"))

	fresh := make(t, n, "")
	hosts, err := fresh.all(s.Name, "", "c3")
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.1:2"}, ServiceInfo{Hosts: hosts}.Addrs())
	hosts, err = fresh.healthy(s.Name, grouped.Group)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.7:7"}, ServiceInfo{Hosts: hosts}.Addrs())
	require.Equal(t, grouped.Group+"@@"+s.Name, hosts[0].ServiceName)
}

// sdkNamespaces keeps namespaces apart.
func sdkNamespaces(t *testing.T, make sdkMaker) {
	t.Helper()
	n := sharedNode(t)
	s := newService(t)
	left, right := uniqueName(t), uniqueName(t)
	var watches []*watch
	for port, namespace := range []string{"", left, right} {
		watches = append(watches, requireSubscribed(t, make(t, n, namespace), s))
		require.NoError(t, make(t, n, namespace).register(sdkInstance{service: s.Name, ip: "10.0.0.1", port: port, weight: 1}))
	}
	for port, w := range watches {
		w.await(t, patience, has(fmt.Sprintf("10.0.0.1:%d", port)))
	}
	requireHosts(t, n, Service{Namespace: left, Name: s.Name}, "10.0.0.1:1")
	_, names, err := make(t, n, left).services("", 1, 10)
	require.NoError(t, err)
	require.Equal(t, []string{s.Name}, names)
}

// sdkServices lists services in pages.
func sdkServices(t *testing.T, make sdkMaker) {
	t.Helper()
	n := sharedNode(t)
	namespace := uniqueName(t)
	c := make(t, n, namespace)
	count, names, err := c.services("", 1, 10)
	require.NoError(t, err)
	require.Zero(t, count)
	require.Empty(t, names)
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("svc-%02d", i)
		want = append(want, name)
		require.NoError(t, c.register(sdkInstance{service: name, ip: "10.0.0.1", port: 1, weight: 1}))
	}
	require.NoError(t, c.register(sdkInstance{service: "elsewhere", group: "g1", ip: "10.0.0.1", port: 1, weight: 1}))
	var got []string
	for page := 1; page <= 3; page++ {
		count, names, err = c.services("", page, 5)
		require.NoError(t, err)
		require.Equal(t, 12, count)
		require.Len(t, names, []int{5, 5, 2}[page-1])
		got = append(got, names...)
	}
	require.ElementsMatch(t, want, got, "pages neither overlap nor leave out")
	count, names, err = c.services("", 4, 5)
	require.NoError(t, err)
	require.Equal(t, 12, count)
	require.Empty(t, names)
	_, names, err = c.services("g1", 1, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"elsewhere"}, names)
}

// sdkPersistent registers persistent instances, which need neither beats nor a
// connection.
func sdkPersistent(t *testing.T, make sdkMaker) {
	t.Helper()
	n := sharedNode(t)
	s := newService(t)
	w := requireSubscribed(t, make(t, n, ""), s)
	c := make(t, n, "")
	one := sdkInstance{service: s.Name, ip: "127.0.0.1", port: 1, weight: 2, metadata: map[string]string{"a": "1"}, persistent: true}
	two := sdkInstance{service: s.Name, ip: "127.0.0.1", port: 2, weight: 1, persistent: true}
	require.NoError(t, c.register(one))
	require.NoError(t, c.register(two))
	w.await(t, patience, has("127.0.0.1:1", "127.0.0.1:2"))
	h, _ := list(t, n, s.Params()).Host("127.0.0.1:1")
	require.False(t, h.Ephemeral)
	require.Equal(t, map[string]string{"a": "1"}, h.Metadata)
	require.NoError(t, c.deregister(one))
	w.await(t, patience, has("127.0.0.1:2"))
	require.NoError(t, c.deregister(two))
	w.await(t, patience, has())
}

// sdkRestart kills the node under providers and subscribers and lets them find
// each other again by themselves.
func sdkRestart(t *testing.T, make sdkMaker) {
	t.Helper()
	n := StartNode(t)
	s := Service{Name: "svc-a"}
	provider, second, consumer := make(t, n, ""), make(t, n, ""), make(t, n, "")
	// Short beats for those SDKs that beat.
	metadata := map[string]string{"preserved.heart.beat.interval": "1000", "zone": "east"}
	require.NoError(t, provider.register(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 4, metadata: metadata}))
	w := requireSubscribed(t, consumer, s)
	w.await(t, patience, has("10.0.0.1:1"))
	for round := range 2 {
		if round == 0 {
			n.Kill(t)
		} else {
			n.Stop(t)
		}
		n.Restart(t)
		eventually(t, secs(60), hostsAre(t, n, s, "10.0.0.1:1"))
		h := onlyHost(t, list(t, n, s.Params()))
		require.InDelta(t, 4, h.Weight, 0)
		require.Equal(t, metadata, h.Metadata)
		// The subscription lives, too: what happens now is seen.
		added := sdkInstance{service: s.Name, ip: "10.0.0.2", port: 2 + round, weight: 1, metadata: metadata}
		eventually(t, secs(60), func() error { return second.register(added) })
		w.await(t, secs(60), has("10.0.0.1:1", fmt.Sprintf("10.0.0.2:%d", 2+round)))
		require.NoError(t, second.deregister(added))
		w.await(t, secs(20), has("10.0.0.1:1"))
	}
	resp := n.Do(t, http.MethodGet, v1Services, Params{"pageNo": "1", "pageSize": "10"})
	require.Contains(t, resp.Body, "svc-a")
}
