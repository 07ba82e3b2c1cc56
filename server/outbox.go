package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"rollcall/server/wire"
)

const (
	maxCalls      = 4         // to one node that are under way at once
	maxWrites     = 256       // in one call
	maxWriteBytes = 256 << 10 // in one call, unless one write is larger alone
)

// outbox sends writes to the nodes that lead. There is no timer: a call leaves as soon
// as fewer than maxCalls are under way to its node, and takes along what has come in
// the meantime. Safe for concurrent use.
type outbox struct {
	ask func(ctx context.Context, node, method string, request, reply proto.Message) error
	// whileLeads returns a context that ends when the node does not lead any more.
	whileLeads func(ctx context.Context, node string) (context.Context, context.CancelFunc)

	mu    sync.Mutex
	lanes map[string]*lane // by node, those with calls under way
	wg    sync.WaitGroup
}

// lane is what goes to one node.
type lane struct {
	waiting []*outgoing // one for each caller of send that is not in a call
	calls   int
}

// outgoing is one write on its way to another node.
type outgoing struct {
	*wire.WriteRequest
	doneCh chan written // of capacity 1
}

// written is what became of a write.
type written struct {
	index uint64
	err   error
}

func newOutbox(ask func(ctx context.Context, node, method string, request, reply proto.Message) error,
	whileLeads func(ctx context.Context, node string) (context.Context, context.CancelFunc),
) *outbox {
	return &outbox{ask: ask, whileLeads: whileLeads, lanes: make(map[string]*lane)}
}

// send makes a write on another node and returns the index of its log entry. The error
// is errUnsent when nothing has left this node.
func (o *outbox) send(ctx context.Context, node string, q *wire.WriteRequest) (uint64, error) {
	w := &outgoing{WriteRequest: q, doneCh: make(chan written, 1)}
	o.mu.Lock()
	l := o.lanes[node]
	if l == nil {
		l = new(lane)
		o.lanes[node] = l
	}
	l.waiting = append(l.waiting, w)
	if l.calls < maxCalls {
		l.calls++
		o.wg.Go(func() { o.run(node, l) })
	}
	o.mu.Unlock()

	select {
	case r := <-w.doneCh:
		return r.index, r.err
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := slices.Index(l.waiting, w); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		return 0, fmt.Errorf("%w: node %s: too many writes wait for it: %w", errUnsent, node, ctx.Err())
	}
	return 0, ctx.Err()
}

// run makes calls to a node as long as writes wait.
func (o *outbox) run(node string, l *lane) {
	for {
		writes := o.take(node, l)
		if len(writes) == 0 {
			return
		}
		o.call(node, writes)
	}
}

// take removes the writes for the next call from those that wait. When none do, the
// calls have one less.
func (o *outbox) take(node string, l *lane) []*outgoing {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, size := 0, 0
	for ; n < min(len(l.waiting), maxWrites); n++ {
		if size += len(l.waiting[n].GetOperation()); n > 0 && size > maxWriteBytes {
			break
		}
	}
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	if n == 0 {
		if l.calls--; l.calls == 0 {
			delete(o.lanes, node)
		}
	}
	return batch
}

// call makes several writes on another node and hands out what became of each.
func (o *outbox) call(node string, writes []*outgoing) {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	ctx, done := o.whileLeads(ctx, node)
	defer done()
	request, reply := &wire.WritesRequest{Writes: make([]*wire.WriteRequest, len(writes))}, new(wire.WritesReply)
	for n, w := range writes {
		request.Writes[n] = w.WriteRequest
	}
	err := o.ask(ctx, node, "Writes", request, reply)
	if status.Code(err) == codes.Unimplemented {
		o.singly(ctx, node, writes)
		return
	}
	if err == nil && len(reply.GetWrites()) != len(writes) {
		err = fmt.Errorf("node %s answered %d writes of %d", node, len(reply.GetWrites()), len(writes))
	}
	for n, w := range writes {
		r := written{err: err}
		if err == nil {
			r = writtenAs(node, reply.GetWrites()[n])
		}
		w.doneCh <- r
	}
}

// writtenAs is the answer of a node to one of several writes.
func writtenAs(node string, reply *wire.WriteReply) written {
	if f := reply.GetFault(); f != nil {
		return written{err: peerError(node, faultError(f))}
	}
	return written{index: reply.GetIndex()}
}

// singly is call for a node of a version that takes one write in a call.
func (o *outbox) singly(ctx context.Context, node string, writes []*outgoing) {
	var calls sync.WaitGroup
	for _, w := range writes {
		calls.Go(func() {
			reply := new(wire.WriteReply)
			err := o.ask(ctx, node, "Write", w.WriteRequest, reply)
			w.doneCh <- written{reply.GetIndex(), err}
		})
	}
	calls.Wait()
}

// close waits for the calls that are under way. They fail when the connections of the
// peers are closed.
func (o *outbox) close() error {
	o.wg.Wait()
	return nil
}
