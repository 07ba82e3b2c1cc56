package distro

import (
	"slices"
	"time"
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
	why      lost
	votes    map[string]bool // the nodes that were refused by its port
	swept    int             // the next bucket to sweep
	// compared is when an answer to the last comparison began to be waited for.
	compared     time.Time
	comparedWith string
}

func (o *orphan) gone() bool { return !o.since.IsZero() }

// removal is the pace at which orphans of a service are removed.
type removal struct {
	base int       // live entries when it began
	next time.Time // when the next one may be removed
}

// maxBuried bounds the owners that are remembered to be gone for good.
const maxBuried = 1 << 14

// adoptionsPerTick bounds what a tick takes over of publishers over HTTP.
const adoptionsPerTick = 200

// Shares of a service or of everything.
const (
	removalShare = 0.05 // of a service that all nodes together remove in a second
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
		o.orphan = orphan{compared: o.compared, comparedWith: o.comparedWith}
		return
	}
	why := silent
	switch {
	case o.node == c.self.node, p != nil && p.boot > o.boot:
		why = restarted
	case p != nil && p.boot == o.boot:
		why = p.lost
	}
	grace := c.cfg.Grace
	if why == silent {
		grace = c.cfg.GraceSilent
	}
	switch end := c.now.Add(grace); {
	case o.since.IsZero():
		o.since, o.deadline, o.why = c.now, end, why
	case o.why == silent && why != silent:
		o.why = why
		if end.Before(o.deadline) {
			o.deadline = end
		}
	}
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
		if !contact {
			continue
		}
		spared := mass && o.why == silent && c.now.Sub(o.since) < c.cfg.MassWait
		expired := calm && c.now.After(o.deadline) && !spared
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
				c.sweepOne(e, expired, adopt)
			}
			if o.swept++; o.swept == bucketCount {
				o.swept = 0
			}
		}
	}
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
	// One whose client is back elsewhere is not shown: its end is not seen.
	if expired && c.heir(e) && (c.shown(e) != e || e.service.mayRemove(c.now, len(c.heirs))) {
		c.bury(e, c.shown(e) != e)
		c.removed++
	}
}

// mayRemove keeps the pace at which a service loses orphans; all heirs together
// keep to removalShare.
func (r *serviceRef) mayRemove(now time.Time, heirs int) bool {
	if now.Sub(r.next) > time.Minute {
		r.base, r.next = r.live, now
	}
	if now.Before(r.next) {
		return false
	}
	r.next = r.next.Add(time.Duration(float64(heirs) / (removalShare * float64(max(r.base, 1))) * float64(time.Second)))
	return true
}

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
			if since = p.heardAt; c.now.Sub(since) < 3*c.cfg.Verify {
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
