package raftstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

const (
	minVoters       = 3   // no dead server is removed if fewer remain
	maxBehind       = 250 // log entries that a healthy server may lack
	standInPatience = 6   // times PromoteAfter: a failed voter gives its vote to a healthy node
)

// pilot gives votes to nodes that have caught up and removes dead ones, by way of
// raft-autopilot. It runs while this node leads. Its methods start and stop are
// called by one goroutine.
type pilot struct {
	s       *Store
	auto    *autopilot.Autopilot
	running bool
}

func newPilot(s *Store) *pilot {
	p := &pilot{s: s}
	if s.cfg.Peers != nil {
		p.auto = autopilot.New(s.raft, p,
			autopilot.WithPromoter(p),
			autopilot.WithLogger(libraryLogger(s.log)),
			autopilot.WithUpdateInterval(s.cfg.PilotInterval),
			autopilot.WithReconcileInterval(s.cfg.PilotInterval),
		)
	}
	return p
}

func (p *pilot) start() {
	if p.auto != nil && !p.running {
		p.auto.Start(context.Background())
		p.running = true
	}
}

// stop returns when nothing of it runs any more.
func (p *pilot) stop() {
	if p.running {
		<-p.auto.Stop()
		p.running = false
		p.s.health.Store(nil)
	}
}

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (p *pilot) AutopilotConfig() *autopilot.Config {
	return &autopilot.Config{
		CleanupDeadServers:      true,
		LastContactThreshold:    p.s.cfg.HeartbeatTimeout,
		MaxTrailingLogs:         maxBehind,
		MinQuorum:               minVoters,
		ServerStabilizationTime: p.s.cfg.PromoteAfter,
	}
}

// NotifyState implements autopilot.ApplicationIntegration.
func (p *pilot) NotifyState(state *autopilot.State) { p.s.health.Store(state) }

// KnownServers implements autopilot.ApplicationIntegration. It lists what is in
// Raft's configuration, for a server that is not listed would be removed at once;
// the membership only tells which of them are alive.
func (p *pilot) KnownServers() map[raft.ServerID]*autopilot.Server {
	view := p.s.view()
	known := make(map[raft.ServerID]*autopilot.Server)
	for _, server := range p.s.servers() {
		peer, _ := view.peer(string(server.ID))
		k := &autopilot.Server{
			ID: server.ID, Name: view.name(string(server.ID)), Address: server.Address,
			NodeStatus: autopilot.NodeFailed, NodeType: autopilot.NodeVoter,
			Version: peer.Version, RaftVersion: int(raft.ProtocolVersionMax),
			IsLeader: server.ID == p.s.id,
		}
		if peer.Alive || server.ID == p.s.id {
			k.NodeStatus = autopilot.NodeAlive
		}
		known[server.ID] = k
	}
	return known
}

// FetchServerStats implements autopilot.ApplicationIntegration: it asks all servers
// at once.
func (p *pilot) FetchServerStats(ctx context.Context, servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := make(map[raft.ServerID]*autopilot.ServerStats)
	for id, server := range servers {
		if id != p.s.id && (p.s.cfg.Stats == nil || server.NodeStatus != autopilot.NodeAlive) {
			continue
		}
		wg.Go(func() {
			var stats autopilot.ServerStats
			var err error
			if id == p.s.id {
				stats.LastTerm, stats.LastIndex, stats.LastContact = p.s.Stats()
			} else {
				stats.LastTerm, stats.LastIndex, stats.LastContact, err = p.s.cfg.Stats(ctx, string(id))
			}
			if err != nil {
				stats.LastContact = -1 // never healthy
				p.s.log.Debug("a node does not tell its state", "peer", server.Name, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			all[id] = &stats
		})
	}
	wg.Wait()
	return all
}

// RemoveFailedServer implements autopilot.ApplicationIntegration. What comes here
// has passed FilterFailedServerRemovals.
func (p *pilot) RemoveFailedServer(server *autopilot.Server) {
	p.s.log.Info("raft removes a dead node", "peer", server.Name, "id", string(server.ID))
	if err := p.s.raft.RemoveServer(server.ID, 0, enqueueTimeout).Error(); err != nil {
		p.s.log.Warn("raft did not remove a dead node", "peer", server.Name, "id", string(server.ID), "err", err)
	}
}

// Electorate tells of a node that was started without data whether it will be given a vote
// and has none yet, as fewer nodes that are alive vote than may, and whether a node that
// votes is not alive, such as the one whose place this one took.
func (s *Store) Electorate() (awaitsVote, lacksVoter bool) {
	if s.cfg.Peers == nil || !s.blank {
		return false, false
	}
	view, alive, votes := s.view(), 0, false
	for _, server := range s.servers() {
		switch {
		case server.Suffrage != raft.Voter:
		case server.ID == s.id:
			votes = true
		case view.byID[string(server.ID)].Alive:
			alive++
		default:
			lacksVoter = true
		}
	}
	return !votes && alive < s.cfg.MaxVoters, lacksVoter
}

// GetServerExt implements autopilot.Promoter.
func (p *pilot) GetServerExt(*autopilot.Config, *autopilot.ServerState) any { return nil }

// GetStateExt implements autopilot.Promoter.
func (p *pilot) GetStateExt(*autopilot.Config, *autopilot.State) any { return nil }

// GetNodeTypes implements autopilot.Promoter.
func (p *pilot) GetNodeTypes(_ *autopilot.Config, state *autopilot.State) map[raft.ServerID]autopilot.NodeType {
	types := make(map[raft.ServerID]autopilot.NodeType, len(state.Servers))
	for id := range state.Servers {
		types[id] = autopilot.NodeVoter
	}
	return types
}

// IsPotentialVoter implements autopilot.Promoter.
func (p *pilot) IsPotentialVoter(t autopilot.NodeType) bool { return t == autopilot.NodeVoter }

// CalculatePromotionsAndDemotions implements autopilot.Promoter: healthy nodes get a
// vote while there are fewer than MaxVoters, and after a while that of a voter
// that has failed.
func (p *pilot) CalculatePromotionsAndDemotions(c *autopilot.Config, state *autopilot.State) autopilot.RaftChanges {
	now := time.Now()
	var voters int
	var healthy, failed []*autopilot.ServerState
	for _, server := range state.Servers {
		switch {
		case server.HasVotingRights():
			voters++
			if server.State != autopilot.RaftLeader && !server.Health.Healthy &&
				now.Sub(server.Health.StableSince) >= standInPatience*p.s.cfg.PromoteAfter {
				failed = append(failed, server)
			}
		case server.State == autopilot.RaftNonVoter && server.Health.IsStable(now, state.ServerStabilizationTime(c)):
			healthy = append(healthy, server)
		}
	}
	for _, list := range [][]*autopilot.ServerState{healthy, failed} {
		slices.SortFunc(list, func(a, b *autopilot.ServerState) int { return cmp.Compare(a.Server.ID, b.Server.ID) })
	}
	var changes autopilot.RaftChanges
	for _, server := range healthy {
		if voters >= p.s.cfg.MaxVoters {
			if len(failed) == 0 {
				break
			}
			changes.Demotions = append(changes.Demotions, failed[0].Server.ID)
			failed = failed[1:]
			voters--
		}
		changes.Promotions = append(changes.Promotions, server.Server.ID)
		voters++
	}
	return changes
}

// FilterFailedServerRemovals implements autopilot.Promoter: a server is removed when
// it was away for DeadAfter, or when another node has its name or its address and
// is healthy.
func (p *pilot) FilterFailedServerRemovals(_ *autopilot.Config, state *autopilot.State, failed *autopilot.FailedServers) *autopilot.FailedServers {
	view := p.s.view()
	healthy := func(id string) bool {
		s, ok := state.Servers[raft.ServerID(id)]
		return ok && s.Health.Healthy
	}
	keep := func(f *autopilot.Server) bool {
		since, away := view.away[string(f.ID)]
		return !away || time.Since(since) < p.s.cfg.DeadAfter && !view.replaced(string(f.ID), healthy)
	}
	return &autopilot.FailedServers{
		FailedNonVoters: slices.DeleteFunc(failed.FailedNonVoters, keep),
		FailedVoters:    slices.DeleteFunc(failed.FailedVoters, keep),
	}
}
