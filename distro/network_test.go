package distro

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

// network is a network in memory that can be cut. Unlike memberlist's own it drops
// packets to nodes that are gone instead of waiting for them.
type network struct {
	mu    sync.Mutex
	nodes map[string]*wire
	cuts  map[[2]string]bool // from, to
	last  int
}

func newNetwork() *network {
	return &network{nodes: make(map[string]*wire), cuts: make(map[[2]string]bool)}
}

// add returns the transport of a node at an address of its own.
func (n *network) add() *wire {
	n.mu.Lock()
	n.last++
	addr := fmt.Sprintf("10.0.0.%d:7847", n.last)
	n.mu.Unlock()
	return n.addAt(addr)
}

// addAt returns the transport of a node at the address of one that is gone.
func (n *network) addAt(addr string) *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &wire{
		network: n, addr: addr, done: make(chan struct{}),
		packetCh: make(chan *memberlist.Packet, 1024), streamCh: make(chan net.Conn),
	}
	n.nodes[w.addr] = w
	return w
}

// cut stops what goes from one node to the other, both ways.
func (n *network) cut(a, b *wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]string{a.addr, b.addr}], n.cuts[[2]string{b.addr, a.addr}] = true, true
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// to returns the node at the address, nil if nothing from w gets there.
func (n *network) to(w *wire, addr string) (peer *wire, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[addr], n.cuts[[2]string{w.addr, addr}]
}

// wire is one node's transport.
type wire struct {
	network  *network
	addr     string
	packetCh chan *memberlist.Packet
	streamCh chan net.Conn
	done     chan struct{}

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

func (w *wire) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a, err := net.ResolveTCPAddr("tcp", w.addr)
	return a.IP, a.Port, err
}

func (w *wire) WriteTo(b []byte, addr string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (w *wire) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	now := time.Now()
	if peer, cut := w.network.to(w, to.Addr); peer != nil && !cut {
		from, err := net.ResolveUDPAddr("udp", w.addr)
		if err != nil {
			return now, err
		}
		select {
		case peer.packetCh <- &memberlist.Packet{Buf: b, From: from, Timestamp: now}:
		default:
		}
	}
	return now, nil
}

func (w *wire) PacketCh() <-chan *memberlist.Packet { return w.packetCh }

func (w *wire) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return w.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (w *wire) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	peer, cut := w.network.to(w, to.Addr)
	if cut {
		return nil, os.ErrDeadlineExceeded
	}
	if peer == nil {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	if !w.keep(here) || !peer.keep(there) {
		return nil, errors.New("connection refused")
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case peer.streamCh <- there:
		return here, nil
	case <-peer.done:
		return nil, errors.New("connection refused")
	case <-timer.C:
		return nil, os.ErrDeadlineExceeded
	}
}

// keep notes a connection for Shutdown.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return !w.closed
}

func (w *wire) StreamCh() <-chan net.Conn { return w.streamCh }

func (w *wire) Shutdown() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	close(w.done)
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	if w.network.nodes[w.addr] == w {
		delete(w.network.nodes, w.addr)
	}
	return nil
}

// fast returns timings that are quick where the load of the machine cannot do harm:
// a death takes as long to be known as by default.
func fast(name string, boot uint64) MembersConfig {
	cfg := DefaultMembersConfig()
	cfg.Self = Member{Name: name, ID: "id-" + name, Boot: boot, HTTPPort: 8848, GRPCPort: 9848, PeerPort: 9849, RaftPort: 7848, Version: "test"}
	cfg.Bind = "127.0.0.1"
	cfg.GossipInterval = 20 * time.Millisecond
	cfg.ReclaimTime = 100 * time.Millisecond
	cfg.RejoinInterval = 200 * time.Millisecond
	cfg.LeaveDelay = 0
	return cfg
}

// node is one of the Members of a test, with what its listener was told.
type node struct {
	*Members
	wire *wire

	mu     sync.Mutex
	events []Event
}

// open returns a node that is not started.
func open(t *testing.T, cfg MembersConfig) *node {
	t.Helper()
	m, err := NewMembers(cfg)
	require.NoError(t, err)
	n := &node{Members: m}
	n.wire, _ = cfg.Transport.(*wire)
	m.Listen(func(e Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, e)
	})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return n
}

// start returns a node that runs.
func start(t *testing.T, cfg MembersConfig) *node {
	t.Helper()
	n := open(t, cfg)
	require.NoError(t, n.Start())
	return n
}

// crash ends the node without a word to the others.
func (n *node) crash(t *testing.T) {
	t.Helper()
	n.Members.mu.Lock()
	n.refused = &ConflictError{}
	n.Members.mu.Unlock()
	require.NoError(t, n.Close())
}

// told returns what the listener was told of the peer, one letter for each event.
func (n *node) told(peer string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b []byte
	for _, e := range n.events {
		if e.Member.Name == peer {
			b = append(b, " JULD"[e.Kind])
		}
	}
	return string(b)
}

// last returns the last event about the peer.
func (n *node) last(peer string) Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range slices.Backward(n.events) {
		if e.Member.Name == peer {
			return e
		}
	}
	return Event{}
}

// names returns who is alive.
func (n *node) names() []string {
	var names []string
	for _, m := range n.Alive() {
		names = append(names, m.Name)
	}
	return names
}

// agree waits until all nodes see all of them and nobody else.
func agree(t *testing.T, within time.Duration, nodes ...*node) {
	t.Helper()
	var want []string
	for _, n := range nodes {
		want = append(want, n.Self().Name)
	}
	slices.Sort(want)
	for _, n := range nodes {
		require.Eventually(t, func() bool { return slices.Equal(want, n.names()) }, within, 5*time.Millisecond, "%s sees %v", n.Self().Name, n.names())
	}
}

// inMemory returns the configuration of a node in a network in memory.
func inMemory(name string, boot uint64, w *wire) MembersConfig {
	cfg := fast(name, boot)
	cfg.Transport = w
	cfg.Join = []string{"10.0.0.1:7847", "10.0.0.2:7847"}
	return cfg
}

// three returns three nodes in a network in memory that see each other.
func three(t *testing.T) (net *network, nodes []*node) {
	t.Helper()
	net = newNetwork()
	for i, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, start(t, inMemory(name, uint64(i+1), net.add())))
	}
	agree(t, 5*time.Second, nodes...)
	return net, nodes
}
