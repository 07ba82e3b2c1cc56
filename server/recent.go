package server

import (
	"sync"
	"time"

	"rollcall/naming"
)

// recentInstances remembers instances that were lost or replaced a moment ago. An
// operator may change such an instance: the override holds when it comes back.
// Without this, taking an instance out of traffic would fail just while it
// restarts. Those that were deregistered on purpose are not remembered.
type recentInstances struct {
	mu    sync.Mutex
	byKey map[overrideKey]*naming.Instance
}

// maxRecent bounds what is remembered; beyond it further losses are not.
const maxRecent = 1 << 16

// lost remembers what the publisher had in the service and has no more.
func (r *Registry) lost(svc naming.ServiceKey, before, after []*naming.Instance) {
	if len(before) == 0 {
		return
	}
	has := make(map[naming.InstanceKey]bool, len(after))
	for _, i := range after {
		has[i.Key()] = true
	}
	for _, i := range before {
		if !has[i.Key()] {
			r.recent.add(r, overrideKey{svc, i.Key()}, i)
		}
	}
}

func (c *recentInstances) add(r *Registry, k overrideKey, i *naming.Instance) {
	c.mu.Lock()
	full := len(c.byKey) >= maxRecent
	if !full {
		c.byKey[k] = i
	}
	c.mu.Unlock()
	if full {
		return
	}
	r.timers.at(time.Now().Add(r.cfg.OverrideExpiry), taskFunc(func(time.Time) { c.remove(k, i) }))
}

// remove forgets an instance, unless it was lost again meanwhile.
func (c *recentInstances) remove(k overrideKey, i *naming.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[k] == i {
		delete(c.byKey, k)
	}
}

// forget forgets instances that were deregistered on purpose after all.
func (c *recentInstances) forget(svc naming.ServiceKey, gone []*naming.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range gone {
		delete(c.byKey, overrideKey{svc, i.Key()})
	}
}

// get returns an instance that was lost a moment ago, else nil.
func (c *recentInstances) get(k overrideKey) *naming.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[k]
}
