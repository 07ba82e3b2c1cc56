package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rollcall/naming"
)

// link carries calls to a server: a gRPC connection, or HTTP. Its methods are safe
// for concurrent use and block until the answer, an error or the end of ctx.
type link interface {
	// publish makes list all that this client has in a service.
	publish(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error
	// withdraw removes what this client has in a service; list is what that was.
	withdraw(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error
	// follow subscribes and hands the first list to the entry.
	follow(ctx context.Context, e *entry) error
	unfollow(ctx context.Context, svc naming.ServiceKey) error
	// watch asks for the services of a pattern.
	watch(ctx context.Context, p *pattern) error
	unwatch(ctx context.Context, p *pattern) error
	// doubtful tells that a call failed in a way that throws doubt on the link.
	doubtful(err error)
}

// keeper keeps what the application wants of servers: it records each wish, and
// replays all that are not met whenever there is a link.
type keeper struct {
	cfg     Config
	log     *slog.Logger
	cache   *cache
	metrics *metrics
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu            sync.Mutex
	ready         *sync.Cond
	link          link // nil: no server is reached
	registrations map[naming.ServiceKey]*kept
	subscriptions map[naming.ServiceKey]*kept
	watches       map[patternKey]*kept
	queues        [2][]job // registrations go first: subscribers then see them at once
	calling       int
	idle          *sync.Cond // something has ended that somebody may wait for
	closed        bool
}

// kept is one wish with what it is about.
type kept struct {
	wish
	key     naming.ServiceKey
	entry   *entry      // of a subscription, else nil
	pattern *pattern    // of a watch, else nil
	repeat  *time.Timer // with pattern: compares it with the server
	wanted  []naming.Instance
	sent    []naming.Instance // with the call under way
	agreed  []naming.Instance // what a server accepted last
	users   int               // subscriptions of the application, and one for Pickers
	pinned  bool
	waiters []*waiter
	pauses  backoff
	timer   *time.Timer
	lastErr error
}

// waiter waits until the wish is met as of a revision.
type waiter struct {
	rev  uint64
	done chan error // capacity 1
}

// job is a call that is to be made.
type job struct {
	kept *kept
	step step
	call uint64
}

func newKeeper(cfg Config, log *slog.Logger, cache *cache, m *metrics) *keeper {
	k := &keeper{
		cfg: cfg, log: log, cache: cache, metrics: m,
		registrations: make(map[naming.ServiceKey]*kept), subscriptions: make(map[naming.ServiceKey]*kept),
		watches: make(map[patternKey]*kept),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.ready, k.idle = sync.NewCond(&k.mu), sync.NewCond(&k.mu)
	cache.doubt = k.doubt
	return k
}

func (k *keeper) start() {
	for range k.cfg.Calls {
		k.wg.Go(k.work)
	}
}

// close ends all wishes and the goroutines. Calls under way are cut off.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	for _, x := range k.allLocked() {
		x.close()
		x.stopTimer()
		if x.pattern != nil {
			x.repeat.Stop()
			x.pattern.close()
		}
		x.finish(func(*waiter) error { return ErrClosed })
	}
	k.mu.Unlock()
	k.cancel()
	k.ready.Broadcast()
	k.idle.Broadcast()
	k.wg.Wait()
}

func (k *keeper) allLocked() []*kept {
	out := make([]*kept, 0, len(k.registrations)+len(k.subscriptions)+len(k.watches))
	for _, x := range k.registrations {
		out = append(out, x)
	}
	for _, x := range k.subscriptions {
		out = append(out, x)
	}
	for _, x := range k.watches {
		out = append(out, x)
	}
	return out
}

// connected replays everything over a new link. A former link counts as lost.
func (k *keeper) connected(l link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.offlineLocked()
	k.link = l
	for _, x := range k.allLocked() {
		x.pauses.reset()
		k.doLocked(x, x.connect())
	}
}

// disconnected follows the end of the link.
func (k *keeper) disconnected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.offlineLocked()
}

func (k *keeper) offlineLocked() {
	if k.link == nil {
		return
	}
	k.link = nil
	k.queues = [2][]job{}
	for _, x := range k.allLocked() {
		x.stopTimer()
		k.doLocked(x, x.disconnect())
	}
	k.idle.Broadcast()
}

// settle blocks until nothing is left to be done, the link has changed, or ctx ends.
func (k *keeper) settle(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.idle.Broadcast()
	})
	defer stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.link
	for ctx.Err() == nil && !k.closed && k.link == l && (k.calling > 0 || len(k.queues[0])+len(k.queues[1]) > 0) {
		k.idle.Wait()
	}
}

// change alters what is registered in a service and blocks until a server has taken
// it, has refused it, or ctx ends; in the last case the wish stays.
func (k *keeper) change(ctx context.Context, key naming.ServiceKey, alter func([]naming.Instance) []naming.Instance) error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return ErrClosed
	}
	x := k.registrations[key]
	if x == nil {
		x = &kept{key: key, pauses: backoff{min: k.cfg.BackoffMin, max: k.cfg.BackoffMax}}
		x.online = k.link != nil
		k.registrations[key] = x
	}
	x.wanted = alter(slices.Clone(x.wanted))
	var next step
	if len(x.wanted) > 0 {
		next = x.register()
	} else {
		next = x.deregister()
	}
	w := k.awaitLocked(x)
	k.doLocked(x, next)
	k.mu.Unlock()
	return k.wait(ctx, x, w)
}

// subscribe counts one more user of a service's list and blocks until there is a list.
func (k *keeper) subscribe(ctx context.Context, key naming.ServiceKey) (*entry, error) {
	return k.interest(ctx, key, false)
}

// pin is subscribe for users that never end.
func (k *keeper) pin(ctx context.Context, key naming.ServiceKey) (*entry, error) {
	return k.interest(ctx, key, true)
}

func (k *keeper) interest(ctx context.Context, key naming.ServiceKey, pin bool) (*entry, error) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, ErrClosed
	}
	x := k.subscriptions[key]
	if x == nil {
		x = &kept{key: key, entry: k.cache.get(key), pauses: backoff{min: k.cfg.BackoffMin, max: k.cfg.BackoffMax}}
		x.online = k.link != nil
		k.subscriptions[key] = x
	}
	if !pin || !x.pinned {
		x.users++
	}
	x.pinned = x.pinned || pin
	if x.want && x.met(x.rev) || x.entry.shown.Load() != nil {
		if !x.want {
			k.doLocked(x, x.register())
		}
		k.mu.Unlock()
		return x.entry, nil
	}
	next := stepNone
	if !x.want {
		next = x.register()
	}
	w := k.awaitLocked(x)
	k.doLocked(x, next)
	k.mu.Unlock()
	if err := k.wait(ctx, x, w); err != nil {
		if pin {
			k.mu.Lock()
			x.pinned = false
			k.mu.Unlock()
		}
		k.unsubscribe(x.entry)
		return nil, err
	}
	return x.entry, nil
}

// unsubscribe counts one user less; with the last one the subscription ends.
func (k *keeper) unsubscribe(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.subscriptions[e.key]
	if x == nil || x.entry != e {
		return
	}
	if x.users--; x.users <= 0 && x.want && !k.closed {
		k.doLocked(x, x.deregister())
	}
}

// doubt asks for a service's list again.
func (k *keeper) doubt(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.subscriptions[e.key]; x != nil && x.entry == e {
		k.doLocked(x, x.doubt())
	}
}

// doubtAll asks for every list again.
func (k *keeper) doubtAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range k.subscriptions {
		k.doLocked(x, x.doubt())
	}
}

// withdrawAll deregisters everything and blocks until that is done, ctx ends, or the
// link does: the server sees that as well.
func (k *keeper) withdrawAll(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.idle.Broadcast()
	})
	defer stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	var left []*kept
	for _, x := range k.registrations {
		if x.wanted = nil; x.want {
			k.doLocked(x, x.deregister())
		}
		left = append(left, x)
	}
	l := k.link
	for {
		left = slices.DeleteFunc(left, func(x *kept) bool { return x.met(x.rev) })
		switch {
		case len(left) == 0 || l == nil || k.link != l:
			return nil
		case ctx.Err() != nil:
			return errors.Join(fmt.Errorf("%d services, among them %s: %w", len(left), left[0].key.Grouped(), context.Cause(ctx)), left[0].lastErr)
		}
		k.idle.Wait()
	}
}

// counts returns how many wishes there are and how many of them are met.
func (k *keeper) counts() (registrations, subscriptions, unmet int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range k.registrations {
		if x.want {
			registrations++
		}
	}
	for _, x := range k.subscriptions {
		if x.want {
			subscriptions++
		}
	}
	for _, x := range k.allLocked() {
		if !x.met(x.rev) {
			unmet++
		}
	}
	return registrations, subscriptions, unmet
}

func (k *keeper) awaitLocked(x *kept) *waiter {
	w := &waiter{rev: x.rev, done: make(chan error, 1)}
	x.waiters = append(x.waiters, w)
	return w
}

func (k *keeper) wait(ctx context.Context, x *kept, w *waiter) error {
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	x.waiters = slices.DeleteFunc(x.waiters, func(o *waiter) bool { return o == w })
	select {
	case err := <-w.done:
		return err
	default:
	}
	why := x.lastErr
	if k.link == nil {
		why = ErrNotConnected
	}
	if why == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w (%w)", context.Cause(ctx), why)
}

// finish ends the waiting of those for which outcome is nil or an error; waiting means
// that it goes on.
func (x *kept) finish(outcome func(*waiter) error) {
	x.waiters = slices.DeleteFunc(x.waiters, func(w *waiter) bool {
		err := outcome(w)
		if errors.Is(err, errWaiting) {
			return false
		}
		w.done <- err
		return true
	})
}

var errWaiting = errors.New("waiting")

// registers tells whether the wish is a registration.
func (x *kept) registers() bool { return x.entry == nil && x.pattern == nil }

// what names the kind of the wish and what it is about.
func (x *kept) what() (kind, name string) {
	switch {
	case x.pattern != nil:
		return "watch", x.pattern.key.String()
	case x.entry != nil:
		return "subscription", x.key.Grouped()
	}
	return "registration", x.key.Grouped()
}

func (x *kept) stopTimer() {
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
	}
}
