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
	asked  time.Time // when the last one was
	logged bool
}

const (
	rosterEvery   = time.Second            // how often every other node is asked
	rosterGap     = 100 * time.Millisecond // from a wake to its look, which serves all wakes of that time
	rosterTimeout = time.Second            // how long an answer may take
	rosterFresh   = 2500 * time.Millisecond
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

// wake asks for a look soon. It does not block.
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
			continue
		case <-r.wakeCh:
		}
		select {
		case <-r.done:
			return
		case <-time.After(rosterGap):
		}
	}
}

// look asks every other node, all at once, and returns when all have answered or their
// time is over.
func (r *roster) look() {
	ctx, cancel := context.WithTimeout(context.Background(), rosterTimeout)
	defer cancel()
	asked := time.Now()
	var asks sync.WaitGroup
	for _, node := range r.others() {
		asks.Go(func() {
			state, err := r.ask(ctx, node)
			if r.note(node, asked, state, err) {
				r.changed()
			}
		})
	}
	asks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.mute, func(_ string, m *mute) bool { return m.asked.Before(asked) }) // who has died is no longer asked
}

// note notes what came of a question, and tells whether it is news.
func (r *roster) note(node string, asked time.Time, state *wire.StateReply, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	m := r.mute[node]
	if err != nil {
		if m == nil {
			m = &mute{since: asked}
			r.mute[node] = m
		}
		m.asked = asked
		if !m.logged && now.Sub(m.since) >= rosterMute {
			m.logged = true
			r.log.Warn("a node is alive and does not answer calls: is its peer port open?", "peer", node, "err", err)
		}
		return false
	}
	if m != nil && m.logged {
		r.log.Info("a node answers calls again", "peer", node, "after", now.Sub(m.since).Round(time.Second))
	}
	delete(r.mute, node)
	had := r.states[node]
	r.states[node], r.at[node], r.asked[node] = state, now, asked
	return had == nil || !sameStanding(had, state)
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
