package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rollcall/consistency"
	"rollcall/distro"
	"rollcall/naming"
	"rollcall/push"
	"rollcall/raftstore"
	"rollcall/server/grpcapi"
	"rollcall/server/httpapi"
	"rollcall/server/wire"
)

// Node is one node of the registry. Use [New].
type Node struct {
	cfg      Config
	log      *slog.Logger
	registry *Registry
	http     net.Listener
	grpc     net.Listener
	parts    []part // in the order of their start
	life     *life  // nil on a node that is alone
	failedCh chan error

	mu     sync.Mutex
	closed bool
}

// part is something that is started and closed.
type part struct {
	name  string
	start func() error
	close func() error
}

// New opens every listener and the data folder of a node. Nothing runs yet; Close
// must be called also if Start never is. version is shown to operators.
func New(cfg Config, version string, log *slog.Logger) (n *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	cfg = cfg.withDerived()
	if cfg.Node == "" {
		if cfg.Node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("node is empty and the host has no name: %w", err)
		}
	}
	levels := new(logLevels)
	n = &Node{cfg: cfg, log: slog.New(levels.handler(log.Handler())).With("node", cfg.Node), failedCh: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()

	if n.http, err = listen(cfg.Bind, cfg.Port, "port"); err != nil {
		return n, err
	}
	n.add("http listener", nil, closeListener(n.http))
	socket, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", n.http.Addr().String())
	if err != nil {
		return n, fmt.Errorf("listen for UDP acknowledgements: %w; choose another --port", err)
	}
	n.add("udp socket", nil, func() error { return ignoreClosed(socket.Close()) })
	if n.grpc, err = listen(cfg.Bind, cfg.GRPCPort, "grpc-port"); err != nil {
		return n, err
	}
	n.add("grpc listener", nil, closeListener(n.grpc))

	raftConfig := raftstore.DefaultConfig()
	raftConfig.Dir = filepath.Join(cfg.DataDir, "raft")
	raftConfig.Node = cfg.Node
	raftConfig.Bind = net.JoinHostPort(cfg.Bind, strconv.Itoa(cfg.RaftPort))
	raftConfig.Logger = n.log
	if ip := net.ParseIP(cfg.Bind); ip.IsUnspecified() && cfg.RaftPort != 0 {
		raftConfig.Advertise = net.JoinHostPort(n.IP(), strconv.Itoa(cfg.RaftPort))
	}
	raftConfig.Expect = cfg.BootstrapExpect
	raftConfig.Failed = n.fail
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	raftConfig.Metrics = metrics
	link := new(link)
	if cfg.clustered() {
		link.configure(&raftConfig)
	}
	persistent, err := raftstore.New(raftConfig)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = fmt.Errorf("%w; choose another --raft-port", err)
		}
		return n, err
	}
	n.add("raftstore", persistent.Start, persistent.Close)
	var durable consistency.Store = persistent
	if cfg.clustered() {
		if err := n.connect(link, persistent, version, metrics); err != nil {
			return n, err
		}
		durable = link.forwarding(persistent)
	}
	distroConfig := distro.DefaultConfig()
	distroConfig.Node, distroConfig.Logger, distroConfig.Metrics = cfg.Node, n.log, metrics
	distroConfig.Grace, distroConfig.GraceSilent = cfg.Grace, cfg.GraceSilent
	if cfg.clustered() {
		link.configureDistro(&distroConfig, persistent)
	}
	ephemeral, err := distro.New(distroConfig)
	if err != nil {
		return n, err
	}
	n.add("distro", ephemeral.Start, ephemeral.Close)

	n.registry = newRegistry(cfg, consistency.NewRouter(ephemeral, durable), n.log.With("component", "registry"), metrics)
	state := func() *wire.StateReply { return link.load(n.state(persistent.State(), ephemeral.State(), version)) }
	if cfg.clustered() {
		link.registry = n.registry
		if err := n.serveNodes(link, persistent, ephemeral, state); err != nil {
			return n, err
		}
		// After the front ends: a write that came to a node outside Raft would wait for
		// ever to be shown there.
		n.add("leave", nil, func() error { return n.life.end() })
	}
	engine, err := push.New(cfg.Push, n.registry, metrics)
	if err != nil {
		return n, err
	}
	n.add("push", engine.Start, engine.Close)
	link.engine = engine
	n.add("registry", n.registry.start, n.registry.close)

	clients := grpcapi.New(grpcapi.Config{
		IP: n.IP(), Idle: cfg.Idle, Detect: cfg.Detect, SetupWait: cfg.SetupWait, MoveTime: cfg.MoveLinger,
		Workers:        uint32(4 * runtime.GOMAXPROCS(0)),
		MaxConnections: cfg.MaxConnections, MaxConnectionsPerIP: cfg.MaxConnectionsPerIP,
		FuzzyPatterns: cfg.FuzzyPatterns, FuzzyMatches: cfg.FuzzyMatches,
	}, n.grpc, n.registry, engine, n.log, metrics)
	n.registry.notify = engine.Notify
	n.registry.watched = engine.Watched
	n.registry.pushes = engine.Enable
	n.registry.loadSwitches() // now that they reach the engine
	n.registry.subscriptions = engine.Subscriptions
	n.registry.connections = clients.Connections
	n.registry.consistent = persistent.WaitConsistent
	n.registry.staying = clients.Staying
	n.registry.connected = clients.Clients
	n.registry.populated = clients.Populated
	n.registry.owner = func(publisher string) string {
		if node, self := ephemeral.Owner(publisher); !self && link.members != nil {
			if m, ok := link.members.Get(node); ok {
				return net.JoinHostPort(m.IP, strconv.Itoa(m.HTTPPort))
			}
		}
		return net.JoinHostPort(n.IP(), strconv.Itoa(cfg.Port))
	}
	link.clients = clients
	n.add("grpc", clients.Start, clients.Close)
	archive := &backups{store: persistent, dir: cfg.DataDir}
	if cfg.clustered() {
		archive.send = link.peers.restoreOn
	}
	dead := &removal{remove: persistent.Remove}
	var elsewhere func(context.Context, naming.ServiceKey) []push.Subscription
	if cfg.clustered() {
		dead.send = link.peers.removeOn
		n.life = link.life(n, clients, persistent, ephemeral)
		elsewhere = link.subscribersElsewhere
	}
	metrics.MustRegister(newMonitor(n.registry, engine))
	web := httpapi.New(httpapi.Config{
		RemoveNode:           dead.run,
		Backups:              archive,
		Life:                 n.ofSeveral,
		ShutdownTimeout:      cfg.ShutdownTimeout / 2,
		Metrics:              promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}),
		MetricNames:          func() ([]string, error) { return metricNames(metrics) },
		Version:              version,
		Nodes:                func() []naming.NodeState { return n.nodes(link, persistent.State(), state()) },
		SubscribersElsewhere: elsewhere,
		Connections:          clients.ConnectionList,
		Reset:                clients.Reset,
		Shed: func(ctx context.Context, node string, keep int, redirect string) (int, error) {
			return link.shedOn(ctx, cfg.Node, node, keep, redirect)
		},
		SetLogLevel: levels.set,
	}, n.http, socket, n.registry, engine, n.log)
	n.add("http", web.Start, web.Close)
	if n.life != nil {
		n.add("hand-over", n.life.spread.start, n.life.handOver)
	}
	return n, nil
}

// life returns how this node goes.
func (l *link) life(n *Node, clients *grpcapi.Server, persistent *raftstore.Store, ephemeral *distro.Store) *life {
	r := n.registry
	r.reached = l.reached(persistent)
	return &life{
		registry: r, log: n.log.With("component", "life"), timeout: n.cfg.ShutdownTimeout, leaveCh: make(chan struct{}),
		spread: newSpread(clients, l.places, r.draining.Load, n.cfg.MoveRate),
		tell: func(draining, leaving bool) error {
			return l.members.Update(func(m *distro.Member) { m.Draining, m.Leaving = draining, leaving })
		},
		own:      ephemeral.Drain,
		stepDown: persistent.StepDown,
		mayLeave: func() error {
			voters, alive := 0, 0
			for _, s := range persistent.State().Servers {
				if s.Voter && s.ID != persistent.ID() {
					voters++
					if s.Alive {
						alive++
					}
				}
			}
			if alive <= voters/2 {
				return fmt.Errorf("without this node %d of %d voters are alive, which is no majority: remove nodes that are dead, or start them, first", alive, voters)
			}
			return nil
		},
		remove: func(ctx context.Context) error {
			st := persistent.State()
			if st.Leader == st.ID {
				return persistent.StepDown()
			}
			return l.peers.removeOn(ctx, st.LeaderName, st.ID)
		},
	}
}

// places returns the nodes that clients may go to.
func (l *link) places() []place {
	var out []place
	for _, m := range l.members.Alive() {
		if m.Name == l.members.Self().Name || m.Draining || m.Leaving {
			continue
		}
		if state := l.roster.fresh(m.Name); state.GetReady() {
			out = append(out, place{m.IP, m.HTTPPort, int(state.GetConnections())})
		}
	}
	return out
}

// reachTimeout is how long a node that starts waits for others. Then it serves what it
// has, for they may be gone.
const reachTimeout = 20 * time.Second

// reached returns a function that says why this node cannot know yet what the others
// have: none of those that may lead was reached since it was started.
func (l *link) reached(persistent *raftstore.Store) func() error {
	var once atomic.Bool
	begin := time.Now()
	return func() error {
		if once.Load() {
			return nil
		}
		st := persistent.State()
		nodes := max(st.Expect, len(st.Servers), 2)
		answered := 1 // itself
		for _, name := range l.others() {
			if l.roster.fresh(name) != nil {
				answered++
			}
		}
		if st.Leader == "" && answered <= nodes/2 && time.Since(begin) < reachTimeout {
			return fmt.Errorf("%w: %d of %d nodes reached, and no leader is known", consistency.ErrNotReady, answered, nodes)
		}
		once.Store(true)
		return nil
	}
}

// ofSeveral returns how the node goes; an error on one that is alone.
func (n *Node) ofSeveral() (httpapi.Life, error) {
	if n.life == nil {
		return nil, errors.New("this node is alone: there is no other one that its clients could go to; start it with --join")
	}
	return n.life, nil
}

// Left returns a channel that is closed when an operator told the node to leave for
// good: the process should close the node and end.
func (n *Node) Left() <-chan struct{} {
	if n.life == nil {
		return nil
	}
	return n.life.leaveCh
}

// link ties this node's persistent store to the other nodes: membership says where
// they are, the roster what their stores hold, and peers asks them. The store
// needs them while it is being made, and they need the store: the functions of its
// configuration reach them here.
type link struct {
	members  *distro.Members
	peers    *peers
	roster   *roster
	registry *Registry
	engine   *push.Engine
	// clients are those of this node's gRPC front end.
	clients *grpcapi.Server
}

// configure gives the store's configuration its functions. They are called after
// connect.
func (l *link) configure(cfg *raftstore.Config) {
	cfg.Peers = func() []raftstore.Peer {
		var out []raftstore.Peer
		self := l.members.Self().Name
		for _, m := range l.members.Alive() {
			state := l.roster.get(m.Name)
			if m.Name == self || state == nil {
				continue
			}
			out = append(out, raftstore.Peer{
				Name: m.Name, ID: state.GetRaftId(), Addr: net.JoinHostPort(m.IP, strconv.Itoa(m.RaftPort)),
				Expect: int(state.GetExpect()), HasState: state.GetHasState(), Cluster: state.GetCluster(),
				Alive: !m.Leaving, Version: state.GetVersion(),
			})
		}
		return out
	}
	cfg.Stats = func(ctx context.Context, id string) (term, lastIndex uint64, contact time.Duration, err error) {
		m, ok := l.members.ByID(id)
		if !ok {
			return 0, 0, 0, fmt.Errorf("no node has the id %s", id)
		}
		reply := new(wire.StatsReply)
		err = l.peers.ask(ctx, m.Name, "Stats", &wire.StatsRequest{}, reply)
		return reply.GetTerm(), reply.GetLastIndex(), time.Duration(reply.GetContactMs()) * time.Millisecond, err
	}
	cfg.ReadIndex = func(ctx context.Context, node string) (uint64, error) {
		reply := new(wire.ReadIndexReply)
		err := l.peers.ask(ctx, node, "ReadIndex", &wire.ReadIndexRequest{}, reply)
		return reply.GetIndex(), err
	}
}

// connect makes this node one of several.
func (n *Node) connect(l *link, store *raftstore.Store, version string, metrics prometheus.Registerer) error {
	cfg := n.cfg
	boot, err := nextBoot(filepath.Join(cfg.DataDir, "boot"))
	if err != nil {
		return err
	}
	keys, err := cfg.gossipKeys()
	if err != nil {
		return err
	}
	mc := distro.DefaultMembersConfig()
	mc.Self = distro.Member{
		Name: cfg.Node, ID: store.ID(), Boot: boot, IP: n.IP(), Version: version, Voter: true,
		HTTPPort: cfg.Port, GRPCPort: cfg.GRPCPort, PeerPort: cfg.PeerPort, RaftPort: cfg.RaftPort,
	}
	mc.Bind, mc.Port, mc.Join, mc.Cluster, mc.Keys = cfg.Bind, cfg.GossipPort, cfg.joins(), cfg.Cluster, keys
	mc.Logger, mc.Metrics = n.log, metrics
	if l.members, err = distro.NewMembers(mc); err != nil {
		return err
	}
	n.add("members", l.members.Start, l.members.Close)

	l.peers = newPeers(func(node string) (string, bool) {
		m, ok := l.members.Get(node)
		return net.JoinHostPort(m.IP, strconv.Itoa(m.PeerPort)), ok
	})
	n.add("peers", nil, l.peers.close)
	l.roster = newRoster(l.others, func(ctx context.Context, node string) (*wire.StateReply, error) {
		reply := new(wire.StateReply)
		return reply, l.peers.ask(ctx, node, "State", &wire.StateRequest{}, reply)
	})
	l.roster.changed = store.PeersChanged
	l.members.Listen(func(distro.Event) { l.roster.wake(); store.PeersChanged() })

	n.add("roster", l.roster.start, l.roster.close)
	return nil
}

// contactTime is how long a follower that was not heard of by its leader still
// counts as in contact with it.
const contactTime = 2 * time.Second

// configureDistro gives the ephemeral store its nodes and its functions.
func (l *link) configureDistro(cfg *distro.Config, persistent *raftstore.Store) {
	cfg.Members = l.members
	cfg.InContact = func() bool {
		st := persistent.State()
		return st.LeaderName != "" && st.LastContact >= 0 && st.LastContact < contactTime
	}
	cfg.Live = func(svc naming.ServiceKey, publisher string) bool { return l.registry.beats.live(svc, publisher) }
	cfg.Took = func(svc naming.ServiceKey, publisher string, i *naming.Instance) {
		l.registry.beats.took(svc, publisher, i)
	}
	cfg.Refused = func(ctx context.Context, m distro.Member) bool {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(m.IP, strconv.Itoa(m.PeerPort)))
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}
}

// serveNodes answers the other nodes, and passes to them what is theirs.
func (n *Node) serveNodes(l *link, persistent *raftstore.Store, ephemeral *distro.Store, state func() *wire.StateReply) error {
	*n.registry.nodes = ownership{
		owner: ephemeral.Owner, ask: l.peers.ask,
		// A node that is taken to be alive, but does not answer, may hear clients and
		// be unable to say so.
		mayExpire: func() bool { return l.roster.reached() && ephemeral.MayExpire() },
		await: func(ctx context.Context, m *wire.ChangeReply) error {
			return ephemeral.Await(ctx, distro.Mark{Node: m.GetNode(), Boot: m.GetBoot(), Seq: m.GetSeq()})
		},
	}
	n.registry.renewals = newRenewals(n.registry.nodes, n.registry.beats.renew)
	mark := func() *wire.ChangeReply {
		m := ephemeral.Mark()
		return &wire.ChangeReply{Node: m.Node, Boot: m.Boot, Seq: m.Seq}
	}
	listener, err := listen(n.cfg.Bind, n.cfg.PeerPort, "peer-port")
	if err != nil {
		return err
	}
	service := newPeerService(listener, persistent, n.registry, mark, state, n.log)
	service.shed = l.shed
	service.subscribersHere = func(svc naming.ServiceKey) []push.Subscription { return l.engine.Subscribers(svc) }
	n.add("peer listener", nil, closeListener(listener))
	n.add("peer service", service.start, service.close)
	return nil
}

// others returns the names of the other nodes that are alive.
func (l *link) others() []string {
	var out []string
	self := l.members.Self().Name
	for _, m := range l.members.Alive() {
		if m.Name != self {
			out = append(out, m.Name)
		}
	}
	return out
}

// forwardTimeout bounds a write, all its tries on this node and others included.
const forwardTimeout = 10 * time.Second

func (l *link) forwarding(store *raftstore.Store) *forwarding {
	return &forwarding{
		Store: store, waitApplied: store.WaitShown,
		encode: encoders{publish: raftstore.EncodePublish, put: raftstore.EncodePut, delete: raftstore.EncodeDelete},
		send: func(ctx context.Context, node string, q *wire.WriteRequest) (uint64, error) {
			ctx, done := store.WhileLeads(ctx, node)
			defer done()
			reply := new(wire.WriteReply)
			err := l.peers.ask(ctx, node, "Write", q, reply)
			return reply.GetIndex(), err
		},
		timeout: forwardTimeout,
	}
}

// state is what this node tells the others of itself.
func (n *Node) state(s raftstore.State, e distro.State, version string) *wire.StateReply {
	holdings := make([]*wire.Holding, len(e.Owners))
	for k, o := range e.Owners {
		holdings[k] = &wire.Holding{Node: o.Node, Boot: o.Boot, Instances: int64(o.Instances), Root: o.Root, Gone: o.Gone}
	}
	return &wire.StateReply{
		Holdings: holdings, Ready: n.registry.Wanted() == nil, Connections: int32(n.registry.staying()),
		Node: s.Node, RaftId: s.ID, RaftAddr: s.Addr, Cluster: s.Cluster, Expect: int32(s.Expect), HasState: s.HasState,
		Role: string(s.Role), Voter: s.Voter, Term: s.Term, LastIndex: s.LastIndex, AppliedIndex: s.AppliedIndex,
		Leader: s.LeaderName, Version: version, Stale: s.Stale, ReadOnly: errorText(s.ReadOnly), Refused: errorText(s.Refused),
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// nodes tells what this node knows of all nodes, sorted by name.
func (n *Node) nodes(l *link, s raftstore.State, own *wire.StateReply) []naming.NodeState {
	states := []*wire.StateReply{own}
	self := stateNaming(own)
	self.RaftAddress = s.Addr
	self.Address, self.Self, self.Alive = net.JoinHostPort(n.IP(), strconv.Itoa(n.cfg.Port)), true, true
	self.Draining = n.registry.draining.Load()
	out := []naming.NodeState{self}
	if l.members != nil {
		for _, m := range l.members.Alive() {
			if m.Name == self.Name {
				continue
			}
			o := naming.NodeState{Name: m.Name, Role: "unknown", Version: m.Version}
			if state := l.roster.get(m.Name); state != nil {
				states = append(states, state)
				o = stateNaming(state)
			}
			o.Address, o.Alive, o.Draining = net.JoinHostPort(m.IP, strconv.Itoa(m.HTTPPort)), true, m.Draining
			o.RaftAddress = net.JoinHostPort(m.IP, strconv.Itoa(m.RaftPort))
			out = append(out, o)
		}
		for _, server := range s.Servers { // in Raft, but not alive
			if server.Name != "" && !slices.ContainsFunc(out, func(o naming.NodeState) bool { return o.Name == server.Name }) {
				out = append(out, naming.NodeState{Name: server.Name, Role: "unknown", Voter: server.Voter})
			}
		}
	}
	differs := differing(states)
	var last uint64
	for _, o := range out {
		if o.Role == string(raftstore.RoleLeader) {
			last = max(last, o.LastIndex)
		}
	}
	for k, o := range out {
		out[k].Differs = differs[o.Name]
		if o.Role != "unknown" {
			out[k].Lag = max(last, o.AppliedIndex) - o.AppliedIndex
		}
	}
	slices.SortFunc(out, func(a, b naming.NodeState) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// differing returns, by the name of a node, of how many owners it holds something
// else than they do.
func differing(states []*wire.StateReply) map[string]int {
	type run struct {
		node string
		boot uint64
	}
	said := make(map[run]*wire.Holding)
	for _, s := range states {
		for _, h := range s.GetHoldings() {
			if h.GetNode() == s.GetNode() && h.GetGone() == "" {
				said[run{h.GetNode(), h.GetBoot()}] = h
			}
		}
	}
	out := make(map[string]int)
	for _, s := range states {
		held := make(map[run]*wire.Holding)
		for _, h := range s.GetHoldings() {
			held[run{h.GetNode(), h.GetBoot()}] = h
		}
		for r, h := range said {
			if held[r].GetRoot() != h.GetRoot() || held[r].GetInstances() != h.GetInstances() {
				out[s.GetNode()]++
			}
		}
	}
	return out
}

func stateNaming(s *wire.StateReply) naming.NodeState {
	o := naming.NodeState{
		Name: s.GetNode(), Role: s.GetRole(), Voter: s.GetVoter(), Term: s.GetTerm(),
		LastIndex: s.GetLastIndex(), AppliedIndex: s.GetAppliedIndex(), Version: s.GetVersion(), Ready: s.GetReady(),
		Stale: s.GetStale(), ReadOnly: s.GetReadOnly(), Refused: s.GetRefused(),
		Leader: s.GetLeader(), Connections: int(s.GetConnections()), Load: s.GetLoad(), CPU: s.GetCpu(),
	}
	for _, h := range s.GetHoldings() {
		o.Instances += int(h.GetInstances())
	}
	return o
}

// nextBoot returns the number of this start of the node: the time in milliseconds,
// raised above the last one, which the file keeps.
func nextBoot(path string) (uint64, error) {
	boot := uint64(time.Now().UnixMilli())
	if last, err := os.ReadFile(path); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(last)), 10, 64); err == nil {
			boot = max(boot, n+1)
		}
	}
	if err := os.WriteFile(path, []byte(strconv.FormatUint(boot, 10)+"\n"), 0o600); err != nil {
		return 0, fmt.Errorf("keep the number of this start: %w", err)
	}
	return boot, nil
}

func (n *Node) add(name string, start, stop func() error) {
	n.parts = append(n.parts, part{name, start, stop})
}

// InspectBackup reads a whole backup, verifies it and says what is in it. The error
// is a *naming.InvalidError for what is no backup that this program can use.
func InspectBackup(r io.Reader) (naming.Backup, error) { return raftstore.Inspect(r) }

// Start starts every part in order. After an error, Close stops those that run.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.parts {
		if p.start != nil {
			if err := p.start(); err != nil {
				return fmt.Errorf("start %s: %w", p.name, err)
			}
		}
	}
	n.log.Info("node started", "http", n.http.Addr().String(), "grpc", n.grpc.Addr().String(), "data", n.cfg.DataDir)
	return nil
}

// Close stops every part, the last first, and returns all their errors.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.registry != nil {
		n.registry.stopping.Store(true)
	}
	if n.life != nil && n.cfg.LeaveOnStop {
		n.life.leaving.Store(true)
	}
	var errs []error
	for _, p := range slices.Backward(n.parts) {
		if err := p.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// Failed returns a channel that gets a value when the node can not go on, such as
// when the leader writes what this program is too old for: the process should close
// the node and end.
func (n *Node) Failed() <-chan error { return n.failedCh }

func (n *Node) fail(err error) {
	select {
	case n.failedCh <- err:
	default:
	}
}

// Ready returns nil once the node serves, else the reason why not.
func (n *Node) Ready() error { return n.registry.Ready() }

// HTTPAddr is where the node listens for HTTP and, over UDP, for acknowledgements.
func (n *Node) HTTPAddr() string { return n.http.Addr().String() }

// GRPCAddr is where the node listens for gRPC clients.
func (n *Node) GRPCAddr() string { return n.grpc.Addr().String() }

// IP is the node's own address, as it tells it to clients: the advertised one, the
// one it is bound to, or the first of the host.
func (n *Node) IP() string {
	if n.cfg.Advertise != "" {
		return n.cfg.Advertise
	}
	if !net.ParseIP(n.cfg.Bind).IsUnspecified() {
		return n.cfg.Bind
	}
	addresses, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addresses {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
				return ip.IP.String()
			}
		}
	}
	return "127.0.0.1"
}

func listen(bind string, port int, name string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(bind, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on %s %d: %w; choose another --%s", name, port, err, name)
	}
	return l, nil
}

func closeListener(l net.Listener) func() error {
	return func() error { return ignoreClosed(l.Close()) }
}

// ignoreClosed passes over what a part has closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
