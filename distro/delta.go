package distro

import (
	"slices"
	"time"
)

// Sizes in bytes. A datum takes some 150 bytes, of which a message says repeated
// texts once.
const (
	batchSize   = 64 << 10
	chunkSize   = 256 << 10 // when a peer lacks much
	datumSize   = 160
	wholeSize   = 4 << 20 // a publication is not split below this
	controlSize = 8 << 20 // messages besides batches that wait for one peer
)

// Times between messages to one peer.
const (
	batchTime  = 5 * time.Millisecond // while changes go on; before, some go at once
	burstTime  = 20 * batchTime
	ackTime    = 50 * time.Millisecond  // after the first batch that is not acknowledged
	markTime   = 150 * time.Millisecond // without an acknowledgement; doubled each time
	markMost   = 5 * time.Second
	gapTime    = 50 * time.Millisecond // before a batch counts as lost: they overtake each other
	askTime    = 200 * time.Millisecond
	waitTime   = 2 * time.Second // the longest that deletions wait for what was said before them
	maxAhead   = 256             // batches after a gap that are remembered
	maxWaiting = 1 << 14         // deletions after a gap that wait
)

// peer is another node: its present run, and what goes to and fro.
type peer struct {
	name     string
	hash     uint64
	boot     uint64
	listed   uint64 // the run that membership knows
	alive    bool
	unwanted bool // it is to own nothing: it is draining or leaving
	lost     lost // why it is not alive
	lostAt   time.Time

	// What it is sent: this node's changes, in order.
	at     *entry // the next one to send; nil: none
	cursor uint64 // all up to here were sent
	behind int    // the number of entries from at on
	since  time.Time
	sentAt time.Time
	paceAt time.Time     // the next batch goes then, unless it is large
	markIn time.Duration // a mark is due so long after sentAt
	acked  uint64        // all up to here have arrived there
	told   bool          // something was sent

	control     [][]byte // other messages, first
	controlSize int
	jobs        []listingJob
	rootsAt     time.Time // the next roots go then

	// What it sends.
	have       uint64 // all up to here have arrived
	haveBefore uint64 // at the last roots
	ahead      []span // what has arrived after a gap
	gapSince   time.Time
	waiting    []datum // deletions that were said after a gap
	askedAt    time.Time
	known      bool   // target is
	target     uint64 // its newest change when it was first heard
	rooted     bool   // its roots were compared
	heardAt    time.Time
	completeAt time.Time            // it told then how far it was, and all of that is here
	goal       uint64               // how far it told to be when not all of that was here
	goalAt     time.Time            // it told that then; zero: it did not
	newest     uint64               // its newest change that was heard of
	ackAt      time.Time            // an acknowledgement is due then; zero: none
	early      *message             // roots that came before it was known to be alive
	differs    map[origin]time.Time // since when it holds something else of an owner
}

// span is the changes after prev, up to last.
type span struct{ prev, last uint64 }

// queue appends an entry to this node's changes.
func (c *core) queue(e *entry) {
	c.seq++
	e.seq, e.prev = c.seq, c.tail
	if c.tail != nil {
		c.tail.next = e
	} else {
		c.head = e
	}
	c.tail = e
	c.queued++
	for _, p := range c.alive {
		if p.at == nil {
			p.at, p.since = e, c.now
		}
		p.behind++
		c.hooks.wake(p.name)
	}
}

// unqueue takes an entry out of this node's changes: it changes again, or another
// node has said something newer.
func (c *core) unqueue(e *entry) {
	if e.seq == 0 {
		return
	}
	for _, p := range c.alive {
		if e.seq > p.cursor {
			p.behind--
		}
		if p.at == e {
			p.at = e.next
		}
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		c.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		c.tail = e.prev
	}
	e.seq, e.prev, e.next = 0, nil, nil
	c.lastBatch = sharedBatch{}
	c.queued--
}

// seek makes the changes after the cursor the next ones to send.
func (c *core) seek(p *peer, cursor uint64) {
	p.cursor, p.at, p.behind, p.since = cursor, nil, 0, c.now
	if cursor == 0 {
		p.at, p.behind = c.head, c.queued
		return
	}
	for e := c.tail; e != nil && e.seq > cursor; e = e.prev {
		p.at = e
		p.behind++
	}
}

// parcel is a message to one peer. When it could not be sent, give it to failed.
type parcel struct {
	message []byte
	batch   bool
	prev    uint64
	boot    uint64 // of the peer
}

// next returns the next message to an alive peer, an empty one if there is none
// now. again is how long until there may be one, 0 for: until woken.
func (c *core) next(now time.Time, p *peer) (out parcel, again time.Duration) {
	c.at(now)
	out.boot = p.boot
	if len(p.control) > 0 {
		out.message = p.control[0]
		p.control = p.control[1:]
		p.controlSize -= len(out.message)
		return out, 0
	}
	if !p.ackAt.IsZero() && !c.now.Before(p.ackAt) {
		p.ackAt = time.Time{}
		out.message = encodeHave(kindAck, p.boot, p.have)
		return out, 0
	}
	pause := c.now.Sub(p.sentAt)
	switch {
	case p.cursor < c.seq || !p.told:
		if again = p.paceAt.Sub(c.now); again <= 0 || p.behind*datumSize >= batchSize {
			out.batch, out.prev = true, p.cursor
			out.message = c.batch(p)
			p.sentAt, p.since, p.told, p.markIn = c.now, c.now, true, markTime
			p.paceAt = later(p.paceAt, c.now.Add(-burstTime)).Add(batchTime)
			return out, 0
		}
	case p.acked < p.cursor:
		if again = p.markIn - pause; again <= 0 {
			p.sentAt, p.markIn = c.now, min(2*p.markIn, markMost)
			enc := newEncoder(kindBatch, 40)
			enc.batch(c.self.boot, c.seq, c.seq)
			enc.batchEnds(c.seq)
			out.message = enc.b
			return out, 0
		}
	}
	if len(p.jobs) > 0 {
		out.message = c.listing(p)
		return out, 0
	}
	if !p.ackAt.IsZero() && (again == 0 || p.ackAt.Sub(c.now) < again) {
		again = p.ackAt.Sub(c.now)
	}
	return out, again
}

// batch makes the next batch for a peer. Peers that are up to date get the same one.
func (c *core) batch(p *peer) []byte {
	if b := &c.lastBatch; b.message != nil && b.prev == p.cursor && b.at == p.at && b.seq == c.seq {
		p.cursor, p.at = b.cursor, b.next
		p.behind -= b.count
		return b.message
	}
	limit := batchSize
	if p.behind*datumSize >= chunkSize {
		limit = chunkSize
	}
	b := sharedBatch{prev: p.cursor, at: p.at, seq: c.seq}
	enc := newEncoder(kindBatch, min(limit, 64+p.behind*datumSize)+datumSize)
	enc.owner = c.self.origin
	enc.batch(c.self.boot, p.cursor, c.seq)
	var last *entry
	for e := p.at; e != nil; e = e.next {
		// What was published at once shall be seen at once.
		if len(enc.b) >= limit && (e.time != last.time || len(enc.b) >= wholeSize) {
			break
		}
		c.encode(enc, e)
		last = e
		b.count++
	}
	b.cursor = c.seq
	if last != nil && last.next != nil {
		b.cursor, b.next = last.seq, last.next
	}
	enc.batchEnds(b.cursor)
	b.message = enc.b
	p.cursor, p.at = b.cursor, b.next
	p.behind -= b.count
	c.lastBatch = b
	return enc.b
}

// sharedBatch is the last batch that was made.
type sharedBatch struct {
	message   []byte
	prev, seq uint64
	at        *entry
	cursor    uint64
	next      *entry
	count     int
}

// failed takes back a message that could not be sent.
func (c *core) failed(p *peer, out parcel) {
	if out.boot == p.boot && out.batch && out.prev < p.cursor {
		c.seek(p, out.prev)
	}
}

// send queues a message besides the batches. One that does not fit is dropped: all
// of them are repeated.
func (c *core) send(p *peer, message []byte) {
	if !p.alive || p.controlSize+len(message) > controlSize {
		c.dropped++
		return
	}
	p.control = append(p.control, message)
	p.controlSize += len(message)
	c.hooks.wake(p.name)
}

// onBatch takes changes of a peer.
func (c *core) onBatch(p *peer, m *message) {
	c.meet(p, m.boot)
	if m.boot == p.boot {
		c.know(p, m.tail)
	}
	early := m.boot == p.boot && m.prev > p.have && len(p.waiting) < maxWaiting
	var back []*entry
	for n := range m.datums {
		if d := &m.datums[n]; early && d.tombstone {
			// A client that came back to the node after it was lost shall not be gone
			// in between.
			p.waiting = append(p.waiting, *d)
		} else if e, older := c.merge(d); older && e.owner.gone() {
			back = append(back, e) // nobody else will tell it
		}
	}
	c.sendDatums(p, back)
	if m.boot != p.boot {
		return
	}
	p.newest = max(p.newest, m.tail)
	c.cover(p, span{m.prev, m.last})
	if p.ackAt.IsZero() && m.tail > 0 {
		p.ackAt = c.now.Add(ackTime)
		c.hooks.wake(p.name)
	}
}

// know notes how far a peer is when it is first heard.
func (c *core) know(p *peer, tail uint64) {
	if p.known {
		return
	}
	p.known, p.target = true, tail
	if c.loaded && tail > 0 { // it has lived elsewhere
		c.unsettle(afterCut)
	}
}

// cover notes which changes of a peer have arrived.
func (c *core) cover(p *peer, s span) {
	switch {
	case s.last <= p.have && s.prev < s.last:
		return
	case s.prev > p.have:
		if len(p.ahead) == 0 {
			p.gapSince = c.now
		}
		if len(p.ahead) >= maxAhead {
			p.ahead = p.ahead[:0] // all will be asked for
		}
		p.ahead = append(p.ahead, s)
		return
	}
	p.have = max(p.have, s.last)
	for more := true; more; {
		more = false
		p.ahead = slices.DeleteFunc(p.ahead, func(s span) bool {
			if s.prev > p.have {
				return false
			}
			more = more || s.last > p.have
			p.have = max(p.have, s.last)
			return true
		})
	}
	p.gapSince = c.now
	c.complete(p)
	if len(p.ahead) == 0 {
		c.endWait(p)
	}
}

// aim notes how far a peer tells to be: one that changes all the time is never heard to
// its present end.
func (c *core) aim(p *peer, tail uint64) {
	if p.goalAt.IsZero() || p.goalAt.Before(c.unsettledAt) {
		p.goal, p.goalAt = tail, c.now
	}
	c.complete(p)
}

// complete notes whether all has arrived that a peer told of.
func (c *core) complete(p *peer) {
	if !p.goalAt.IsZero() && p.have >= p.goal {
		p.completeAt, p.goalAt = p.goalAt, time.Time{}
	}
}

// endWait lets the deletions that waited for what was said before them take effect.
func (c *core) endWait(p *peer) {
	all := p.waiting
	p.waiting = nil
	for n := range all {
		c.merge(&all[n])
	}
}

// gaps asks for what has not arrived in time.
func (c *core) gaps() {
	for _, p := range c.alive {
		if len(p.ahead) > 0 && c.now.Sub(p.gapSince) >= gapTime {
			c.ask(p)
			if c.now.Sub(p.gapSince) >= waitTime {
				c.endWait(p)
			}
		}
	}
}

// ask asks a peer for its changes after what has arrived.
func (c *core) ask(p *peer) {
	if c.now.Sub(p.askedAt) < askTime {
		return
	}
	p.askedAt = c.now
	c.asks++
	c.send(p, encodeHave(kindAsk, p.boot, p.have))
}

// onAsk goes back to where a peer has a gap.
func (c *core) onAsk(p *peer, m *message) {
	if !p.alive {
		return
	}
	from := m.last
	if m.boot != c.self.boot {
		from = 0
	}
	if from < p.cursor {
		c.seek(p, from)
	}
	c.hooks.wake(p.name)
}

// onAck notes how far a peer is.
func (c *core) onAck(p *peer, m *message) {
	if m.boot == c.self.boot {
		p.acked = max(p.acked, m.last)
	}
}
