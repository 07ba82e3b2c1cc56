package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"rollcall/naming"
)

// connection is the client's tie to one server: a session over gRPC, or one over HTTP.
// Its methods are safe for concurrent use.
type connection interface {
	link
	// query asks for a list once.
	query(ctx context.Context, svc naming.ServiceKey, f naming.Filter) (*Service, error)
	services(ctx context.Context, namespace, group string, page, size int) (names []string, count int, err error)
	persistent(ctx context.Context, operation string, svc naming.ServiceKey, i naming.Instance) error
	// health asks whether the server is there and knows the client. It blocks for
	// HealthTimeout at most.
	health(ctx context.Context) error
	// close ends the connection and waits for its goroutines.
	close()
	state() *life
}

// life is what all connections have: when they began and were last answered, and why
// they ended.
type life struct {
	number uint64 // rises from one connection of the client to the next
	server server
	id     string // as the server calls it; may be empty
	began  time.Time
	active atomic.Int64 // when the server last answered, nanoseconds since began

	ctx       context.Context
	cancel    context.CancelCauseFunc // with the reason of the end
	suspectCh chan struct{}           // capacity 1: ask whether the server is alive
	resetCh   chan resetRequest       // capacity 1: the server asks to move
}

// resetRequest is a server's request to connect to another one; no ip means any.
type resetRequest struct {
	ip   string
	port int
}

func newLife(ctx context.Context, number uint64, s server) *life {
	l := &life{
		number: number, server: s, began: time.Now(),
		suspectCh: make(chan struct{}, 1), resetCh: make(chan resetRequest, 1),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

func (l *life) state() *life { return l }

// answered notes that the server has answered.
func (l *life) answered() { l.active.Store(int64(time.Since(l.began))) }

// quiet returns how long the server has not answered.
func (l *life) quiet() time.Duration { return time.Since(l.began) - time.Duration(l.active.Load()) }

func (l *life) age() time.Duration { return time.Since(l.began) }

// end ends the connection for a reason. It does not block.
func (l *life) end(why error) { l.cancel(why) }

// done is closed when the connection has ended; why tells the reason.
func (l *life) done() <-chan struct{} { return l.ctx.Done() }

func (l *life) why() error { return context.Cause(l.ctx) }

// doubtful is called when a call failed; see link.
func (l *life) doubtful(err error) {
	var refusal *ServerError
	switch {
	case unknownConnection(err):
		l.end(err)
	case errors.As(err, &refusal):
		if refusal.Code == codeGone && l.age() > youngSession {
			l.end(err)
		}
	default: // no answer
		l.suspect()
	}
}

// suspect lets the server be asked for a sign of health.
func (l *life) suspect() {
	select {
	case l.suspectCh <- struct{}{}:
	default:
	}
}
