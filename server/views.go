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
	cacheMs atomic.Int64 // what views say of how long they may be kept

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
	dropped bool
}

// maxFilters bounds the views kept of one service, and maxFilterText, in bytes, the
// filters that views are kept of: clients choose the filters.
const (
	maxFilters    = 64
	maxFilterText = 4 << 10
)

func newViews(read func(naming.ServiceKey) (naming.Service, bool), watched func(naming.ServiceKey) bool, cacheMs int64) *views {
	vs := &views{read: read, watched: watched, byKey: make(map[naming.ServiceKey]*view)}
	vs.cacheMs.Store(cacheMs)
	return vs
}

// get returns what a client sees of a service; an unknown one has no hosts.
func (vs *views) get(k naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	for {
		v := vs.find(k)
		if v == nil {
			info := f.View(&naming.Service{Key: k})
			// Before the present millisecond: a view may begin within it.
			info.CacheMs, info.LastRefTimeMs = vs.cacheMs.Load(), max(time.Now().UnixMilli()-1, vs.floor.Load()+1)
			return info
		}
		if info := vs.look(v, k, f); info != nil {
			return info
		}
	}
}

// find returns the view of a service, made if it is not there; nil for a service
// that is unknown and watched by nobody.
func (vs *views) find(k naming.ServiceKey) *view {
	vs.mu.RLock()
	v := vs.byKey[k]
	vs.mu.RUnlock()
	if v != nil {
		return v
	}
	if _, ok := vs.read(k); !ok && !vs.watched(k) {
		return nil
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v = vs.byKey[k]; v == nil {
		v = &view{lastMs: vs.floor.Load() + 1}
		v.changes.Store(1)
		vs.byKey[k] = v
	}
	return v
}

// look returns what a filter shows; nil if the view was dropped meanwhile.
func (vs *views) look(v *view, k naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dropped {
		return nil
	}
	if now := v.changes.Load(); v.seen != now {
		v.seen = now // before reading: a change while we read makes it stale again
		v.service, _ = vs.read(k)
		v.retire()
	}
	if info := v.current[f]; info != nil {
		return info
	}
	info := f.View(&v.service)
	info.CacheMs = vs.cacheMs.Load()
	if old := v.former[f]; old != nil && old.SameContent(info) {
		info = old
	} else {
		v.lastMs = max(time.Now().UnixMilli(), v.lastMs+1)
		info.LastRefTimeMs = v.lastMs
	}
	if len(v.current) < maxFilters && len(f.Clusters) <= maxFilterText {
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

// setCache changes how long views may be kept. Clients learn of it when they ask.
func (vs *views) setCache(ms int64) {
	if vs.cacheMs.Swap(ms) == ms {
		return
	}
	vs.mu.RLock()
	defer vs.mu.RUnlock()
	for _, v := range vs.byKey {
		v.changes.Add(1)
	}
}

// drop forgets the views of a service that is gone and watched by nobody.
func (vs *views) drop(k naming.ServiceKey) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.byKey[k]
	if v == nil {
		return
	}
	delete(vs.byKey, k)
	v.mu.Lock()
	v.dropped = true // whoever holds it gives no more times
	last := v.lastMs
	v.mu.Unlock()
	vs.floor.Store(max(vs.floor.Load(), last))
}
