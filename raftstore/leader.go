package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"rollcall/consistency"
)

// leader says who leads. The zero value is nobody.
type leader struct {
	self bool
	id   raft.ServerID
	term uint64 // of our own leadership; 0 when another node leads
	node string // its name; empty while the membership does not know it
}

// watchLeader keeps what is known of the leader, and the timings, up to date. It
// reads the state anew at each observation, so dropped ones do no harm.
func (s *Store) watchLeader(observationCh <-chan raft.Observation) {
	var place standing
	for {
		s.noteLeader()
		place = s.adjustTimings(place)
		select {
		case <-observationCh:
		case <-s.viewedCh:
		case <-s.configuredCh:
		case <-s.stopCh:
			return
		}
	}
}

func (s *Store) noteLeader() {
	var now leader
	term := s.raft.CurrentTerm()
	if _, id := s.raft.LeaderWithID(); s.raft.State() == raft.Leader {
		now = leader{self: true, id: s.id, term: term, node: s.cfg.Node}
	} else if id != s.id && id != "" { // our own id stands there for a moment after we stepped down
		now = leader{id: id, node: s.view().name(string(id))}
		if s.cfg.Peers == nil {
			now.node = string(id)
		}
	}
	s.mu.Lock()
	was := s.leader
	if was != now {
		s.leader = now
		if now.id == "" {
			s.leaderlessSince = time.Now()
		}
		close(s.changedCh)
		s.changedCh = make(chan struct{})
		s.unled()
		s.led, s.unled = context.WithCancel(s.ctx)
	}
	s.mu.Unlock()
	if was.id != now.id || was.self != now.self || was.term != now.term {
		s.log.Info("raft leader changed", "leader", string(now.id), "peer", now.node, "self", now.self, "term", term)
		s.changed()
	}
}

// changed tells that others see this node differently now.
func (s *Store) changed() {
	if s.cfg.Changed != nil {
		s.cfg.Changed()
	}
}

// standing is what the timings depend on.
type standing struct {
	solo  bool // the only voter
	leads bool // or did, and has heard of no other leader since
}

// leadFactor is how much longer a leader's timeouts are: it sends a heartbeat in a tenth
// to a fifth of its own.
const leadFactor = 2

// adjustTimings gives the only voter its shorter timeouts and takes them away when
// there are others. A follower's shorter timeout takes effect at once: so the
// only voter of a fresh start leads within milliseconds rather than timeouts. For the
// same reason one that does not lead any more keeps the longer ones until another leads:
// it may have lost its place because it hangs, and shall not be the first to ask for
// votes.
func (s *Store) adjustTimings(was standing) standing {
	voters := s.voters()
	l, _ := s.currentLeader()
	now := standing{solo: len(voters) == 1 && voters[0] == s.id, leads: l.self || was.leads && l.id == ""}
	if now != was {
		s.setTimings(now)
	}
	return now
}

func (s *Store) setTimings(place standing) {
	c := s.raft.ReloadableConfig()
	c.HeartbeatTimeout, c.ElectionTimeout = s.cfg.HeartbeatTimeout, s.cfg.ElectionTimeout
	switch {
	case place.solo:
		c.HeartbeatTimeout, c.ElectionTimeout = s.cfg.SoloTimeout, s.cfg.SoloTimeout
	case place.leads:
		c.HeartbeatTimeout, c.ElectionTimeout = leadFactor*c.HeartbeatTimeout, leadFactor*c.ElectionTimeout
	}
	if err := s.raft.ReloadConfig(c); err != nil {
		s.log.Error("raft refuses its timings", "err", err)
	}
}

// servers returns Raft's configuration as far as known here; the slice is the
// caller's.
func (s *Store) servers() []raft.Server {
	return slices.Clone(s.raft.GetConfiguration().Configuration().Servers)
}

// voters returns the ids of the servers that vote, as far as known here.
func (s *Store) voters() []raft.ServerID {
	var ids []raft.ServerID
	for _, server := range s.servers() {
		if server.Suffrage == raft.Voter {
			ids = append(ids, server.ID)
		}
	}
	return ids
}

// alone returns whether no other node can lead.
func (s *Store) alone() bool {
	s.mu.Lock()
	node := s.raft
	s.mu.Unlock()
	if node == nil {
		return false
	}
	voters := s.voters()
	return len(voters) == 1 && voters[0] == s.id
}

// WhileLeads returns a context that ends with ctx, and as soon as another node than
// the named one is known to lead, or none. It is for questions to the leader: one that
// is frozen never answers. The function must be called when the answer is there.
func (s *Store) WhileLeads(ctx context.Context, node string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	led, leads := s.led, s.leader.node == node
	s.mu.Unlock()
	if !leads {
		cancel()
	}
	stop := context.AfterFunc(led, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// broadcast wakes whoever waits for a change of the leader.
func (s *Store) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changedCh)
	s.changedCh = make(chan struct{})
}

func (s *Store) currentLeader() (leader, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.changedCh
}

// awaitLeader returns nil once this node leads, a *consistency.RedirectError when
// another one does, and else an error when the wait is over. A write needs a disk that
// takes it.
func (s *Store) awaitLeader(ctx context.Context, toWrite bool) error {
	var timeoutCh <-chan time.Time
	for {
		l, changedCh := s.currentLeader()
		select {
		case <-s.stopCh:
			return consistency.ErrClosed
		default:
		}
		fault := s.diskFault()
		switch {
		case toWrite && fault != nil && (l.self || l.id == "" && s.alone()):
			return fmt.Errorf("%w: %w", consistency.ErrReadOnly, fault)
		case l.self:
			return nil
		case l.node != "":
			return &consistency.RedirectError{Node: l.node}
		}
		if timeoutCh == nil {
			timer := time.NewTimer(s.cfg.LeaderWait)
			defer timer.Stop()
			timeoutCh = timer.C
		}
		select {
		case <-changedCh:
		case <-s.stopCh:
		case <-timeoutCh:
			return s.noLeader()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", s.noLeader(), ctx.Err())
		}
	}
}

// noLeader returns ErrNoLeader with who is known and who of them can be reached.
func (s *Store) noLeader() error {
	s.mu.Lock()
	node, l := s.raft, s.leader
	s.mu.Unlock()
	if node == nil {
		return consistency.ErrNoLeader
	}
	view := s.view()
	if l.id != "" && l.node == "" {
		return fmt.Errorf("%w: server %s leads, and the membership does not know it", consistency.ErrNoLeader, l.id)
	}
	var voters, reachable []string
	for _, server := range s.servers() {
		if server.Suffrage != raft.Voter {
			continue
		}
		p, known := view.peer(string(server.ID))
		name := view.name(string(server.ID))
		if name == "" {
			name = string(server.ID)
		}
		voters = append(voters, name)
		if server.ID == s.id || known && p.Alive {
			reachable = append(reachable, name)
		}
	}
	if len(voters) > 0 {
		return fmt.Errorf("%w: %d of the voting nodes %s are needed, reachable: %s",
			consistency.ErrNoLeader, len(voters)/2+1, list(voters), list(reachable))
	}
	var others []string
	for _, p := range view.peers {
		if p.Alive && p.ID != string(s.id) {
			others = append(others, p.Name)
		}
	}
	return fmt.Errorf("%w: this node has no persistent data yet, expects %d nodes to begin and reaches: %s",
		consistency.ErrNoLeader, s.cfg.Expect, list(others))
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// StepDown hands leadership to another voter, if this node leads and there is one.
// It returns within an election timeout for each of them; an error says that this
// node still leads.
func (s *Store) StepDown() error {
	s.mu.Lock()
	node := s.raft
	s.mu.Unlock()
	if node == nil || len(s.voters()) < 2 {
		return nil
	}
	var faults []error
	for _, to := range s.successors() {
		if node.State() != raft.Leader {
			return nil
		}
		err := node.LeadershipTransferToServer(to.ID, to.Address).Error()
		if err == nil || errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrRaftShutdown) {
			return nil
		}
		faults = append(faults, fmt.Errorf("hand leadership over to server %s: %w", to.ID, err))
	}
	if node.State() != raft.Leader {
		return nil
	}
	return errors.Join(append(faults, errors.New("no other voter took leadership over"))...)
}

// successors returns the other voters that can be reached, those first that lack
// least.
func (s *Store) successors() []raft.Server {
	view, health := s.view(), s.health.Load()
	lag := func(server raft.Server) uint64 {
		if health == nil || health.Servers[server.ID] == nil || !health.Servers[server.ID].Health.Healthy {
			return math.MaxUint64
		}
		return math.MaxUint64 - 1 - health.Servers[server.ID].Stats.LastIndex
	}
	servers := slices.DeleteFunc(s.servers(), func(server raft.Server) bool {
		away := s.cfg.Peers != nil && !view.byID[string(server.ID)].Alive
		return server.ID == s.id || server.Suffrage != raft.Voter || away || !s.transport.reached(server.ID)
	})
	slices.SortStableFunc(servers, func(a, b raft.Server) int { return cmp.Compare(lag(a), lag(b)) })
	return servers
}
