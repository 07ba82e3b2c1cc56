package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// moving are connections that ended because this node had asked their clients to go
// elsewhere, or is about to stop. What they published stays listed until the client is
// back, on this node or another one, or until its time is over.
type moving struct {
	mu       sync.Mutex
	services map[naming.ServiceKey]map[string]*absence // by service, then publisher
	planned  bool                                      // a look is
}

// absence is that of the client of one connection. Only looks change it.
type absence struct {
	end  time.Time // when its time is over
	back time.Time // when it was first seen to be back; zero: it was not
}

const (
	// movingEvery is the time between two looks at who is back.
	movingEvery = 200 * time.Millisecond
	// spreadTime is how long news of a registration may take to reach all nodes. The
	// former one is withdrawn after that: on a node that heard of this first, the
	// instance would be gone for a moment.
	spreadTime = time.Second
)

// add takes a connection that has ended.
func (m *moving) add(r *Registry, publisher string, services []naming.ServiceKey) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, svc := range services {
		if m.services[svc] == nil {
			m.services[svc] = make(map[string]*absence)
		}
		m.services[svc][publisher] = &absence{end: now.Add(max(r.cfg.MoveLinger, r.cfg.Linger))}
	}
	if !m.planned {
		m.planned = true
		r.timers.at(now.Add(movingEvery), taskFunc(r.lookAtMoving))
	}
}

// lookAtMoving removes what clients that are back elsewhere, or whose time is over, have
// published over their former connections. Only it takes them out of the list.
func (r *Registry) lookAtMoving(now time.Time) {
	m := &r.moving
	m.mu.Lock()
	waiting := make(map[naming.ServiceKey]map[string]*absence, len(m.services))
	for svc, publishers := range m.services {
		waiting[svc] = maps.Clone(publishers)
	}
	m.mu.Unlock()
	for svc, publishers := range waiting {
		s, _ := r.router.Service(svc)
		shown := make(map[*naming.Instance]bool, len(s.Instances))
		for _, i := range s.Instances {
			shown[i] = true
		}
		for publisher, a := range publishers {
			had := r.router.Store(true).Published(svc, publisher)
			seen := slices.ContainsFunc(had, func(i *naming.Instance) bool { return shown[i] })
			if !seen && a.back.IsZero() {
				a.back = now
			}
			if seen && !r.nodes.calm() { // it may be on a node that is not heard
				if end := now.Add(r.cfg.MoveLinger); a.end.Before(end) { // and on its way again, if that one is dead
					a.end = end
				}
				continue
			}
			switch {
			case a.back.IsZero() && (now.Before(a.end) || r.stopping.Load()): // who is not back in time, the other nodes decide about
				continue
			case !seen && now.Before(a.back.Add(spreadTime)):
				continue
			}
			// Seen again, it was back and has said that it goes.
			r.withdraw(svc, publisher, had)
			m.remove(svc, publisher)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.planned = len(m.services) > 0; m.planned {
		r.timers.at(now.Add(movingEvery), taskFunc(r.lookAtMoving))
	}
}

func (m *moving) remove(svc naming.ServiceKey, publisher string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.services[svc], publisher); len(m.services[svc]) == 0 {
		delete(m.services, svc)
	}
}

// any tells whether the client of any connection is expected back.
func (m *moving) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.services) > 0
}

func (m *moving) has(svc naming.ServiceKey, publisher string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.services[svc][publisher] != nil
}

// withdraw removes what the publisher of a connection that has ended had in a service.
func (r *Registry) withdraw(svc naming.ServiceKey, publisher string, had []*naming.Instance) {
	ctx := consistency.WithInferred(context.Background())
	err := r.router.Publish(ctx, true, consistency.Publication{Service: svc, Publisher: publisher})
	if err != nil {
		r.log.Debug("remove after lost connection", "conn", publisher, "service", svc.String(), "err", err)
	}
	r.lost(svc, had, nil)
}
