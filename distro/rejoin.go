package distro

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	joinsAtOnce   = 4           // attempts of a round that run at once
	doubtInterval = time.Second // between rounds while the others may refuse this node
	aliasInterval = time.Minute // between attempts at an address that no member calls its own
	reportEvery   = time.Minute // the same conflict is logged
	clashPings    = 3
)

// conflict is a name that two nodes have.
type conflict struct {
	name        string
	have, other string // addresses: of whom the name is taken to be, and of whom else claims it
	boot        uint64 // of the other
}

// ConflictError says that another node has this node's name, and that the others
// know it rather than this one.
type ConflictError struct {
	Name         string
	Mine, Theirs string // gossip addresses
	Answers      bool   // the other one is alive; else the others may only not know yet that it is gone
}

// Error names both addresses.
func (e *ConflictError) Error() string {
	if e.Answers {
		return fmt.Sprintf("the node name %s is taken: this node is at %s, another one that is alive is at %s; give one of them another name", e.Name, e.Mine, e.Theirs)
	}
	return fmt.Sprintf("the node name %s is taken: this node is at %s, the other nodes know it at %s; they take this node in once they know that that one is gone", e.Name, e.Mine, e.Theirs)
}

// evidence is what was heard of this node's own name since it was last looked at.
type evidence struct {
	clash    *conflict // another node claims it
	accepted bool      // a node has it in its list with this node's address
	mirror   bool      // a node that was joined is this one, by another address: accepted is void
}

// noteConflict keeps a conflict for the rejoin loop and the dispatcher. It is
// called under the library's lock.
func (m *Members) noteConflict(c conflict) {
	m.metrics.conflicts.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.name == m.self.Name {
		m.heard.clash = &c
	}
	if len(m.conflicts) < 64 {
		m.conflicts[c.name+" "+c.other] = c
	}
	m.wake()
}

// noteView keeps where another node believes this one to be.
func (m *Members) noteView(theirs conflict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if theirs.other == m.self.gossip() {
		m.heard.accepted = true
	} else {
		m.heard.clash = &theirs
	}
}

// noteMirror keeps that this node exchanged its state with itself.
func (m *Members) noteMirror() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard.mirror = true
}

// takeHeard returns the evidence since the last call.
func (m *Members) takeHeard() evidence {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.heard
	m.heard = evidence{}
	return e
}

// reports remembers when a conflict was logged.
type reports map[string]time.Time

// report logs the conflicts that were noted, each once a minute.
func (m *Members) report(logged *reports) {
	m.mu.Lock()
	noted, settled, self := m.conflicts, m.settled, m.self
	m.conflicts = make(map[string]conflict)
	m.mu.Unlock()
	for key, c := range noted {
		if time.Since((*logged)[key]) < reportEvery {
			continue
		}
		if *logged == nil || len(*logged) >= 1024 {
			*logged = make(reports)
		}
		(*logged)[key] = time.Now()
		log := m.log.With("peer", c.name, "address", c.have, "other", c.other)
		switch {
		case c.name != self.Name:
			log.Warn("two nodes have one name: the first keeps it unless it is gone")
		case settled || c.boot > self.Boot:
			log.Error("another node has this node's name: give one of them another name")
		default:
			log.Warn("this node's name is known at another address")
		}
	}
}

// rejoin tries again and again to reach the nodes that are not alive. The library
// never does, so without this a partition would last for ever.
func (m *Members) rejoin() {
	a := attempts{next: make(map[string]time.Time), logged: make(map[string]time.Time), places: places{path: m.cfg.Places}}
	if err := a.places.read(); err != nil {
		m.log.Warn("only the configured addresses are tried", "err", err)
	}
	for first := true; ; first = false {
		m.forget()
		if len(a.next)+len(a.logged) > 4096 {
			clear(a.next)
			clear(a.logged)
		}
		again := m.round(&a)
		if err := a.places.keep(m.known()); err != nil {
			m.log.Warn("where the other nodes are is not kept", "err", err)
		}
		if first {
			close(m.joinedCh)
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// attempts is what the rejoin loop remembers from round to round.
type attempts struct {
	next   map[string]time.Time // an address is not tried before
	logged map[string]time.Time // when its failure was logged
	places places
}

// known returns the addresses of the other nodes, except those that left.
func (m *Members) known() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, o := range m.others {
		if o.Alive || !o.Leaving {
			all = append(all, o.gossip())
		}
	}
	return all
}

// round makes one attempt at every address worth it, and returns the time until
// the next round.
func (m *Members) round(a *attempts) time.Duration {
	before := m.takeHeard()
	m.mu.Lock()
	list, doubt := m.list, !m.settled || m.refused != nil || before.clash != nil
	m.mu.Unlock()
	targets := m.targets(a, doubt)
	answered := 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, joinsAtOnce)
	for _, addr := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			_, err := list.Join([]string{addr})
			<-slots
			m.metrics.rejoined(err)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answered++
				a.next[addr] = time.Now().Add(aliasInterval)
			} else {
				m.logFailure(a, addr, err)
			}
		})
	}
	wg.Wait()
	return m.judge(m.takeHeard(), answered)
}

// targets returns the addresses to try: those of Join and of lost members that are
// no alive member's, and with all, those of alive members too.
func (m *Members) targets(a *attempts, all bool) []string {
	m.mu.Lock()
	skip := make(map[string]bool)
	var found []string
	add := func(addr string) {
		if !skip[addr] {
			skip[addr] = true
			found = append(found, addr)
		}
	}
	skip[m.self.gossip()] = true
	peers := 0
	for _, o := range m.others {
		switch {
		case o.Alive && all:
			add(o.gossip())
			peers++
		case o.Alive:
			skip[o.gossip()] = true
			peers++
		}
	}
	for _, o := range m.others {
		// Who left comes back by itself.
		if !o.Alive && !o.Leaving {
			add(o.gossip())
		}
	}
	m.mu.Unlock()

	var named []string
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.DialTimeout)
	defer cancel()
	for _, seed := range m.cfg.Join {
		host, port, err := net.SplitHostPort(seed)
		if err != nil {
			continue
		}
		if validIP(host) {
			named = append(named, seed)
			continue
		}
		addrs, err := m.lookup(ctx, host)
		if err != nil {
			m.logFailure(a, seed, err)
			continue
		}
		for _, ip := range addrs {
			named = append(named, net.JoinHostPort(ip.String(), port))
		}
	}
	if peers == 0 {
		named = append(named, a.places.former...)
	}
	for _, addr := range named {
		// An address that answered but is no member's own leads to this node itself,
		// or to another one by way of a translation. Ask it rarely, unless alone.
		if peers == 0 || time.Now().After(a.next[addr]) {
			add(addr)
		}
	}
	return found
}

// logFailure logs why an address could not be joined, once a minute.
func (m *Members) logFailure(a *attempts, addr string, err error) {
	if time.Since(a.logged[addr]) < reportEvery {
		m.log.Debug("join failed", "address", addr, "err", err)
		return
	}
	a.logged[addr] = time.Now()
	for _, silent := range []string{"refused", "timeout", "deadline exceeded", "unreachable", "no route", "lookup", "no such host"} {
		if strings.Contains(err.Error(), silent) {
			m.log.Info("no node answers there yet", "address", addr, "err", err)
			return
		}
	}
	m.log.Warn("a node refused this one: the cluster's name or the gossip key may differ", "address", addr, "err", err)
}

// judge decides from what a round brought whether the others take this node in,
// and returns the time until the next one.
func (m *Members) judge(heard evidence, answered int) time.Duration {
	m.mu.Lock()
	settled, self := m.settled, m.self
	m.mu.Unlock()
	accepted := heard.accepted && !heard.mirror
	alone := len(m.Alive()) == 1
	var refused *ConflictError
	switch {
	case heard.clash == nil && !accepted && !alone,
		heard.clash != nil && settled && answered == 0:
		return m.pause() // nothing was learned
	case heard.clash == nil, settled && accepted:
		// The others know this node, or there are none. Who claims its name is
		// refused by them.
	default:
		refused = &ConflictError{Name: self.Name, Mine: self.gossip(), Theirs: heard.clash.other}
		// Of two nodes that start at the same time one shall win: the older.
		if settled || heard.clash.boot < self.Boot || heard.clash.boot == self.Boot && refused.Theirs < refused.Mine {
			refused.Answers = m.answers(heard.clash)
		}
	}
	m.mu.Lock()
	m.refused = refused
	m.settled = settled || refused == nil && (accepted || len(m.cfg.Join) == 0)
	m.mu.Unlock()
	return m.pause()
}

// pause returns the time until the next round: less while it is open whether the
// others take this node in.
func (m *Members) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused != nil || !m.settled && len(m.Alive()) > 1 {
		return min(doubtInterval, m.cfg.RejoinInterval)
	}
	return m.cfg.RejoinInterval
}

// answers reports whether the other node of a conflict is alive. After a restart
// under another address it is this node itself, before, and is not.
func (m *Members) answers(c *conflict) bool {
	to, err := net.ResolveUDPAddr("udp", c.other)
	if err != nil {
		return false
	}
	m.mu.Lock()
	list := m.list
	m.mu.Unlock()
	for range clashPings {
		if _, err := list.Ping(c.name, to); err == nil {
			return true
		}
	}
	return false
}
