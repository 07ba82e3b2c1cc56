package distro

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// Store is the ephemeral store of one node; it implements [consistency.Store].
type Store struct {
	cfg     Config
	log     *slog.Logger
	data    *consistency.DataStore
	clock   *consistency.Clock // of a node that is alone
	metrics *storeMetrics
	begin   time.Time
	state   atomic.Int32 // created, started, closed
	loaded  atomic.Bool
	sharers atomic.Pointer[[]candidate]
	inbox   inbox
	proofCh chan Member // members whose death may be proven
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex // orders writes: versions rise in the order of the changes
	core    *core      // nil: this node is alone
	senders map[string]*sender
	waiters []waiter
}

const (
	created int32 = iota
	started
	closed
)

// New returns a store that is not started.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		cfg: cfg, log: cfg.Logger.With("component", "distro"), begin: time.Now(),
		data: consistency.NewDataStore(), clock: consistency.NewClock(cfg.Node),
		inbox: newInbox(), proofCh: make(chan Member, 64), senders: make(map[string]*sender),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if cfg.Members == nil {
		s.loaded.Store(true)
		return s, nil
	}
	s.core = newCore(cfg, origin{cfg.Node, cfg.Members.Self().Boot}, s.data, hooks{wake: s.wake}, s.now())
	sharers := s.core.sharers
	s.sharers.Store(&sharers)
	s.metrics = newStoreMetrics(s, cfg.Metrics)
	cfg.Members.Listen(s.observe)
	cfg.Members.Receive(s.inbox.put)
	cfg.Members.Exchange(s.localRoots, func(from string, remote []byte, _ bool) { s.inbox.put(from, remote) })
	return s, nil
}

// now returns the wall time at the start and what has passed since then: it does
// not jump.
func (s *Store) now() time.Time { return s.begin.Round(0).Add(time.Since(s.begin)) }

// Start makes the store take writes. It is ready once it has what the other nodes
// have.
func (s *Store) Start() error {
	if !s.state.CompareAndSwap(created, started) || s.core == nil {
		return nil
	}
	for _, m := range s.cfg.Members.Alive() {
		if m.Name != s.cfg.Node {
			s.observe(Event{Kind: Joined, Member: m})
		}
	}
	s.wg.Go(s.merge)
	s.wg.Go(s.tick)
	s.wg.Go(s.prove)
	return nil
}

// Close makes every further write fail with ErrClosed, sends what is to be sent,
// for DrainTime at most, and returns after its goroutines ended. Reads go on. Close
// the store before the members.
func (s *Store) Close() error {
	if s.state.Swap(closed) == started && s.core != nil {
		s.drain()
	}
	s.mu.Lock() // no goroutine starts any more
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	s.metrics.unregister(s.cfg.Metrics)
	return nil
}

// drain waits until every peer that is alive has been sent everything.
func (s *Store) drain() {
	end := time.NewTimer(s.cfg.DrainTime)
	defer end.Stop()
	look := time.NewTicker(tickTime / 10)
	defer look.Stop()
	for {
		s.mu.Lock()
		waiting := 0
		for _, p := range s.core.alive {
			if s.senders[p.name] != nil && (p.behind > 0 || s.senders[p.name].busy) {
				waiting++
			}
		}
		s.mu.Unlock()
		if waiting == 0 {
			return
		}
		select {
		case <-look.C:
		case <-end.C:
			s.log.Warn("changes were not sent to all nodes before the end", "nodes", waiting)
			return
		}
	}
}

// Ready returns nil while the store runs and has what the other nodes had when it
// started.
func (s *Store) Ready() error {
	if err := s.running(); err != nil {
		return err
	}
	if !s.loaded.Load() {
		return consistency.ErrNotReady
	}
	return nil
}

func (s *Store) running() error {
	switch s.state.Load() {
	case created:
		return consistency.ErrNotReady
	case closed:
		return consistency.ErrClosed
	}
	return nil
}

// Owner returns the node that owns the publisher, and whether it is this one: for a
// client that registers over HTTP and so is named by its ip:port, a node that all
// nodes agree on while they see the same members; for a connection this node.
func (s *Store) Owner(publisher string) (node string, self bool) {
	if s.core == nil || !isAddress(publisher) {
		return s.cfg.Node, true
	}
	node = ownerOf(*s.sharers.Load(), publisher)
	return node, node == s.cfg.Node
}

// MayExpire tells whether this node may now take clients that beat to be silent.
// It must not after it was paused, nor while a node that could hear them is
// silent, or this node itself may be what is cut off. What a client did not say
// until MayExpire was last false says nothing: count its silence from then on. Ask
// at least once a second.
func (s *Store) MayExpire() bool {
	if s.core == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.at(s.now())
	return s.core.mayExpire()
}

// Drain says whether this node shall own no publishers over HTTP any more; the
// others learn it from the Draining flag of the member.
func (s *Store) Drain(unwanted bool) {
	if s.core != nil {
		s.mu.Lock()
		s.core.drain(s.now(), unwanted)
		s.unlock()
	}
}

// Publish implements [consistency.Store]. A *consistency.RedirectError names the
// owner of a publisher over HTTP, unless the context is of
// [consistency.WithForwarded].
func (s *Store) Publish(ctx context.Context, p consistency.Publication) error {
	return s.write(ctx, p.Publisher, func(c *core, inferred bool) {
		if c == nil {
			s.data.Publish(p, s.clock.Next())
			return
		}
		c.publish(p, inferred)
	})
}

// Put implements [consistency.Store]; see Publish. Only instances are told to other
// nodes.
func (s *Store) Put(ctx context.Context, d consistency.Datum) error {
	return s.write(ctx, d.Publisher, func(c *core, inferred bool) {
		switch {
		case c == nil:
			d.Version = s.clock.Next()
			s.data.Put(d)
		case d.Kind == consistency.KindInstance:
			c.put(c.enter(c.service(d.Service), d.Publisher, d.Instance), d.Instance, c.clock.next(c.now), inferred)
		default:
			d.Version = consistency.Version{Time: c.clock.next(c.now), Node: s.cfg.Node}
			s.data.Put(d)
		}
	})
}

// Delete implements [consistency.Store]; see Publish.
func (s *Store) Delete(ctx context.Context, k consistency.Key) error {
	return s.write(ctx, k.Publisher, func(c *core, inferred bool) {
		if c == nil || k.Kind != consistency.KindInstance {
			s.data.Delete(k)
			return
		}
		c.remove(k, inferred)
	})
}

func (s *Store) write(ctx context.Context, publisher string, change func(c *core, inferred bool)) error {
	if err := s.running(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if node, self := s.Owner(publisher); !self && !consistency.Forwarded(ctx) {
		return &consistency.RedirectError{Node: node}
	}
	s.mu.Lock()
	if s.core == nil {
		defer s.mu.Unlock()
		change(nil, false)
		return nil
	}
	s.core.local(s.now(), func() { change(s.core, consistency.Inferred(ctx)) })
	s.unlock()
	return nil
}

// tookOver is a publisher over HTTP that has come to this node.
type tookOver struct {
	svc       naming.ServiceKey
	publisher string
	instance  *naming.Instance
}

// unlock ends a call of the core: it lets others in and tells what came of it.
func (s *Store) unlock() {
	c := s.core
	var took []tookOver
	for _, e := range c.takeTook() {
		if !e.tombstone && s.cfg.Took != nil {
			took = append(took, tookOver{e.service.key, e.publisher, e.instance})
		}
	}
	if sharers := c.sharers; &(*s.sharers.Load())[0] != &sharers[0] { // they are replaced, never altered
		s.sharers.Store(&sharers)
	}
	if len(s.waiters) > 0 {
		s.reachedLocked()
	}
	if c.loaded && !s.loaded.Load() {
		s.loaded.Store(true)
		services, instances := s.data.Counts()
		s.log.Info("has what the other nodes have", "peers", len(c.alive), "services", services, "instances", instances)
	}
	s.mu.Unlock()
	for _, t := range took {
		s.cfg.Took(t.svc, t.publisher, t.instance)
	}
}

// Published implements [consistency.Store].
func (s *Store) Published(svc naming.ServiceKey, publisher string) []*naming.Instance {
	return s.data.Published(svc, publisher)
}

// Service implements [consistency.Store].
func (s *Store) Service(svc naming.ServiceKey) (naming.Service, bool) { return s.data.Service(svc) }

// Stat implements [consistency.Store].
func (s *Store) Stat(svc naming.ServiceKey) consistency.Stat { return s.data.Stat(svc) }

// Services implements [consistency.Store].
func (s *Store) Services(namespace string) []naming.ServiceKey { return s.data.Services(namespace) }

// Listen implements [consistency.Store].
func (s *Store) Listen(fn func(consistency.ServiceChanged)) { s.data.Listen(fn) }

// Switches implements [consistency.Store]: there are none among ephemeral data.
func (s *Store) Switches() map[string]string { return nil }

// Namespaces implements [consistency.Store]: there are none among ephemeral data.
func (s *Store) Namespaces() []naming.Namespace { return nil }

// Publications implements [consistency.Store].
func (s *Store) Publications(svc naming.ServiceKey) []consistency.Publication {
	return s.data.Publications(svc)
}

// Counts returns the number of services and of published instances.
func (s *Store) Counts() (services, instances int) { return s.data.Counts() }
