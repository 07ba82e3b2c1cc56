package distro

import (
	"maps"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// entry is the newest known version of one datum.
type entry struct {
	value
	service   *serviceRef
	publisher string
	instance  *naming.Instance // of a tombstone only its key
	owner     *owned           // the run of a node that wrote this version
	hash      uint64           // of the key

	seq        uint64 // of the last change by this node; 0: it is not this node's word
	prev, next *entry // in the order of seq
	up, down   *entry // in the bucket of the owner, while live
	other      *entry // the next one with the same row hash
}

// serviceRef is a service that there are entries of.
type serviceRef struct {
	key     naming.ServiceKey
	hash    uint64
	meta    map[string]string // the last that came, which the next one may share
	entries int
	live    int
}

// hybridClock is a hybrid logical clock that is told the time; compare
// [consistency.Clock].
type hybridClock struct{ last uint64 }

const counterBits = 16

func hybrid(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) << counterBits }

func (h *hybridClock) next(now time.Time) uint64 {
	h.last = max(h.last+1, hybrid(now))
	return h.last
}

// row is the hash of an address in a service, whoever publishes it.
func (s *serviceRef) row(k naming.InstanceKey) uint64 {
	return mix(hashText(s.hash, k.Cluster, k.IP) + uint64(k.Port))
}

// find returns the entry of a key, nil if there is none.
func (c *core) find(s *serviceRef, row uint64, publisher string, k naming.InstanceKey) *entry {
	for e := c.rows[row]; e != nil; e = e.other {
		if e.service == s && e.publisher == publisher && e.instance.Key() == k {
			return e
		}
	}
	return nil
}

// service returns a service, entering it if it is new.
func (c *core) service(k naming.ServiceKey) *serviceRef {
	s := c.services[k]
	if s == nil {
		s = &serviceRef{key: k, hash: hashText(0, k.Namespace, k.Group, k.Name)}
		c.services[k] = s
	}
	return s
}

// enter returns the entry of a key. A new one counts as deleted before all times
// until something is assigned to it.
func (c *core) enter(s *serviceRef, publisher string, i *naming.Instance) *entry {
	k := i.Key()
	row := s.row(k)
	if e := c.find(s, row, publisher, k); e != nil {
		return e
	}
	e := &entry{
		value: value{tombstone: true}, service: s, publisher: publisher, instance: i,
		hash: mix(row + hashText(0, publisher)), other: c.rows[row],
	}
	c.rows[row] = e
	s.entries++
	return e
}

// drop forgets a tombstone.
func (c *core) drop(e *entry) {
	c.unqueue(e)
	row := e.service.row(e.instance.Key())
	if first := c.rows[row]; first == e {
		if c.rows[row] = e.other; e.other == nil {
			delete(c.rows, row)
		}
	} else {
		for first.other != e {
			first = first.other
		}
		first.other = e.other
	}
	if e.service.entries--; e.service.entries == 0 {
		delete(c.services, e.service.key)
	}
	e.value = value{} // a second grave of it means nothing
}

// shown returns what a view shows at the address of e: the newest live entry.
func (c *core) shown(e *entry) (best *entry) {
	k := e.instance.Key()
	for o := c.rows[e.service.row(k)]; o != nil; o = o.other {
		if !o.tombstone && o.service == e.service && o.instance.Key() == k && (best == nil || o.version().Compare(best.version()) > 0) {
			best = o
		}
	}
	return best
}

// assign gives an entry another version and notes what that means to readers.
func (c *core) assign(e *entry, i *naming.Instance, v value, o *owned) {
	live := !e.tombstone
	var before, after *naming.Instance
	if w := c.shown(e); w != nil {
		before = w.instance
	}
	if live {
		e.unplace()
		e.service.live--
	}
	c.unqueue(e)
	e.instance, e.value, e.owner = i, v, o
	if v.tombstone {
		c.graves = append(c.graves, grave{e, v.time, c.now})
		if i = nil; !live {
			return
		}
	} else {
		e.place()
		e.service.live++
	}
	if w := c.shown(e); w != nil {
		after = w.instance
	}
	quiet := before == after || before != nil && after != nil && before.Equal(after)
	c.changes = append(c.changes, consistency.Change{Quiet: quiet, Datum: consistency.Datum{
		Key: consistency.Key{
			Service: e.service.key, Kind: consistency.KindInstance, Publisher: e.publisher, Instance: e.instance.Key(),
		},
		Version: e.version(), Instance: i,
	}})
}

// write gives an entry a version of this node, and queues it for the others.
func (c *core) write(e *entry, i *naming.Instance, v value) {
	c.clock.last = max(c.clock.last, v.time)
	c.assign(e, i, v, c.self)
	c.queue(e)
}

// bury writes the tombstone of a live entry that nobody asked for: anything that
// was said of it later than what is known here still wins.
func (c *core) bury(e *entry, moved bool) {
	c.write(e, keyOnly(e.instance), value{time: e.time + 1, tombstone: true, inferred: true, moved: moved})
}

// merge takes another node's version of a datum. older tells that the version here
// is newer.
func (c *core) merge(d *datum) (e *entry, older bool) {
	c.clock.last = max(c.clock.last, d.time)
	e = c.enter(c.service(d.service), d.publisher, d.instance)
	incoming := consistency.Version{Time: d.time, Node: d.owner.node}
	if e.owner != nil {
		if order := incoming.Compare(e.version()); order <= 0 {
			return e, order < 0
		}
	}
	switch {
	case e.owner == c.self && !e.inferred && d.owner.node == c.self.node && d.owner.boot < c.self.boot:
		// What an earlier run of this node wrote came before, though its clock was ahead.
		c.write(e, e.instance, value{time: d.time + 1, tombstone: e.tombstone, moved: e.moved})
		return e, true
	case !d.tombstone && (d.owner == c.self.origin || c.buried[d.owner] && !isAddress(d.publisher)):
		// What this run wrote itself it knows better, and what an owner left behind
		// that is gone for good was removed: the sender missed that.
		c.write(e, keyOnly(d.instance), value{time: d.time + 1, tombstone: true, inferred: true})
		return e, true
	case !e.tombstone && (d.tombstone || d.silences(e)) && c.denies(e, d):
		c.write(e, e.instance, value{time: d.time + 1})
		return e, true
	case d.tombstone && d.inferred && !e.tombstone && !isAddress(e.publisher) && !e.owner.gone() && d.owner != e.owner.origin:
		// Somebody holds that the owner is gone, and does not see what is seen here.
		// The owner will say what is right.
		return e, false
	}
	if d.tombstone && d.inferred && c.hold(e, *d) {
		return e, false
	}
	if s := e.service; len(d.instance.Metadata) > 0 {
		if maps.Equal(s.meta, d.instance.Metadata) {
			d.instance.Metadata = s.meta
		} else {
			s.meta = d.instance.Metadata
		}
	}
	c.assign(e, d.instance, d.value, c.owner(d.owner))
	if !e.tombstone && isAddress(e.publisher) && c.isOwner(e.publisher) {
		c.took = append(c.took, e)
	}
	return e, false
}

// silences tells whether a datum says of an instance over HTTP that it is unhealthy,
// because its client was not heard.
func (d *datum) silences(e *entry) bool {
	return !d.tombstone && d.inferred && isAddress(d.publisher) && e.instance.Healthy && !d.instance.Healthy
}

// denies tells whether this node knows that the instance lives, though another one
// removed it or took it to be silent: no other may remove what clients that are
// connected here have published, and none may conclude anything from the silence of
// a client that is heard here.
func (c *core) denies(e *entry, d *datum) bool {
	if !isAddress(e.publisher) {
		return e.owner == c.self
	}
	return d.inferred && d.heard
}

// publish makes instances all that a publisher has in a service.
func (c *core) publish(p consistency.Publication, inferred bool) {
	old := c.table.Published(p.Service, p.Publisher)
	if len(old) == 0 && len(p.Instances) == 0 {
		return
	}
	s := c.service(p.Service)
	now := c.clock.next(c.now)
	var kept map[naming.InstanceKey]bool
	if len(old) > 0 && len(p.Instances) > 0 {
		kept = make(map[naming.InstanceKey]bool, len(p.Instances))
		for _, i := range p.Instances {
			kept[i.Key()] = true
		}
	}
	for _, i := range old {
		if !kept[i.Key()] {
			c.withdraw(c.enter(s, p.Publisher, i), now, inferred)
		}
	}
	last := p.Instances
	if len(last) > 1 { // of two with one key the later counts
		at := make(map[naming.InstanceKey]int, len(last))
		last = nil
		for _, i := range p.Instances {
			if n, ok := at[i.Key()]; ok {
				last[n] = i
				continue
			}
			at[i.Key()] = len(last)
			last = append(last, i)
		}
	}
	for _, i := range last {
		c.put(c.enter(s, p.Publisher, i), i, now, inferred)
	}
}

// put writes a live version.
func (c *core) put(e *entry, i *naming.Instance, now uint64, inferred bool) {
	if inferred && !e.tombstone {
		now = e.time + 1
	}
	c.write(e, i, value{time: now, inferred: inferred})
	if !inferred {
		c.claim(e, e.version())
	}
}

// withdraw writes a tombstone, of the time now; of one that is inferred the time follows
// from the entry.
func (c *core) withdraw(e *entry, now uint64, inferred bool) {
	if e.tombstone {
		return
	}
	registered := e.version()
	if inferred {
		now = e.time + 1
		d := datum{owner: c.self.origin, instance: keyOnly(e.instance), value: value{time: now, tombstone: true, inferred: true}}
		if !isAddress(e.publisher) && c.hold(e, d) {
			return
		}
	}
	// A client that came to another node after its connection here was lost: who cannot
	// hear that node is to show what it has there all the same.
	moved := false
	if inferred && !isAddress(e.publisher) {
		w := c.shown(e)
		moved = w != nil && w != e
	}
	c.write(e, keyOnly(e.instance), value{time: now, tombstone: true, inferred: inferred, moved: moved})
	if !inferred {
		c.claim(e, registered)
	}
}

// claim removes the orphans at the address of an entry that are older than its
// registration: the client came to this node after it had lost another one. Else an
// orphan would show again once the client leaves.
func (c *core) claim(e *entry, registered consistency.Version) {
	k := e.instance.Key()
	for o := c.rows[e.service.row(k)]; o != nil; o = o.other {
		if o == e || o.tombstone || isAddress(o.publisher) || o.service != e.service ||
			o.instance.Key() != k || o.version().Compare(registered) >= 0 {
			continue
		}
		switch {
		case o.owner.gone():
			c.bury(o, true)
		case e.tombstone && o.owner != c.self:
			o.owner.noteWithdrawal(o, registered, c.now)
		}
	}
}

// After a pause of this node, or a cut of the network, what has happened meanwhile
// arrives from one node after the other: first that a client has left a node, then
// perhaps that it has come to another. Times until what must have arrived has.
const (
	afterPause = 10 * time.Second
	afterCut   = 5 * time.Second
)

// maxHeld bounds what is held back.
const maxHeld = 1 << 17

// held is a tombstone that waits for the time when all is known.
type held struct {
	datum
	e   *entry
	was *naming.Instance
}

// hold keeps a tombstone back that would take an instance from the view while not
// all is known, and that no client has asked for.
func (c *core) hold(e *entry, d datum) bool {
	if e.tombstone || c.settled() || len(c.held) >= maxHeld {
		return false
	}
	k := e.instance.Key()
	own := d.owner == c.self.origin // a connection was lost: the client may be on its way
	for o := c.rows[e.service.row(k)]; o != nil; o = o.other {
		if o != e && !own && !o.tombstone && o.service == e.service && o.instance.Key() == k {
			return false
		}
	}
	c.held = append(c.held, held{d, e, e.instance})
	return true
}

// lacks tells whether there is a node that has not been heard to the end since a time after
// this one was paused or cut off: the next fault has come before what the first one
// delayed. It is waited for as long as for a node that is silent.
func (c *core) lacks(since time.Time) bool {
	if c.now.Sub(c.unsettledAt) > c.cfg.GraceSilent {
		return false
	}
	for _, p := range c.peers {
		if (p.alive || p.lost == silent && p.lostAt.After(c.unsettledAt)) && p.completeAt.Before(since) {
			return true
		}
	}
	return false
}

// settle lets the tombstones that were held back take effect. Of a connection that was
// lost here, once all nodes have been heard after the time in which clients come back, and
// not while this node is likely to be what is cut off: the client may have gone where it
// hears nothing from.
func (c *core) settle() {
	if len(c.held) == 0 || !c.settled() {
		return
	}
	elsewhere := c.lacks(c.settledAt) || !c.contact() && !c.mayExpire() // perhaps
	all := c.held
	c.held = nil
	for _, h := range all {
		own := h.owner == c.self.origin
		switch {
		case h.e.tombstone:
		case own && elsewhere:
			c.held = append(c.held, h)
		case own:
			if h.e.instance == h.was { // else it was published again
				c.withdraw(h.e, 0, true)
			}
		case (consistency.Version{Time: h.time, Node: h.owner.node}).Compare(h.e.version()) > 0:
			c.assign(h.e, h.instance, h.value, c.owner(h.owner))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remove deletes one datum.
func (c *core) remove(k consistency.Key, inferred bool) {
	s := c.services[k.Service]
	if s == nil {
		return
	}
	if e := c.find(s, s.row(k.Instance), k.Publisher, k.Instance); e != nil {
		c.withdraw(e, c.clock.next(c.now), inferred)
	}
}

// maxGraves bounds the deletions that are remembered. When there are more, the oldest
// are forgotten sooner, but not below minGrave: verifying finds what was missed.
const (
	maxGraves = 1 << 18
	minGrave  = time.Minute
)

// grave is a tombstone that will be forgotten.
type grave struct {
	e    *entry
	time uint64
	at   time.Time
}

// forget drops tombstones that are older than any delay.
func (c *core) forget() {
	n := 0
	for n < len(c.graves) {
		age := c.now.Sub(c.graves[n].at)
		if age <= c.cfg.Tombstones && (age <= minGrave || len(c.graves)-n <= maxGraves) {
			break
		}
		if g := c.graves[n]; g.e.tombstone && g.e.time == g.time {
			c.drop(g.e)
		}
		c.graves[n] = grave{}
		n++
	}
	if c.graves = c.graves[n:]; len(c.graves) == 0 {
		c.graves = nil
	}
}
