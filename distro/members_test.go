package distro

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// soon bounds the waits for what takes much less.
const soon = 20 * time.Second

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, soon, 5*time.Millisecond)
}

func TestMembers_ThreeNodesJoinOverLoopback(t *testing.T) {
	t.Parallel()
	var nodes []*node
	var seeds []string
	for i, name := range []string{"n2", "n1", "n3"} {
		cfg := fast(name, uint64(i+1))
		cfg.Join = seeds
		n := start(t, cfg)
		require.NoError(t, n.Ready())
		nodes = append(nodes, n)
		seeds = append(seeds, n.Self().gossip())
	}
	agree(t, soon, nodes...)
	require.Equal(t, []string{"n1", "n2", "n3"}, nodes[0].names())
	want := nodes[1].Self()
	got, ok := nodes[0].Get("n1")
	require.True(t, ok)
	require.Equal(t, want, got)
	got, ok = nodes[2].ByID("id-n1")
	require.True(t, ok)
	require.Equal(t, want, got)
	eventually(t, func() bool { return nodes[0].told("n1") == "J" })
}

func TestMembers_StartIsInTimeWithoutOthers(t *testing.T) {
	t.Parallel()
	cfg := inMemory("n1", 1, newNetwork().add())
	n := start(t, cfg)
	require.NoError(t, n.Ready())
	require.Equal(t, []string{"n1"}, n.names())
	require.ErrorIs(t, n.Start(), ErrNotRunning)
}

func TestMembers_LifeCycle(t *testing.T) {
	t.Parallel()
	n := open(t, fast("n1", 1))
	require.ErrorIs(t, n.Ready(), ErrNotRunning)
	require.ErrorIs(t, n.Send(t.Context(), "n2", nil), ErrNotRunning)
	require.NotZero(t, n.Self().GossipPort)
	require.NoError(t, n.Close())
	require.NoError(t, n.Close())
	require.ErrorIs(t, n.Start(), ErrNotRunning)
	require.ErrorIs(t, n.Ready(), ErrNotRunning)
	require.ErrorIs(t, n.Update(func(*Member) {}), ErrNotRunning)
}

func TestMembers_LeaveIsToldApartFromDeath(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	require.NoError(t, nodes[1].Close())
	nodes[2].crash(t)
	eventually(t, func() bool { return strings.HasSuffix(nodes[0].told("n2"), "L") })
	eventually(t, func() bool { return strings.HasSuffix(nodes[0].told("n3"), "D") })
	require.Equal(t, []string{"n1"}, nodes[0].names())
	gone, ok := nodes[0].Get("n3")
	require.True(t, ok)
	require.False(t, gone.Alive)
	require.ErrorIs(t, nodes[0].Send(t.Context(), "n3", nil), ErrNotMember)
}

func TestMembers_RestartShowsNewBootID(t *testing.T) {
	t.Parallel()
	net, nodes := three(t)
	addr := nodes[2].wire.addr
	nodes[2].crash(t)
	start(t, inMemory("n3", 33, net.addAt(addr)))
	for _, n := range nodes[:2] {
		eventually(t, func() bool { return n.last("n3").Member.Boot == 33 })
		require.Equal(t, "JU", n.told("n3"), "sooner than its death was noticed")
		require.Equal(t, uint64(3), n.last("n3").Before.Boot)
	}
}

func TestMembers_SameNameAtNewAddress(t *testing.T) {
	t.Parallel()
	net, nodes := three(t)
	nodes[2].crash(t)
	again := start(t, inMemory("n3", 33, net.add()))
	var refused *ConflictError
	require.ErrorAs(t, again.Ready(), &refused, "the others do not know yet that the former one is dead")
	require.False(t, refused.Answers)
	require.Equal(t, []string{"10.0.0.4:7847", "10.0.0.3:7847"}, []string{refused.Mine, refused.Theirs})
	eventually(t, func() bool { return again.Ready() == nil })
	agree(t, soon, nodes[0], nodes[1], again)
	for _, n := range nodes[:2] {
		eventually(t, func() bool { return n.last("n3").Member.IP == "10.0.0.4" })
		require.Contains(t, []string{"JDJ", "JU"}, n.told("n3"))
	}
}

func TestMembers_TakenNameIsRefused(t *testing.T) {
	t.Parallel()
	net := newNetwork()
	var nodes []*node
	logs, registries := make([]*safeBuffer, 2), make([]*prometheus.Registry, 2)
	for i, name := range []string{"n1", "n2"} {
		cfg := inMemory(name, uint64(i+1), net.add())
		logs[i], registries[i] = new(safeBuffer), prometheus.NewRegistry()
		cfg.Logger, cfg.Metrics = slog.New(slog.NewTextHandler(logs[i], nil)), registries[i]
		nodes = append(nodes, start(t, cfg))
	}
	agree(t, soon, nodes...)
	second := open(t, inMemory("n2", 22, net.add()))
	err := second.Start()
	var conflict *ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, &ConflictError{Name: "n2", Mine: "10.0.0.3:7847", Theirs: "10.0.0.2:7847", Answers: true}, conflict)
	require.ErrorContains(t, err, "10.0.0.2:7847")
	require.ErrorContains(t, err, "10.0.0.3:7847")
	require.ErrorAs(t, second.Ready(), &conflict)
	require.NoError(t, second.Close())
	eventually(t, func() bool { return strings.Contains(logs[1].String(), "level=ERROR") })
	require.Contains(t, logs[1].String(), "another node has this node's name")
	require.Contains(t, logs[1].String(), "10.0.0.3:7847")
	eventually(t, func() bool { return strings.Contains(logs[0].String(), "two nodes have one name") })
	for _, r := range registries {
		require.NotZero(t, metric(t, r, "rollcall_members_conflicts_total"))
	}
	agree(t, soon, nodes...)
	require.NoError(t, nodes[1].Ready())
	require.Equal(t, "J", nodes[0].told("n2"), "the first was not disturbed")
}

// A node was cut off, another one took its place, and it is back.
func TestMembers_ReplacedNodeIsRefused(t *testing.T) {
	t.Parallel()
	net, nodes := three(t)
	eventually(t, func() bool {
		nodes[2].Members.mu.Lock()
		defer nodes[2].Members.mu.Unlock()
		return nodes[2].settled
	})
	net.cut(nodes[0].wire, nodes[2].wire)
	net.cut(nodes[1].wire, nodes[2].wire)
	agree(t, soon, nodes[:2]...)
	elsewhere := net.add()
	net.cut(elsewhere, nodes[2].wire)
	place := start(t, inMemory("n3", 33, elsewhere))
	agree(t, soon, nodes[0], nodes[1], place)
	require.NoError(t, nodes[2].Ready(), "nobody refuses it yet")
	net.heal()
	var refused *ConflictError
	eventually(t, func() bool { return errors.As(nodes[2].Ready(), &refused) })
	require.Equal(t, "10.0.0.4:7847", refused.Theirs)
	eventually(t, func() bool { return place.Ready() == nil })
	for _, n := range nodes[:2] {
		require.Equal(t, uint64(33), n.last("n3").Member.Boot)
	}
}

func TestMembers_PartitionHeals(t *testing.T) {
	t.Parallel()
	net, nodes := three(t)
	net.cut(nodes[0].wire, nodes[2].wire)
	net.cut(nodes[1].wire, nodes[2].wire)
	agree(t, soon, nodes[:2]...)
	agree(t, soon, nodes[2])
	net.heal()
	healed := time.Now()
	agree(t, soon, nodes...)
	require.Less(t, time.Since(healed), soon/2)
	require.Equal(t, "JDJ", nodes[0].told("n3"))
	require.Equal(t, "JDJ", nodes[2].told("n1"))
}

func TestMembers_SeedsAreResolvedAgain(t *testing.T) {
	t.Parallel()
	net := newNetwork()
	first := start(t, inMemory("n1", 1, net.add()))
	cfg := inMemory("n2", 2, net.add())
	cfg.Join = []string{"rollcall.example:7847"}
	second := open(t, cfg)
	var asked atomic.Int32
	second.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		require.Equal(t, "rollcall.example", host)
		if asked.Add(1) == 1 {
			return nil, fmt.Errorf("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.1")}, nil
	}
	require.NoError(t, second.Start())
	agree(t, soon, first, second)
}

func TestMembers_HostNamesAreTakenEverywhere(t *testing.T) {
	t.Parallel()
	cfg := fast("n1", 1)
	cfg.Advertise = "localhost"
	first := start(t, cfg)
	require.True(t, validIP(first.Self().IP))
	cfg = fast("n2", 2)
	cfg.Join = []string{fmt.Sprintf("localhost:%d", first.streams.GetAutoBindPort())}
	agree(t, soon, first, start(t, cfg))
}

func TestMembers_AdvertisedPort(t *testing.T) {
	t.Parallel()
	cfg := fast("n1", 1)
	cfg.Advertise = "192.0.2.1:17847"
	n := start(t, cfg)
	require.Equal(t, "192.0.2.1:17847", n.Self().gossip())
}

func TestMembers_ForeignClusterIsKeptOut(t *testing.T) {
	t.Parallel()
	net := newNetwork()
	first := start(t, inMemory("n1", 1, net.add()))
	cfg := inMemory("n2", 2, net.add())
	cfg.Cluster = "another"
	logged := new(safeBuffer)
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	second := start(t, cfg)
	require.Equal(t, []string{"n1"}, first.names())
	require.Equal(t, []string{"n2"}, second.names())
	require.Contains(t, logged.String(), "the cluster's name or the gossip key may differ")
}

func TestDelegate_MetaDataOfAnotherCluster(t *testing.T) {
	t.Parallel()
	d := delegate{open(t, fast("n1", 1)).Members}
	n := library("n2", encodeMeta(Member{}, "another"))
	require.ErrorContains(t, d.NotifyAlive(n), `node n2 at 10.0.0.2:7847 belongs to the cluster "another"`)
	n.Meta = []byte{9}
	require.ErrorContains(t, d.NotifyAlive(n), "format 9")
	n.Meta = encodeMeta(Member{}, "rollcall")
	require.NoError(t, d.NotifyAlive(n))
}

func TestMembers_KeyMismatchIsRefused(t *testing.T) {
	t.Parallel()
	for name, key := range map[string][][]byte{"none": nil, "another": {bytes.Repeat([]byte{2}, 32)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net := newNetwork()
			cfg := inMemory("n1", 1, net.add())
			cfg.Keys = [][]byte{bytes.Repeat([]byte{1}, 32)}
			first := start(t, cfg)
			cfg = inMemory("n2", 2, net.add())
			cfg.Keys = key
			logged := new(safeBuffer)
			cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
			second := start(t, cfg)
			require.Contains(t, logged.String(), "the cluster's name or the gossip key may differ")
			require.Equal(t, []string{"n1"}, first.names())
			require.Equal(t, []string{"n2"}, second.names())
		})
	}
}

func TestMembers_KeysChangeNodeByNode(t *testing.T) {
	t.Parallel()
	k := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }
	former, next := k(1), k(2)
	for _, x := range []struct {
		name  string
		a, b  [][]byte
		apart bool
	}{
		{name: "the first step", a: [][]byte{former}, b: [][]byte{former, next}},
		{name: "the second step", a: [][]byte{former, next}, b: [][]byte{next, former}},
		{name: "the third step", a: [][]byte{next, former}, b: [][]byte{next}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			cfg := fast("n1", 1)
			cfg.Keys = x.a
			n1 := open(t, cfg)
			require.NoError(t, n1.Start())
			cfg = fast("n2", 1)
			cfg.Keys, cfg.Join = x.b, []string{n1.Self().gossip()}
			n2 := open(t, cfg)
			var got atomic.Int64
			n1.Receive(func(string, []byte) { got.Add(1) })
			require.NoError(t, n2.Start())
			agree(t, soon, n1, n2)
			require.NoError(t, n2.Send(t.Context(), "n1", []byte("x")))
			eventually(t, func() bool { return got.Load() == 1 })
		})
	}
}

func TestMembers_UpdateReachesTheOthers(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	require.NoError(t, nodes[0].Update(func(m *Member) {
		m.Draining, m.Voter = true, true
		m.Name, m.IP, m.Alive = "other", "10.9.9.9", false // not for a node to say
	}))
	require.Equal(t, "n1", nodes[0].Self().Name)
	for _, n := range nodes[1:] {
		eventually(t, func() bool { return n.told("n1") == "JU" })
		require.Equal(t, nodes[0].Self(), n.last("n1").Member)
	}
	require.Error(t, nodes[0].Update(func(m *Member) { m.Version = strings.Repeat("v", 65) }))
	require.Equal(t, "test", nodes[0].Self().Version)
}

func TestMembers_ThousandMessagesArrive(t *testing.T) {
	t.Parallel()
	first, second := open(t, fast("n1", 1)), open(t, fast("n2", 2))
	var mu sync.Mutex
	seen := make(map[string]int)
	second.Receive(func(from string, payload []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen[from+" "+string(payload)]++
	})
	second.cfg.Join = []string{first.Self().gossip()}
	require.NoError(t, first.Start())
	require.NoError(t, second.Start())
	agree(t, soon, first, second)
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			payload := make([]byte, 0, 32)
			for i := range 250 {
				payload = fmt.Appendf(payload[:0], "%d", s*250+i)
				if err := first.Send(t.Context(), "n2", payload); err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	senders.Wait()
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 1000
	})
	for i := range 1000 {
		require.Equal(t, 1, seen[fmt.Sprintf("n1 %d", i)])
	}
	dialed, _ := connections(first.streams)
	require.Equal(t, 1, dialed, "one connection carries all")
	require.ErrorIs(t, first.Send(t.Context(), "n2", make([]byte, MaxMessage+1)), ErrTooLarge)
	require.ErrorIs(t, first.Send(t.Context(), "n1", nil), ErrNotMember)
}

func TestMembers_LargeMessage(t *testing.T) {
	t.Parallel()
	first, second := open(t, fast("n1", 1)), open(t, fast("n2", 2))
	gotCh := make(chan int, 1)
	second.Receive(func(_ string, payload []byte) { gotCh <- len(payload) })
	second.cfg.Join = []string{first.Self().gossip()}
	require.NoError(t, first.Start())
	require.NoError(t, second.Start())
	agree(t, soon, first, second)
	require.NoError(t, first.Send(t.Context(), "n2", make([]byte, MaxMessage)))
	require.Equal(t, MaxMessage, <-gotCh)
}

// A node that takes nothing in holds up neither the caller nor Close.
func TestMembers_SendEndsAtItsTimeLimit(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]bool{"frozen process": false, "stuck reader": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fast("n1", 1)
			cfg.LeaveTimeout = 200 * time.Millisecond
			n := start(t, cfg)
			n.seen(stuck(t, "n2", reads))
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			var senders sync.WaitGroup
			for range sendsPerPeer + 1 {
				senders.Go(func() {
					if err := n.Send(ctx, "n2", make([]byte, 300<<10)); !errorsIsDeadline(err) {
						t.Errorf("send: %v", err)
					}
				})
			}
			senders.Wait()
			require.Less(t, time.Since(began), n.cfg.SendTimeout)
			require.NoError(t, n.Close())
			require.Less(t, time.Since(began), n.cfg.StreamTimeout)
		})
	}
}

func TestMembers_ExchangeOnJoin(t *testing.T) {
	t.Parallel()
	net := newNetwork()
	type said struct {
		from, text string
		join       bool
	}
	heard := make(chan said, 64)
	var nodes []*node
	for i, name := range []string{"n1", "n2"} {
		n := open(t, inMemory(name, uint64(i+1), net.add()))
		n.Exchange(
			func(bool) []byte { return []byte("state of " + name) },
			func(from string, remote []byte, join bool) { heard <- said{from, string(remote), join} },
		)
		require.NoError(t, n.Start())
		nodes = append(nodes, n)
	}
	require.ElementsMatch(t, []said{{"n1", "state of n1", true}, {"n2", "state of n2", true}}, []said{<-heard, <-heard})
	agree(t, soon, nodes...)
}

// A listener that is slow costs no more than one event for each member, and is
// told the present state in the end.
func TestMembers_SlowListener(t *testing.T) {
	t.Parallel()
	n := open(t, fast("n1", 1))
	goOn := make(chan struct{})
	n.Listen(func(Event) { <-goOn })
	require.NoError(t, n.Start())
	n.seen(Member{Name: "first", Alive: true})
	eventually(t, func() bool { return n.told("first") == "J" })
	for boot := range uint64(1000) {
		n.seen(Member{Name: "n2", Boot: boot + 1, Alive: true})
		n.gone("n2")
		n.seen(Member{Name: "n3", Boot: boot + 1, Alive: true})
	}
	n.saidGoodbye("n2", 1000)
	n.Members.mu.Lock()
	require.Len(t, n.changed, 2)
	n.Members.mu.Unlock()
	close(goOn)
	eventually(t, func() bool { return n.told("n3") == "J" })
	require.Equal(t, uint64(1000), n.last("n3").Member.Boot)
	require.Empty(t, n.told("n2"), "was not there before and is not there now")
}

func TestMembers_OwnAddressAmongTheSeeds(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	cfg := fast("n1", 1)
	cfg.Bind, cfg.Advertise = "0.0.0.0", "127.0.0.2"
	cfg.Metrics = reg
	n := open(t, cfg)
	n.Exchange(func(bool) []byte { return nil }, func(from string, _ []byte, _ bool) { t.Errorf("state of %s", from) })
	n.cfg.Join = []string{n.Self().gossip(), fmt.Sprintf("127.0.0.1:%d", n.Self().GossipPort)}
	require.NoError(t, n.Start())
	eventually(t, func() bool { return metric(t, reg, "rollcall_members_join_attempts_total") > 1 })
	require.NoError(t, n.Ready())
	require.Equal(t, []string{"n1"}, n.names())
}

func TestMembers_Metrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	n := open(t, func() MembersConfig { c := fast("n1", 1); c.Metrics = reg; return c }())
	n.seen(Member{Name: "n2", Alive: true})
	require.InDelta(t, 2, metric(t, reg, "rollcall_members_alive"), 0)
	require.NoError(t, n.Close())
	left, err := reg.Gather()
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestMembers_ConcurrentUse(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	var users sync.WaitGroup
	for i := range 8 {
		users.Go(func() {
			n := nodes[i%3]
			for j := range 50 {
				_ = n.Update(func(m *Member) { m.Voter = j%2 == 0 })
				_ = n.Send(t.Context(), "n2", []byte("hello"))
				_, _ = n.ByID("id-n3")
				_, _ = n.Get("n1")
				_ = n.Alive()
				_ = n.Ready()
				if i == 7 && j == 25 {
					_ = n.Close()
				}
			}
		})
	}
	users.Wait()
	agree(t, soon, nodes[0], nodes[2])
}

func TestEventKind_String(t *testing.T) {
	t.Parallel()
	require.Equal(t, "joined updated left died unknown", fmt.Sprintf("%s %s %s %s %s", Joined, Updated, Left, Died, EventKind(0)))
}

func TestBridge_Levels(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := libraryLog(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	for _, line := range []string{
		"[DEBUG] memberlist: Stream connection from=127.0.0.1:1",
		"[INFO] memberlist: Suspect n2 has failed, no acks received",
		"[WARN] memberlist: handler queue full, dropping message (3) from=127.0.0.1:1",
		"[WARN] memberlist: handler queue full, dropping message (3) from=127.0.0.1:2",
		"[ERR] memberlist: Failed fallback TCP ping: timeout",
		"[ERR] memberlist: failed to receive: No installed keys could decrypt the message",
		"[WARN] yamux: frame for missing stream: 3",
		"no level",
	} {
		log.Println(line)
	}
	require.Equal(t, `level=DEBUG msg="Stream connection from=127.0.0.1:1"
level=DEBUG msg="Suspect n2 has failed, no acks received"
level=WARN msg="handler queue full, dropping message (3) from=127.0.0.1:1"
level=DEBUG msg="Failed fallback TCP ping: timeout"
level=WARN msg="failed to receive: No installed keys could decrypt the message"
level=DEBUG msg="frame for missing stream: 3"
level=DEBUG msg="no level"
`, b.String())
}

// metric returns the sum of a metric over its labels.
func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// safeBuffer is a buffer that a logger writes while the test reads.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
