package client

import (
	"context"
	"fmt"
	"sync"

	"rollcall/naming"
)

// Subscription is the interest in one service's changes. Its methods are safe for
// concurrent use.
type Subscription struct {
	client *Client
	entry  *entry
	filter naming.Filter
	fn     func(Change)
	ch     chan Change // nil with fn

	mu     sync.Mutex
	told   bool
	seen   []*naming.Instance // what was told last
	base   []*naming.Instance // ch: what the change that lies in it is a difference to
	first  bool               // ch: that change is the first one
	closed bool
	turn   turn
}

// teller is what has something to tell the application: a subscription or a watch.
type teller interface {
	tell() // one call at a time
	place() *turn
}

// turn is a teller's place in the delivery, guarded by its mutex.
type turn struct{ queued, running, again bool }

func (s *Subscription) place() *turn { return &s.turn }

// Subscribe calls fn with the service's instances now and after each change, with the
// difference. It blocks until a server has answered for the first time, or ctx ends; if
// there is a list already, from another subscription or from the disk cache, it does
// not block. The subscription lasts until its Close or the client's, through
// disconnects and servers' restarts.
//
// Calls of fn for one subscription come one after the other, each with the difference
// to the one before, so that none is lost and none comes twice; changes that come
// while fn runs may be told together. fn must not block for long: see
// [Config.Callbacks]. It must not call Client.Close.
//
// An error means that there is no subscription: [ErrClosed], the end of ctx, a
// [*ServerError], or a wrong name.
func (c *Client) Subscribe(ctx context.Context, svc naming.ServiceKey, f naming.Filter, fn func(Change)) (*Subscription, error) {
	if fn == nil {
		return nil, fmt.Errorf("subscribe to %s: fn is nil; pass a function or use SubscribeChan", svc.Grouped())
	}
	return c.subscribe(ctx, svc, f, &Subscription{fn: fn})
}

// SubscribeChan is Subscribe with a channel in place of the callback, see
// [Subscription.Changes].
func (c *Client) SubscribeChan(ctx context.Context, svc naming.ServiceKey, f naming.Filter) (*Subscription, error) {
	return c.subscribe(ctx, svc, f, &Subscription{ch: make(chan Change, 1)})
}

// Changes returns the channel of a subscription made by SubscribeChan, else nil. It
// holds one change: one that is not taken in time is replaced by one that also covers
// what came after it. It is closed by Close.
func (s *Subscription) Changes() <-chan Change { return s.ch }

// Close ends the subscription. It does not block; a callback that is running goes on
// to its end, and none begins after it. Closing again does nothing.
func (s *Subscription) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	if s.ch != nil {
		close(s.ch)
	}
	s.mu.Unlock()
	s.entry.detach(s)
	s.client.keep.unsubscribe(s.entry)
}

func (c *Client) subscribe(ctx context.Context, svc naming.ServiceKey, f naming.Filter, s *Subscription) (*Subscription, error) {
	key, err := c.key(svc)
	if err == nil {
		err = naming.CheckClusters(f.Clusters)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", svc.Grouped(), err)
	}
	s.client, s.filter = c, f
	if s.entry, err = c.keep.subscribe(ctx, key); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", key.Grouped(), err)
	}
	s.entry.attach(s)
	return s, nil
}

// tell delivers the newest list if it differs from what was told. Only one goroutine
// calls it at a time.
func (s *Subscription) tell() {
	now := s.entry.shown.Load()
	if now == nil {
		return
	}
	service := now.service
	service.Instances = filter(s.filter, service.Instances)
	s.mu.Lock()
	before := s.seen
	change := Change{Service: service}
	change.Added, change.Removed, change.Changed = diff(before, service.Instances)
	if s.closed || s.told && len(change.Added)+len(change.Removed)+len(change.Changed) == 0 {
		s.mu.Unlock()
		return
	}
	first := !s.told
	s.told, s.seen = true, service.Instances
	if s.ch == nil {
		s.mu.Unlock()
		s.fn(change)
		return
	}
	defer s.mu.Unlock()
	select {
	case <-s.ch: // not taken yet: the new one covers both
		change.Added, change.Removed, change.Changed = diff(s.base, service.Instances)
		if len(change.Added)+len(change.Removed)+len(change.Changed) == 0 && !s.first {
			return // both together change nothing
		}
	default:
		s.base, s.first = before, first
	}
	s.ch <- change // nobody else sends
}

// delivery runs subscriptions' callbacks: a few goroutines, each subscription in one
// of them at a time.
type delivery struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	ready  *sync.Cond
	queue  []teller // each at most once
	closed bool
}

func newDelivery() *delivery {
	d := new(delivery)
	d.ready = sync.NewCond(&d.mu)
	return d
}

func (d *delivery) start(workers int) {
	for range workers {
		d.wg.Go(d.work)
	}
}

// close ends the goroutines once the callbacks that run have returned.
func (d *delivery) close() {
	d.mu.Lock()
	d.closed = true
	d.queue = nil
	d.mu.Unlock()
	d.ready.Broadcast()
	d.wg.Wait()
}

// wake lets a teller tell its newest state. It does not block.
func (d *delivery) wake(t teller) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch turn := t.place(); {
	case d.closed || turn.queued:
	case turn.running:
		turn.again = true
	default:
		turn.queued = true
		d.queue = append(d.queue, t)
		d.ready.Signal()
	}
}

func (d *delivery) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.queue) == 0 && !d.closed {
			d.ready.Wait()
		}
		if d.closed {
			return
		}
		t := d.queue[0]
		d.queue = d.queue[1:]
		turn := t.place()
		turn.queued, turn.running = false, true
		d.mu.Unlock()
		t.tell()
		d.mu.Lock()
		turn.running = false
		if turn.again && !d.closed {
			turn.again, turn.queued = false, true
			d.queue = append(d.queue, t)
		}
	}
}
