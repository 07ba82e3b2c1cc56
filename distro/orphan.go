package distro

import (
	"slices"
	"time"

	"rollcall/consistency"
)

// lost tells why a node is not alive.
type lost int

const (
	silent    lost = iota // it does not answer: it may be cut off, and alive
	left                  // it said good-bye
	refused               // its host answers that nobody listens there any more
	restarted             // another run of it is there
)

func (l lost) String() string {
	switch l {
	case left:
		return "left"
	case refused:
		return "refused"
	case restarted:
		return "restarted"
	case silent:
	}
	return "silent"
}

// orphan is what is known of the death of an owner. Its datums stay as they are
// until the deadline: clients whose connections it held come back elsewhere.
type orphan struct {
	since    time.Time // zero while the owner is there
	deadline time.Time
	removing time.Time // since when its datums are removed, zero while they are not
	why      lost
	over     bool            // another run has followed
	votes    map[string]bool // the nodes that were refused by its port
	swept    int             // the next bucket to sweep
	looked   int             // buckets that were looked through for who is elsewhere already
	// withdrawals are those of clients that were elsewhere while the owner was there:
	// it may have been dead already.
	withdrawals []withdrawal
	// compared is when an answer to the last comparison began to be waited for.
	compared     time.Time
	comparedWith string
}

// withdrawal is the end of a registration at this node, of which another node had an
// older one at the same address.
type withdrawal struct {
	consistency.Key                     // of the older one
	registered      consistency.Version // the newer one
	at              time.Time
}

// maxWithdrawals bounds the withdrawals of one owner that are remembered, and
// withdrawalTime how long: until the death of a node is known to all.
const (
	maxWithdrawals = 4096
	withdrawalTime = time.Minute
)

func (o *orphan) gone() bool { return !o.since.IsZero() }

// maxBuried bounds the owners that are remembered to be gone for good.
const maxBuried = 1 << 14

// adoptionsPerTick bounds what a tick takes over of publishers over HTTP.
const adoptionsPerTick = 200

// Shares of a time or of everything.
const (
	removalShare = 0.1  // of the grace, its last part, over which removals are spread
	massShare    = 0.30 // orphans of silent nodes among all instances, beyond which none is removed
	massFactor   = 1.5  // how much more than its part one node may own
)

// owner returns what is held of a run of a node.
func (c *core) owner(id origin) *owned {
	o := c.owners[id]
	if o == nil {
		o = &owned{origin: id, hash: hashText(0, id.node)}
		c.owners[id] = o
		c.ordered = append(c.ordered, o)
		c.assess(o)
	}
	return o
}

// assess enters whether an owner is there.
func (c *core) assess(o *owned) {
	if o == c.self || o.origin == c.self.origin {
		return
	}
	p := c.peers[o.node]
	if p != nil && p.alive && p.boot == o.boot {
		delete(c.buried, o.origin)
		o.orphan = orphan{compared: o.compared, comparedWith: o.comparedWith, withdrawals: o.withdrawals}
		return
	}
	why := silent
	switch {
	case p != nil && p.boot == o.boot:
		why = p.lost
	case o.node == c.self.node, o.over, p != nil && p.boot > o.boot:
		why = restarted
	}
	switch end := c.now.Add(c.grace(why)); {
	case o.since.IsZero():
		o.since, o.deadline, o.why = c.now, end, why
	case o.why == silent && why != silent:
		o.why = why
		if end.Before(o.deadline) {
			o.deadline = end
		}
	}
}

// grace returns how long what an owner that is gone had stays at most.
func (c *core) grace(why lost) time.Duration {
	if why == silent {
		return c.cfg.GraceSilent
	}
	return c.cfg.Grace
}

// refusal notes that a node was refused by the port of one that is gone. One node
// alone may be refused by a firewall: two must say so, unless there is only one.
func (c *core) refusal(id origin, by string) {
	p := c.peers[id.node]
	if p == nil || p.alive || p.boot != id.boot || p.lost != silent {
		return
	}
	o := c.owner(id)
	if o.votes == nil {
		o.votes = make(map[string]bool)
	}
	o.votes[by] = true
	if o.votes[c.self.node] && (len(o.votes) > 1 || len(c.alive) == 0) {
		p.lost = refused
		if len(c.held) > 0 { // who was there is on the way
			c.settledAt = later(c.settledAt, c.now.Add(afterPause))
		}
		c.assess(o)
	}
}

// sweep goes on with what has to be done about owners that are gone.
func (c *core) sweep() {
	c.adopted = 0
	contact := c.contact()
	calm := contact && !c.now.Before(c.calmAt)
	mass := c.mass()
	for _, o := range slices.Clone(c.ordered) {
		if !o.gone() {
			o.forgetWithdrawals(c.now)
			continue
		}
		if o.live == 0 && c.now.After(o.deadline) {
			if calm && c.settled() && c.loaded && len(c.buried) < maxBuried {
				c.buried[o.origin] = true
			}
			delete(c.owners, o.origin)
			c.ordered = slices.DeleteFunc(c.ordered, func(x *owned) bool { return x == o })
			continue
		}
		c.lookElsewhere(o)
		if !contact {
			continue
		}
		spared := mass && o.why == silent && c.now.Sub(o.since) < c.cfg.MassWait
		over := time.Duration(float64(c.grace(o.why)) * removalShare)
		switch {
		case !calm, spared, c.now.Before(o.deadline.Add(-over)):
			o.removing = time.Time{}
		case o.removing.IsZero():
			o.removing = c.now
		}
		expired := !o.removing.IsZero()
		part := float64(c.now.Sub(o.removing)) / float64(over)
		age := c.now.Sub(o.since)
		adopt := age > c.cfg.MassWait || o.why != silent && age > c.cfg.Grace
		if o.live == 0 || !expired && !adopt {
			continue
		}
		for steps, buckets := 0, 0; steps < stepsPerTick && buckets < bucketCount; buckets++ {
			var next *entry
			for e := o.buckets[o.swept].first; e != nil; e = next {
				next = e.down
				steps++
				c.sweepOne(e, expired && position(e) <= part, adopt)
			}
			if o.swept++; o.swept == bucketCount {
				o.swept = 0
			}
		}
	}
}

// noteWithdrawal remembers that a client that had e has withdrawn a newer registration.
func (o *orphan) noteWithdrawal(e *entry, registered consistency.Version, now time.Time) {
	if len(o.withdrawals) < maxWithdrawals {
		k := consistency.Key{Service: e.service.key, Kind: consistency.KindInstance, Publisher: e.publisher, Instance: e.instance.Key()}
		o.withdrawals = append(o.withdrawals, withdrawal{k, registered, now})
	}
}

func (o *orphan) forgetWithdrawals(now time.Time) {
	n := 0
	for n < len(o.withdrawals) && now.Sub(o.withdrawals[n].at) > withdrawalTime {
		n++
	}
	if o.withdrawals = o.withdrawals[n:]; len(o.withdrawals) == 0 {
		o.withdrawals = nil
	}
}

// lookElsewhere goes on with looking for clients that came to this node, or have left it
// again, before their first node was known to be gone: what they had there is no more.
func (c *core) lookElsewhere(o *owned) {
	for _, w := range o.withdrawals {
		s := c.services[w.Service]
		if s == nil {
			continue
		}
		if e := c.find(s, s.row(w.Instance), w.Publisher, w.Instance); e != nil && !e.tombstone && e.owner == o && e.version().Compare(w.registered) < 0 {
			c.bury(e, true)
		}
	}
	o.withdrawals = nil
	for steps := 0; steps < stepsPerTick && o.looked < bucketCount; o.looked++ {
		var next *entry
		for e := o.buckets[o.looked].first; e != nil; e = next {
			next = e.down
			steps++
			if !isAddress(e.publisher) && c.isElsewhere(e) {
				c.bury(e, true)
			}
		}
	}
}

// isElsewhere tells whether the client of an orphan has registered its address at this
// node since.
func (c *core) isElsewhere(orphan *entry) bool {
	k := orphan.instance.Key()
	for e := c.rows[orphan.service.row(k)]; e != nil; e = e.other {
		if e != orphan && e.owner == c.self && !e.tombstone && e.service == orphan.service &&
			e.instance.Key() == k && orphan.version().Compare(e.version()) < 0 {
			return true
		}
	}
	return false
}

// sweepOne decides about one datum of an owner that is gone.
func (c *core) sweepOne(e *entry, expired, adopt bool) {
	if isAddress(e.publisher) {
		// It lives by heartbeats that others hear. So that it is in the hands of a
		// node that is there, its owner takes it over as it is.
		if adopt && c.adopted < adoptionsPerTick && c.isOwner(e.publisher) {
			c.adopted++
			c.write(e, e.instance, value{time: e.time + 1, inferred: e.inferred})
		}
		return
	}
	if expired && c.heir(e) {
		c.bury(e, c.shown(e) != e)
		c.removed++
	}
}

// position returns where a datum stands among those to be removed, in [0, 1): it
// spreads those of each service evenly.
func position(e *entry) float64 { return float64(e.hash>>32) / (1 << 32) }

// mass tells whether so much is orphaned by silence that a fault of the network is
// likelier than the death of the clients: more than one node's part of it.
func (c *core) mass() bool {
	silentLive, all := 0, 0
	nodes := len(c.alive) + 1
	for _, o := range c.ordered {
		all += o.live
		if o.gone() && o.why == silent {
			silentLive += o.live
			nodes++
		}
	}
	return float64(silentLive) > float64(all)*max(massShare, massFactor/float64(nodes))
}

// contact tells whether this node may decide about what others own.
func (c *core) contact() bool { return c.cfg.InContact == nil || c.cfg.InContact() }

// unheard is how many times in a row a node says nothing until it counts as not heard.
const unheard = 3

// mayExpire tells whether this node may take clients to be silent that could be
// heard by another one.
func (c *core) mayExpire() bool {
	if c.now.Before(c.calmAt) || len(c.handovers) > 0 {
		return false
	}
	missing := false
	for _, p := range c.peers {
		since := p.lostAt
		switch {
		case !p.alive && p.lost != silent:
			continue
		case p.alive: // perhaps only by way of another node
			if since = p.heardAt; c.now.Sub(since) < unheard*c.cfg.Verify {
				continue
			}
		}
		missing = true
		if c.now.Sub(since) < c.cfg.GraceSilent {
			return false
		}
	}
	return !missing || c.contact()
}
