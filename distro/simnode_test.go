package distro

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// simNode is one node, over all its runs.
type simNode struct {
	*sim
	id       int
	name     string
	up       bool
	leaving  bool
	paused   bool
	late     []func() // what happens to it while it is paused
	resumed  time.Duration
	expireAt time.Duration
	floor    time.Duration // silence before says nothing
	skew     time.Duration
	run      int
	boot     uint64
	core     *core
	table    *consistency.DataStore
	pumps    map[string]*simPump
	views    map[int]*simView
	rows     map[naming.ServiceKey]map[string]int // address: registration, as last read
	shown    map[string]int                       // address: newest registration that was ever read
	spoilt   map[string]bool
	beats    map[beatOf]time.Duration
	heard    map[beatOf]time.Duration
}

type beatOf struct {
	svc       naming.ServiceKey
	publisher string
}

type simPump struct {
	planned bool // an event is queued
	at      time.Duration
	busy    bool
	again   bool // it was woken meanwhile
}

// simView is what a node knows of another one.
type simView struct {
	alive bool
	boot  uint64
	bad   time.Duration // since when it cannot be reached; 0: it can
	good  time.Duration // since when it can
	tries int
}

// time is what the node's clock shows. It has been set wrong, but it does not jump
// while the process runs.
func (n *simNode) time() time.Time {
	return time.UnixMilli(simStart).Add(n.now + n.skew)
}

func (n *simNode) boots() {
	n.sim.boots++
	n.run++
	n.up, n.paused, n.leaving, n.late, n.boot = true, false, false, nil, 1<<32+n.sim.boots
	if n.sim.boots%4 == 0 { // an empty disk, and a clock that is behind
		n.boot = 1<<32 - n.sim.boots
	}
	n.skew = n.between(-time.Hour, time.Hour)
	cfg := DefaultConfig()
	cfg.Node = n.name
	cfg.InContact = func() bool { return n.contact() }
	n.table = consistency.NewDataStore()
	n.pumps = make(map[string]*simPump)
	n.rows, n.shown, n.spoilt = make(map[naming.ServiceKey]map[string]int), make(map[string]int), make(map[string]bool)
	n.beats, n.heard = make(map[beatOf]time.Duration), make(map[beatOf]time.Duration)
	n.core = newCore(cfg, origin{n.name, n.boot}, n.table, hooks{wake: n.wake}, n.time())
	n.table.Listen(n.changed)
	for _, v := range n.views {
		*v = simView{}
	}
	n.log("%s starts, boot %d, clock %v", n.name, int64(n.boot-1<<32), n.skew.Round(time.Second))
	n.join()
}

// join is what Start of membership does: who joins learns of all at once, and they
// of it soon.
func (n *simNode) join() {
	run := n.run
	for _, o := range n.nodes {
		if o == n || o.leaving || !n.reachable(n, o) {
			continue
		}
		v, back := n.views[o.id], o.views[n.id]
		v.alive, v.boot = true, o.boot
		n.tell(o, v, false)
		oRun := o.run
		n.at(n.between(0, 600*time.Millisecond), func() {
			o.do(oRun, func() {
				if n.up && n.run == run && !n.leaving && (!back.alive || back.boot != n.boot) {
					back.alive, back.boot = true, n.boot
					o.tell(n, back, false)
				}
			})
		})
	}
}

// crash ends the process.
func (n *simNode) crash() {
	n.log("%s crashes", n.name)
	n.up, n.paused, n.core = false, false, nil
	run := n.run
	for _, c := range n.clients {
		if c.home == n && c.homeRun == run && c.connected {
			c.lost(n.between(0, 3*time.Second))
		}
	}
}

// working tells whether it runs now.
func (n *simNode) working() bool { return n.up && !n.paused }

// do runs something in the node now, or when its pause is over.
func (n *simNode) do(run int, fn func()) {
	switch {
	case !n.up || n.run != run:
	case n.paused:
		if len(n.late) < 2000 { // what does not fit into sockets is lost
			n.late = append(n.late, fn)
		}
	default:
		fn()
	}
}

// after follows each call of the core.
func (n *simNode) after() {
	for _, e := range n.core.takeTook() {
		if !e.tombstone {
			n.beats[beatOf{e.service.key, e.publisher}] = n.now
		}
	}
}

func (n *simNode) tick() {
	if n.working() {
		n.core.tick(n.time())
		n.after()
		n.expire()
	}
	n.at(tickTime, n.tick)
}

// pause stops the process for a while.
func (n *simNode) pause(d time.Duration) {
	n.log("%s is paused for %v", n.name, d)
	n.paused = true
	run := n.run
	for _, c := range n.clients {
		if c.home == n && c.homeRun == run && c.connected && !c.http {
			// The client notices after a while, if the pause lasts.
			move := c.moves
			n.at(n.between(5*time.Second, 14*time.Second), func() {
				if n.run == run && n.paused && c.moves == move && c.alive {
					conn, svc := c.conn, c.svc
					c.lost(n.between(0, 3*time.Second))
					n.do(run, func() { n.dropConn(run, svc, conn) })
				}
			})
		}
	}
	n.at(d, func() {
		if n.run != run || !n.up {
			return
		}
		n.log("%s goes on", n.name)
		n.paused, n.resumed = false, n.now
		late := n.late
		n.late = nil
		for i, fn := range late {
			n.at(time.Duration(i)*10*time.Microsecond, func() { n.do(run, fn) })
		}
	})
}

// wake plans a pump.
func (n *simNode) wake(peer string) {
	p := n.pumps[peer]
	if p == nil {
		p = new(simPump)
		n.pumps[peer] = p
	}
	p.again = true
	n.plan(peer, p, n.between(0, 200*time.Microsecond))
}

func (n *simNode) plan(peer string, p *simPump, after time.Duration) {
	if p.busy || p.planned && p.at <= n.now+after {
		return
	}
	p.planned, p.at = true, n.now+after
	run, at := n.run, p.at
	n.at(after, func() {
		if p.planned && p.at == at {
			p.planned = false
			n.do(run, func() { n.pump(peer, p) })
		}
	})
}

// pump sends one message.
func (n *simNode) pump(name string, p *simPump) {
	peer := n.core.peers[name]
	to := n.nodes[slices.IndexFunc(n.nodes, func(o *simNode) bool { return o.name == name })]
	if p.busy || peer == nil || !peer.alive {
		return
	}
	p.again = false
	out, again := n.core.next(n.time(), peer)
	if out.message == nil {
		if again > 0 {
			n.plan(name, p, again)
		}
		return
	}
	run := n.run
	p.busy = true
	end := func(after time.Duration, failed bool) {
		n.at(after, func() {
			n.do(run, func() {
				p.busy = false
				if failed {
					n.core.failed(peer, out)
				}
				n.plan(name, p, 0)
			})
		})
	}
	if _, cut := n.cuts[[2]int{n.id, to.id}]; cut || !to.up {
		if n.chance(0.5) {
			end(n.between(time.Millisecond, 5*time.Second), true)
		} else {
			end(time.Millisecond, false)
		}
		return
	}
	end(n.between(50*time.Microsecond, time.Millisecond), false)
	copies := 1
	if n.chance(n.loss) {
		copies = 0
		n.lossy = n.now
	} else if n.chance(0.02) {
		copies = 2
	}
	for range copies {
		delay := n.between(100*time.Microsecond, 5*time.Millisecond)
		if n.chance(0.05) {
			delay = n.between(0, 400*time.Millisecond)
		}
		toRun := to.run
		n.at(delay, func() {
			if _, cut := n.cuts[[2]int{n.id, to.id}]; cut {
				return
			}
			to.do(toRun, func() {
				m, err := decodeMessage(n.name, out.message)
				if err != nil {
					n.fail("%s sent what cannot be read: %v", n.name, err)
					return
				}
				for i := range m.datums {
					at, ok := to.heard[beatOf{m.datums[i].service, m.datums[i].publisher}]
					m.datums[i].heard = ok && to.now-at < 15*time.Second
				}
				to.core.handle(to.time(), n.name, m)
				to.after()
			})
		})
	}
}

// watch is membership: it looks at the other nodes twice a second.
func (n *simNode) watch() {
	if n.working() {
		n.review()
	}
	n.at(500*time.Millisecond, n.watch)
}

func (n *simNode) review() {
	for _, o := range n.nodes {
		v := n.views[o.id]
		if o == n {
			continue
		}
		if !n.reachable(n, o) || o.leaving {
			if v.bad == 0 {
				v.bad, v.good, v.tries = max(n.now, 1), 0, 0
			}
			if left := o.leaving; v.alive && (left || n.now-v.bad > n.between(2500*time.Millisecond, 4*time.Second)) {
				v.alive = false
				n.tell(o, v, left)
			}
			if !v.alive && v.boot != 0 && !o.up && v.tries < 10 && n.linked(n, o) { // its port is refused
				v.tries++
				n.core.at(n.time())
				n.core.refusal(origin{o.name, v.boot}, n.name)
				for _, p := range n.core.alive {
					n.core.send(p, encodeRefused(origin{o.name, v.boot}))
				}
			}
			continue
		}
		if v.good == 0 {
			v.good = n.now
		}
		v.bad = 0
		if !v.alive && n.now-v.good >= n.between(0, 3*time.Second) || v.alive && v.boot != o.boot {
			v.alive, v.boot = true, o.boot
			n.tell(o, v, false)
		}
	}
}

func (n *simNode) tell(o *simNode, v *simView, left bool) {
	n.log("%s: %s alive=%v boot=%d left=%v", n.name, o.name, v.alive, v.boot, left)
	n.core.observe(n.time(), Member{Name: o.name, Boot: v.boot, Alive: v.alive, Leaving: left})
	n.after()
	if v.alive {
		n.wake(o.name)
	}
}

func (n *simNode) contact() bool {
	if n.leader < 0 {
		return false
	}
	l := n.nodes[n.leader]
	return l == n || l.working() && n.linked(n, l)
}

// changed reads a service again, and looks for what has gone that must not.
func (n *simNode) changed(c consistency.ServiceChanged) {
	s, _ := n.table.Service(c.Service)
	rows := make(map[string]int, len(s.Instances))
	for _, i := range s.Instances {
		gen, _ := strconv.Atoi(i.Metadata["gen"])
		rows[i.IP] = gen
		n.shown[i.IP] = max(n.shown[i.IP], gen)
	}
	for ip := range n.rows[c.Service] {
		if _, ok := rows[ip]; !ok {
			n.gone(n.byAddr[ip])
		}
	}
	n.rows[c.Service] = rows
}

// gone judges whether an instance may go from the view of a node.
func (n *simNode) gone(c *simClient) {
	n.log("%s: %s is gone", n.name, c.ip)
	if !c.alive || !c.wanted || n.shown[c.ip] < c.gen || n.excused(c) {
		return
	}
	n.traceRow(c)
	n.fail("%s does not show %s any more, whose client is alive (home %v)", n.name, c.ip, c.home != nil && c.home.up)
}

// excused tells whether a node cannot know that a client is alive.
func (n *simNode) excused(c *simClient) bool {
	home := c.home
	if home == nil {
		home = c.last
	}
	since := n.now - c.since
	switch {
	case !n.core.loaded, n.leaving, n.spoilt[c.ip]:
		return true
	case c.http:
		// No clock can order what was said on two nodes that were apart. Else the
		// nodes wait 30 s for heartbeats that they cannot hear.
		return c.apart || slices.ContainsFunc(n.nodes, func(o *simNode) bool { return n.apart(n, o) > 25*time.Second })
	case home == nil || home == n:
		return false
	case n.apart(n, home) > 0:
		return !n.toldBy(c, home) // it is cut off from the client's node
	case !home.working() && !n.hearsOf(c):
		return true // and those that it is not cut off from have not heard either
	case since < 500*time.Millisecond:
		return true // messages take that long
	case since < 15*time.Second && n.now-n.lossy < 15*time.Second:
		return true // or are lost, several times
	}
	return since < 5*time.Second && (!n.views[home.id].alive || n.now-home.resumed < 5*time.Second)
}

// toldBy tells whether a node that is cut off from a client's home must have been told by
// the home before, which lost the client, where that is now.
func (n *simNode) toldBy(c *simClient, home *simNode) bool {
	o := c.last
	return o != nil && o != n && o != home && c.home == home && home.working() && o.working() && o.run == c.lastRun &&
		n.apart(n, o) == 0 && n.apart(o, home) == 0 && n.now-c.since > time.Second && n.now-n.lossy > 15*time.Second
}

// hearsOf tells whether a node that this one can speak with knows where the client is
// now. One that shows it as it was before, and has not heard that it left there, does
// not.
func (n *simNode) hearsOf(c *simClient) bool {
	return slices.ContainsFunc(n.nodes, func(o *simNode) bool {
		if o == n || !o.working() || !n.linked(n, o) || o.core.services[c.svc] == nil {
			return false
		}
		i := c.instance()
		s := o.core.services[c.svc]
		e := o.core.find(s, s.row(i.Key()), c.conn, i.Key())
		return e != nil && !e.tombstone
	})
}

// traceRow logs what all nodes know of the address of a client.
func (n *simNode) traceRow(c *simClient) {
	if n.trace == nil {
		return
	}
	for _, o := range n.nodes {
		if !o.up || o.core.services[c.svc] == nil {
			continue
		}
		for e := o.core.rows[o.core.services[c.svc].row(c.instance().Key())]; e != nil; e = e.other {
			n.log("%s has %s of %v: %+v, gone %v", o.name, e.publisher, e.owner.origin, e.value, e.owner.gone())
		}
	}
}

func (n *simNode) write(p consistency.Publication, inferred bool) {
	n.log("%s: %s publishes %d", n.name, p.Publisher, len(p.Instances))
	n.core.local(n.time(), func() { n.core.publish(p, inferred) })
	n.after()
}

// dropConn is what a node does some time after a connection was lost.
func (n *simNode) dropConn(run int, svc naming.ServiceKey, conn string) {
	n.at(500*time.Millisecond, func() {
		n.do(run, func() { n.write(consistency.Publication{Service: svc, Publisher: conn}, true) })
	})
}

// forward returns the node that takes what concerns a publisher over HTTP, nil if
// it cannot be reached.
func (n *simNode) forward(key beatOf) *simNode {
	name := ownerOf(n.core.sharers, key.publisher)
	for _, o := range n.nodes {
		if o.name == name && (o == n || o.working() && n.linked(n, o)) {
			return o
		}
	}
	return nil
}

// expire removes clients over HTTP that are silent.
func (n *simNode) expire() {
	if n.now < n.expireAt {
		return
	}
	n.expireAt = n.now + time.Second
	n.core.at(n.time())
	if !n.core.mayExpire() {
		n.floor = n.now
		return
	}
	for _, key := range sortedBeats(n.beats) {
		if n.now-max(n.beats[key], n.floor) < 30*time.Second {
			continue
		}
		if !n.core.isOwner(key.publisher) {
			delete(n.beats, key)
			continue
		}
		n.log("%s: %s expires", n.name, key.publisher)
		delete(n.beats, key)
		n.write(consistency.Publication{Service: key.svc, Publisher: key.publisher}, true)
	}
}

func sortedBeats(beats map[beatOf]time.Duration) []beatOf {
	out := make([]beatOf, 0, len(beats))
	for k := range beats {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b beatOf) int {
		return strings.Compare(a.publisher, b.publisher) // each is in one service
	})
	return out
}

// spoil makes a node forget or mistake something that another one owns, as a fault of
// the program might.
func (n *simNode) spoil() {
	for _, o := range n.core.ordered {
		if o == n.core.self || o.live == 0 || n.chance(0.5) {
			continue
		}
		b := n.random.IntN(bucketCount)
		for range bucketCount {
			if e := o.buckets[b].first; e != nil {
				n.log("%s forgets %s of %s", n.name, e.publisher, o.node)
				key := consistency.Key{Service: e.service.key, Kind: consistency.KindInstance, Publisher: e.publisher, Instance: e.instance.Key()}
				e.unplace()
				e.service.live--
				e.tombstone, e.time = true, 1
				n.core.graves = append(n.core.graves, grave{e, 1, n.core.now})
				n.table.Apply([]consistency.Change{{Datum: consistency.Datum{Key: key}, Quiet: true}})
				n.spoilt[e.instance.IP] = true
				return
			}
			b = (b + 1) % bucketCount
		}
	}
}

// difference describes how a node differs from what should be there in the end.
func (n *simNode) difference() string {
	want := make(map[string]string)
	for _, c := range n.clients {
		if c.alive && c.wanted {
			want[c.ip] = fmt.Sprintf("%d/%d", c.gen, c.content)
			if c.http { // which of two nodes that were apart was told later, no clock can tell
				want[c.ip] = "any"
			}
		}
	}
	var out []string
	for _, k := range n.table.Services("") {
		s, _ := n.table.Service(k)
		for _, i := range s.Instances {
			have := i.Metadata["gen"] + "/" + i.Metadata["content"]
			if want[i.IP] != have && want[i.IP] != "any" {
				out = append(out, fmt.Sprintf("%s has %s instead of %q", i.IP, have, want[i.IP]))
			}
			delete(want, i.IP)
		}
	}
	for ip, x := range want {
		out = append(out, fmt.Sprintf("%s %s is missing", ip, x))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
