package raftstore

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Role is what a store is to Raft.
type Role string

// The roles.
const (
	RoleStopped   Role = "stopped"
	RoleFollower  Role = "follower"
	RoleCandidate Role = "candidate"
	RoleLeader    Role = "leader"
)

// State is what a store knows of itself and the others at one moment.
type State struct {
	Node, ID, Addr string
	Cluster        string // the id of the nodes that share the data; empty until known
	Expect         int
	HasState       bool // there is data in Raft's log or snapshots
	Role           Role
	Voter          bool
	Term           uint64
	LastIndex      uint64
	CommitIndex    uint64
	AppliedIndex   uint64
	Leader         string        // its id; empty when unknown
	LeaderName     string        // its name; empty when unknown
	LastContact    time.Duration // since the leader was heard, 0 on the leader; negative: never
	Stale          bool          // see [Store.Stale]
	ReadOnly       error         // why this node's disk takes no data; nil when it does
	Refused        error         // why this node takes no part, see [ErrOtherCluster]; nil when it does
	Servers        []Server      // Raft's configuration, sorted by name, then by id
}

// Server is one node in Raft's configuration.
type Server struct {
	ID, Name, Addr string // Name is empty when the membership never knew it
	Voter          bool
	Alive          bool // as the membership says
	Healthy        bool // alive and caught up; known on the leader alone
	LagKnown       bool
	Lag            uint64 // log entries that it lacks; known on the leader alone
}

// State returns the present state. It does not block. Before Start only the names
// are set.
func (s *Store) State() State {
	st := State{Node: s.cfg.Node, ID: string(s.id), Addr: s.Addr(), Expect: s.cfg.Expect, Role: RoleStopped, Cluster: s.clusterID()}
	s.mu.Lock()
	node, l := s.raft, s.leader
	s.mu.Unlock()
	if node == nil {
		return st
	}
	st.Term, st.LastIndex, st.CommitIndex, st.AppliedIndex = node.CurrentTerm(), node.LastIndex(), node.CommitIndex(), max(node.AppliedIndex(), s.fsm.index.load())
	st.HasState = st.LastIndex > 0
	st.Leader, st.LeaderName = string(l.id), l.node
	st.LastContact = lastContact(node)
	st.Stale, st.ReadOnly, st.Refused = s.Stale(), s.diskFault(), s.refused()
	switch node.State() {
	case raft.Follower:
		st.Role = RoleFollower
	case raft.Candidate:
		st.Role = RoleCandidate
	case raft.Leader:
		st.Role = RoleLeader
	case raft.Shutdown:
	}
	view, health := s.view(), s.health.Load()
	for _, server := range s.servers() {
		o := Server{
			ID: string(server.ID), Name: view.name(string(server.ID)), Addr: string(s.address(server.ID, server.Address)),
			Voter: server.Suffrage == raft.Voter, Alive: server.ID == s.id || view.byID[string(server.ID)].Alive,
		}
		if server.ID == s.id {
			st.Voter = o.Voter
		}
		if health != nil {
			if h := health.Servers[server.ID]; h != nil {
				o.Healthy = h.Health.Healthy
				o.LagKnown = h.Stats.LastIndex > 0
				o.Lag = max(st.LastIndex, h.Stats.LastIndex) - h.Stats.LastIndex
			}
		}
		st.Servers = append(st.Servers, o)
	}
	slices.SortFunc(st.Servers, func(a, b Server) int {
		return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID)
	})
	return st
}

// Stats returns what the leader asks every node for, by way of the Stats function
// of the configuration: the term and the index of the last log entry, and how long
// ago the leader was heard (0 on the leader, negative: never).
func (s *Store) Stats() (term, lastIndex uint64, sinceContact time.Duration) {
	s.mu.Lock()
	node := s.raft
	s.mu.Unlock()
	if node == nil {
		return 0, 0, -1
	}
	term, _ = strconv.ParseUint(node.Stats()["last_log_term"], 10, 64)
	return term, node.LastIndex(), lastContact(node)
}

func lastContact(node *raft.Raft) time.Duration {
	if node.State() == raft.Leader {
		return 0
	}
	last := node.LastContact()
	if last.IsZero() {
		return -1
	}
	return time.Since(last)
}
