package distro

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

var (
	// ErrNotMember means that no node of that name is known to be alive.
	ErrNotMember = errors.New("not an alive member")
	// ErrNotRunning means that membership is not started or is closed.
	ErrNotRunning = errors.New("membership is not running")
	// ErrTooLarge means that a message is larger than MaxMessage.
	ErrTooLarge = errors.New("message too large")
)

// MaxMessage is the largest payload of Send, in bytes. The library's receiver
// refuses 20 MiB.
const MaxMessage = 16 << 20

// sendsPerPeer bounds the messages to one node that are under way, and so what a
// node that takes none can hold up here.
const sendsPerPeer = 32

// Member is what gossip knows of a node.
type Member struct {
	Name string
	ID   string // of the Raft server: a UUID that lives and dies with the data
	// Boot grows with each start of the node: another value means another process,
	// which knows nothing of what it was told before.
	Boot                           uint64
	IP                             string // where other nodes reach it
	HTTPPort, GRPCPort             int
	PeerPort, RaftPort, GossipPort int
	Version                        string
	Draining, Leaving, Voter       bool
	Alive                          bool // not known to be dead; it may be suspect
}

// gossip is the address of the member's transport.
func (m Member) gossip() string { return net.JoinHostPort(m.IP, strconv.Itoa(m.GossipPort)) }

// Members keeps the list of the nodes and carries messages between them. All
// methods are safe for concurrent use.
type Members struct {
	cfg       MembersConfig
	log       *slog.Logger
	metrics   *memberMetrics
	keyring   *memberlist.Keyring // nil: no encryption
	lookup    func(ctx context.Context, host string) ([]netip.Addr, error)
	transport memberlist.NodeAwareTransport
	streams   *streams // the same, nil when the configuration brought another
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	closing   sync.Once
	closed    error // of Close
	callbacks gate
	updates   sync.Mutex // orders calls of Update; taken before mu
	alive     atomic.Pointer[[]Member]
	wakeCh    chan struct{} // an event or a conflict waits
	joinedCh  chan struct{} // closed after the first attempt to join

	listeners []func(Event)
	receive   func(from string, payload []byte)
	state     func(join bool) []byte
	merge     func(from string, remote []byte, join bool)

	mu        sync.Mutex
	phase     int32
	list      *memberlist.Memberlist // nil before Start
	self      Member
	others    map[string]*member // by name, alive or lost
	changed   []string           // names with an event to come, each once
	heard     evidence
	conflicts map[string]conflict
	refused   *ConflictError // why this node is not ready
	settled   bool           // the others have taken this node in
}

// member is another node.
type member struct {
	Member
	told    Member // as listeners know it
	queued  bool   // in changed
	lost    time.Time
	goodbye uint64        // the boot id of which it said good-bye
	sends   chan struct{} // one for each message under way
}

// NewMembers binds the sockets. Close must be called also if Start never is.
func NewMembers(cfg MembersConfig) (*Members, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Members{
		cfg:       cfg,
		log:       cfg.Logger.With("component", "members"),
		transport: cfg.Transport,
		lookup:    resolve,
		wakeCh:    make(chan struct{}, 1),
		joinedCh:  make(chan struct{}),
		others:    make(map[string]*member),
		conflicts: make(map[string]conflict),
		self:      cfg.Self,
	}
	var err error
	if len(cfg.Keys) > 0 {
		if m.keyring, err = memberlist.NewKeyring(cfg.Keys[1:], cfg.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip keys: %w", err)
		}
	}
	if m.transport == nil {
		m.streams, err = listenStreams(cfg.Bind, cfg.Port, cfg.DialTimeout, libraryLog(m.log))
		if err != nil {
			return nil, err
		}
		m.transport = m.streams
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.self.Alive = true
	m.self.IP, m.self.GossipPort, err = m.advertised()
	if err != nil {
		m.cancel()
		return nil, errors.Join(err, m.transport.Shutdown())
	}
	m.refreshLocked()
	m.metrics = newMemberMetrics(m, cfg.Metrics)
	return m, nil
}

// advertised returns where the others reach this node.
func (m *Members) advertised() (ip string, port int, err error) {
	host := cmp.Or(m.cfg.Advertise, m.cfg.Self.IP)
	if h, p, err := net.SplitHostPort(host); err == nil {
		if port, err = strconv.Atoi(p); err != nil || !validPort(port) {
			return "", 0, fmt.Errorf("the port of the advertised address %q is not a number", host)
		}
		host = h
	}
	if host == "" && m.streams != nil {
		host = m.cfg.Bind
	}
	if host != "" && !validIP(host) {
		ctx, cancel := context.WithTimeout(m.ctx, m.cfg.DialTimeout)
		defer cancel()
		found, err := m.lookup(ctx, host)
		if err != nil {
			return "", 0, fmt.Errorf("the advertised address: %w", err)
		}
		host = found[0].String()
	}
	if port == 0 && m.streams != nil {
		port = m.streams.GetAutoBindPort()
	}
	addr, port, err := m.transport.FinalAdvertiseAddr(host, port)
	if err != nil {
		return "", 0, fmt.Errorf("the advertised address: %w", err)
	}
	return addr.String(), port, nil
}

// resolve returns the addresses of a host, IPv4 first.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for n := range found {
		found[n] = found[n].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found), nil
}

// Listen adds a listener; call it before Start. All listeners are called from one
// goroutine, in order, and may call methods of m but Close. A slow one holds up
// events, nothing else.
func (m *Members) Listen(fn func(Event)) { m.listeners = append(m.listeners, fn) }

// Receive sets who takes the messages of other nodes; call it before Start. fn is
// called from many goroutines at once, in no particular order, must not block, and
// may keep the payload. The sender need not be a member yet.
func (m *Members) Receive(fn func(from string, payload []byte)) { m.receive = fn }

// Exchange sets what is exchanged with each node once in a while and when nodes
// join; call it before Start. local returns what this node has to say, up to
// MaxMessage bytes, merge takes what another one said and may keep it. Both are
// called from several goroutines at once and must not block.
func (m *Members) Exchange(local func(join bool) []byte, merge func(from string, remote []byte, join bool)) {
	m.state, m.merge = local, merge
}

// Start takes part in gossip and tries to join, for JoinTimeout at most. That no
// other node answers is not an error: it is tried again until Close. A
// *ConflictError means that another node which is alive has this one's name; then
// and after any other error only Close is left.
func (m *Members) Start() error {
	m.mu.Lock()
	if m.phase != created {
		m.mu.Unlock()
		return ErrNotRunning
	}
	m.phase = started
	m.mu.Unlock()
	list, err := memberlist.Create(m.library())
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	m.mu.Lock()
	m.list = list
	m.mu.Unlock()
	m.spawn(m.dispatch)
	m.spawn(m.rejoin)
	timer := time.NewTimer(m.cfg.JoinTimeout)
	defer timer.Stop()
	select {
	case <-m.joinedCh:
	case <-timer.C:
	case <-m.ctx.Done():
		return ErrNotRunning
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused != nil && m.refused.Answers {
		return m.refused
	}
	return nil
}

// library returns the configuration of the library.
func (m *Members) library() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = m.cfg.Self.Name
	c.Transport = m.transport
	c.BindPort = m.self.GossipPort
	c.AdvertiseAddr, c.AdvertisePort = m.self.IP, m.self.GossipPort
	c.Label = m.cfg.Cluster
	c.Keyring = m.keyring
	c.ProbeInterval, c.ProbeTimeout = m.cfg.ProbeInterval, m.cfg.ProbeTimeout
	c.SuspicionMult = m.cfg.SuspicionMult
	c.PushPullInterval, c.GossipInterval = m.cfg.PushPullInterval, m.cfg.GossipInterval
	c.DeadNodeReclaimTime = m.cfg.ReclaimTime
	c.TCPTimeout = m.cfg.StreamTimeout
	c.EnableCompression = false
	d := delegate{m}
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict = d, d, d, d, d
	c.Logger = libraryLog(m.log)
	return c
}

// spawn starts a goroutine that Close waits for, unless Close has begun.
func (m *Members) spawn(fn func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == closed {
		return false
	}
	m.wg.Go(fn)
	return true
}

// Close tells the others that this node leaves, for LeaveTimeout at most, answers
// their probes for LeaveDelay and returns after its goroutines ended. Some of the
// library's end a little later, see the package's documentation.
func (m *Members) Close() error {
	m.closing.Do(func() {
		m.mu.Lock()
		running := m.list != nil
		m.mu.Unlock()
		if running {
			m.leave()
		}
		m.mu.Lock()
		m.phase = closed
		list := m.list
		m.mu.Unlock()
		m.cancel()
		if list != nil {
			m.closed = list.Shutdown() // and the transport
		} else {
			m.closed = m.transport.Shutdown()
		}
		m.wg.Wait()
		m.callbacks.shut()
		m.metrics.unregister(m.cfg.Metrics)
	})
	return m.closed
}

// leave tells the others, unless one of them owns this node's name: they would
// take it to be about that one.
func (m *Members) leave() {
	m.mu.Lock()
	list, name, refused := m.list, m.self.Name, m.refused != nil
	m.mu.Unlock()
	if refused {
		return
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.LeaveTimeout)
	defer cancel()
	peers := slices.DeleteFunc(slices.Clone(m.Alive()), func(o Member) bool { return o.Name == name })
	// The flag in the meta data may be overtaken by the library's own word that
	// this node is gone, after which it is no longer looked at. The good-bye is not.
	var told sync.WaitGroup
	for _, peer := range peers {
		told.Go(func() {
			if err := m.send(ctx, peer.Name, kindGoodbye, nil); err != nil {
				m.log.Debug("good-bye did not arrive", "peer", peer.Name, "err", err)
			}
		})
	}
	if err := m.update(func(self *Member) { self.Leaving = true }, m.cfg.LeaveTimeout/2); err != nil {
		m.log.Debug("leaving flag not set", "err", err)
	}
	told.Wait()
	if err := list.Leave(m.cfg.LeaveTimeout / 2); err != nil {
		m.log.Debug("leave not passed on", "err", err)
	}
	if len(peers) > 0 {
		timer := time.NewTimer(m.cfg.LeaveDelay)
		defer timer.Stop()
		<-timer.C
	}
}

// Ready returns nil between Start and Close, and a *ConflictError while the other
// nodes refuse this one because of its name.
func (m *Members) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != started || m.list == nil {
		return ErrNotRunning
	}
	if m.refused != nil {
		return m.refused
	}
	return nil
}

// Self returns this node.
func (m *Members) Self() Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// Alive returns the nodes that are alive, this one included, sorted by name. The
// slice is shared: the caller must not alter it.
func (m *Members) Alive() []Member { return *m.alive.Load() }

// Get returns the node of that name, alive or remembered, or this one.
func (m *Members) Get(name string) (Member, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == m.self.Name {
		return m.self, true
	}
	if o, ok := m.others[name]; ok {
		return o.Member, true
	}
	return Member{}, false
}

// ByID returns the node with that id, which should be no other's: one that is
// alive rather than one that is remembered, then the one that was started last.
func (m *Members) ByID(id string) (found Member, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == "" {
		return Member{}, false
	}
	if m.self.ID == id {
		return m.self, true
	}
	for _, o := range m.others {
		if o.ID == id && (!ok || o.Alive && !found.Alive || o.Alive == found.Alive && o.Boot > found.Boot) {
			found, ok = o.Member, true
		}
	}
	return found, ok
}

// Update changes what the others know of this node: everything but its name and
// its address. It returns once that is on its way.
func (m *Members) Update(fn func(*Member)) error { return m.update(fn, time.Nanosecond) }

// update waits for so long until one other node at least was told.
func (m *Members) update(fn func(*Member), wait time.Duration) error {
	m.updates.Lock()
	defer m.updates.Unlock()
	before := m.Self()
	self := before
	fn(&self)
	self.Name, self.IP, self.GossipPort, self.Alive = before.Name, before.IP, before.GossipPort, before.Alive
	if err := self.check(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.phase == closed {
		m.mu.Unlock()
		return ErrNotRunning
	}
	m.self = self
	m.refreshLocked()
	list := m.list
	m.mu.Unlock()
	if list == nil {
		return nil
	}
	_ = list.UpdateNode(wait) // its only error is that the time is over
	return nil
}

// Send brings the payload to an alive node. It waits until the bytes are on their
// way, no longer than ctx or SendTimeout; nil does not mean that they arrived.
// Messages may overtake each other. The payload may be reused after the return.
func (m *Members) Send(ctx context.Context, name string, payload []byte) error {
	if len(payload) > MaxMessage {
		return fmt.Errorf("send to %s: %w: %d bytes", name, ErrTooLarge, len(payload))
	}
	err := m.send(ctx, name, kindMessage, payload)
	m.metrics.sent(len(payload), err)
	return err
}

func (m *Members) send(ctx context.Context, name string, k kind, payload []byte) error {
	m.mu.Lock()
	list, self, other := m.list, m.self, m.others[name]
	if list == nil || m.phase == closed {
		m.mu.Unlock()
		return ErrNotRunning
	}
	if other == nil || !other.Alive {
		m.mu.Unlock()
		return fmt.Errorf("send to %s: %w", name, ErrNotMember)
	}
	to := &memberlist.Node{Name: name, Addr: net.ParseIP(other.IP), Port: uint16(other.GossipPort)}
	sends := other.sends
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, m.cfg.SendTimeout)
	defer cancel()
	select {
	case sends <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("send to %s: %w", name, ctx.Err())
	case <-m.ctx.Done():
		return ErrNotRunning
	}
	message := envelope{k, self.Name, self.Boot, payload}.encode()
	result := make(chan error, 1)
	// The library has no time limit for a message and knows no context.
	if !m.spawn(func() {
		result <- list.SendReliable(to, message)
		<-sends
	}) {
		<-sends
		return ErrNotRunning
	}
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("send to %s: %w", name, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("send to %s: %w", name, ctx.Err())
	}
}

// refreshLocked makes the slice that Alive returns.
func (m *Members) refreshLocked() {
	alive := []Member{m.self}
	for _, o := range m.others {
		if o.Alive {
			alive = append(alive, o.Member)
		}
	}
	slices.SortFunc(alive, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	m.alive.Store(&alive)
}

// gate lets callbacks in until it is shut, and shutting waits for them.
type gate struct {
	mu     sync.RWMutex
	closed bool
}

// pass calls fn unless the gate is shut.
func (g *gate) pass(fn func()) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.closed {
		fn()
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
