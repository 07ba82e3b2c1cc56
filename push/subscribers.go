package push

import (
	"slices"
	"strings"
	"sync"
	"time"

	"rollcall/naming"
)

// Peer describes a subscriber to operators.
type Peer struct {
	ID    string // of the client, unique among all
	IP    string
	Port  int    // of a UDP client; 0 for gRPC
	Agent string // as the client calls itself
	App   string
}

// Subscription is that of one client to a service.
type Subscription struct {
	Peer
	Clusters string // that it asked for; empty: all
}

// Policy is how one kind of subscriber acknowledges.
type Policy struct {
	Transport string        // label of the metrics
	Ack       time.Duration // time to acknowledge
	Retry     time.Duration // pause before a repeat
	Sends     int           // how often a push is sent at the most; 0: until it is acknowledged
	// SameSeq repeats an unchanged push under its old number.
	SameSeq bool
}

// Subscriber is one connection or UDP client. Its methods are safe for
// concurrent use, except that only one goroutine may call Next.
type Subscriber struct {
	engine *Engine
	peer   Peer
	policy Policy
	wake   func()

	mu            sync.Mutex
	subscriptions map[*view]*subscription
	queue         []*subscription
	inFlight      map[uint64]*subscription
	closed        bool
}

// subscription is one view that a subscriber wants. Its fields below view are guarded
// by the subscriber's mutex. There are many: it is kept small.
type subscription struct {
	subscriber *Subscriber
	view       *view

	sent     *naming.ServiceInfo // what was sent last; nil: nothing
	sentAt   time.Duration       // since the engine's begin
	seq      uint64              // of the push in flight or, to be repeated, of the last one; 0: none
	failed   uint64              // the push that is to be repeated; 0: none
	sends    int32               // of what is in sent
	queued   bool
	fresh    bool // its first push is still to come; until then there is no other
	force    bool // send even if the view did not change
	repeat   bool // the last push was not acknowledged
	finished bool
}

// Push is one message for a subscriber.
type Push struct {
	Seq     uint64 // names the push in its acknowledgement
	Service naming.ServiceKey
	Info    *naming.ServiceInfo
}

// maxPeerText bounds each text that a client says of itself, in bytes.
const maxPeerText = 256

// NewSubscriber adds a subscriber without subscriptions. wake is called when it
// has something to send: it must not block, and may be called more often than
// needed and from any goroutine.
func (e *Engine) NewSubscriber(peer Peer, policy Policy, wake func()) *Subscriber {
	for _, text := range []*string{&peer.IP, &peer.Agent, &peer.App} {
		if len(*text) > maxPeerText {
			*text = strings.ToValidUTF8((*text)[:maxPeerText], "")
		}
	}
	return &Subscriber{
		engine: e, peer: peer, policy: policy, wake: wake,
		subscriptions: make(map[*view]*subscription),
		inFlight:      make(map[uint64]*subscription),
	}
}

// Subscribe records the subscription; subscribing again changes nothing. The
// caller reads the answer afterwards.
func (s *Subscriber) Subscribe(svc naming.ServiceKey, f naming.Filter) {
	e := s.engine
	if s.has(e.find(svc, f)) {
		return
	}
	e.mu.Lock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		e.mu.Unlock()
		return
	}
	v := e.viewLocked(svc, f)
	x := s.subscriptions[v]
	added := x == nil
	if added {
		x = &subscription{subscriber: s, view: v, fresh: true, force: true}
		s.subscriptions[v] = x
		v.topic.subscriptions[x] = struct{}{}
		v.subscriptions++
	}
	s.mu.Unlock()
	e.mu.Unlock()
	if added {
		e.agenda.firstAt(time.Now().Add(e.cfg.First), x)
	}
}

// has tells whether the subscriber has a subscription to a view, which may be nil.
func (s *Subscriber) has(v *view) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscriptions[v] != nil
}

// Unsubscribe removes the subscription; an unknown one is ignored.
func (s *Subscriber) Unsubscribe(svc naming.ServiceKey, f naming.Filter) {
	v := s.engine.find(svc, f)
	s.mu.Lock()
	x := s.subscriptions[v]
	if x != nil {
		delete(s.subscriptions, v)
		s.finishLocked(x)
	}
	s.mu.Unlock()
	if x != nil {
		s.engine.leave(x)
	}
}

// Close removes all subscriptions. Next returns false from then on.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.closed = true
	gone := s.subscriptions
	s.subscriptions, s.queue = nil, nil
	for _, x := range gone {
		s.finishLocked(x)
	}
	s.mu.Unlock()
	for _, x := range gone {
		s.engine.leave(x)
	}
}

func (s *Subscriber) finishLocked(x *subscription) {
	x.finished = true
	if x.seq != 0 {
		delete(s.inFlight, x.seq)
	}
	if n := slices.Index(s.queue, x); n >= 0 {
		s.queue = slices.Delete(s.queue, n, n+1)
	}
}

// failLocked takes back a push that was refused or not acknowledged, and tells
// whether it is to be repeated.
func (s *Subscriber) failLocked(x *subscription, seq uint64) (repeat bool) {
	delete(s.inFlight, seq)
	repeat = s.policy.Sends == 0 || int(x.sends) < s.policy.Sends
	if repeat {
		x.failed = seq
	}
	if !repeat || !s.policy.SameSeq {
		x.seq = 0
	}
	return repeat
}

// Next returns the next push to send; ok is false when there is none. The push
// must be sent before the next call.
func (s *Subscriber) Next() (p Push, ok bool) {
	for {
		s.mu.Lock()
		if s.engine.paused.Load() {
			s.mu.Unlock()
			return Push{}, false
		}
		if len(s.queue) == 0 {
			s.queue = nil
			s.mu.Unlock()
			return Push{}, false
		}
		x := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		x.queued = false
		svc := x.view.topic.key
		s.mu.Unlock()

		info := s.engine.source.ServiceInfo(svc, x.view.filter)

		s.mu.Lock()
		if x.finished || info == x.sent && !x.force {
			s.mu.Unlock()
			continue
		}
		seq := x.seq
		if x.repeat && s.policy.SameSeq && info == x.sent {
			x.sends++
		} else {
			if seq != 0 {
				delete(s.inFlight, seq)
			}
			seq = s.engine.seq.Add(1)
			x.sends = 1
		}
		x.sent, x.seq, x.sentAt = info, seq, time.Since(s.engine.begin)
		x.force, x.repeat, x.failed = false, false, 0
		s.inFlight[seq] = x
		s.mu.Unlock()

		s.engine.metrics.sent.WithLabelValues(s.policy.Transport).Inc()
		s.engine.expectAck(x, seq)
		return Push{Seq: seq, Service: svc, Info: info}, true
	}
}

// Ack reports the client's answer to a push. Answers to pushes that are unknown,
// answered, or superseded by a newer one are ignored.
func (s *Subscriber) Ack(seq uint64, ok bool) {
	s.mu.Lock()
	x := s.inFlight[seq]
	if x == nil {
		s.mu.Unlock()
		return
	}
	if !ok {
		repeat := s.failLocked(x, seq)
		s.mu.Unlock()
		s.engine.failed(x, seq, repeat)
		return
	}
	delete(s.inFlight, seq)
	x.seq = 0
	took := time.Since(s.engine.begin) - x.sentAt
	s.mu.Unlock()
	s.engine.counts.note(true, took)
	s.engine.metrics.acked.WithLabelValues(s.policy.Transport).Inc()
	s.engine.metrics.latency.WithLabelValues(s.policy.Transport).Observe(took.Seconds())
}

// enqueue puts the subscription into the queue, unless it stands there.
func (s *Subscriber) enqueue(x *subscription) {
	s.mu.Lock()
	if x.finished || x.queued {
		s.mu.Unlock()
		return
	}
	x.queued = true
	s.queue = append(s.queue, x)
	s.mu.Unlock()
	s.wake()
}
