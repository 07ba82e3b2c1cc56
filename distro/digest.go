package distro

import (
	"time"

	"rollcall/consistency"
)

// bucketCount is how many parts the datums of one owner are compared in.
const bucketCount = 1024

// owned is what this node holds of one run of a node, itself included: the live
// datums whose newest version that run has written.
type owned struct {
	origin
	hash    uint64 // of the node's name
	digest  uint64 // of all buckets together
	live    int
	buckets [bucketCount]bucket
	orphan  // what is known of its death
}

// digests returns those of all buckets.
func (o *owned) digests() []uint64 {
	digests := make([]uint64, bucketCount)
	for n := range o.buckets {
		digests[n] = o.buckets[n].digest
	}
	return digests
}

// bucket is one part of an owner's datums. Its digest is the XOR of one number for
// each datum, so that it is kept current at each change.
type bucket struct {
	digest uint64
	first  *entry
}

// mix spreads the bits of x (the finalizer of MurmurHash3, public domain).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// hashText goes on with the hash h (FNV-1a). Nodes compare hashes with each other:
// this must never change.
func hashText(h uint64, texts ...string) uint64 {
	const prime = 1099511628211
	if h == 0 {
		h = 14695981039346656037
	}
	for _, s := range texts {
		for n := range len(s) {
			h = (h ^ uint64(s[n])) * prime
		}
		h = (h ^ 0x1ff) * prime // texts do not run into each other
	}
	return h
}

// number is what a datum adds to the digest of its bucket.
func (e *entry) number() uint64 { return mix(e.hash ^ mix(e.time^e.owner.hash)) }

func (e *entry) bucket() int { return int(e.hash >> 54) }

// place enters a live datum with its owner.
func (e *entry) place() {
	o, b := e.owner, &e.owner.buckets[e.bucket()]
	e.up, e.down = nil, b.first
	if b.first != nil {
		b.first.up = e
	}
	b.first = e
	b.digest ^= e.number()
	o.digest ^= e.number()
	o.live++
}

// unplace takes a live datum from its owner; call it before it changes.
func (e *entry) unplace() {
	o, b := e.owner, &e.owner.buckets[e.bucket()]
	if e.up != nil {
		e.up.down = e.down
	} else {
		b.first = e.down
	}
	if e.down != nil {
		e.down.up = e.up
	}
	e.up, e.down = nil, nil
	b.digest ^= e.number()
	o.digest ^= e.number()
	o.live--
}

// rootsFor returns the message of roots for a peer, or for whoever reads it if p is
// nil.
func (c *core) rootsFor(p *peer) []byte {
	m := message{boot: c.self.boot, tail: c.seq}
	if p != nil {
		m.heard.boot, m.last = p.boot, p.have
	}
	for _, o := range c.ordered {
		if o.live > 0 || o == c.self {
			m.roots = append(m.roots, root{o.origin, o.live, o.digest})
		}
	}
	return encodeRoots(&m)
}

// maxOwners bounds what other nodes can make this one remember of nodes that nothing
// was heard of.
const maxOwners = 4096

// onRoots compares what a peer holds with what is held here.
func (c *core) onRoots(p *peer, m *message) {
	c.meet(p, m.boot)
	if m.boot != p.boot {
		return
	}
	if m.heard.boot == c.self.boot {
		p.acked = max(p.acked, m.last)
	}
	c.know(p, m.tail)
	p.newest = max(p.newest, m.tail)
	c.aim(p, m.tail)
	if !p.alive {
		p.early = m
		return
	}
	p.early = nil
	if p.have < m.tail && p.have == p.haveBefore {
		c.ask(p) // nothing came since the last time, though there is more
	}
	p.haveBefore = p.have
	theirs := make(map[origin]root, len(m.roots))
	for _, r := range m.roots {
		theirs[r.origin] = r
		if c.owners[r.origin] == nil && (r.live == 0 || len(c.owners) >= maxOwners) {
			continue
		}
		o := c.owner(r.origin)
		switch {
		case o == c.self:
		case o.node == p.name && o.boot == p.boot:
			if p.have == m.tail { // else they differ as a matter of course
				c.judge(p, o, r.live != o.live || r.digest != o.digest)
			}
		case o.gone():
			c.judgeOrphans(p, o, r)
		}
	}
	for _, o := range c.ordered {
		if _, ok := theirs[o.origin]; !ok && o.gone() && o.live > 0 {
			c.judgeOrphans(p, o, root{origin: o.origin})
		}
	}
	p.rooted = true
}

// judgeOrphans compares the datums of an owner that is gone. One of two nodes does
// it for both.
func (c *core) judgeOrphans(p *peer, o *owned, r root) {
	if c.loaded && c.settled() && c.self.node > p.name {
		return
	}
	c.judge(p, o, r.live != o.live || r.digest != o.digest)
}

func (c *core) judge(p *peer, o *owned, differs bool) {
	if !differs {
		delete(p.differs, o.origin)
		o.compared = time.Time{}
		return
	}
	since, ok := p.differs[o.origin]
	if !ok {
		p.differs[o.origin] = c.now
	}
	if c.loaded && c.settled() && (!ok || c.now.Sub(since) < c.cfg.Verify/2) {
		return // what is under way makes a difference too
	}
	if o.compared.Add(compareAgain).After(c.now) {
		return // an answer is under way, perhaps from another peer
	}
	delete(p.differs, o.origin)
	o.compared, o.comparedWith = c.now, p.name
	c.repairs++
	c.send(p, encodeCompare(o.origin, o.digests()))
}

// compareAgain is how long the answer to a comparison is waited for.
const compareAgain = time.Second

// listingJob is the answer to a comparison that is on its way: the buckets that
// differ.
type listingJob struct {
	owner   origin
	buckets []uint16 // still to be sent
}

// onCompare answers a comparison with the contents of the buckets that differ.
func (c *core) onCompare(p *peer, m *message) {
	job := listingJob{owner: m.owner}
	o := c.owner(m.owner)
	for n, d := range m.digests {
		if o.buckets[n].digest != d {
			job.buckets = append(job.buckets, uint16(n))
		}
	}
	for n := range p.jobs {
		if p.jobs[n].owner == job.owner { // asked again: this is newer
			p.jobs[n] = job
			return
		}
	}
	p.jobs = append(p.jobs, job)
	c.hooks.wake(p.name)
}

// listing makes the next message of the first job.
func (c *core) listing(p *peer) []byte {
	job := &p.jobs[0]
	o := c.owner(job.owner)
	size, n := 0, 0
	for n < len(job.buckets) && size < chunkSize {
		for e := o.buckets[job.buckets[n]].first; e != nil; e = e.down {
			size += datumSize
		}
		n++
	}
	done := n == len(job.buckets)
	enc := newEncoder(kindListing, size+256)
	enc.owner = o.origin
	enc.listing(o.origin, o == c.self, done, c.clock.next(c.now), job.buckets[:n])
	for _, b := range job.buckets[:n] {
		for e := o.buckets[b].first; e != nil; e = e.down {
			d := e.datum()
			enc.datum(&d)
		}
	}
	if job.buckets = job.buckets[n:]; done {
		p.jobs = p.jobs[1:]
	}
	return enc.b
}

// onListing repairs the buckets that a peer has listed.
func (c *core) onListing(p *peer, m *message) {
	o := c.owner(m.owner)
	if m.done && o.comparedWith == p.name {
		o.compared = time.Time{}
	}
	listed := make(map[*entry]bool, len(m.datums))
	var back []*entry
	for n := range m.datums {
		e, older := c.merge(&m.datums[n])
		listed[e] = true
		if older {
			back = append(back, e)
		}
	}
	final := m.final && m.owner.node == p.name
	for _, b := range m.buckets {
		var next *entry
		for e := o.buckets[b].first; e != nil; e = next {
			next = e.down
			switch {
			case listed[e] || e.time > m.asOf && m.final:
			case final && !isAddress(e.publisher):
				// The owner does not have it, and nobody else could have it.
				d := datum{owner: o.origin, instance: keyOnly(e.instance), value: value{time: e.time + 1, tombstone: true, inferred: true}}
				if !c.hold(e, d) {
					c.assign(e, d.instance, d.value, o)
					c.repaired++
				}
			default:
				back = append(back, e)
			}
		}
	}
	c.sendDatums(p, back)
}

// sendDatums sends the present versions of datums.
func (c *core) sendDatums(p *peer, entries []*entry) {
	for len(entries) > 0 {
		n := min(len(entries), chunkSize/datumSize)
		enc := newEncoder(kindDatums, n*datumSize)
		for _, e := range entries[:n] {
			c.encode(enc, e)
		}
		c.send(p, enc.b)
		entries = entries[n:]
	}
}

// onDatums takes datums that a peer has found missing here.
func (c *core) onDatums(p *peer, m *message) {
	var back []*entry
	for n := range m.datums {
		if e, older := c.merge(&m.datums[n]); older {
			back = append(back, e)
		}
	}
	c.sendDatums(p, back)
}

// encode writes a datum. What has taken the place of an instance that moved goes
// before it: a receiver that knew the tombstone alone would show nothing in between.
func (c *core) encode(enc *encoder, e *entry) {
	if e.moved {
		if w := c.shown(e); w != nil {
			d := w.datum()
			enc.datum(&d)
		}
	}
	d := e.datum()
	enc.datum(&d)
}

func (e *entry) datum() datum {
	return datum{service: e.service.key, publisher: e.publisher, instance: e.instance, value: e.value, owner: e.owner.origin}
}

func (e *entry) version() consistency.Version {
	return consistency.Version{Time: e.time, Node: e.owner.node}
}
