package distro

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/consistency/storetest"
	"rollcall/naming"
)

// replica is one node of a test: members and a store.
type replica struct {
	*Store
	node *node
}

// replicaConfig returns the configuration of a store with shorter times.
func replicaConfig(name string) Config {
	cfg := DefaultConfig()
	cfg.Node = name
	cfg.Verify = 500 * time.Millisecond
	return cfg
}

// launch returns a node that runs.
func launch(t *testing.T, mc MembersConfig, cfg Config) *replica {
	t.Helper()
	return launchWith(t, mc, cfg, func(*replica) {})
}

func launchWith(t *testing.T, mc MembersConfig, cfg Config, before func(*replica)) *replica {
	t.Helper()
	n := open(t, mc)
	cfg.Members = n.Members
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	r := &replica{Store: s, node: n}
	before(r)
	require.NoError(t, n.Start())
	require.NoError(t, s.Start())
	return r
}

// kill ends a node without a word to the others.
func (r *replica) kill(t *testing.T) {
	t.Helper()
	r.cfg.DrainTime = time.Nanosecond
	r.node.crash(t)
	require.NoError(t, r.Close())
}

// cluster returns n nodes in a network in memory that see each other and are ready.
func cluster(t *testing.T, n int) (*network, []*replica) {
	t.Helper()
	return clusterWith(t, n, func(*Config) {}, func(*replica) {})
}

func clusterWith(t *testing.T, n int, change func(*Config), before func(*replica)) (*network, []*replica) {
	t.Helper()
	net := newNetwork()
	var all []*replica
	for i := range n {
		name := "n" + strconv.Itoa(i+1)
		cfg := replicaConfig(name)
		change(&cfg)
		all = append(all, launchWith(t, inMemory(name, uint64(i+1), net.add()), cfg, before))
	}
	for _, r := range all {
		eventually(t, func() bool { return len(r.node.Alive()) == n && r.Ready() == nil && len(*r.sharers.Load()) == n })
	}
	return net, all
}

func service(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: name}
}

func host(n int) *naming.Instance {
	i := naming.NewInstance(fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff), 8080)
	i.Metadata = map[string]string{"preserved.register.source": "SPRING_CLOUD", "version": "1.2.3"}
	return &i
}

// register publishes an instance over a connection to the node.
func (r *replica) register(t testing.TB, svc, conn string, instances ...*naming.Instance) {
	t.Helper()
	require.NoError(t, r.Publish(t.Context(), consistency.Publication{Service: service(svc), Publisher: conn, Instances: instances}))
}

// list returns the addresses that the node shows of a service.
func (r *replica) list(svc string) []string {
	s, _ := r.Service(service(svc))
	var out []string
	for _, i := range s.Instances {
		out = append(out, i.Key().Address())
	}
	return out
}

// same tells whether the stores show the same, and how many instances.
func same(all ...*replica) (instances int, ok bool) {
	roots := func(r *replica) []OwnerState {
		owners := slices.DeleteFunc(r.State().Owners, func(o OwnerState) bool { return o.Instances == 0 })
		for n := range owners {
			owners[n].Deadline, owners[n].Gone = time.Time{}, ""
		}
		return owners
	}
	first := roots(all[0])
	for _, r := range all[1:] {
		if !slices.Equal(first, roots(r)) {
			return 0, false
		}
	}
	for _, o := range first {
		instances += o.Instances
	}
	return instances, true
}

// agreeOn waits until all show the same number of instances, the same ones.
func agreeOn(t *testing.T, instances int, all ...*replica) {
	t.Helper()
	eventually(t, func() bool {
		n, ok := same(all...)
		return ok && n == instances
	})
	for _, r := range all {
		_, n := r.Counts()
		require.Equal(t, instances, n, "the table of %s", r.cfg.Node)
	}
}

func TestCluster_Contract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) consistency.Store {
		t.Helper()
		_, all := cluster(t, 2)
		return all[0]
	})
}

func TestCluster_RegisteredOnOneShownOnAll(t *testing.T) {
	t.Parallel()
	_, all := cluster(t, 3)
	for n := range 300 {
		all[n%3].register(t, "s"+strconv.Itoa(n%7), "c"+strconv.Itoa(n), host(n))
	}
	agreeOn(t, 300, all...)
	for n := range 100 {
		all[n%3].register(t, "s"+strconv.Itoa(n%7), "c"+strconv.Itoa(n))
	}
	agreeOn(t, 200, all...)
	require.Equal(t, all[0].list("s1"), all[2].list("s1"))
	s, _ := all[1].Service(service("s3"))
	require.Equal(t, host(101), s.Find(host(101).Key()))
}

func TestCluster_LateJoin(t *testing.T) {
	t.Parallel()
	const count = 50_000
	net, all := cluster(t, 2)
	for n := range count {
		all[n%2].register(t, "s"+strconv.Itoa(n%500), "c"+strconv.Itoa(n), host(n))
	}
	agreeOn(t, count, all...)
	begin := time.Now()
	third := launch(t, inMemory("n3", 3, net.add()), replicaConfig("n3"))
	require.ErrorIs(t, third.Ready(), consistency.ErrNotReady)
	eventually(t, func() bool { return third.Ready() == nil })
	_, instances := third.Counts()
	require.Equal(t, count, instances, "all is there by the time that it is ready")
	t.Logf("%d instances after %v", count, time.Since(begin))
	agreeOn(t, count, append(all, third)...)
}

// watcher notes the fewest instances that a node has shown of a service once it has
// shown all.
type watcher struct {
	replica *replica
	svc     string
	all     int

	mu     sync.Mutex
	seen   bool
	fewest int
}

func (w *watcher) look(c consistency.ServiceChanged) {
	if c.Service != service(w.svc) {
		return
	}
	s, _ := w.replica.Service(c.Service)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = w.seen || len(s.Instances) == w.all
	if w.seen {
		w.fewest = min(w.fewest, len(s.Instances))
	}
}

func (w *watcher) saw() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fewest
}

// watched is a cluster of three with 30 instances of the service s, and a watcher of
// it on each node.
func watched(t *testing.T, change func(*Config)) (*network, []*replica, []*watcher) {
	t.Helper()
	const n, instances = 3, 30
	var watchers []*watcher
	net, all := clusterWith(t, n, change, func(r *replica) {
		w := &watcher{replica: r, svc: "s", all: instances, fewest: instances}
		r.Listen(w.look)
		watchers = append(watchers, w)
	})
	for i := range instances {
		all[i%n].register(t, "s", fmt.Sprint("c", i), host(i))
	}
	agreeOn(t, instances, all...)
	return net, all, watchers
}

func short(cfg *Config) {
	cfg.Grace, cfg.GraceSilent = 4*time.Second, 20*time.Second
	cfg.MassWait = 25 * time.Second
	cfg.Pause = 5 * time.Second // other tests run on the same processors
	cfg.Refused = func(context.Context, Member) bool { return true }
}

func TestCluster_KilledNodeIsInvisible(t *testing.T) {
	t.Parallel()
	_, all, watchers := watched(t, short)
	all[2].kill(t)
	for n := 2; n < 30; n += 3 { // its clients come back elsewhere
		all[n/3%2].register(t, "s", fmt.Sprint("d", n), host(n))
	}
	eventually(t, func() bool { return len(all[0].node.Alive()) == 2 && len(all[1].node.Alive()) == 2 })
	agreeOn(t, 30, all[:2]...) // the orphans are replaced
	for _, w := range watchers[:2] {
		require.Equal(t, 30, w.saw())
	}
}

func TestCluster_WhoDiesWithItsNodeIsRemovedAfterTheGrace(t *testing.T) {
	t.Parallel()
	var contact atomic.Bool
	_, all, _ := watched(t, func(cfg *Config) {
		short(cfg)
		cfg.InContact = contact.Load
	})
	all[2].kill(t)
	eventually(t, func() bool {
		for _, r := range all[:2] {
			if o := r.orphans(); o.Gone != "refused" || time.Now().Before(o.Deadline.Add(time.Second)) {
				return false
			}
		}
		return true
	})
	require.Len(t, all[0].list("s"), 30, "not without contact with a leader")
	contact.Store(true)
	agreeOn(t, 20, all[:2]...)
	require.EqualValues(t, 10, all[0].State().Removed+all[1].State().Removed)
}

func TestCluster_OperatorsSeeWhoAgreesAndWhoIsBehind(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	_, all, _ := watched(t, func(cfg *Config) {
		short(cfg)
		if cfg.Node == "n1" {
			cfg.Metrics = reg
		}
	})
	n2 := all[1].State()
	var boot uint64
	for _, o := range n2.Owners {
		if o.Node == "n2" {
			boot = o.Boot
		}
	}
	own := all[1].Buckets("n2", boot)
	require.Len(t, own, bucketCount)
	require.Equal(t, own, all[0].Buckets("n2", boot))
	require.Nil(t, all[0].Buckets("n2", boot+1))
	var root uint64
	for _, digest := range own {
		root ^= digest
	}
	require.NotZero(t, root)
	require.Contains(t, n2.Owners, OwnerState{Node: "n2", Boot: boot, Instances: 10, Root: root})

	families, err := reg.Gather()
	require.NoError(t, err)
	peers := make(map[string][]string)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				peers[f.GetName()] = append(peers[f.GetName()], l.GetName()+"="+l.GetValue())
			}
		}
	}
	both := []string{"peer=n2", "peer=n3"}
	require.Equal(t, map[string][]string{
		"rollcall_distro_queue": both, "rollcall_distro_lag_seconds": both, "rollcall_distro_unconfirmed": both,
	}, peers)
	require.NoError(t, all[0].Close())
	left, err := reg.Gather()
	require.NoError(t, err)
	require.Empty(t, left)
}

// orphans returns what the node holds of an owner that is gone.
func (r *replica) orphans() OwnerState {
	for _, o := range r.State().Owners {
		if o.Gone != "" {
			return o
		}
	}
	return OwnerState{}
}

func TestCluster_RestartIsInvisible(t *testing.T) {
	t.Parallel()
	net, all, watchers := watched(t, short)
	require.NoError(t, all[2].Close())
	require.NoError(t, all[2].node.Close())
	for n := 2; n < 18; n += 3 {
		all[n/3%2].register(t, "s", fmt.Sprint("d", n), host(n))
	}
	cfg := replicaConfig("n3")
	short(&cfg)
	again := launch(t, inMemory("n3", 33, net.addAt(all[2].node.wire.addr)), cfg)
	eventually(t, func() bool { return again.Ready() == nil })
	require.Len(t, again.list("s"), 30, "it shows the orphans of its run before")
	for n := 20; n < 30; n += 3 {
		again.register(t, "s", fmt.Sprint("d", n), host(n))
	}
	agreeOn(t, 30, all[0], all[1], again)
	for _, w := range watchers[:2] {
		require.Equal(t, 30, w.saw())
	}
}

func TestCluster_PartitionHeals(t *testing.T) {
	t.Parallel()
	net, all, watchers := watched(t, short)
	net.cut(all[0].node.wire, all[2].node.wire)
	net.cut(all[1].node.wire, all[2].node.wire)
	eventually(t, func() bool { return len(all[0].node.Alive()) == 2 && len(all[2].node.Alive()) == 1 })
	for n := 30; n < 40; n++ { // both sides go on
		all[n%3].register(t, "more", fmt.Sprint("c", n), host(n))
	}
	all[0].register(t, "other", "o0", host(100))
	all[2].register(t, "other", "o2", host(102))
	all[2].register(t, "s", "d29", host(29)) // a client moves to another node of its side
	for _, r := range all {
		require.Len(t, r.list("s"), 30)
	}
	net.heal()
	healed := time.Now()
	agreeOn(t, 43, all...)
	require.Less(t, time.Since(healed), 10*time.Second)
	require.Len(t, all[1].list("other"), 2)
	for _, w := range watchers {
		require.Equal(t, 30, w.saw())
	}
	all[2].register(t, "s", "c29")
	agreeOn(t, 42, all...)
}

func TestCluster_FrozenPeerDelaysNobody(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	all := loopback(t, 2, func(i int, s *Store) {
		if i == 1 {
			s.Listen(func(consistency.ServiceChanged) { arrived.Add(1) })
		}
	})
	all[0].node.seen(stuck(t, "n3", false))
	eventually(t, func() bool { return len(all[0].State().Peers) == 2 })
	big := host(1)
	big.Metadata = map[string]string{"text": strings.Repeat("x", 512)}
	for n := range 2000 { // more than fits into the sockets' buffers
		i := *big
		i.Port = n
		all[0].register(t, "fill", "f"+strconv.Itoa(n), &i)
	}
	eventually(t, func() bool { _, n := all[1].Counts(); return n == 2000 })
	var slowest time.Duration
	for n := range 200 {
		before := arrived.Load()
		begin := time.Now()
		all[0].register(t, "s", "c"+strconv.Itoa(n), host(n))
		require.Eventually(t, func() bool { return arrived.Load() > before }, soon, 100*time.Microsecond)
		slowest = max(slowest, time.Since(begin))
	}
	t.Logf("the slowest change took %v to arrive", slowest)
	require.Less(t, slowest, time.Second)
	for _, p := range all[0].State().Peers {
		if p.Node == "n3" {
			require.LessOrEqual(t, p.Queue, 2200, "each datum once")
		}
	}
	all[0].cfg.DrainTime = time.Millisecond
}

func TestCluster_Storm(t *testing.T) {
	t.Parallel()
	_, all := cluster(t, 3)
	var writers sync.WaitGroup
	for n, r := range all {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			for range 20_000 {
				i := host(n*1000 + random.IntN(500))
				i.Weight = float64(random.IntN(100))
				p := consistency.Publication{Service: service("s" + strconv.Itoa(random.IntN(5))), Publisher: fmt.Sprint("c", n, random.IntN(20))}
				if random.IntN(4) > 0 {
					p.Instances = append(p.Instances, i)
				}
				if err := r.Publish(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	eventually(t, func() bool { _, ok := same(all...); return ok })
	n, _ := same(all...)
	agreeOn(t, n, all...)
	for _, r := range all {
		for _, k := range all[0].Services("") {
			require.Equal(t, all[0].list(k.Name), r.list(k.Name))
		}
	}
}

func TestStore_PutOnAnotherThanTheOwner_Redirects(t *testing.T) {
	t.Parallel()
	_, all := cluster(t, 2)
	for n := range 50 {
		publisher := host(n).Key().Address()
		owner, self := all[0].Owner(publisher)
		other, otherSelf := all[1].Owner(publisher)
		require.Equal(t, owner, other)
		require.NotEqual(t, self, otherSelf)
		p := consistency.Publication{Service: service("s"), Publisher: publisher, Instances: []*naming.Instance{host(n)}}
		err := all[0].Publish(t.Context(), p)
		if self {
			require.NoError(t, err)
			continue
		}
		var redirect *consistency.RedirectError
		require.ErrorAs(t, err, &redirect)
		require.Equal(t, "n2", redirect.Node)
		k := consistency.Key{Service: p.Service, Kind: consistency.KindInstance, Publisher: publisher, Instance: host(n).Key()}
		require.ErrorAs(t, all[0].Put(t.Context(), consistency.Datum{Key: k, Instance: host(n)}), &redirect)
		require.ErrorAs(t, all[0].Delete(t.Context(), k), &redirect)
		if n%2 == 0 {
			require.NoError(t, all[1].Publish(t.Context(), p))
		} else {
			require.NoError(t, all[0].Publish(consistency.WithForwarded(t.Context()), p))
		}
	}
	agreeOn(t, 50, all...)
	name, self := all[0].Owner("1700000000000_127.0.0.1_52004")
	require.Equal(t, "n1", name)
	require.True(t, self)
}
