package server

import (
	"context"
	"slices"
	"sync"

	"rollcall/consistency"
	"rollcall/naming"
)

// lingering are publishers whose connection has ended and whose instances are still
// listed, because the client may be on its way back.
type lingering struct {
	mu         sync.Mutex
	publishers map[string]struct{}
}

func (l *lingering) set(publisher string, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on {
		l.publishers[publisher] = struct{}{}
	} else {
		delete(l.publishers, publisher)
	}
}

// any tells whether somebody lingers.
func (l *lingering) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.publishers) > 0
}

func (l *lingering) has(publisher string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.publishers[publisher]
	return ok
}

// endLinger withdraws instances that were deregistered on purpose from former
// connections of the client too: else they would be listed until the linger is over.
func (r *Registry) endLinger(ctx context.Context, svc naming.ServiceKey, gone []*naming.Instance) {
	if !r.lingering.any() && !r.moving.any() {
		return
	}
	isGone := func(i *naming.Instance) bool {
		return slices.ContainsFunc(gone, func(g *naming.Instance) bool { return g.Key() == i.Key() })
	}
	for _, p := range r.router.Store(true).Publications(svc) {
		if !r.lingering.has(p.Publisher) && !r.moving.has(svc, p.Publisher) || !slices.ContainsFunc(p.Instances, isGone) {
			continue
		}
		p.Instances = slices.DeleteFunc(p.Instances, isGone)
		err := r.router.Publish(ctx, true, consistency.Publication{Service: svc, Publisher: p.Publisher, Instances: p.Instances})
		if err != nil {
			r.log.Debug("end linger", "conn", p.Publisher, "service", svc.String(), "err", err)
		}
	}
}

// Populated tells whether a service has an instance.
func (r *Registry) Populated(svc naming.ServiceKey) bool {
	st, _ := r.router.Stat(svc)
	return st.Instances > 0
}
