package distro

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Bounds of the messages that wait to be merged. What does not fit is dropped: a
// gap is asked for, the rest is repeated.
const (
	inboxLength = 4096
	inboxBytes  = 64 << 20
)

// inbox holds messages of other nodes until they are merged.
type inbox struct {
	ch      chan letter
	bytes   *atomic.Int64
	dropped *atomic.Uint64
}

type letter struct {
	from    string
	payload []byte
}

func newInbox() inbox {
	return inbox{ch: make(chan letter, inboxLength), bytes: new(atomic.Int64), dropped: new(atomic.Uint64)}
}

// put takes a message; it does not block.
func (i inbox) put(from string, payload []byte) {
	size := int64(len(payload))
	if i.bytes.Add(size) <= inboxBytes {
		select {
		case i.ch <- letter{from, payload}:
			return
		default:
		}
	}
	i.bytes.Add(-size)
	i.dropped.Add(1)
}

// merge is the goroutine that takes the messages of other nodes.
func (s *Store) merge() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case l := <-s.inbox.ch:
			s.inbox.bytes.Add(-int64(len(l.payload)))
			m, err := decodeMessage(l.from, l.payload)
			if err != nil {
				s.metrics.malformed.Inc()
				s.log.Debug("message dropped", "peer", l.from, "err", err)
				continue
			}
			s.listen(m)
			s.mu.Lock()
			s.core.handle(s.now(), l.from, m)
			s.unlock()
		}
	}
}

// maxAheadTime is how far another node's clock may be ahead without a warning.
const maxAheadTime = 10 * time.Second

// listen notes which of the clients that another node holds to be silent are heard
// here.
func (s *Store) listen(m *message) {
	if s.cfg.Live == nil {
		return
	}
	for n := range m.datums {
		if d := &m.datums[n]; d.inferred && isAddress(d.publisher) && (d.tombstone || !d.instance.Healthy) {
			d.heard = s.cfg.Live(d.service, d.publisher)
		}
	}
}

// tick is the goroutine for what time calls for.
func (s *Store) tick() {
	ticker := time.NewTicker(tickTime)
	defer ticker.Stop()
	end := s.now().Add(s.cfg.LoadTimeout)
	var aheadSince time.Time
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		now := s.now()
		before := s.core.calmAt
		s.core.tick(now)
		paused := s.core.calmAt.After(before)
		late := !s.core.loaded && now.After(end)
		if late {
			s.core.loaded = true
		}
		ahead := s.core.ahead()
		s.unlock()
		if ahead > maxAheadTime && now.Sub(aheadSince) > time.Hour {
			aheadSince = now
			s.log.Warn("the clocks of the nodes differ: of what happens on two nodes at the same time the older may win", "ahead", ahead)
		}
		if late {
			s.log.Warn("the other nodes' data did not arrive in time: this node serves what it has", "timeout", s.cfg.LoadTimeout)
		}
		if paused {
			s.log.Warn("this process was paused: it decides nothing about other nodes for a while", "time", s.cfg.Grace)
		}
	}
}

// observe hears of changes among the members.
func (s *Store) observe(e Event) {
	if s.state.Load() == closed {
		return
	}
	s.mu.Lock()
	m, ok := s.cfg.Members.Get(e.Member.Name) // the present state, whoever comes last
	if !ok {
		m = e.Member
		m.Alive = false
	}
	s.core.observe(s.now(), m)
	x := s.senders[m.Name]
	switch {
	case m.Alive && x == nil && s.ctx.Err() == nil:
		x = &sender{name: m.Name, wakeCh: make(chan struct{}, 1)}
		x.ctx, x.cancel = context.WithCancel(s.ctx)
		s.senders[m.Name] = x
		s.wg.Go(func() { s.send(x) })
	case !m.Alive && x != nil:
		x.cancel()
		delete(s.senders, m.Name)
	}
	s.unlock()
	if e.Kind == Died && s.cfg.Refused != nil {
		select {
		case s.proofCh <- m:
		default:
		}
	}
}

// sender is what sends to one peer that is alive.
type sender struct {
	name   string
	wakeCh chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	busy   bool // a message is under way; guarded by the store's mu

	// Since when nothing reaches it; used by its goroutine alone.
	unsentSince  time.Time
	unsentLogged bool
}

// wake is called by the core.
func (s *Store) wake(name string) {
	if x := s.senders[name]; x != nil {
		select {
		case x.wakeCh <- struct{}{}:
		default:
		}
	}
}

// Waiting times after a message that could not be sent.
const (
	firstBackoff = 20 * time.Millisecond
	maxBackoff   = time.Second
)

// send is the goroutine that sends to one peer. A peer that takes nothing holds up
// nobody else, and what waits for it takes no room.
func (s *Store) send(x *sender) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	backoff := firstBackoff
	for x.ctx.Err() == nil {
		s.mu.Lock()
		p := s.core.peers[x.name]
		out, again := s.core.next(s.now(), p)
		x.busy = out.message != nil
		s.mu.Unlock()
		if out.message != nil {
			began := time.Now()
			err := s.cfg.Members.Send(x.ctx, x.name, out.message)
			if s.logSending(x, began, err); err == nil {
				backoff = firstBackoff
				continue
			}
			s.mu.Lock()
			s.core.failed(p, out)
			s.mu.Unlock()
			again = backoff
			backoff = min(2*backoff, maxBackoff)
		} else if again > 0 {
			timer.Reset(again)
			select {
			case <-timer.C:
			case <-x.wakeCh:
			case <-x.ctx.Done():
			}
			continue
		}
		if again == 0 {
			select {
			case <-x.wakeCh:
			case <-x.ctx.Done():
			}
			continue
		}
		timer.Reset(again) // after a failure only time helps
		select {
		case <-timer.C:
		case <-x.ctx.Done():
		}
	}
}

// unsentTime is how long nothing reaches a node that is alive until that is logged.
const unsentTime = 5 * time.Second

// logSending logs that nothing reaches a node, though it is alive, and that something
// does again.
func (s *Store) logSending(x *sender, began time.Time, err error) {
	switch {
	case err == nil:
		if x.unsentLogged {
			s.log.Info("changes reach a node again", "peer", x.name, "after", time.Since(x.unsentSince).Round(time.Second))
		}
		x.unsentSince, x.unsentLogged = time.Time{}, false
		return
	case x.ctx.Err() != nil: // it is gone, or this node ends
		return
	case x.unsentSince.IsZero():
		x.unsentSince = began
	}
	if !x.unsentLogged && time.Since(x.unsentSince) >= unsentTime {
		x.unsentLogged = true
		s.log.Warn("a node is alive and no changes reach it: is its gossip port open for TCP?", "peer", x.name, "err", err)
	}
}

// localRoots is what this node tells in an exchange.
func (s *Store) localRoots(bool) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.rootsFor(nil)
}

// Attempts to prove that a node is dead.
const (
	proofInterval = time.Second
	proofAttempts = 10
)

// prove is the goroutine that asks the ports of members which died.
func (s *Store) prove() {
	type suspect struct {
		Member
		attempts int
	}
	var suspects []suspect
	timer := time.NewTimer(proofInterval)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case m := <-s.proofCh:
			suspects = append(suspects, suspect{Member: m})
		case <-timer.C:
		}
		suspects = slices.DeleteFunc(suspects, func(x suspect) bool {
			m, ok := s.cfg.Members.Get(x.Name)
			return !ok || m.Alive || m.Boot != x.Boot || x.attempts >= proofAttempts
		})
		for n := range suspects {
			x := &suspects[n]
			x.attempts++
			ctx, cancel := context.WithTimeout(s.ctx, proofInterval)
			if s.cfg.Refused(ctx, x.Member) {
				s.refused(origin{x.Name, x.Boot})
			}
			cancel()
		}
		timer.Reset(proofInterval)
	}
}

// refused notes that a dead member's port was refused, and tells the others.
func (s *Store) refused(id origin) {
	s.mu.Lock()
	defer s.unlock()
	c := s.core
	c.at(s.now())
	c.refusal(id, s.cfg.Node)
	for _, p := range c.alive {
		c.send(p, encodeRefused(id))
	}
}
