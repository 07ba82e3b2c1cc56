package raftstore

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func TestStreams_RefuseWhatIsNotMeantForThem(t *testing.T) {
	var log bytes.Buffer
	s, err := listen("127.0.0.1:0", "")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	const id, cluster = "11111111-1111-4111-8111-111111111111", "99999999-9999-4999-8999-999999999999"
	s.id, s.cluster, s.log = id, func() string { return cluster }, slog.New(slog.NewTextHandler(&log, nil))
	for _, c := range []struct {
		name, meant, from, says string
		raw                     string // sent in place of a greeting
		quiet                   bool   // it was logged before
	}{
		{name: "meant for it", meant: id, from: cluster},
		{name: "no cluster yet", meant: id},
		{name: "no server meant"},
		{name: "another server", meant: "22222222-2222-4222-8222-222222222222", from: cluster, says: "it is meant for server 22222222"},
		{name: "another server again", meant: "22222222-2222-4222-8222-222222222222", from: cluster, says: "it is meant for server 22222222", quiet: true},
		{name: "another cluster", meant: id, from: "88888888-8888-4888-8888-888888888888", says: "it comes from cluster 88888888"},
		{name: "not our protocol", raw: string(make([]byte, greetingBytes)), says: "does not speak raft"},
		{name: "hangs up", raw: "short", says: "read its greeting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log.Reset()
			var out net.Conn
			if c.raw == "" {
				from := &streams{cluster: func() string { return c.from }, open: make(map[*stream]struct{}), closing: t.Context()}
				out, err = from.Dial(meant(raft.ServerID(c.meant), raft.ServerAddress(s.Addr().String())), wait)
			} else {
				if out, err = net.Dial("tcp", s.Addr().String()); err == nil { //nolint:noctx // a test on loopback
					_, err = out.Write([]byte(c.raw))
				}
			}
			require.NoError(t, err)
			_, err = out.Write([]byte("hello"))
			require.NoError(t, err)
			require.NoError(t, out.Close())
			in, err := s.Accept()
			require.NoError(t, err)
			defer func() { require.NoError(t, in.Close()) }()
			got, err := io.ReadAll(in)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.Equal(t, !c.quiet, strings.Contains(log.String(), c.says), "%s", &log)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "hello", string(got))
			require.Empty(t, log.String())
		})
	}
}

// membership is a list of nodes over TCP.
type membership struct {
	mu    sync.Mutex
	nodes map[string]*Store
	mute  map[string]string // addresses that are told instead of a node's own
}

func (m *membership) start(t testing.TB, name, dir string, expect int, tune func(*Config)) *Store {
	t.Helper()
	cfg := DefaultConfig()
	tune(&cfg)
	cfg.Node, cfg.Dir, cfg.Expect, cfg.Bind = name, dir, expect, "127.0.0.1:0"
	cfg.Peers = func() []Peer {
		m.mu.Lock()
		defer m.mu.Unlock()
		var peers []Peer
		for name, s := range m.nodes {
			st := s.State()
			if at := m.mute[name]; at != "" {
				st.Addr, st.Role = at, RoleFollower
			}
			peers = append(peers, Peer{Name: name, ID: st.ID, Addr: st.Addr, Expect: st.Expect, HasState: st.HasState, Cluster: st.Cluster, Alive: st.Role != RoleStopped})
		}
		return peers
	}
	s, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	m.mu.Lock()
	m.nodes[name] = s
	m.mu.Unlock()
	return s
}

// A node that accepts connections and answers nothing, as a frozen one, holds up nobody
// who stops.
func TestStore_CloseWaitsForNoMutePeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // in a test
	require.NoError(t, err)
	var conns sync.WaitGroup
	said := make(chan struct{}, 1000)
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer func() { _ = c.Close() }()
				for b := make([]byte, 1<<10); ; said <- struct{}{} {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			})
		}
	})
	m := &membership{nodes: make(map[string]*Store), mute: make(map[string]string)}
	for _, name := range []string{"a", "b", "c"} {
		m.start(t, name, t.TempDir(), 3, fast)
	}
	var lead *Store
	require.Eventually(t, func() bool {
		for _, s := range m.nodes {
			if l, _ := s.currentLeader(); l.self && len(s.voters()) == 3 {
				lead = s
			}
		}
		return lead != nil
	}, wait, tick)
	require.NoError(t, lead.Publish(t.Context(), publication(service(1), host(1))))
	for name, s := range m.nodes {
		if s != lead {
			m.mu.Lock()
			m.mute[name] = l.Addr().String()
			m.mu.Unlock()
			s.cfg.abruptShutdown = true
			require.NoError(t, s.Close())
			break
		}
	}
	<-said // a greeting, and more than that
	<-said
	began := time.Now()
	require.NoError(t, lead.Close())
	require.Less(t, time.Since(began), lead.cfg.CloseTimeout)
	for _, s := range m.nodes {
		s.cfg.abruptShutdown = true
		require.NoError(t, s.Close())
	}
	require.NoError(t, l.Close())
	conns.Wait()
}

// Three nodes over TCP begin together, and come back on other ports.
func TestStore_ThreeNodesOverTCP(t *testing.T) {
	m := &membership{nodes: make(map[string]*Store)}
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir()}
	for round := range 2 {
		for name, dir := range dirs {
			m.start(t, name, dir, 3, fast)
		}
		for name, s := range m.nodes {
			require.Eventually(t, func() bool {
				l, _ := s.currentLeader()
				return l.node != ""
			}, wait, tick, name)
		}
		require.Eventually(t, func() bool {
			for _, s := range m.nodes {
				if s.Publish(t.Context(), publication(service(round), host(round))) == nil {
					return true
				}
			}
			return false
		}, wait, tick)
		for _, s := range m.nodes {
			require.Eventually(t, func() bool { return s.Stat(service(round)).Exists && s.Stat(service(0)).Exists }, wait, tick)
		}
		begin := time.Now()
		for _, s := range m.nodes {
			s.cfg.abruptShutdown = true
			require.NoError(t, s.Close())
		}
		t.Logf("closed after %s", time.Since(begin))
	}
}

// A follower that refuses an entry ends the pipeline, although more entries are under way
// to it: the library's reader of answers ends with the first refusal, and the entries
// behind it must not wait for a reader for ever. What sent them would never send again.
func TestPipeline_EndsWithARefusal(t *testing.T) {
	follower, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, wait, io.Discard)
	require.NoError(t, err)
	defer func() { require.NoError(t, follower.Close()) }()
	leader, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, wait, io.Discard)
	require.NoError(t, err)
	defer func() { require.NoError(t, leader.Close()) }()
	const accepted = 3
	done := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(done)
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case rpc := <-follower.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 2, Success: n < accepted}, nil)
			case <-done:
				return
			}
		}
	})
	cfg := DefaultConfig()
	cfg.Dir, cfg.Bind = t.TempDir(), "127.0.0.1:0"
	s, err := New(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	p, err := (&readdressed{Transport: leader, s: s}).AppendEntriesPipeline("f", follower.LocalAddr())
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()

	send := func() error {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse))
		return err
	}
	for n := range accepted {
		require.NoError(t, send())
		require.True(t, (<-p.Consumer()).Response().Success, "entry %d", n)
	}
	require.NoError(t, send())
	require.False(t, (<-p.Consumer()).Response().Success) // the library reads no further
	ended := make(chan error, 1)
	others.Go(func() {
		var err error
		for err == nil {
			err = send()
		}
		ended <- err
	})
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(wait):
		require.NoError(t, p.Close()) // lets the sender go
		require.Fail(t, "an entry waits for ever")
	}
}

// What overtakes its entries is refused; the follower would else hear of the commit
// when the library says it.
func TestPipeline_TellsACommitAgainThatWasRefused(t *testing.T) {
	s := ready(t, start(t, testConfig(t.TempDir())))
	require.NoError(t, s.Publish(t.Context(), publication(service(1), host(1))))
	ctx, cancel := context.WithCancel(t.Context())
	p := &pipeline{s: s, ctx: ctx, cancel: cancel}
	commit := s.raft.CommitIndex()
	p.sent.Store(&raft.AppendEntriesRequest{Term: s.raft.CurrentTerm(), PrevLogEntry: commit, LeaderCommitIndex: commit - 1})
	sentCh, answerCh := make(chan uint64), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		p.tellCommits(func(args *raft.AppendEntriesRequest) bool {
			sentCh <- args.LeaderCommitIndex
			return <-answerCh
		})
	})
	for _, taken := range []bool{false, false, true} {
		require.Equal(t, commit, <-sentCh)
		answerCh <- taken
	}
	select {
	case <-sentCh:
		t.Fatal("told once more, after it was taken")
	case <-time.After(5 * commitRetry):
	}
	p.sent.Store(&raft.AppendEntriesRequest{Term: s.raft.CurrentTerm(), PrevLogEntry: commit + 1, LeaderCommitIndex: commit})
	require.NoError(t, s.Publish(t.Context(), publication(service(2), host(1))))
	require.Equal(t, commit+1, <-sentCh)
	cancel()
	answerCh <- true
	wg.Wait()
}

// A leader that leads no more keeps its patience until another one leads: it may hang.
func TestStore_ALeaderBeatsLessOften(t *testing.T) {
	c := startCluster(t, 3, nil)
	old := c.leader()
	timeout := func(n *node) time.Duration { return n.raft.ReloadableConfig().HeartbeatTimeout }
	check := func() {
		t.Helper()
		c.eventually(func() bool {
			for _, n := range c.running() {
				want := n.cfg.HeartbeatTimeout
				if n == c.leader() {
					want *= leadFactor
				}
				if timeout(n) != want {
					return false
				}
			}
			return true
		})
	}
	check()
	require.NoError(t, old.StepDown())
	c.eventually(func() bool { return c.leader() != old })
	check()

	old = c.leader()
	for _, n := range c.running() {
		if n != old {
			c.kill(n.name)
		}
	}
	c.eventually(func() bool { return old.raft.State() != raft.Leader })
	<-time.After(3 * old.cfg.HeartbeatTimeout)
	require.Equal(t, leadFactor*old.cfg.HeartbeatTimeout, timeout(old))
}
