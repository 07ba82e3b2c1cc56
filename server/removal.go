package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/server/wire"
)

// removal takes a dead node out of Raft, on whichever node is asked.
type removal struct {
	remove func(ctx context.Context, node string) error
	// send asks another node to do it; nil: there are no others.
	send func(ctx context.Context, to, node string) error
}

const (
	removeTimeout = 10 * time.Second
	removeRetry   = 100 * time.Millisecond // while leadership moves
)

// run removes the node of a name or an id. The error is a *naming.InvalidError for one
// that is alive or unknown, ErrNoLeader when there is no majority for it. It blocks for
// ten seconds at most.
func (r *removal) run(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	for {
		err := r.remove(ctx, node)
		redirect, ok := errors.AsType[*consistency.RedirectError](err)
		if !ok || r.send == nil {
			return err
		}
		if err = r.send(ctx, redirect.Node, node); !errors.Is(err, consistency.ErrNoLeader) && !errors.Is(err, errUnsent) {
			return err
		}
		select {
		case <-time.After(removeRetry):
		case <-ctx.Done():
			return err
		}
	}
}

// removeOn has a node remove another one.
func (p *peers) removeOn(ctx context.Context, to, node string) error {
	return p.ask(ctx, to, "Remove", &wire.RemoveRequest{Node: node}, new(wire.RemoveReply))
}

// remove serves another node's removeOn.
func (s *peerService) remove(ctx context.Context, q *wire.RemoveRequest) (proto.Message, error) {
	return &wire.RemoveReply{}, s.store.Remove(ctx, q.GetNode())
}
