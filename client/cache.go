package client

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/naming"
)

// entry is what the client knows of one service. Lists come from servers, the disk
// cache and failover files; what the application sees is shown.
type entry struct {
	cache *cache
	key   naming.ServiceKey
	shown atomic.Pointer[snapshot] // nil: no list yet

	mu       sync.Mutex
	live     *Service // what servers, or the disk cache, say; nil: nothing yet
	failover *Service // shown in place of live; nil: none
	taken    uint64   // raised by each list that was taken from a server
	session  uint64   // the connection that the last one came over; 0: none
	subs     []*Subscription

	// For a while after a reconnect what was listed stays listed.
	newest *Service    // what is shown when the hold ends
	hold   *time.Timer // nil: there is none
	due    bool        // its time is over: it ends with the next list
}

// snapshot is one list with what selecting from it needs.
type snapshot struct {
	service Service
	table   atomic.Pointer[table] // nil until it is needed
}

// cache holds the entries of all services that somebody is interested in.
type cache struct {
	cfg     Config
	deliver *delivery
	changed func(*Service) // hears of each new list, for the disk; must not block
	// What a new entry begins with; nil for nothing.
	loaded, failed func(naming.ServiceKey) *Service
	doubt          func(*entry) // asks the server for the list again; must not block

	mu      sync.Mutex
	entries map[naming.ServiceKey]*entry
}

func newCache(cfg Config, deliver *delivery) *cache {
	none := func(naming.ServiceKey) *Service { return nil }
	return &cache{
		cfg: cfg, deliver: deliver, changed: func(*Service) {}, loaded: none, failed: none,
		doubt: func(*entry) {}, entries: make(map[naming.ServiceKey]*entry),
	}
}

// find returns a service's entry, nil if there is none.
func (c *cache) find(key naming.ServiceKey) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key]
}

// get returns a service's entry, made if it is not there.
func (c *cache) get(key naming.ServiceKey) *entry {
	c.mu.Lock()
	e := c.entries[key]
	made := e == nil
	if made {
		e = &entry{cache: c, key: key}
		c.entries[key] = e
	}
	c.mu.Unlock()
	if made {
		if s := c.loaded(key); s != nil {
			e.load(s)
		}
		e.setFailover(c.failed(key))
	}
	return e
}

// drop forgets an entry.
func (c *cache) drop(e *entry) {
	c.mu.Lock()
	if c.entries[e.key] == e {
		delete(c.entries, e.key)
	}
	c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endHoldLocked()
}

// all returns the entries in no particular order.
func (c *cache) all() []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*entry, 0, len(c.entries))
	for _, e := range c.entries {
		out = append(out, e)
	}
	return out
}

// holdAll begins the hold of all entries, see Config.Hold.
func (c *cache) holdAll() {
	for _, e := range c.all() {
		e.mu.Lock()
		e.holdLocked()
		e.mu.Unlock()
	}
}

// close stops the timers of all entries.
func (c *cache) close() {
	for _, e := range c.all() {
		e.mu.Lock()
		e.endHoldLocked()
		e.mu.Unlock()
	}
}

// known returns the list that there is of a service, nil for none.
func (c *cache) known(key naming.ServiceKey) *Service {
	if e := c.find(key); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.live
	}
	return nil
}

// mark returns how many lists have been taken from servers: a call notes it before it
// asks.
func (e *entry) mark() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taken
}

// verdict is what became of a list.
type verdict uint8

const (
	taken verdict = iota
	ignored
	outdated // older than what is there, which may mean that the server's clock went back
)

// push takes a list that a server sent by itself over the connection.
func (e *entry) push(s *Service, session uint64) verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case session < e.session: // of a connection that has been replaced
		return ignored
	case session == e.session && s.LastRefTimeMs == e.timeLocked():
		return ignored
	case session == e.session && s.LastRefTimeMs < e.timeLocked():
		return outdated
	}
	e.takeLocked(s, session)
	return taken
}

// answer takes the answer to a call that began when mark was what mark returns. If no
// list has been taken meanwhile it is the newest whatever its time: the server's clock
// may have gone back, or another server's clock may differ.
func (e *entry) answer(s *Service, session, mark uint64) verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	if session < e.session || e.taken != mark && session == e.session && s.LastRefTimeMs <= e.timeLocked() {
		return ignored
	}
	e.takeLocked(s, session)
	return taken
}

// timeLocked returns the time of the newest list.
func (e *entry) timeLocked() int64 {
	switch {
	case e.newest != nil:
		return e.newest.LastRefTimeMs
	case e.live != nil:
		return e.live.LastRefTimeMs
	}
	return 0
}

func (e *entry) takeLocked(s *Service, session uint64) {
	moved := e.session != 0 && session > e.session
	e.taken++
	e.session = session
	if e.live != nil && e.cache.cfg.EmptyProtection && !anySelectable(s.Instances) && len(e.live.Instances) > 0 {
		kept := *s
		kept.Instances, kept.ReachedProtection = e.live.Instances, e.live.ReachedProtection
		s = &kept
	}
	switch {
	case moved:
		e.holdLocked()
	case e.due:
		e.endHoldLocked()
	}
	if e.hold != nil {
		e.newest = s
		merged := *s
		merged.Instances = union(s.Instances, e.live.Instances)
		s = &merged
	}
	e.setLocked(s)
}

// setLocked makes a list the live one. What did not change keeps its memory.
func (e *entry) setLocked(s *Service) {
	if e.live != nil {
		if added, removed, changed := diff(e.live.Instances, s.Instances); len(added)+len(removed)+len(changed) == 0 {
			kept := *s
			kept.Instances = e.live.Instances
			s = &kept
		} else {
			e.cache.changed(s)
		}
	} else {
		e.cache.changed(s)
	}
	e.live = s
	e.showLocked()
}

// holdLocked keeps what is listed listed for a while from now.
func (e *entry) holdLocked() {
	hold := e.cache.cfg.Hold
	if hold <= 0 || e.live == nil {
		return
	}
	if e.hold != nil {
		e.hold.Stop()
	}
	if e.newest == nil {
		e.newest = e.live
	}
	e.due = false
	e.hold = time.AfterFunc(hold, e.release)
}

// release ends the hold: what has not come back by now is gone. The server is asked for
// that first: the news that it did come back may have got lost, or be on its way.
func (e *entry) release() {
	if e.releasedWhole() {
		return
	}
	e.cache.doubt(e)
}

// releasedWhole ends the hold if nothing is missing, or else with the next list.
func (e *entry) releasedWhole() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hold == nil || e.newest == nil {
		return true
	}
	if _, removed, _ := diff(e.live.Instances, e.newest.Instances); len(removed) > 0 {
		e.due = true
		return false
	}
	newest := e.newest
	e.endHoldLocked()
	e.setLocked(newest)
	return true
}

func (e *entry) endHoldLocked() {
	if e.hold != nil {
		e.hold.Stop()
	}
	e.hold, e.newest, e.due = nil, nil, false
}

// load takes a list from the disk cache, unless there is one already.
func (e *entry) load(s *Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live == nil {
		e.live = s
		e.showLocked()
	}
}

// setFailover shows a list in place of the live one; nil ends that.
func (e *entry) setFailover(s *Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failover == s {
		return
	}
	e.failover = s
	e.showLocked()
}

// showLocked makes the present state visible and tells the subscriptions.
func (e *entry) showLocked() {
	s := e.live
	if e.failover != nil {
		s = e.failover
	}
	if s == nil {
		return
	}
	if old := e.shown.Load(); old != nil && sameList(&old.service, s) {
		return
	}
	service := *s
	service.Key = e.key
	e.shown.Store(&snapshot{service: service})
	for _, sub := range e.subs {
		e.cache.deliver.wake(sub)
	}
}

// sameList tells whether two lists are one, time included.
func sameList(a, b *Service) bool {
	if a.LastRefTimeMs != b.LastRefTimeMs || len(a.Instances) != len(b.Instances) || a.ReachedProtection != b.ReachedProtection {
		return false
	}
	return len(a.Instances) == 0 || &a.Instances[0] == &b.Instances[0]
}

func anySelectable(list []*naming.Instance) bool {
	return slices.ContainsFunc(list, selectable)
}

// attach adds a subscription; it is told the present list, if there is one.
func (e *entry) attach(s *Subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subs = append(e.subs, s)
	if e.shown.Load() != nil {
		e.cache.deliver.wake(s)
	}
}

// detach removes a subscription.
func (e *entry) detach(s *Subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n, x := range e.subs {
		if x == s {
			e.subs = append(e.subs[:n:n], e.subs[n+1:]...)
			return
		}
	}
}
