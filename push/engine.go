package push

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/naming"
)

// Source tells what a client sees of a service now. As long as the content does
// not change it returns the same pointer. It is called from many goroutines and
// must not block on anything but computing.
type Source interface {
	ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo
	// Idle tells that the last subscription of a service has ended.
	Idle(svc naming.ServiceKey)
}

// Engine is the push engine of one node. Use [New].
type Engine struct {
	cfg     Config
	source  Source
	metrics metrics
	counts  counts
	seq     atomic.Uint64
	paused  atomic.Bool // nothing is sent

	begin time.Time

	mu     sync.RWMutex // guards topics, and their views and subscriptions
	topics map[naming.ServiceKey]*topic

	agenda agenda
	done   chan struct{}
	wg     sync.WaitGroup
	once   sync.Once
}

// topic is one service that has subscriptions.
type topic struct {
	key           naming.ServiceKey
	views         map[naming.Filter]*view    // that are subscribed to; guarded by Engine.mu
	subscriptions map[*subscription]struct{} // guarded by Engine.mu
	coalesce      coalescer                  // guarded by agenda.mu
}

// view is what some subscriptions have in common: a service, and what of it is wanted.
type view struct {
	topic         *topic
	filter        naming.Filter
	subscriptions int // guarded by Engine.mu
}

// New returns an engine that is not started. The registerer gets its metrics; nil
// means none.
func New(cfg Config, source Source, reg prometheus.Registerer) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, source: source,
		topics: make(map[naming.ServiceKey]*topic), begin: time.Now(),
		done: make(chan struct{}),
	}
	e.agenda.signal = make(chan struct{}, 1)
	// Numbers of a former process must not meet ours; they stay below 2^53, since
	// some clients read them as doubles.
	e.seq.Store(uint64(time.Now().UnixMicro()))
	e.metrics = newMetrics(reg)
	return e, nil
}

// Start starts the dispatcher.
func (e *Engine) Start() error {
	e.wg.Go(e.dispatch)
	return nil
}

// Close ends the dispatcher; what has not been flushed is dropped.
func (e *Engine) Close() error {
	e.once.Do(func() { close(e.done) })
	e.wg.Wait()
	return nil
}

// GRPC is the policy of subscribers over gRPC.
func (e *Engine) GRPC() Policy {
	return Policy{Transport: "grpc", Ack: e.cfg.Ack, Retry: e.cfg.Retry}
}

// UDP is the policy of subscribers over UDP: one repeat, the same datagram if
// nothing changed.
func (e *Engine) UDP() Policy {
	return Policy{Transport: "udp", Ack: e.cfg.UDPAck, Sends: 2, SameSeq: true}
}

// UDPLease is how long a UDP client stays subscribed without asking again.
func (e *Engine) UDPLease() time.Duration { return e.cfg.UDPLease }

// Notify tells that a service may have changed. It does not block.
func (e *Engine) Notify(svc naming.ServiceKey) {
	e.mu.RLock()
	t := e.topics[svc]
	e.mu.RUnlock()
	if t != nil {
		e.agenda.changed(t, e.cfg, time.Now())
	}
}

// Enable tells whether pushes are sent; they are unless it says otherwise. What
// changes meanwhile is sent, as it then is, once they are sent again.
func (e *Engine) Enable(on bool) {
	if e.paused.Swap(!on) == !on || !on {
		return
	}
	e.mu.RLock()
	waiting := make(map[*Subscriber]struct{})
	for _, t := range e.topics {
		for x := range t.subscriptions {
			waiting[x.subscriber] = struct{}{}
		}
	}
	e.mu.RUnlock()
	for s := range waiting {
		s.wake()
	}
}

// Subscribers returns who is subscribed to the service on this node, in no particular
// order; a client may have several subscriptions.
func (e *Engine) Subscribers(svc naming.ServiceKey) []Subscription {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var out []Subscription
	if t := e.topics[svc]; t != nil {
		for x := range t.subscriptions {
			out = append(out, Subscription{x.subscriber.peer, x.view.filter.Clusters})
		}
	}
	return out
}

// SubscribedBy returns the services that the client with the id is subscribed to,
// sorted, and how the client describes itself. It looks at every subscription.
func (e *Engine) SubscribedBy(id string) (services []naming.ServiceKey, peer Peer) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for k, t := range e.topics {
		for x := range t.subscriptions {
			if x.subscriber.peer.ID == id {
				services, peer = append(services, k), x.subscriber.peer
				break
			}
		}
	}
	slices.SortFunc(services, naming.ServiceKey.Compare)
	return services, peer
}

// Watched tells whether the service has a subscriber.
func (e *Engine) Watched(svc naming.ServiceKey) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.topics[svc] != nil
}

// Subscriptions returns the number of subscriptions.
func (e *Engine) Subscriptions() int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	n := 0
	for _, t := range e.topics {
		n += len(t.subscriptions)
	}
	return n
}

// SubscriptionsBy returns the number of subscriptions over a transport.
func (e *Engine) SubscriptionsBy(transport string) int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	n := 0
	for _, t := range e.topics {
		for x := range t.subscriptions {
			if x.subscriber.policy.Transport == transport {
				n++
			}
		}
	}
	return n
}

// find returns a view that is subscribed to, else nil.
func (e *Engine) find(svc naming.ServiceKey, f naming.Filter) *view {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if t := e.topics[svc]; t != nil {
		return t.views[f]
	}
	return nil
}

// viewLocked returns a view that a subscription is about to be made to.
func (e *Engine) viewLocked(svc naming.ServiceKey, f naming.Filter) *view {
	t := e.topics[svc]
	if t == nil {
		t = &topic{key: svc, views: make(map[naming.Filter]*view, 1), subscriptions: make(map[*subscription]struct{})}
		e.topics[svc] = t
	}
	v := t.views[f]
	if v == nil {
		v = &view{topic: t, filter: f}
		t.views[f] = v
	}
	return v
}

// leave follows the end of a subscription.
func (e *Engine) leave(x *subscription) {
	v := x.view
	t := v.topic
	e.mu.Lock()
	delete(t.subscriptions, x)
	if v.subscriptions--; v.subscriptions == 0 {
		delete(t.views, v.filter)
	}
	idle := len(t.subscriptions) == 0
	if idle {
		delete(e.topics, t.key)
	}
	e.mu.Unlock()
	if idle {
		e.source.Idle(t.key)
	}
}

// flush hands a service's state to every subscription that has not seen it.
func (e *Engine) flush(t *topic) {
	views := make(map[*view]*naming.ServiceInfo, 1)
	e.mu.RLock()
	todo := make([]*subscription, 0, len(t.subscriptions))
	for x := range t.subscriptions {
		todo = append(todo, x)
	}
	e.mu.RUnlock()
	for _, x := range todo {
		info := views[x.view]
		if info == nil {
			info = e.source.ServiceInfo(t.key, x.view.filter)
			views[x.view] = info
		}
		x.subscriber.mu.Lock()
		wanted := !x.fresh && (info != x.sent || x.force)
		x.subscriber.mu.Unlock()
		if wanted {
			x.subscriber.enqueue(x)
		}
	}
}

// first sends the push that follows a new subscription.
func (e *Engine) first(x *subscription) {
	x.subscriber.mu.Lock()
	x.fresh = false
	x.subscriber.mu.Unlock()
	x.subscriber.enqueue(x)
}

func (e *Engine) expectAck(x *subscription, seq uint64) {
	e.agenda.ackBy(time.Now().Add(x.subscriber.policy.Ack), x, seq)
}

// overdue handles a push whose acknowledgement did not come in time.
func (e *Engine) overdue(x *subscription, seq uint64) {
	s := x.subscriber
	s.mu.Lock()
	if s.inFlight[seq] != x { // answered, or superseded
		s.mu.Unlock()
		return
	}
	repeat := s.failLocked(x, seq)
	s.mu.Unlock()
	e.failed(x, seq, repeat)
}

// failed follows a push that was refused or not acknowledged, and plans its repeat.
func (e *Engine) failed(x *subscription, seq uint64, repeat bool) {
	policy := x.subscriber.policy
	if !repeat || policy.Sends == 0 {
		e.metrics.failed.WithLabelValues(policy.Transport).Inc()
		e.counts.note(false, 0)
	}
	if repeat {
		e.agenda.retryAt(time.Now().Add(policy.Retry), x, seq)
	}
}

// retry repeats a failed push, unless a newer one has been sent meanwhile.
func (e *Engine) retry(x *subscription, seq uint64) {
	s := x.subscriber
	s.mu.Lock()
	wanted := x.failed == seq
	if wanted {
		x.force, x.repeat = true, true
	}
	s.mu.Unlock()
	if wanted {
		s.enqueue(x)
	}
}
