package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
	"rollcall/server/wire"
)

// desk is a node that takes calls and answers when it is told to.
type desk struct {
	mu    sync.Mutex
	calls []*wire.WritesRequest
	goCh  chan struct{} // a value, or its end, lets a call be answered
}

func (d *desk) ask(ctx context.Context, _, _ string, request, reply proto.Message) error {
	q := request.(*wire.WritesRequest)
	d.mu.Lock()
	d.calls = append(d.calls, q)
	d.mu.Unlock()
	select {
	case <-d.goCh:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, w := range q.GetWrites() {
		r := reply.(*wire.WritesReply)
		r.Writes = append(r.Writes, &wire.WriteReply{Index: uint64(len(w.GetOperation()))})
	}
	return nil
}

func (d *desk) sizes() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []int
	for _, q := range d.calls {
		out = append(out, len(q.GetWrites()))
	}
	return out
}

func forever(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func TestOutbox_WhatWaitsGoesInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{goCh: make(chan struct{})}
		o := newOutbox(d.ask, forever)
		var writers sync.WaitGroup
		for n := range maxCalls + maxWrites + 3 {
			writers.Go(func() {
				index, err := o.send(t.Context(), "n2", &wire.WriteRequest{Operation: make([]byte, n+1)})
				require.NoError(t, err)
				require.EqualValues(t, n+1, index, "its own answer")
			})
			synctest.Wait()
		}
		require.Equal(t, []int{1, 1, 1, 1}, d.sizes(), "as long as no answer has come")
		d.goCh <- struct{}{}
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1, 1, maxWrites}, d.sizes())
		close(d.goCh)
		writers.Wait()
		require.Equal(t, []int{1, 1, 1, 1, maxWrites, 3}, d.sizes())
		require.NoError(t, o.close())
		require.Empty(t, o.lanes, "of a node to which nothing goes nothing is kept")
	})
}

func TestOutbox_LargeWritesAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{goCh: make(chan struct{})}
		o := newOutbox(d.ask, forever)
		for _, size := range []int{1, 1, 1, 1, maxWriteBytes / 2, maxWriteBytes / 2, maxWriteBytes * 2, 1} {
			go func() { _, _ = o.send(t.Context(), "n2", &wire.WriteRequest{Operation: make([]byte, size)}) }()
			synctest.Wait()
		}
		close(d.goCh)
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1, 1, 2, 1, 1}, d.sizes())
		require.NoError(t, o.close())
	})
}

// Whoever leaves before the write was sent knows that nothing was written.
func TestOutbox_WhatWasNotSentIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{goCh: make(chan struct{})}
		o := newOutbox(d.ask, forever)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make([]error, maxCalls+1)
		var writers sync.WaitGroup
		for n := range errs {
			writers.Go(func() { _, errs[n] = o.send(ctx, "n2", &wire.WriteRequest{Operation: []byte("op")}) })
			synctest.Wait()
		}
		writers.Wait()
		for _, err := range errs[:maxCalls] {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, errUnsent)
		}
		require.ErrorIs(t, errs[maxCalls], errUnsent)
		require.Empty(t, o.lanes["n2"].waiting, "nothing of it is kept while the calls hang")
		close(d.goCh)
		require.NoError(t, o.close())
		require.Equal(t, []int{1, 1, 1, 1}, d.sizes())
	})
}

// A node that does not lead any more may hang for ever.
func TestOutbox_ACallEndsWithTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{goCh: make(chan struct{})}
		leading, resign := context.WithCancel(t.Context())
		o := newOutbox(d.ask, func(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			context.AfterFunc(leading, cancel)
			return ctx, cancel
		})
		go resign()
		_, err := o.send(t.Context(), "n2", &wire.WriteRequest{})
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, o.close())
	})
}

// A node of a version that has no calls of several writes takes them one by one.
func TestOutbox_ToAnOlderNode(t *testing.T) {
	o := newOutbox(func(_ context.Context, node, method string, request, reply proto.Message) error {
		if method != "Write" {
			return peerError(node, status.Error(codes.Unimplemented, "unknown method"))
		}
		reply.(*wire.WriteReply).Index = uint64(len(request.(*wire.WriteRequest).GetOperation()))
		return nil
	}, forever)
	index, err := o.send(t.Context(), "n2", &wire.WriteRequest{Operation: []byte("four")})
	require.NoError(t, err)
	require.EqualValues(t, 4, index)
}

// judge is a store that answers each write with what it carries.
type judge struct {
	leading
	answers map[string]error
}

func (j judge) Write(ctx context.Context, encoded []byte) error {
	if err := j.answers[string(encoded)]; err != nil {
		return err
	}
	consistency.RequestOf(ctx).Wrote(7)
	return nil
}

// What became of each write is known as if it had been alone, over the wire.
func TestOutbox_EachWriteHasItsOwnError(t *testing.T) {
	l, err := listen("127.0.0.1", 0, "peer-port")
	require.NoError(t, err)
	invalid := &naming.InvalidError{Fault: naming.FaultNamespace, Field: "namespaceId", Text: "is there \xff already"}
	answers := map[string]error{
		"invalid": invalid, "odd": errors.New("text \xff"),
		"redirect": &consistency.RedirectError{Node: "n3"},
	}
	for _, e := range peerErrors() {
		answers[e.err.Error()] = fmt.Errorf("%w: because", e.err)
	}
	service := newPeerService(l, judge{answers: answers}, nil, nil, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, service.start())
	defer func() { require.NoError(t, service.close()) }()
	p := newPeers(func(string) (string, bool) { return l.Addr().String(), true })
	defer func() { require.NoError(t, p.close()) }()

	requests := []*wire.WriteRequest{{Operation: []byte("fine")}}
	for operation := range answers {
		requests = append(requests, &wire.WriteRequest{Operation: []byte(operation)})
	}
	o := newOutbox(p.ask, forever)
	writes := make([]*outgoing, len(requests))
	for n, q := range requests {
		writes[n] = &outgoing{WriteRequest: q, doneCh: make(chan written, 1)}
	}
	o.call("n2", writes)
	for _, w := range writes {
		r := <-w.doneCh
		switch operation := string(w.GetOperation()); operation {
		case "fine":
			require.Equal(t, written{index: 7}, r)
		case "invalid":
			var got *naming.InvalidError
			require.ErrorAs(t, r.err, &got)
			require.Equal(t, invalid.Field, got.Field)
		case "redirect":
			require.ErrorIs(t, r.err, consistency.ErrNoLeader)
		case "odd":
			require.ErrorContains(t, r.err, "text")
		default:
			for _, e := range peerErrors() {
				require.Equal(t, e.err.Error() == operation, errors.Is(r.err, e.err), "%s: %v", operation, r.err)
			}
		}
	}
}
