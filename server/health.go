package server

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// beats watches the heartbeats of instances that are registered over HTTP. A
// heartbeat is no datum: it refreshes a time here. Only a change of health or a
// removal becomes one.
type beats struct {
	router *consistency.Router
	timers *timers
	log    *slog.Logger
	// nodes says which clients are this node's to take to be silent.
	nodes *ownership
	// expired is told of each instance that was removed for its silence.
	expired func(naming.ServiceKey, *naming.Instance)
	// enabled tells whether silence counts at all.
	enabled func() bool
	// floor is when this node could last not tell whether clients are silent, because
	// it woke from a pause or other nodes were not to be heard: silence before that
	// says nothing about the clients.
	floor atomic.Pointer[time.Time]
	begin time.Time

	seed   maphash.Seed
	shards [64]beatShard

	mu         sync.Mutex
	publishers map[string]int // number of services that each one beats in
}

type beatShard struct {
	mu    sync.Mutex
	byKey map[beatKey]*beat
}

type beatKey struct {
	service   naming.ServiceKey
	publisher string
}

// beat is one publisher's heartbeat in one service, on each node that hears it. Its
// mutex is held across the decision to expire it and the change that follows, so
// that a heartbeat which is answered with "known" is never followed by the removal
// that it came to prevent.
type beat struct {
	owner *beats
	key   beatKey
	last  atomic.Int64 // when it was heard, since begin; 0: never

	mu    sync.Mutex
	armed time.Time // when the timers look at it next
	gone  bool      // dropped from the map
}

func newBeats(router *consistency.Router, log *slog.Logger) *beats {
	b := &beats{
		router: router, log: log, nodes: new(ownership), begin: time.Now().Add(-time.Second), // so that no heartbeat is at 0
		seed: maphash.MakeSeed(), publishers: make(map[string]int), enabled: func() bool { return true },
	}
	for n := range b.shards {
		b.shards[n].byKey = make(map[beatKey]*beat)
	}
	return b
}

func (b *beats) shard(k beatKey) *beatShard {
	return &b.shards[maphash.Comparable(b.seed, k)%uint64(len(b.shards))]
}

// distrust gives every instance a full period before it expires.
func (b *beats) distrust() {
	now := time.Now()
	b.floor.Store(&now)
}

// watchEvery is how often beats are distrusted while they may not be trusted.
const watchEvery = 500 * time.Millisecond

// watch distrusts what was not heard while this node cannot tell.
func (b *beats) watch(now time.Time) {
	if !b.nodes.calm() {
		b.distrust()
	}
	b.timers.at(now.Add(watchEvery), taskFunc(b.watch))
}

// paused notes that this process did not run for a while.
func (b *beats) paused(d time.Duration) {
	b.distrust()
	b.log.Warn("this process was paused; instances get a full period before they expire", "paused", d)
}

// get returns the locked beat of a key, made if it is not there.
func (b *beats) get(k beatKey) *beat {
	for {
		s := b.shard(k)
		s.mu.Lock()
		x := s.byKey[k]
		if x == nil {
			x = &beat{owner: b, key: k}
			s.byKey[k] = x
			b.count(k.publisher, 1)
		}
		s.mu.Unlock()
		x.mu.Lock()
		if !x.gone {
			return x
		}
		x.mu.Unlock()
	}
}

// withdraw runs the deregistration of a publisher. No change of health that is
// under way can bring the instance back.
func (b *beats) withdraw(k beatKey, deregister func() error) error {
	var err error
	done := false
	for {
		s := b.shard(k)
		s.mu.Lock()
		x := s.byKey[k]
		s.mu.Unlock()
		switch {
		case x == nil && done:
			return err
		case x == nil: // it does not beat, unless it is being registered: look again
			err, done = deregister(), true
			continue
		}
		x.mu.Lock()
		if x.gone { // another one may be there
			x.mu.Unlock()
			continue
		}
		if !done {
			err = deregister()
		}
		if b.instance(k) == nil {
			x.dropLocked()
		}
		x.mu.Unlock()
		return err
	}
}

// dropLocked takes the beat out of the map.
func (x *beat) dropLocked() {
	x.gone = true
	s := x.owner.shard(x.key)
	s.mu.Lock()
	delete(s.byKey, x.key)
	s.mu.Unlock()
	x.owner.count(x.key.publisher, -1)
}

func (b *beats) count(publisher string, services int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.publishers[publisher] + services; n > 0 {
		b.publishers[publisher] = n
	} else {
		delete(b.publishers, publisher)
	}
}

// clients returns the number of publishers that beat.
func (b *beats) clients() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.publishers)
}

// register publishes an instance that must beat from now on. An older beat of the
// same key cannot expire in between.
func (b *beats) register(ctx context.Context, k beatKey, i *naming.Instance) error {
	x := b.get(k)
	defer x.mu.Unlock()
	err := b.router.Publish(ctx, true, consistency.Publication{Service: k.service, Publisher: k.publisher, Instances: []*naming.Instance{i}})
	if err == nil {
		x.heard(0)
	}
	x.armLocked(time.Now().Add(firstLook(i)))
	return err
}

// heard notes a heartbeat of some time ago.
func (x *beat) heard(ago time.Duration) {
	at := int64(time.Since(x.owner.begin) - ago)
	for {
		last := x.last.Load()
		if at <= last || x.last.CompareAndSwap(last, at) {
			return
		}
	}
}

// lastHeard returns when the last heartbeat came.
func (x *beat) lastHeard() time.Time { return x.owner.begin.Add(time.Duration(x.last.Load())) }

// armLocked plans a look at the beat, unless an earlier one is planned.
func (x *beat) armLocked(at time.Time) {
	if !x.armed.IsZero() && !x.armed.After(at) {
		return
	}
	x.armed = at
	x.owner.timers.at(at, &look{x, at})
}

// look is one planned look at a beat; it counts only while it is the one that the
// beat is armed for.
type look struct {
	beat *beat
	at   time.Time
}

func (l *look) due(now time.Time) { l.beat.due(now, l.at) }

func unhealthyAfter(i *naming.Instance) time.Duration {
	return max(i.BeatTimeout(), naming.MinBeatTime)
}

func deletedAfter(i *naming.Instance) time.Duration {
	return max(i.DeleteTimeout(), naming.MinBeatTime)
}

// firstLook is how long after a heartbeat there is something to decide: removal
// may come before the unhealthy time.
func firstLook(i *naming.Instance) time.Duration {
	return min(unhealthyAfter(i), deletedAfter(i))
}

// review plans a look at a beat whose times may have become shorter.
func (b *beats) review(k beatKey) {
	s := b.shard(k)
	s.mu.Lock()
	x := s.byKey[k]
	s.mu.Unlock()
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.gone {
		x.armLocked(time.Now())
	}
}

// due expires what has been silent for too long, if it is this node's to expire.
func (x *beat) due(now, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone || !x.armed.Equal(at) {
		return
	}
	x.armed = time.Time{}
	b := x.owner
	i := b.instance(x.key)
	if i == nil {
		x.dropLocked()
		return
	}
	since := x.lastHeard()
	if floor := b.floor.Load(); floor != nil && floor.After(since) {
		since = *floor
	}
	silent := now.Sub(since)
	effective := b.effective(x.key.service, i)
	ctx := consistency.WithInferred(context.Background())
	switch unhealthy, deleted := unhealthyAfter(effective), deletedAfter(effective); {
	case !b.checked(x.key.service, effective):
		x.armLocked(now.Add(unhealthy))
	case !b.nodes.mine(x.key.publisher):
		if silent >= deleted { // its heartbeats go to other nodes
			x.dropLocked()
			return
		}
		x.armLocked(since.Add(deleted))
	case silent >= min(unhealthy, deleted) && !b.nodes.calm():
		b.distrust()
		x.armLocked(now.Add(min(unhealthy, deleted)))
	case silent >= deleted:
		b.log.Debug("instance expired", "namespace", x.key.service.Namespace, "service", x.key.service.Grouped(), "instance", x.key.publisher)
		err := b.router.Publish(ctx, true, consistency.Publication{Service: x.key.service, Publisher: x.key.publisher})
		if b.change(err); err == nil {
			b.expired(x.key.service, i)
		}
		x.armLocked(now.Add(tick)) // finds it gone, or registered anew
	case silent >= unhealthy:
		if i.Healthy {
			b.change(b.setHealth(ctx, x.key, i, false))
		}
		x.armLocked(since.Add(deleted))
	default:
		x.armLocked(since.Add(min(unhealthy, deleted)))
	}
}

// change logs a change that failed: the store is closing, or the client is another
// node's now.
func (b *beats) change(err error) {
	if err != nil {
		b.log.Debug("expire instance", "err", err)
	}
}

func (b *beats) setHealth(ctx context.Context, k beatKey, i *naming.Instance, healthy bool) error {
	return b.router.Put(ctx, consistency.Datum{
		Key:      consistency.Key{Service: k.service, Kind: consistency.KindInstance, Publisher: k.publisher, Instance: i.Key()},
		Instance: i.With(func(c *naming.Instance) { c.Healthy = healthy }),
	})
}

// instance returns what the publisher has in the service; nil for nothing.
func (b *beats) instance(k beatKey) *naming.Instance {
	if list := b.router.Store(true).Published(k.service, k.publisher); len(list) > 0 {
		return list[0]
	}
	return nil
}

// effective returns the instance with an operator's override: its heartbeat times
// count.
func (b *beats) effective(svc naming.ServiceKey, i *naming.Instance) *naming.Instance {
	if st, _ := b.router.Stat(svc); st.Overrides == 0 {
		return i
	}
	if s, ok := b.router.Service(svc); ok {
		if o := s.Overrides[i.Key()]; o != nil {
			return o.Apply(i)
		}
	}
	return i
}

func (b *beats) checked(svc naming.ServiceKey, i *naming.Instance) bool {
	if !b.enabled() {
		return false
	}
	st, _ := b.router.Stat(svc)
	return i.BeatsChecked() && (st.Settings == nil || st.Settings.Metadata[naming.MetaClientBeat] != "true")
}

// Beat takes a heartbeat of ip:port in a service. With full set, an instance that
// is not registered is registered from it; without, the answer is not known.
func (r *Registry) Beat(ctx context.Context, svc naming.ServiceKey, ip string, port int, full *naming.Instance) (naming.BeatAnswer, error) {
	if err := naming.CheckKey(svc); err != nil {
		return naming.BeatAnswer{}, err
	}
	if full != nil {
		if err := naming.CheckInstance(full, r.cfg.MetadataLimit); err != nil {
			return naming.BeatAnswer{}, err
		}
	}
	key := beatKey{svc, naming.Address(ip, port)}
	if node, other := r.nodes.away(ctx, key.publisher); other {
		// Only what looks as it should is answered here: a registration may be on
		// its way to this node.
		if i := r.beats.instance(key); i == nil || !i.Healthy {
			if answer, done, err := r.nodes.beat(ctx, node, svc, ip, port, full); done {
				return answer, err
			}
		}
	}
	ctx = consistency.WithForwarded(ctx)
	known, err := r.beats.refresh(ctx, key, 0)
	if err != nil {
		return naming.BeatAnswer{}, err
	}
	if known != nil && !r.nodes.mine(key.publisher) {
		r.renewals.add(key)
	}
	if known == nil && full != nil {
		if err := r.Register(ctx, svc, key.publisher, full); err != nil {
			return naming.BeatAnswer{}, err
		}
		known = full
	}
	if known == nil {
		return naming.BeatAnswer{Interval: r.beatInterval()}, nil
	}
	return naming.BeatAnswer{Known: true, Interval: r.beats.effective(svc, known).BeatInterval(r.beatInterval())}, nil
}

// refresh counts a heartbeat of some time ago and heals the instance; nil if it is
// not registered.
func (b *beats) refresh(ctx context.Context, k beatKey, ago time.Duration) (*naming.Instance, error) {
	if b.instance(k) == nil {
		return nil, nil
	}
	x := b.get(k)
	defer x.mu.Unlock()
	i := b.instance(k) // again: now it cannot expire
	if i == nil {
		x.dropLocked()
		return nil, nil
	}
	x.heard(ago)
	x.armLocked(time.Now().Add(firstLook(i) - ago))
	if i.Healthy {
		return i, nil
	}
	return i, b.setHealth(ctx, k, i, true)
}

// renew counts a heartbeat that came some time ago, perhaps to another node.
func (b *beats) renew(k beatKey, ago time.Duration) {
	_, err := b.refresh(consistency.WithForwarded(context.Background()), k, ago)
	b.change(err)
}

// took begins to watch a client that has become this node's: its time begins anew.
// It waits for nothing.
func (b *beats) took(svc naming.ServiceKey, publisher string, i *naming.Instance) {
	k := beatKey{svc, publisher}
	s := b.shard(k)
	s.mu.Lock()
	x := s.byKey[k]
	s.mu.Unlock()
	if x != nil {
		x.heard(0)
	}
	taken := time.Now()
	b.timers.at(taken, taskFunc(func(time.Time) {
		x := b.get(k)
		defer x.mu.Unlock()
		x.heard(time.Since(taken))
		x.armLocked(taken.Add(firstLook(i)))
	}))
}

// live tells whether a client was heard here so lately that no node can rightly have
// taken it to be silent.
func (b *beats) live(svc naming.ServiceKey, publisher string) bool {
	k := beatKey{svc, publisher}
	s := b.shard(k)
	s.mu.Lock()
	x := s.byKey[k]
	s.mu.Unlock()
	if x == nil || x.last.Load() == 0 {
		return false
	}
	i := b.instance(k)
	return i != nil && time.Since(x.lastHeard()) < min(unhealthyAfter(i), deletedAfter(i)/2)
}
