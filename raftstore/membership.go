package raftstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"rollcall/consistency"
	"rollcall/naming"
)

// ErrOtherCluster means that the data folder belongs to other nodes than those that
// the membership shows.
var ErrOtherCluster = errors.New("the data folder belongs to another cluster")

// peersFile is within Dir: the names and addresses that were known last.
const peersFile = "nodes.json"

// Peer is what the membership knows of a node that runs a store.
type Peer struct {
	Name     string
	ID       string // server id; see [Store.ID]
	Addr     string // for Raft; see [Store.Addr]
	Expect   int
	HasState bool   // its Raft holds data
	Cluster  string // whose data it is; empty until known
	Alive    bool
	Version  string            // of the program
	Names    map[string]string // of servers, by id, as far as it remembers
}

// view is one look at the membership. It is immutable.
type view struct {
	peers []Peer // this node included
	byID  map[string]Peer
	known map[string]knownNode // by id; also those that the membership has forgotten
	away  map[string]time.Time // by id: not alive since then, as far as seen here
	since time.Time            // the expected nodes have been the same since then
}

// knownNode is what is remembered of a node.
type knownNode struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
}

func (v *view) peer(id string) (Peer, bool) {
	p, ok := v.byID[id]
	return p, ok
}

func (v *view) name(id string) string { return v.known[id].Name }

// told returns the name of a server that a peer remembers. A node that began with an empty
// disk never saw the one whose place it took.
func (v *view) told(id string) string {
	for _, p := range v.peers {
		if name := p.Names[id]; name != "" {
			return name
		}
	}
	return ""
}

func (s *Store) view() *view { return s.peers.Load() }

// PeersChanged tells that what Peers returns has changed. It does not block.
func (s *Store) PeersChanged() {
	select {
	case s.peersCh <- struct{}{}:
	default:
	}
}

// self is this node as its peers see it.
func (s *Store) self() Peer {
	return Peer{
		Name: s.cfg.Node, ID: string(s.id), Addr: s.Addr(), Expect: s.cfg.Expect,
		HasState: s.hasState(), Cluster: s.clusterID(), Alive: true,
	}
}

func (s *Store) hasState() bool { return s.raft.LastIndex() > 0 }

// clusterID returns the name of the nodes that share the data; empty when there
// is none yet.
func (s *Store) clusterID() string {
	if id := *s.fsm.cluster.Load(); id != "" {
		return id
	}
	return *s.storedCluster.Load()
}

// watchPeers looks at the membership when it has changed, and now and then.
func (s *Store) watchPeers() {
	ticker := time.NewTicker(s.cfg.PeersInterval)
	defer ticker.Stop()
	for {
		s.look()
		for _, ch := range []chan struct{}{s.viewedCh, s.manageCh} {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
		select {
		case <-s.peersCh:
		case <-ticker.C:
		case <-s.stopCh:
			return
		}
	}
}

// look takes a new view of the membership.
func (s *Store) look() {
	old, now := s.view(), time.Now()
	v := &view{byID: make(map[string]Peer), known: make(map[string]knownNode), away: make(map[string]time.Time)}
	self := s.self()
	v.peers = []Peer{self}
	if s.cfg.Peers != nil {
		for _, p := range s.cfg.Peers() {
			if p.ID != "" && p.ID != self.ID {
				v.peers = append(v.peers, p)
			}
		}
	}
	slices.SortFunc(v.peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range v.peers {
		if have, ok := v.byID[p.ID]; ok && have.Alive && !p.Alive {
			continue
		}
		v.byID[p.ID] = p
		v.known[p.ID] = knownNode{p.Name, p.Addr}
	}
	for _, server := range s.servers() {
		id := string(server.ID)
		if _, ok := v.known[id]; !ok {
			if have, ok := old.known[id]; ok {
				v.known[id] = have
			} else if name := v.told(id); name != "" {
				v.known[id] = knownNode{Name: name}
			}
		}
		if !v.byID[id].Alive {
			v.away[id] = now
			if since, ok := old.away[id]; ok {
				v.away[id] = since
			}
		}
	}
	v.since = now
	if slices.Equal(candidates(v, s.cfg.Expect), candidates(old, s.cfg.Expect)) {
		v.since = old.since
	}
	s.peers.Store(v)
	if s.cfg.Peers != nil && !maps.Equal(v.known, old.known) {
		if err := writeKnown(s.cfg.Dir, v.known); err != nil {
			s.log.Warn("the addresses of the nodes were not stored", "err", err)
		}
	}
}

// writeKnown stores what is remembered of the nodes. A loss does no harm unless the
// membership is lost as well.
func writeKnown(dir string, known map[string]knownNode) error {
	b, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, peersFile)
	if err := os.WriteFile(path+unfinished, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+unfinished, path)
}

// readKnown returns what was stored last; nothing when that cannot be read.
func readKnown(dir string) map[string]knownNode {
	known := make(map[string]knownNode)
	if b, err := os.ReadFile(filepath.Join(dir, peersFile)); err != nil || json.Unmarshal(b, &known) != nil {
		return make(map[string]knownNode)
	}
	return known
}

// candidates returns the ids of the nodes that may become the first voters, sorted.
func candidates(v *view, expect int) []string {
	var ids []string
	for _, p := range v.peers {
		if p.Alive && p.Expect == expect && !p.HasState {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// address returns where a server is dialed now: where the membership knows it or has
// known it last. Raft's configuration has no addresses, see configured.
func (s *Store) address(id raft.ServerID, stored raft.ServerAddress) raft.ServerAddress {
	if known := s.view().known[string(id)]; known.Addr != "" {
		return raft.ServerAddress(known.Addr)
	}
	return stored
}

// configured returns a server for Raft's configuration. In place of an address it
// has the id. The library wants addresses to be unique, so real ones would have to
// be changed in the right order when nodes move; and it changes that of a running
// peer without a lock.
func configured(suffrage raft.ServerSuffrage, id string) raft.Server {
	return raft.Server{Suffrage: suffrage, ID: raft.ServerID(id), Address: raft.ServerAddress(id)}
}

// manage does what this node owes to the others: begin the data with those that
// were expected, keep Raft's configuration in step with the membership while it
// leads, and notice a data folder that does not belong here.
func (s *Store) manage() {
	pilot := newPilot(s)
	defer pilot.stop()
	ticker := time.NewTicker(s.cfg.PeersInterval)
	defer ticker.Stop()
	for {
		l, changedCh := s.currentLeader()
		s.noteCluster()
		switch {
		case s.refused() != nil:
			pilot.stop()
		case !l.self:
			pilot.stop()
			s.beginTogether()
		case s.establish(l.term):
			s.nameCluster()
			s.adopt()
			pilot.start()
		}
		var retryCh <-chan time.Time
		if l.self && s.established.Load() != l.term {
			retryCh = time.After(retryDelay)
		} else if wait := s.beginsIn(); wait > 0 {
			retryCh = time.After(wait)
		}
		select {
		case <-changedCh:
		case <-s.manageCh:
		case <-retryCh:
		case <-ticker.C:
		case <-s.stopCh:
			return
		}
	}
}

// establish waits until everything that was committed before the term of our
// leadership is applied here. It returns whether we still lead in that term.
func (s *Store) establish(term uint64) bool {
	if s.established.Load() == term {
		return s.raft.State() == raft.Leader
	}
	if s.raft.Barrier(enqueueTimeout).Error() != nil || s.raft.CurrentTerm() != term {
		return false
	}
	s.established.Store(term)
	s.broadcast()
	return true
}

// beginsIn returns how long the expected nodes must still stay the same; 0 when
// nothing is to begin.
func (s *Store) beginsIn() time.Duration {
	v := s.view()
	if s.cfg.Expect <= 1 || s.hasState() || len(candidates(v, s.cfg.Expect)) < s.cfg.Expect {
		return 0
	}
	return max(0, time.Until(v.since.Add(s.cfg.BootstrapWait)))
}

// beginTogether makes the expected nodes the first voters when all are there and
// this one has the smallest id.
func (s *Store) beginTogether() {
	v := s.view()
	if s.cfg.Expect <= 1 || s.hasState() || time.Since(v.since) < s.cfg.BootstrapWait {
		return
	}
	if slices.ContainsFunc(v.peers, func(p Peer) bool { return p.Alive && p.HasState }) {
		return // these will take us in
	}
	ids := candidates(v, s.cfg.Expect)
	if len(ids) < s.cfg.Expect || ids[0] != string(s.id) {
		return
	}
	var c raft.Configuration
	var names []string
	for _, id := range ids[:s.cfg.Expect] {
		c.Servers = append(c.Servers, configured(raft.Voter, id))
		names = append(names, v.name(id))
	}
	if err := s.raft.BootstrapCluster(c).Error(); err != nil {
		s.log.Error("raft cannot begin, although the expected nodes are there", "peers", list(names), "err", err)
		return
	}
	s.log.Info("raft begins with the expected nodes", "peers", list(names))
	s.changed()
	s.PeersChanged()
	s.setTimings(standing{solo: true}) // a shortened timeout makes the library look for a leader at once
	s.setTimings(standing{})
}

// nameCluster commits a name for the nodes that share the data.
func (s *Store) nameCluster() {
	if *s.fsm.cluster.Load() != "" {
		return
	}
	id := *s.storedCluster.Load()
	if id == "" {
		id = newUUID()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.WriteTimeout)
	defer cancel()
	if err := s.submit(ctx, clusterOperation(id)); err != nil {
		s.log.Debug("the cluster is not named yet", "err", err)
	}
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// noteCluster keeps the name of the cluster in the stable store, so that it is
// known before the log is, and checks it against that of the peers.
func (s *Store) noteCluster() {
	applied, stored := *s.fsm.cluster.Load(), *s.storedCluster.Load()
	if applied != "" && applied != stored {
		if err := s.logs.Set([]byte(keyCluster), []byte(applied)); err != nil {
			s.log.Warn("the name of the cluster was not stored", "err", err)
		} else {
			s.storedCluster.Store(&applied)
			s.changed()
			s.PeersChanged()
		}
	}
	err := s.otherCluster()
	was := s.refusal.Swap(&err)
	switch {
	case err != nil && (was == nil || *was == nil):
		s.log.Error("persistent data is refused", "err", err)
		s.changed()
	case err == nil && was != nil && *was != nil:
		s.log.Info("persistent data is taken again")
		s.changed()
	}
}

// otherCluster returns an error when more of the peers, or as many and with a
// smaller name, belong to one other cluster than to ours.
func (s *Store) otherCluster() error {
	ours := s.clusterID()
	if ours == "" {
		return nil
	}
	nodes := make(map[string][]string)
	for _, p := range s.view().peers {
		if p.Alive && p.Cluster != "" {
			nodes[p.Cluster] = append(nodes[p.Cluster], p.Name)
		}
	}
	for _, theirs := range slices.Sorted(maps.Keys(nodes)) {
		if c := cmp.Compare(len(nodes[theirs]), len(nodes[ours])); theirs != ours && (c > 0 || c == 0 && theirs < ours) {
			return fmt.Errorf("%w: %s holds data of cluster %s, the nodes %s are cluster %s; "+
				"to join these, move the folder away and start with an empty one; else start this node with other addresses to join",
				ErrOtherCluster, s.cfg.Dir, ours, list(nodes[theirs]), theirs)
		}
	}
	return nil
}

// refused returns why this node takes no part in persistent data; nil when it does.
func (s *Store) refused() error {
	if err := s.fsm.failure(); err != nil {
		return err
	}
	if err := s.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// adopt takes the peers that are not in Raft's configuration in, without a vote. It
// is called while this node leads. A node with data that is not ours stays out.
func (s *Store) adopt() {
	if s.cfg.Peers == nil {
		return
	}
	ours := s.clusterID()
	for _, p := range s.view().peers {
		in := slices.ContainsFunc(s.servers(), func(o raft.Server) bool { return string(o.ID) == p.ID })
		if in || !p.Alive || p.Addr == "" || p.HasState && p.Cluster != ours || s.closed() {
			continue
		}
		server := configured(raft.Nonvoter, p.ID)
		if err := s.raft.AddNonvoter(server.ID, server.Address, 0, enqueueTimeout).Error(); err != nil {
			if !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, raft.ErrLeadershipLost) {
				s.log.Warn("raft does not take a node in", "peer", p.Name, "id", p.ID, "err", err)
			}
			return
		}
		s.log.Info("raft takes a node in", "peer", p.Name, "id", p.ID, "addr", p.Addr)
	}
}

// Remove takes a node that will not come back out of Raft, by its name or its id. It
// takes place on the leader; others return a *consistency.RedirectError. A node that
// is alive would be taken in again, so it is refused, as is one that Raft does not
// know: both with a *naming.InvalidError.
func (s *Store) Remove(ctx context.Context, node string) error {
	if err := s.awaitLeader(ctx, true); err != nil {
		return err
	}
	view := s.view()
	var alive bool
	for _, server := range s.servers() {
		id := string(server.ID)
		if id != node && view.name(id) != node {
			continue
		}
		if server.ID == s.id || view.byID[id].Alive { // a dead one may have had the same name
			alive = true
			continue
		}
		if err := s.raft.RemoveServer(server.ID, 0, enqueueTimeout).Error(); err != nil {
			if err = outcome(err); errors.Is(err, errNotAccepted) {
				err = fmt.Errorf("%w: %w", consistency.ErrNoLeader, err)
			}
			return fmt.Errorf("remove node %s: %w", node, err)
		}
		s.log.Info("raft removes a node, as it was told to", "peer", view.name(id), "id", id)
		return nil
	}
	if alive {
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "node", Text: "node " + node + " is alive and would be taken in again: stop it first"}
	}
	return &naming.InvalidError{Fault: naming.FaultResourceUnknown, Field: "node", Text: "raft has no node " + node + ": `rollcall node list` shows the nodes"}
}

// replaced returns whether a server that is not alive has a healthy successor: a
// living node of its name or at its address.
func (v *view) replaced(id string, healthy func(id string) bool) bool {
	was, ok := v.known[id]
	return ok && !v.byID[id].Alive && slices.ContainsFunc(v.peers, func(p Peer) bool {
		return p.Alive && p.ID != id && (p.Name == was.Name || p.Addr != "" && p.Addr == was.Addr) && healthy(p.ID)
	})
}

func (s *Store) closed() bool {
	select {
	case <-s.stopCh:
		return true
	default:
		return false
	}
}

// submit writes an operation of the store itself.
func (s *Store) submit(ctx context.Context, op *Operation) error {
	b, err := encodeOperation(op)
	if err != nil {
		return err
	}
	if _, err = s.batcher.submit(ctx, b); errors.Is(err, errNotAccepted) {
		err = fmt.Errorf("%w: %w", consistency.ErrNoLeader, err)
	}
	return err
}
