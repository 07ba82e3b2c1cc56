package raftstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"rollcall/consistency"
)

// WaitApplied waits until this node has applied the log up to the index, which a
// [consistency.Request] has from the node that wrote, or for ctx.
func (s *Store) WaitApplied(ctx context.Context, index uint64) error {
	if err := s.fsm.index.wait(ctx, index, s.stopCh); err != nil {
		return fmt.Errorf("wait for log entry %d: %w", index, err)
	}
	return nil
}

// faultInterval is how often WaitShown looks at the disk.
const faultInterval = 250 * time.Millisecond

// WaitShown is WaitApplied for whoever has written and wants to read that here. A
// node whose disk takes nothing has no more to show, so there it does not wait.
func (s *Store) WaitShown(ctx context.Context, index uint64) error {
	for s.diskFault() == nil {
		waiting, cancel := context.WithTimeout(ctx, faultInterval)
		err := s.WaitApplied(waiting, index)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, consistency.ErrClosed) {
			return err
		}
	}
	return nil
}

// WaitConsistent waits until this node shows everything that was acknowledged, by
// any node, before the call, or for ctx, but no longer than WriteTimeout. It asks
// the leader.
func (s *Store) WaitConsistent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	patience := time.Now().Add(s.cfg.LeaderWait)
	for {
		index, err := s.readIndex(ctx)
		if err == nil {
			return s.WaitApplied(ctx, index)
		}
		// One that is asked as the leader and says that nobody leads may just have lost that.
		if !errors.Is(err, errNotAccepted) || errors.Is(err, consistency.ErrNoLeader) && time.Now().After(patience) {
			return err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-s.stopCh:
			return consistency.ErrClosed
		}
	}
}

// readIndex asks the leader, which may be this node. The error is errNotAccepted when
// the node that leads, as far as this one knows, has none to give.
func (s *Store) readIndex(ctx context.Context) (uint64, error) {
	index, err := s.ReadIndex(ctx)
	var redirect *consistency.RedirectError
	if err == nil || !errors.As(err, &redirect) || s.cfg.ReadIndex == nil {
		return index, err
	}
	asking, done := s.WhileLeads(ctx, redirect.Node)
	defer done()
	if index, err = s.cfg.ReadIndex(asking, redirect.Node); err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: ask %s for the read index: %w", errNotAccepted, redirect.Node, err)
	}
	return index, err
}

// ReadIndex returns an index of the log with this promise: whoever has applied the
// log up to there shows everything that was acknowledged before the call. On a
// node that does not lead it returns a *consistency.RedirectError or ErrNoLeader.
func (s *Store) ReadIndex(ctx context.Context) (uint64, error) {
	if err := s.awaitLeader(ctx, false); err != nil {
		return 0, err
	}
	q := &query{doneCh: make(chan result, 1)}
	select {
	case s.queryCh <- q:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.stopCh:
		return 0, consistency.ErrClosed
	}
	select {
	case r := <-q.doneCh:
		return r.index, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.stopCh:
		return 0, consistency.ErrClosed
	}
}

// query waits for a read index.
type query struct{ doneCh chan result }

// verify answers queries. Those that come while the followers are asked wait for
// the next round and share it.
func (s *Store) verify() {
	for {
		var round []*query
		select {
		case q := <-s.queryCh:
			round = append(round, q)
		case <-s.stopCh:
			return
		}
		for more := true; more; {
			select {
			case q := <-s.queryCh:
				round = append(round, q)
			default:
				more = false
			}
		}
		index, err := s.verifiedIndex()
		for _, q := range round {
			q.doneCh <- result{index, err}
		}
	}
}

// verifiedIndex returns what is applied here, once a majority has said that this
// node leads. Everything acknowledged before is among it: by this node because it
// applies before it acknowledges, by earlier leaders since establish.
func (s *Store) verifiedIndex() (uint64, error) {
	term := s.established.Load()
	if term == 0 || s.raft.CurrentTerm() != term {
		return 0, fmt.Errorf("%w: this node has just begun to lead or ceased to", errNotAccepted)
	}
	index := s.fsm.index.load()
	if err := s.raft.VerifyLeader().Error(); err != nil {
		if errors.Is(err, raft.ErrRaftShutdown) {
			return 0, consistency.ErrClosed
		}
		return 0, fmt.Errorf("%w: %w", errNotAccepted, err)
	}
	if s.raft.CurrentTerm() != term {
		return 0, fmt.Errorf("%w: this node ceased to lead", errNotAccepted)
	}
	return index, nil
}

// awaitReady makes the store ready once this node has applied everything that was
// committed before its start. Without a leader for StaleAfter it is ready with what
// it has, and goes on.
func (s *Store) awaitReady() {
	for {
		l, changedCh := s.currentLeader()
		switch {
		case s.refused() != nil:
		case s.caughtUp(l):
			s.setReady(readyComplete)
			services, instances := s.table.Counts()
			s.log.Info("raft is ready", "index", s.fsm.index.load(), "services", services, "instances", instances)
			return
		case l.id == "" && s.hasState() && s.leaderlessFor() >= s.cfg.StaleAfter && s.setReady(readyStale):
			s.log.Warn("there is no leader, persistent data is served as it was when this node stopped", "index", s.fsm.index.load())
		}
		var retryCh <-chan time.Time
		if l.id != "" {
			retryCh = time.After(retryDelay)
		} else if !s.Stale() {
			retryCh = time.After(max(retryDelay, s.cfg.StaleAfter-s.leaderlessFor()))
		}
		select {
		case <-changedCh:
		case <-retryCh:
		case <-s.stopCh:
			return
		}
	}
}

// caughtUp returns whether everything that was committed before is applied here. It
// may wait for that.
func (s *Store) caughtUp(l leader) bool {
	if l.self {
		return s.established.Load() == l.term
	}
	if l.id == "" {
		return false
	}
	if s.cfg.ReadIndex == nil { // there is nobody to ask, so what the leader has sent must do
		commit := s.raft.CommitIndex()
		return commit > 0 && commit == s.raft.LastIndex() && s.raft.AppliedIndex() == commit
	}
	return s.WaitConsistent(s.ctx) == nil
}

const (
	readyNot int32 = iota
	readyStale
	readyComplete
)

// setReady returns whether this is news.
func (s *Store) setReady(state int32) bool {
	if s.ready.Swap(state) == state {
		return false
	}
	s.changed()
	return true
}

func (s *Store) leaderlessFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader.id != "" {
		return 0
	}
	return time.Since(s.leaderlessSince)
}

// Stale returns whether the store serves what it had when it was stopped, because
// there was no leader since.
func (s *Store) Stale() bool { return s.ready.Load() == readyStale }

// Ready returns nil once everything that was committed before the start is applied
// here, or when there was no leader for StaleAfter since the start: see Stale.
func (s *Store) Ready() error {
	if err := s.refused(); err != nil {
		return fmt.Errorf("raft: %w: %w", consistency.ErrNotReady, err)
	}
	if s.ready.Load() != readyNot {
		return nil
	}
	return fmt.Errorf("raft: %w", consistency.ErrNotReady)
}
