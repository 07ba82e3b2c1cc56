package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/consistency"
	"rollcall/distro"
	"rollcall/naming"
	"rollcall/push"
	"rollcall/raftstore"
	"rollcall/server/grpcapi"
	"rollcall/server/httpapi"
	"rollcall/server/wire"
)

// link ties this node's persistent store to the other nodes: membership says where
// they are, the roster what their stores hold, and peers asks them. The store
// needs them while it is being made, and they need the store: the functions of its
// configuration reach them here.
type link struct {
	members  *distro.Members
	peers    *peers
	outbox   *outbox
	roster   *roster
	registry *Registry
	engine   *push.Engine
	// clients are those of this node's gRPC front end.
	clients *grpcapi.Server
}

// life returns how this node goes.
func (l *link) life(n *Node, clients *grpcapi.Server, persistent *raftstore.Store, ephemeral *distro.Store) *life {
	r := n.registry
	r.reached, r.elected = l.reached(persistent), elected(persistent)
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

// voteTimeout is how long a node that has everything waits for its vote. It takes some
// seconds, or half a minute when it gets that of one that failed.
const voteTimeout = time.Minute

// elected returns a function that says whether a node that came with an empty disk still
// waits for its vote, or for the removal of the one whose place it took. Whoever replaces
// nodes one after the other goes on when this one says that it is ready: the next one that
// goes could take the majority along for good.
func elected(persistent *raftstore.Store) func() error {
	var once atomic.Bool
	var mu sync.Mutex
	var begin time.Time // when it was first asked
	return func() error {
		if once.Load() {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if begin.IsZero() {
			begin = time.Now()
		}
		if time.Since(begin) < voteTimeout {
			switch awaitsVote, lacksVoter := persistent.Electorate(); {
			case awaitsVote:
				return fmt.Errorf("%w: it has no vote yet, and the end of another node may take the majority along", consistency.ErrNotReady)
			case lacksVoter:
				return fmt.Errorf("%w: a node that votes is dead, and the end of another one may take the majority along", consistency.ErrNotReady)
			}
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
				Alive: !m.Leaving, Version: state.GetVersion(), Names: state.GetNames(),
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
	mc.Places = filepath.Join(n.cfg.DataDir, "members.json")
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
	l.outbox = newOutbox(l.peers.ask, store.WhileLeads)
	n.add("outbox", nil, l.outbox.close)
	n.add("peers", nil, l.peers.close)
	l.roster = newRoster(l.others, func(ctx context.Context, node string) (*wire.StateReply, error) {
		reply := new(wire.StateReply)
		return reply, l.peers.ask(ctx, node, "State", &wire.StateRequest{}, reply)
	}, n.log.With("component", "roster"))
	l.roster.changed = store.PeersChanged
	l.members.Listen(func(distro.Event) { l.roster.wake(); store.PeersChanged() })

	n.add("roster", l.roster.start, l.roster.close)
	return nil
}

// contactTime is how long a follower that was not heard of by its leader still
// counts as in contact with it.
const contactTime = 2 * time.Second

// led tells whether the store is in contact with a leader.
func led(persistent *raftstore.Store) func() bool {
	return func() bool {
		st := persistent.State()
		return st.LeaderName != "" && st.LastContact >= 0 && st.LastContact < contactTime
	}
}

// configureDistro gives the ephemeral store its nodes and its functions.
func (l *link) configureDistro(cfg *distro.Config, persistent *raftstore.Store) {
	cfg.Members = l.members
	cfg.InContact = led(persistent)
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
func (n *Node) serveNodes(l *link, persistent *raftstore.Store, ephemeral *distro.Store, state func(buckets bool) *wire.StateReply) error {
	*n.registry.nodes = ownership{
		owner: ephemeral.Owner, ask: l.peers.ask,
		// A node that is taken to be alive, but does not answer, may hear clients and
		// be unable to say so.
		mayExpire:  func() bool { return l.roster.reached() && ephemeral.MayExpire() },
		led:        led(persistent),
		heardSince: l.roster.heardSince, askAll: l.roster.wake,
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
		send:   l.outbox.send, timeout: forwardTimeout,
	}
}

// state is what this node tells the others of itself, with the digests of buckets or
// without.
func (n *Node) state(s raftstore.State, ephemeral *distro.Store, buckets bool, version string) *wire.StateReply {
	owners := ephemeral.State().Owners
	holdings := make([]*wire.Holding, len(owners))
	for k, o := range owners {
		holdings[k] = &wire.Holding{Node: o.Node, Boot: o.Boot, Instances: int64(o.Instances), Root: o.Root, Gone: o.Gone}
		if buckets {
			holdings[k].Buckets = ephemeral.Buckets(o.Node, o.Boot)
		}
	}
	names := make(map[string]string)
	for _, server := range s.Servers {
		if server.Name != "" {
			names[server.ID] = server.Name
		}
	}
	return &wire.StateReply{
		Holdings: holdings, Names: names, Ready: n.registry.Wanted() == nil, Connections: int32(n.registry.staying()),
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
	var last uint64
	for _, o := range out {
		if o.Role == string(raftstore.RoleLeader) {
			last = max(last, o.LastIndex)
		}
	}
	for k, o := range out {
		if o.Role != "unknown" {
			out[k].Lag = max(last, o.AppliedIndex) - o.AppliedIndex
		}
	}
	slices.SortFunc(out, func(a, b naming.NodeState) int { return strings.Compare(a.Name, b.Name) })
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
