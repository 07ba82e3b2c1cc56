package server

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/naming"
)

// views caches what clients see. A service's views are built when they are asked
// for after a change, once for each filter, and shared by all queries and
// subscribers until the next change; a view whose content did not change keeps
// its value, and with it the time that clients compare.
type views struct {
	read    func(naming.ServiceKey) (naming.Service, bool)
	watched func(naming.ServiceKey) bool
	cacheMs int64

	mu    sync.RWMutex
	byKey map[naming.ServiceKey]*view
	// floor is the largest time given by a view that was dropped.
	floor atomic.Int64
}

// view holds one service's views. Its mutex guards all but changes.
type view struct {
	changes atomic.Uint64 // raised at each change of the service

	mu      sync.Mutex
	seen    uint64 // value of changes when service was read; 0: never
	service naming.Service
	current map[naming.Filter]*naming.ServiceInfo
	former  map[naming.Filter]*naming.ServiceInfo // of earlier states
	lastMs  int64
}

// maxFilters bounds the views kept of one service: clients choose the filters.
const maxFilters = 64

func newViews(read func(naming.ServiceKey) (naming.Service, bool), watched func(naming.ServiceKey) bool, cacheMs int64) *views {
	return &views{read: read, watched: watched, cacheMs: cacheMs, byKey: make(map[naming.ServiceKey]*view)}
}

// get returns what a client sees of a service; an unknown one has no hosts.
func (vs *views) get(k naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	vs.mu.RLock()
	v := vs.byKey[k]
	vs.mu.RUnlock()
	if v == nil {
		s, ok := vs.read(k)
		if !ok && !vs.watched(k) {
			info := f.View(&s)
			info.CacheMs, info.LastRefTimeMs = vs.cacheMs, max(time.Now().UnixMilli(), vs.floor.Load()+1)
			return info
		}
		vs.mu.Lock()
		if v = vs.byKey[k]; v == nil {
			v = &view{lastMs: vs.floor.Load()}
			v.changes.Store(1)
			vs.byKey[k] = v
		}
		vs.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.changes.Load(); v.seen != now {
		v.seen = now // before reading: a change while we read makes it stale again
		v.service, _ = vs.read(k)
		v.retire()
	}
	if info := v.current[f]; info != nil {
		return info
	}
	info := f.View(&v.service)
	info.CacheMs = vs.cacheMs
	if old := v.former[f]; old != nil && old.SameContent(info) {
		info = old
	} else {
		v.lastMs = max(time.Now().UnixMilli(), v.lastMs+1)
		info.LastRefTimeMs = v.lastMs
	}
	if len(v.current) < maxFilters {
		v.current[f] = info
	}
	return info
}

// retire makes the current views former ones.
func (v *view) retire() {
	if len(v.former)+len(v.current) > 2*maxFilters {
		v.former = nil
	}
	if v.former == nil {
		v.former = make(map[naming.Filter]*naming.ServiceInfo, len(v.current))
	}
	maps.Copy(v.former, v.current)
	v.current = make(map[naming.Filter]*naming.ServiceInfo, 1)
}

// changed tells that a service may have changed.
func (vs *views) changed(k naming.ServiceKey) {
	vs.mu.RLock()
	v := vs.byKey[k]
	vs.mu.RUnlock()
	if v != nil {
		v.changes.Add(1)
	}
}

// drop forgets the views of a service that is gone and watched by nobody.
func (vs *views) drop(k naming.ServiceKey) {
	vs.mu.Lock()
	v := vs.byKey[k]
	delete(vs.byKey, k)
	vs.mu.Unlock()
	if v == nil {
		return
	}
	v.mu.Lock()
	last := v.lastMs
	v.mu.Unlock()
	for {
		floor := vs.floor.Load()
		if last <= floor || vs.floor.CompareAndSwap(floor, last) {
			return
		}
	}
}
