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
	leader      func() string // name of the node that leads, as known here; empty: nobody
	encode      encoders
	peers       *peers
	timeout     time.Duration
}

// encoders make of writes what travels to the leader.
type encoders struct {
	publish func(consistency.Publication) ([]byte, error)
	put     func(consistency.Datum) ([]byte, error)
	delete  func(consistency.Key) ([]byte, error)
}

// Publish implements [consistency.Store].
func (f *forwarding) Publish(ctx context.Context, p consistency.Publication) error {
	return f.write(ctx, f.Store.Publish(ctx, p), func() ([]byte, error) { return f.encode.publish(p) })
}

// Put implements [consistency.Store].
func (f *forwarding) Put(ctx context.Context, d consistency.Datum) error {
	return f.write(ctx, f.Store.Put(ctx, d), func() ([]byte, error) { return f.encode.put(d) })
}

// Delete implements [consistency.Store].
func (f *forwarding) Delete(ctx context.Context, k consistency.Key) error {
	return f.write(ctx, f.Store.Delete(ctx, k), func() ([]byte, error) { return f.encode.delete(k) })
}

// forwardRetry is the pause before a write is offered to the leader again.
const forwardRetry = 20 * time.Millisecond

// write follows a write that the local store refused because another node leads.
// Every try carries the same request id, so that a write whose outcome was unknown
// applies once.
func (f *forwarding) write(ctx context.Context, refused error, encode func() ([]byte, error)) error {
	var redirect *consistency.RedirectError
	if !errors.As(refused, &redirect) {
		return refused
	}
	operation, err := encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	request := &wire.WriteRequest{Operation: operation, Request: rand.Text()}
	node, maybe := redirect.Node, false
	for {
		reply := new(wire.WriteReply)
		err := f.peers.ask(ctx, node, "Write", request, reply)
		switch {
		case err == nil:
			return f.waitApplied(ctx, reply.GetIndex())
		case errors.Is(err, consistency.ErrReadOnly), errors.Is(err, consistency.ErrNotReady):
			return err
		case !errors.Is(err, consistency.ErrNoLeader):
			maybe = true // it may have arrived
		}
		select {
		case <-time.After(forwardRetry):
		case <-ctx.Done():
			if maybe {
				return fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
			}
			return err
		}
		if next := f.leader(); next != "" {
			node = next
		}
	}
}
