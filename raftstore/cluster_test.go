package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// cluster is several stores in one process, over transports in memory that can be
// cut. It plays the membership, and the front end that forwards writes.
type cluster struct {
	t    testing.TB
	tune func(*Config)
	dir  string
	// listen is called with what the listeners of a node hear, if it is set before
	// the node starts.
	listen func(name string, changed consistency.ServiceChanged)

	mu    sync.Mutex
	nodes map[string]*node
}

// node is one run of a node of a cluster. The next run of the name is another one,
// in the same folder.
type node struct {
	*Store
	name      string
	dir       string
	expect    int
	transport *raft.InmemTransport
	peer      Peer // as it was when it ran last
	running   bool
	cut       bool
}

var errUnreachable = errors.New("the node cannot be reached")

// startCluster starts n nodes, named n1 and so on, that begin together.
func startCluster(t testing.TB, n int, tune func(*Config)) *cluster {
	t.Helper()
	c := newCluster(t, tune)
	for i := range n {
		c.start(fmt.Sprint("n", i+1), n)
	}
	c.awaitReady()
	return c
}

func newCluster(t testing.TB, tune func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, tune: tune, dir: t.TempDir(), nodes: make(map[string]*node)}
	t.Cleanup(func() {
		for _, name := range c.names() {
			c.kill(name)
		}
	})
	return c
}

// fast are timings for tests that wait for elections.
func fast(cfg *Config) {
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
	cfg.LeaseTimeout, cfg.SoloTimeout = 160*time.Millisecond, 160*time.Millisecond
	cfg.PeersInterval, cfg.BootstrapWait = 20*time.Millisecond, 40*time.Millisecond
	cfg.PilotInterval, cfg.PromoteAfter = 20*time.Millisecond, 20*time.Millisecond
}

// patient are timings with which a busy machine loses no leader. In memory,
// heartbeats wait behind everything else.
func patient(cfg *Config) {
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = time.Second, time.Second
	cfg.LeaseTimeout, cfg.SoloTimeout = 900*time.Millisecond, 900*time.Millisecond
}

// start starts a node, in its old folder if it has one, at a new address.
func (c *cluster) start(name string, expect int) *node {
	c.t.Helper()
	return c.startAt(name, expect, "")
}

func (c *cluster) startAt(name string, expect int, addr raft.ServerAddress) *node {
	c.t.Helper()
	n := &node{name: name, dir: filepath.Join(c.dir, name), expect: expect}
	if old := c.node(name); old != nil {
		n.dir, n.peer = old.dir, old.peer
	}
	cfg := testConfig(n.dir)
	fast(&cfg)
	cfg.Expect = expect
	_, transport := raft.NewInmemTransport(addr)
	cfg.Transport = transport
	cfg.Peers = func() []Peer { return c.peersOf(n) }
	cfg.Changed = c.changed
	cfg.Stats = func(_ context.Context, id string) (uint64, uint64, time.Duration, error) {
		for _, o := range c.running() {
			if o.ID() == id && c.linked(n, o) {
				term, index, since := o.Stats()
				return term, index, since, nil
			}
		}
		return 0, 0, 0, errUnreachable
	}
	cfg.ReadIndex = func(ctx context.Context, leader string) (uint64, error) {
		o := c.node(leader)
		if !c.linked(n, o) {
			return 0, errUnreachable
		}
		index, err := o.ReadIndex(ctx)
		if redirect := new(consistency.RedirectError); errors.As(err, &redirect) { // as nodes tell each other
			err = fmt.Errorf("%w: %s", consistency.ErrNoLeader, err.Error())
		}
		return index, err
	}
	if os.Getenv("ROLLCALL_TEST_LOG") != "" { // to see what happened in a test that fails
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	s, err := New(cfg)
	require.NoError(c.t, err)
	if c.listen != nil {
		s.Listen(func(changed consistency.ServiceChanged) { c.listen(name, changed) })
	}
	require.NoError(c.t, s.Start())
	c.mu.Lock()
	n.Store, n.transport, n.running = s, transport, true
	c.nodes[name] = n
	c.linkLocked()
	c.mu.Unlock()
	c.changed()
	return n
}

// kill ends a node as a crash does: from one moment on nobody hears of it.
func (c *cluster) kill(name string) {
	c.t.Helper()
	c.stop(name, true)
}

// close stops a node gracefully.
func (c *cluster) close(name string) {
	c.t.Helper()
	c.stop(name, false)
}

func (c *cluster) stop(name string, abrupt bool) {
	c.t.Helper()
	n := c.node(name)
	c.mu.Lock()
	running := n.running
	n.running = running && !abrupt
	c.linkLocked()
	c.mu.Unlock()
	if !running {
		return
	}
	n.cfg.abruptShutdown = abrupt
	require.NoError(c.t, n.Close())
	c.mu.Lock()
	n.running = false
	c.linkLocked()
	c.mu.Unlock()
	c.changed()
}

// wipe empties the folder of a node that is stopped.
func (c *cluster) wipe(name string) {
	c.t.Helper()
	require.NoError(c.t, os.RemoveAll(c.node(name).dir))
}

// cut takes the connections of a node to all others away, or gives them back.
func (c *cluster) cut(name string, cut bool) {
	n := c.node(name)
	c.mu.Lock()
	n.cut = cut
	c.linkLocked()
	c.mu.Unlock()
	c.changed()
}

// linkLocked connects the transports of those that can reach each other.
func (c *cluster) linkLocked() {
	for _, a := range c.nodes {
		if a.transport == nil {
			continue
		}
		for _, b := range c.nodes {
			switch {
			case a == b || b.transport == nil:
			case a.running && b.running && !a.cut && !b.cut:
				a.transport.Connect(b.transport.LocalAddr(), b.transport)
			default:
				a.transport.Disconnect(b.transport.LocalAddr())
			}
		}
	}
}

func (c *cluster) linked(a, b *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return a == b || a.running && b.running && !a.cut && !b.cut
}

func (c *cluster) changed() {
	for _, n := range c.running() {
		n.PeersChanged()
	}
}

// peersOf is the membership as a node sees it.
func (c *cluster) peersOf(n *node) []Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var peers []Peer
	for _, o := range c.nodes {
		if o.running {
			st := o.State()
			o.peer = Peer{Name: o.name, ID: st.ID, Addr: st.Addr, Expect: o.expect, HasState: st.HasState, Cluster: st.Cluster}
		}
		if o.peer.ID != "" {
			p := o.peer
			p.Alive = o == n || o.running && n.running && !o.cut && !n.cut
			peers = append(peers, p)
		}
	}
	return peers
}

func (c *cluster) node(name string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

func (c *cluster) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.nodes))
}

// running returns the nodes that run, by name.
func (c *cluster) running() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var nodes []*node
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if n := c.nodes[name]; n.running {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (c *cluster) eventually(condition func() bool, says ...any) {
	c.t.Helper()
	require.Eventually(c.t, condition, wait, tick, says...)
}

func (c *cluster) awaitReady() {
	c.t.Helper()
	for _, n := range c.running() {
		c.eventually(func() bool { return n.Ready() == nil && !n.Stale() && n.State().Cluster != "" }, n.name)
	}
}

// leader waits for a node that leads and whom all that can reach it follow.
func (c *cluster) leader() *node {
	c.t.Helper()
	var leader *node
	c.eventually(func() bool {
		leader = nil
		for _, n := range c.running() {
			if l, _ := n.currentLeader(); l.self && !n.cut && n.refused() == nil {
				leader = n
			}
		}
		if leader == nil {
			return false
		}
		for _, n := range c.running() {
			if l, _ := n.currentLeader(); !n.cut && n.refused() == nil && l.node != leader.name {
				return false
			}
		}
		return true
	}, "no leader")
	return leader
}

// follower returns a node that runs, is not cut off and does not lead.
func (c *cluster) follower() *node {
	c.t.Helper()
	lead := c.leader()
	for _, n := range c.running() {
		if n != lead && !n.cut {
			return n
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// forward runs a write on a node and, when it is redirected, once on the node that
// it is redirected to, as the front end does. A write of which nothing was written
// or whose outcome is unknown is tried again under the same id, until ctx ends.
func (c *cluster) forward(ctx context.Context, n *node, write func(ctx context.Context, s *Store) error) error {
	ctx, request := consistency.WithRequest(ctx, newUUID())
	unknown := false
	for {
		err := write(ctx, n.Store)
		if redirect, ok := errors.AsType[*consistency.RedirectError](err); ok {
			err = errUnreachable
			if to := c.node(redirect.Node); to != nil && c.linked(n, to) {
				if err = write(ctx, to.Store); !c.linked(n, to) {
					err = consistency.ErrUnknownOutcome // the answer is lost
				}
			}
		}
		if err == nil {
			if err = n.WaitApplied(ctx, request.Index()); err != nil {
				err = fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
			}
			return err
		}
		unknown = unknown || errors.Is(err, consistency.ErrUnknownOutcome)
		if errors.Is(err, consistency.ErrClosed) || ctx.Err() != nil {
			if unknown {
				return fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
			}
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (c *cluster) publish(n *node, p consistency.Publication) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), wait)
	defer cancel()
	return c.forward(ctx, n, func(ctx context.Context, s *Store) error { return s.Publish(ctx, p) })
}

// writeAll writes what the function of this name writes, through one node.
func (c *cluster) writeAll(through *node, from, n int) {
	c.t.Helper()
	for i := from; i < from+n; i++ {
		require.NoError(c.t, c.publish(through, publication(service(i), host(i), host(i+1))))
		if i%3 != 0 {
			continue
		}
		for _, d := range []consistency.Datum{settings(service(i), 0.5), override(service(i), host(i), 7)} {
			require.NoError(c.t, c.forward(c.t.Context(), through, func(ctx context.Context, s *Store) error { return s.Put(ctx, d) }))
		}
	}
}

// same waits until all nodes that run have the same content.
func (c *cluster) same() {
	c.t.Helper()
	nodes := c.running()
	var states [][]string
	equal := func() bool {
		states = nil
		for _, n := range nodes {
			all := content(n.table)
			slices.Sort(all)
			states = append(states, all)
		}
		for _, s := range states[1:] {
			if !slices.Equal(s, states[0]) {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(wait)
	for !equal() && time.Now().Before(deadline) {
		<-time.After(10 * tick)
	}
	for n := range states[1:] {
		require.Equal(c.t, states[0], states[n+1], "%s and %s", nodes[0].name, nodes[n+1].name)
	}
}

// leaderDo runs fn on the node that leads, again when leadership has moved.
func (c *cluster) leaderDo(fn func(lead *node) error) error {
	c.t.Helper()
	for {
		err := fn(c.leader())
		var redirect *consistency.RedirectError
		if !errors.As(err, &redirect) && !errors.Is(err, consistency.ErrNoLeader) {
			return err
		}
	}
}

func ips(instances []*naming.Instance) []string {
	var out []string
	for _, i := range instances {
		out = append(out, i.IP)
	}
	return out
}
