package distro

import (
	"maps"
	"time"
)

// EventKind says what happened to a member.
type EventKind int

// Kinds of events.
const (
	Joined  EventKind = iota + 1 // new, or back after Left or Died
	Updated                      // alive as before, but something differs; another Boot is a restart
	Left                         // said good-bye
	Died                         // did not answer
)

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	switch k {
	case Joined:
		return "joined"
	case Updated:
		return "updated"
	case Left:
		return "left"
	case Died:
		return "died"
	}
	return "unknown"
}

// Event is a change of another node. Changes that follow each other faster than
// listeners take them are joined: the last event always tells the present state.
type Event struct {
	Kind   EventKind
	Member Member
	Before Member // as the last event had it; the zero value when it is new
}

// seen enters what the library says of another node that is alive.
func (m *Members) seen(now Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.others[now.Name]
	if o == nil {
		o = &member{sends: make(chan struct{}, sendsPerPeer)}
		m.others[now.Name] = o
	}
	if o.goodbye == now.Boot && now.Boot != 0 {
		now.Leaving = true
	}
	o.Member = now
	m.changedLocked(o)
}

// gone enters that another node is not alive.
func (m *Members) gone(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.others[name]; o != nil && o.Alive {
		o.Alive = false
		o.lost = time.Now()
		m.changedLocked(o)
	}
}

// saidGoodbye enters that another node leaves.
func (m *Members) saidGoodbye(name string, boot uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.others[name]; o != nil {
		o.goodbye = boot
		if o.Boot == boot && !o.Leaving {
			o.Leaving = true
			m.changedLocked(o)
		}
	}
}

// changedLocked queues an event, unless one waits already.
func (m *Members) changedLocked(o *member) {
	m.refreshLocked()
	if !o.queued {
		o.queued = true
		m.changed = append(m.changed, o.Name)
	}
	m.wake()
}

func (m *Members) wake() {
	select {
	case m.wakeCh <- struct{}{}:
	default:
	}
}

// dispatch calls the listeners and logs, in the place of the library's callbacks,
// which hold its lock.
func (m *Members) dispatch() {
	var reported reports
	for {
		select {
		case <-m.wakeCh:
		case <-m.ctx.Done():
			return
		}
		for {
			e, ok := m.next()
			if !ok {
				break
			}
			m.tell(e)
		}
		m.report(&reported)
	}
}

// next returns the next event.
func (m *Members) next() (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.changed) > 0 {
		name := m.changed[0]
		m.changed = m.changed[1:]
		o := m.others[name]
		if o == nil {
			continue
		}
		e := Event{Member: o.Member, Before: o.told}
		o.told, o.queued = o.Member, false
		switch {
		case e.Member == e.Before:
			continue
		case e.Member.Alive && !e.Before.Alive:
			e.Kind = Joined
		case e.Member.Alive:
			e.Kind = Updated
		case !e.Before.Alive:
			continue
		case e.Member.Leaving:
			e.Kind = Left
		default:
			e.Kind = Died
		}
		return e, true
	}
	m.changed = nil
	return Event{}, false
}

// tell logs an event, closes connections to what is no longer there and calls the
// listeners.
func (m *Members) tell(e Event) {
	log := m.log.With("peer", e.Member.Name, "address", e.Member.gossip(), "boot", e.Member.Boot)
	switch e.Kind {
	case Joined:
		log.Info("node joined", "version", e.Member.Version)
		for _, o := range m.Alive() {
			if o.ID == e.Member.ID && o.ID != "" && o.Name != e.Member.Name {
				log.Error("two nodes have one id: was a data folder copied?", "other", o.Name)
			}
		}
	case Left:
		log.Info("node left")
	case Died:
		log.Warn("node died")
	case Updated:
		switch {
		case e.Member.Boot != e.Before.Boot:
			log.Info("node restarted")
		case e.Member.Leaving && !e.Before.Leaving:
			log.Info("node is leaving")
		case e.Member.Draining != e.Before.Draining:
			log.Info("node changed", "draining", e.Member.Draining)
		default:
			log.Debug("node changed")
		}
	}
	if m.streams != nil && e.Before.IP != "" && (e.Member.Boot != e.Before.Boot || !e.Member.Alive || e.Member.gossip() != e.Before.gossip()) {
		m.streams.drop(e.Before.gossip())
	}
	for _, fn := range m.listeners {
		fn(e)
	}
}

// forget drops the members that were lost long ago.
func (m *Members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.others, func(_ string, o *member) bool {
		return !o.Alive && !o.queued && time.Since(o.lost) > m.cfg.Remember
	})
}
