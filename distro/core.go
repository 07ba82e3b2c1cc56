package distro

import (
	"cmp"
	"slices"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// core is the protocol of one node as a state machine: what it is told (writes,
// messages, members, the time) changes it, and its answers are changes of the table
// and messages to fetch with next. It starts no goroutine, opens no socket and
// reads no clock, so that a simulation can run many of them. Not safe for
// concurrent use.
type core struct {
	cfg   Config
	hooks hooks
	table *consistency.DataStore

	now   time.Time // of the present call
	clock hybridClock

	rows     map[uint64]*entry // by address in a service, whoever publishes it
	services map[naming.ServiceKey]*serviceRef
	owners   map[origin]*owned
	ordered  []*owned // the same, in the order of their coming
	self     *owned
	peers    map[string]*peer
	alive    []*peer
	sharers  []candidate // of the publishers over HTTP
	heirs    []candidate
	buried   map[origin]bool // gone, and nothing is left of them
	adopted  int             // in this tick
	unwanted bool            // this node is draining

	head, tail *entry // this node's changes, each datum once, in the order of seq
	queued     int
	seq        uint64
	lastBatch  sharedBatch

	handovers []handover
	graves    []grave
	loaded    bool      // what the others had at the start is here
	ticked    time.Time // the last tick
	calmAt    time.Time // after a pause of this node: it decides nothing before
	settledAt time.Time // after a pause or a partition: nothing is taken away before
	// unsettledAt is when that was.
	unsettledAt time.Time
	held        []held

	// What the present call leads to.
	changes []consistency.Change
	took    []*entry

	// Counters.
	asks, repairs, repaired, dropped, removed uint64
}

// hooks are what the core needs of whoever runs it.
type hooks struct {
	wake func(peer string) // next has something for it; must not block
}

// tickTime is the time between ticks.
const tickTime = 100 * time.Millisecond

func newCore(cfg Config, self origin, table *consistency.DataStore, h hooks, now time.Time) *core {
	c := &core{
		cfg: cfg, hooks: h, table: table, now: now,
		rows: make(map[uint64]*entry), services: make(map[naming.ServiceKey]*serviceRef),
		owners: make(map[origin]*owned), peers: make(map[string]*peer), buried: make(map[origin]bool),
	}
	c.self = &owned{origin: self, hash: hashText(0, self.node)}
	c.owners[self], c.ordered = c.self, []*owned{c.self}
	c.sharers = c.candidates()
	c.heirs = c.sharers
	return c
}

// at begins a call. Much time since the last tick means that this node did not run:
// what it holds of the others is old, and what it hears of them first may be too.
func (c *core) at(now time.Time) {
	c.now = now
	if c.ticked.IsZero() || now.Sub(c.ticked) <= tickTime+c.cfg.Pause {
		return
	}
	c.ticked = now
	c.calmAt = now.Add(c.cfg.Grace)
	c.unsettle(afterPause)
	for _, p := range c.alive {
		p.rootsAt = now
	}
}

// ahead returns how far the newest version is ahead of this node's clock.
func (c *core) ahead() time.Duration {
	return max(0, time.UnixMilli(int64(c.clock.last>>counterBits)).Sub(c.now))
}

// settled tells whether what the other nodes did lately must have arrived.
func (c *core) settled() bool { return !c.now.Before(c.settledAt) && !c.lacks(c.unsettledAt) }

// unsettle gives what the other nodes did lately some time to arrive.
func (c *core) unsettle(d time.Duration) {
	c.unsettledAt, c.settledAt = c.now, later(c.settledAt, c.now.Add(d))
}

// flush brings the changes to the readers.
func (c *core) flush() {
	if len(c.changes) > 0 {
		c.table.Apply(c.changes)
		clear(c.changes)
		c.changes = c.changes[:0]
		if cap(c.changes) > 1024 {
			c.changes = nil
		}
	}
}

// takeTook returns the publishers over HTTP that have come to this node.
func (c *core) takeTook() []*entry {
	took := c.took
	c.took = nil
	return took
}

// handle takes a message of another node.
func (c *core) handle(now time.Time, from string, m *message) {
	c.at(now)
	defer c.flush()
	if from == c.self.node {
		return
	}
	p := c.peer(from)
	p.heardAt = c.now
	if p.told && !p.alive { // it knows sooner than this node that they are together again
		c.unsettle(afterCut)
	}
	switch m.kind {
	case kindBatch:
		c.onBatch(p, m)
	case kindAsk:
		c.onAsk(p, m)
	case kindAck:
		c.onAck(p, m)
	case kindRoots:
		c.onRoots(p, m)
	case kindCompare:
		c.onCompare(p, m)
	case kindListing:
		c.onListing(p, m)
	case kindDatums:
		c.onDatums(p, m)
	case kindRefused:
		c.refusal(m.owner, from)
	}
	c.load()
}

// peer returns another node.
func (c *core) peer(name string) *peer {
	p := c.peers[name]
	if p == nil {
		p = &peer{name: name, hash: hashText(0, name), lost: silent, lostAt: c.now, differs: make(map[origin]time.Time)}
		c.peers[name] = p
	}
	return p
}

// meet notes that a run of a node was heard, which may be sooner than membership knows.
func (c *core) meet(p *peer, boot uint64) {
	if boot > p.boot {
		c.follow(p, boot)
	}
}

// follow notes that another run of a node has taken the place of the one before. It knows
// nothing.
func (c *core) follow(p *peer, boot uint64) {
	if o := c.owners[origin{p.name, p.boot}]; o != nil {
		o.over = true
	}
	*p = peer{
		name: p.name, hash: p.hash, boot: boot, listed: p.listed, heardAt: c.now, alive: p.alive, unwanted: p.unwanted,
		lost: silent, lostAt: p.lostAt, differs: make(map[origin]time.Time),
	}
	c.seek(p, 0)
	c.assessAll()
	c.hooks.wake(p.name)
}

func (c *core) assessAll() {
	for _, o := range c.ordered {
		c.assess(o)
	}
}

// observe takes what membership knows of another node.
func (c *core) observe(now time.Time, m Member) {
	c.at(now)
	defer c.flush()
	p := c.peer(m.Name)
	if m.Boot < p.boot && m.Boot == p.listed {
		return // a later run was heard already
	}
	if p.listed = m.Boot; m.Boot != p.boot {
		// That of a machine with an empty disk and a clock that is behind is smaller.
		c.follow(p, m.Boot)
	}
	was := p.alive
	p.alive, p.unwanted = m.Alive, m.Draining || m.Leaving
	switch {
	case m.Alive && !was:
		if p.told { // it was here before
			c.unsettle(afterCut)
		}
		if p.lost = silent; p.heardAt.IsZero() { // one that was here before is to be heard again
			p.heardAt = c.now
		}
		c.alive = append(c.alive, p)
		c.seek(p, p.cursor)
		clear(p.differs)
		p.rootsAt = c.now
		c.hooks.wake(p.name)
		if early := p.early; early != nil {
			c.onRoots(p, early)
		}
	case !m.Alive && was:
		for n := range c.alive {
			if c.alive[n] == p {
				c.alive = append(c.alive[:n:n], c.alive[n+1:]...)
				break
			}
		}
		p.lost, p.lostAt = silent, c.now
		c.endWait(p)
		p.at, p.control, p.controlSize, p.jobs = nil, nil, 0, nil
	}
	if !m.Alive && m.Leaving {
		p.lost = left
	}
	c.assessAll()
	c.share()
	c.load()
}

// drain says whether this node shall own no publishers over HTTP any more.
func (c *core) drain(now time.Time, unwanted bool) {
	c.at(now)
	c.unwanted = unwanted
	c.share()
}

// tick does what time calls for; call it every tickTime.
func (c *core) tick(now time.Time) {
	c.at(now)
	defer c.flush()
	c.ticked = now
	c.gaps()
	for _, p := range c.alive {
		if !now.Before(p.rootsAt) {
			p.rootsAt = now.Add(c.cfg.Verify)
			if !c.loaded || !c.settled() || len(c.held) > 0 {
				p.rootsAt = now.Add(c.cfg.Verify / 5)
			}
			c.send(p, c.rootsFor(p))
		}
	}
	c.settle()
	c.handOver()
	c.sweep()
	c.forget()
	c.load()
}

// load finds out whether all is here that the others had when this node came.
func (c *core) load() {
	if c.loaded {
		return
	}
	for _, p := range c.alive {
		if !p.known || !p.rooted || p.have < p.target {
			return
		}
	}
	for _, o := range c.ordered {
		if o.gone() && !o.compared.IsZero() {
			return
		}
	}
	c.loaded = true
}

// local runs a write of this node.
func (c *core) local(now time.Time, write func()) {
	c.at(now)
	write()
	c.flush()
}

// state tells what is known of all nodes.
func (c *core) state(now time.Time, ready bool) State {
	st := State{
		Ready: ready, Ahead: c.ahead(), Tombstones: len(c.graves),
		Repairs: c.repairs, Repaired: c.repaired, Removed: c.removed, Dropped: c.dropped,
	}
	for _, o := range c.ordered {
		x := OwnerState{Node: o.node, Boot: o.boot, Instances: o.live, Root: o.digest}
		if o.gone() {
			x.Gone, x.Deadline = o.why.String(), o.deadline
		}
		st.Owners = append(st.Owners, x)
	}
	slices.SortFunc(st.Owners, func(a, b OwnerState) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Boot, b.Boot))
	})
	for _, p := range c.alive {
		x := PeerState{Node: p.name, Queue: p.behind, Behind: c.seq - p.acked, Misses: max(p.newest, p.have) - p.have}
		if p.behind > 0 {
			x.Lag = now.Sub(p.since)
		}
		st.Peers = append(st.Peers, x)
	}
	slices.SortFunc(st.Peers, func(a, b PeerState) int { return cmp.Compare(a.Node, b.Node) })
	return st
}
