package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"rollcall/consistency"
	"rollcall/server/wire"
)

// forwarding is the persistent store as the router sees it: a write on a node that
// does not lead goes to the one that does, and returns when this node shows it.
// Reads are the store's own.
type forwarding struct {
	consistency.Store
	waitApplied func(ctx context.Context, index uint64) error
	encode      encoders
	// send makes a write on another node and returns the index of its log entry.
	send    func(ctx context.Context, node string, q *wire.WriteRequest) (uint64, error)
	timeout time.Duration
}

// encoders make of writes what travels to the leader.
type encoders struct {
	publish func(consistency.Publication) ([]byte, error)
	put     func(consistency.Datum) ([]byte, error)
	delete  func(consistency.Key) ([]byte, error)
}

// Publish implements [consistency.Store].
func (f *forwarding) Publish(ctx context.Context, p consistency.Publication) error {
	return f.write(ctx, func(ctx context.Context) error { return f.Store.Publish(ctx, p) }, func() ([]byte, error) { return f.encode.publish(p) })
}

// Put implements [consistency.Store].
func (f *forwarding) Put(ctx context.Context, d consistency.Datum) error {
	return f.write(ctx, func(ctx context.Context) error { return f.Store.Put(ctx, d) }, func() ([]byte, error) { return f.encode.put(d) })
}

// Delete implements [consistency.Store].
func (f *forwarding) Delete(ctx context.Context, k consistency.Key) error {
	return f.write(ctx, func(ctx context.Context) error { return f.Store.Delete(ctx, k) }, func() ([]byte, error) { return f.encode.delete(k) })
}

const (
	forwardRetry = 20 * time.Millisecond // the pause before a write is tried again
	// leaderPatience is how long a write that surely has not happened waits for a
	// leader, from its beginning. An election takes 0.6 to 1.3 s.
	leaderPatience = 2250 * time.Millisecond
)

// write tries a write here, and where another node leads, there, until it is known
// what became of it or the time is over. Every try carries the same request id, so
// that a write whose outcome was unknown applies once.
func (f *forwarding) write(ctx context.Context, local func(context.Context) error, encode func() ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	outer := consistency.RequestOf(ctx)
	id := outer.ID()
	if id == "" {
		id = rand.Text()
	}
	ctx, request := consistency.WithRequest(ctx, id)
	patience := time.Now().Add(leaderPatience)
	maybe := false // a try may have been applied
	trying := ctx
	for {
		err := local(trying)
		again := errors.Is(err, consistency.ErrUnknownOutcome)
		if redirect, ok := errors.AsType[*consistency.RedirectError](err); ok {
			operation, fault := encode()
			if fault != nil {
				return fault
			}
			err = f.forward(trying, redirect.Node, &wire.WriteRequest{Operation: operation, Request: id})
			again = !errors.Is(err, consistency.ErrReadOnly) && !errors.Is(err, consistency.ErrNotReady)
		}
		if err == nil {
			outer.Wrote(request.Index())
			return nil
		}
		switch maybe = maybe || errors.Is(err, consistency.ErrUnknownOutcome); {
		case maybe:
			trying = ctx
		case trying == ctx:
			trying, cancel = context.WithDeadline(ctx, patience)
			defer cancel()
		}
		if again {
			select {
			case <-time.After(forwardRetry):
				continue
			case <-trying.Done():
			}
		}
		if errors.Is(err, errUnsent) {
			err = fmt.Errorf("%w: %w", consistency.ErrNoLeader, err)
		}
		if maybe && !errors.Is(err, consistency.ErrUnknownOutcome) {
			err = fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
		}
		return err
	}
}

// forward makes a write on another node and waits until this one shows it. The error
// is ErrUnknownOutcome unless that node surely has not written.
func (f *forwarding) forward(ctx context.Context, node string, q *wire.WriteRequest) error {
	index, err := f.send(ctx, node, q)
	if err == nil {
		consistency.RequestOf(ctx).Wrote(index)
		err = f.waitApplied(ctx, index)
	}
	if err == nil || errors.Is(err, consistency.ErrUnknownOutcome) {
		return err
	}
	for _, unwritten := range []error{consistency.ErrNoLeader, consistency.ErrReadOnly, consistency.ErrNotReady, errUnsent} {
		if errors.Is(err, unwritten) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
}
