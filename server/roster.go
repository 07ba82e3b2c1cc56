package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/server/wire"
)

// roster keeps what the other nodes say of themselves, by name. Membership tells
// who they are; what their stores hold, each tells itself.
type roster struct {
	others  func() []string // names of the nodes that are alive, without this one
	ask     func(ctx context.Context, node string) (*wire.StateReply, error)
	changed func() // called after a state changed
	log     *slog.Logger
	wakeCh  chan struct{}
	done    chan struct{}
	wg      sync.WaitGroup

	mu     sync.Mutex
	states map[string]*wire.StateReply
	at     map[string]time.Time // when they came
	asked  map[string]time.Time // when they were asked for
	mute   map[string]*mute     // who does not answer
}

// mute is a node that is alive and does not answer.
type mute struct {
	since  time.Time // when the first question without an answer was asked
	logged bool
}

// rosterEvery is how often every other node is asked, and rosterTimeout how long it
// may take to answer.
const (
	rosterEvery   = 500 * time.Millisecond
	rosterTimeout = time.Second
	rosterFresh   = 2 * time.Second
	rosterMute    = 5 * time.Second // until it is logged that a node does not answer
)

func newRoster(others func() []string, ask func(context.Context, string) (*wire.StateReply, error), log *slog.Logger) *roster {
	return &roster{
		others: others, ask: ask, changed: func() {}, log: log,
		wakeCh: make(chan struct{}, 1), done: make(chan struct{}),
		states: make(map[string]*wire.StateReply), at: make(map[string]time.Time), asked: make(map[string]time.Time),
		mute: make(map[string]*mute),
	}
}

func (r *roster) start() error {
	r.wg.Go(r.run)
	return nil
}

func (r *roster) close() error {
	close(r.done)
	r.wg.Wait()
	return nil
}

// wake asks for a look at once. It does not block.
func (r *roster) wake() {
	select {
	case r.wakeCh <- struct{}{}:
	default:
	}
}

// get returns what a node last said of itself, nil when it never did. The value is
// shared: do not alter it.
func (r *roster) get(node string) *wire.StateReply {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[node]
}

// fresh is get for a node that has answered lately; else nil.
func (r *roster) fresh(node string) *wire.StateReply {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at[node]) > rosterFresh {
		return nil
	}
	return r.states[node]
}

// reached tells whether every node that is alive has answered lately: what they know
// of clients has come through.
func (r *roster) reached() bool {
	return r.all(r.at, time.Now().Add(-rosterFresh))
}

// heardSince tells whether every node that is alive has answered a question that was
// asked since.
func (r *roster) heardSince(since time.Time) bool { return r.all(r.asked, since) }

// all tells whether the times of all nodes that are alive are not before one.
func (r *roster) all(times map[string]time.Time, since time.Time) bool {
	others := r.others()
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(others, func(node string) bool { return times[node].Before(since) })
}

// run is the roster's goroutine.
func (r *roster) run() {
	ticker := time.NewTicker(rosterEvery)
	defer ticker.Stop()
	for {
		r.look()
		select {
		case <-r.done:
			return
		case <-ticker.C:
		case <-r.wakeCh:
		}
	}
}

// look asks every other node, all at once.
func (r *roster) look() {
	ctx, cancel := context.WithTimeout(context.Background(), rosterTimeout)
	defer cancel()
	asked := time.Now()
	var mu sync.Mutex
	found := make(map[string]*wire.StateReply)
	failed := make(map[string]error)
	var asks sync.WaitGroup
	for _, node := range r.others() {
		asks.Go(func() {
			state, err := r.ask(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				found[node] = state
			} else {
				failed[node] = err
			}
		})
	}
	asks.Wait()
	now := time.Now()
	r.mu.Lock()
	r.noteMuteLocked(asked, now, found, failed)
	for node := range found {
		r.at[node], r.asked[node] = now, asked
	}
	changed := false
	for node, state := range found {
		if had := r.states[node]; had == nil || !sameStanding(had, state) {
			changed = true
		}
	}
	maps.Copy(r.states, found)
	r.mu.Unlock()
	if changed {
		r.changed()
	}
}

// noteMuteLocked logs who does not answer calls, though membership sees it, and who does
// again. Who has died is no longer asked.
func (r *roster) noteMuteLocked(asked, now time.Time, found map[string]*wire.StateReply, failed map[string]error) {
	maps.DeleteFunc(r.mute, func(node string, m *mute) bool {
		if m.logged && found[node] != nil {
			r.log.Info("a node answers calls again", "peer", node, "after", now.Sub(m.since).Round(time.Second))
		}
		return failed[node] == nil
	})
	for node, err := range failed {
		m := r.mute[node]
		if m == nil {
			m = &mute{since: asked}
			r.mute[node] = m
		}
		if !m.logged && now.Sub(m.since) >= rosterMute {
			m.logged = true
			r.log.Warn("a node is alive and does not answer calls: is its peer port open?", "peer", node, "err", err)
		}
	}
}

// sameStanding tells whether two states differ in nothing but how far the log goes and
// what ephemeral instances there are.
func sameStanding(a, b *wire.StateReply) bool {
	x, y := proto.CloneOf(a), proto.CloneOf(b)
	for _, s := range []*wire.StateReply{x, y} {
		s.Term, s.LastIndex, s.AppliedIndex, s.Leader, s.Role = 0, 0, 0, "", ""
		s.Holdings, s.Ready, s.Connections = nil, false, 0
		s.Stale, s.ReadOnly, s.Refused = false, "", ""
	}
	return proto.Equal(x, y)
}
