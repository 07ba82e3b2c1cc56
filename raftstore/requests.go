package raftstore

import (
	"slices"
	"time"
)

// Nodes with other values than these would come to other states from one log: to
// change them takes a new version of the command.
const (
	// requestMemory is how long a write that carried a request is remembered, by
	// the times in the commands.
	requestMemory = 10 * time.Minute
	// maxRequests bounds the memory. At 20,000 writes a second with a request it
	// still reaches back further than any retry does.
	maxRequests = 1 << 19
)

// request is the memory of one write that carried a request.
type request struct {
	id      [requestBytes]byte
	timeMs  uint64
	version uint64 // of what it wrote
}

// requests remembers writes in the order of the log. It is part of the state of
// the FSM: what it forgets depends on the commands alone.
type requests struct {
	order   []request // oldest first
	dropped int       // entries at the beginning of order that are forgotten
	byID    map[[requestBytes]byte]uint64
	limit   int
}

func newRequests() requests {
	return requests{byID: make(map[[requestBytes]byte]uint64), limit: maxRequests}
}

// find returns the version that the write had.
func (r *requests) find(id []byte) (version uint64, ok bool) {
	version, ok = r.byID[[requestBytes]byte(id)]
	return version, ok
}

func (r *requests) add(id []byte, timeMs, version uint64) {
	if len(r.byID) >= r.limit {
		r.drop()
	}
	r.order = append(r.order, request{[requestBytes]byte(id), timeMs, version})
	r.byID[[requestBytes]byte(id)] = version
}

// expire forgets what is too old at the time.
func (r *requests) expire(nowMs uint64) {
	for r.dropped < len(r.order) && r.order[r.dropped].timeMs+uint64(requestMemory.Milliseconds()) <= nowMs {
		r.drop()
	}
}

func (r *requests) drop() {
	delete(r.byID, r.order[r.dropped].id)
	if r.dropped++; r.dropped > 1024 && r.dropped > len(r.order)/2 {
		r.order = slices.Clone(r.order[r.dropped:])
		r.dropped = 0
	}
}

// all returns a copy of what is remembered, oldest first.
func (r *requests) all() []request { return slices.Clone(r.order[r.dropped:]) }

func (r *requests) replace(all []request) {
	*r = requests{order: all, byID: make(map[[requestBytes]byte]uint64, len(all)), limit: r.limit}
	for _, q := range all {
		r.byID[q.id] = q.version
	}
}
