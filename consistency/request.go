package consistency

import (
	"context"
	"sync/atomic"
)

// Request is one request of a client on its way through the nodes. It goes with
// the context of the writes that the request causes, see [WithRequest]. Safe for
// concurrent use.
type Request struct {
	id    string
	index atomic.Uint64
}

type requestKey struct{}

// WithRequest returns a context for the writes of one request. id is unique among
// all requests to all nodes, and the same again when the request is forwarded or
// retried because its outcome was unknown: a store of persistent data applies a
// write that it has applied for this id already no second time and answers as it
// did first. Within one request, writes are told apart by their content, so a
// request must not write the same thing twice with something else in between. An
// empty id asks for nothing but the index.
//
// Stores remember ids for some minutes, not for ever: see their documentation.
func WithRequest(ctx context.Context, id string) (context.Context, *Request) {
	r := &Request{id: id}
	return context.WithValue(ctx, requestKey{}, r), r
}

// RequestOf returns the request that the context belongs to, nil when none.
func RequestOf(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// ID returns the id of the request; empty for nil.
func (r *Request) ID() string {
	if r == nil {
		return ""
	}
	return r.id
}

// Index returns the highest log index among the persistent writes of the request
// that have succeeded; 0 when there was none. A node that has applied the log up
// to there shows them all.
func (r *Request) Index() uint64 { return r.index.Load() }

// Wrote is called by a store after a write of the request: it is in the log at the
// index. It does nothing on nil.
func (r *Request) Wrote(index uint64) {
	if r == nil {
		return
	}
	for {
		have := r.index.Load()
		if have >= index || r.index.CompareAndSwap(have, index) {
			return
		}
	}
}
