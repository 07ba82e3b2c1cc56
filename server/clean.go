package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// emptyServices remembers services without instances, and since when. They are
// listed until they are cleaned.
type emptyServices struct {
	mu sync.Mutex
	// since has an entry for each service with instances, which is zero, and for
	// each one that has lost its last instance or has settings only.
	since map[naming.ServiceKey]time.Time
}

// has tells whether a service is empty and not cleaned yet.
func (e *emptyServices) has(k naming.ServiceKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.since[k].IsZero()
}

// note records what a service holds now, and tells whether it has just become
// empty, or has just got its first instance.
func (e *emptyServices) note(k naming.ServiceKey, st consistency.Stat, now time.Time) (emptied, filled bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, known := e.since[k]
	switch {
	case st.Instances > 0:
		e.since[k] = time.Time{}
		return false, !known || !since.IsZero()
	case known && since.IsZero(), !known && st.Exists:
		e.since[k] = now
		return true, false
	}
	return false, false
}

// remove forgets a service, unless it has instances again.
func (e *emptyServices) remove(k naming.ServiceKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.since[k].IsZero() {
		delete(e.since, k)
	}
}

// expired removes a service that has been empty since then or longer, and tells
// whether it did.
func (e *emptyServices) expired(k naming.ServiceKey, then time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	since := e.since[k]
	if since.IsZero() || since.After(then) {
		return false
	}
	delete(e.since, k)
	return true
}

// keys returns the sorted keys of a namespace, or of all when it is empty.
func (e *emptyServices) keys(namespace string) []naming.ServiceKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []naming.ServiceKey
	for k, since := range e.since {
		if !since.IsZero() && (namespace == "" || k.Namespace == namespace) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, naming.ServiceKey.Compare)
	return out
}

// settle plans what follows a change of a service: the cleaning of an empty one,
// and the end of overrides whose instance is gone. It runs in the goroutine of
// the change, takes constant time and does not block.
func (r *Registry) settle(k naming.ServiceKey) {
	st, _ := r.router.Stat(k)
	now := time.Now()
	emptied, filled := r.empty.note(k, st, now)
	if emptied || filled {
		r.populated(k)
	}
	if emptied {
		r.timers.at(now.Add(r.cfg.EmptyServiceExpiry), taskFunc(func(now time.Time) { r.cleanEmpty(k, now) }))
	}
	if !st.Exists && !r.watched(k) {
		r.views.drop(k)
	}
	if st.Overrides > 0 && r.absent.plan(k) {
		r.timers.at(time.Now().Add(overrideCheck), taskFunc(func(time.Time) { r.watchOverrides(k) }))
	}
}

// overrideCheck is how long after a change the overrides of a service are looked
// at: one look covers many changes.
const overrideCheck = time.Second

// cleanEmpty removes a service that has been empty for long enough.
func (r *Registry) cleanEmpty(k naming.ServiceKey, now time.Time) {
	if !r.empty.expired(k, now.Add(-r.cfg.EmptyServiceExpiry)) {
		return
	}
	if st, _ := r.router.Stat(k); !st.Exists || st.Instances > 0 {
		return
	}
	r.later(func(ctx context.Context) {
		s, ok := r.router.Service(k)
		if !ok || len(s.Instances) > 0 {
			return
		}
		if err := r.deleteRecords(ctx, &s); err != nil {
			r.log.Debug("clean empty service", "service", k.String(), "err", err)
			r.settle(k) // try again after another period
			return
		}
		r.empty.remove(k) // the deletions were changes of an empty service
	})
}

// watchOverrides plans the end of a service's overrides that have no instance now,
// and has the heartbeats of the others looked at: their times may have changed.
func (r *Registry) watchOverrides(k naming.ServiceKey) {
	r.absent.looked(k)
	s, _ := r.router.Service(k)
	for key := range s.Overrides {
		o := overrideKey{k, key}
		present := s.Find(key) != nil
		if present {
			r.beats.review(beatKey{k, key.Address()})
		}
		since, absent := r.absent.note(o, present)
		if absent {
			r.timers.at(since.Add(r.cfg.OverrideExpiry), taskFunc(func(time.Time) { r.expireOverride(o, since) }))
		}
	}
}

type overrideKey struct {
	service  naming.ServiceKey
	instance naming.InstanceKey
}

// absentOverrides remembers overrides whose instance is gone, and since when.
type absentOverrides struct {
	mu      sync.Mutex
	since   map[overrideKey]time.Time
	planned map[naming.ServiceKey]struct{} // services that will be looked at
}

// plan tells whether a look at the service is to be planned.
func (a *absentOverrides) plan(k naming.ServiceKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.planned[k]; ok {
		return false
	}
	a.planned[k] = struct{}{}
	return true
}

func (a *absentOverrides) looked(k naming.ServiceKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.planned, k)
}

// note records whether the instance is there; news is true when it has just gone.
func (a *absentOverrides) note(o overrideKey, present bool) (since time.Time, news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if present {
		delete(a.since, o)
		return time.Time{}, false
	}
	if since, ok := a.since[o]; ok {
		return since, false
	}
	since = time.Now()
	a.since[o] = since
	return since, true
}

// gone tells whether the instance has been absent ever since then.
func (a *absentOverrides) gone(o overrideKey, since time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, ok := a.since[o]
	if ok && was.Equal(since) {
		delete(a.since, o)
		return true
	}
	return false
}

func (r *Registry) expireOverride(o overrideKey, since time.Time) {
	if !r.absent.gone(o, since) {
		return
	}
	r.later(func(ctx context.Context) {
		if s, _ := r.router.Service(o.service); s.Find(o.instance) != nil {
			return
		}
		err := r.router.DeletePersistent(ctx, consistency.Key{Service: o.service, Kind: consistency.KindOverride, Instance: o.instance})
		if err != nil {
			r.log.Debug("expire override", "service", o.service.String(), "instance", o.instance.Address(), "err", err)
			r.settle(o.service)
		}
	})
}

// cleanQueue bounds the writes that wait for the cleaner; one that does not fit
// is planned again.
const cleanQueue = 1024

// later hands a persistent write to the cleaner, or tries again soon if it is
// busy.
func (r *Registry) later(write func(context.Context)) {
	select {
	case r.cleanCh <- write:
	default:
		r.timers.at(time.Now().Add(time.Second), taskFunc(func(time.Time) { r.later(write) }))
	}
}

// cleanTimeout bounds one write of the cleaner.
const cleanTimeout = 5 * time.Second

// clean is the cleaner goroutine: it makes the persistent writes that time calls
// for.
func (r *Registry) clean() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case write := <-r.cleanCh:
			ctx, cancel := context.WithTimeout(r.ctx, cleanTimeout)
			if ctx.Err() == nil {
				write(ctx)
			}
			cancel()
		}
	}
}
