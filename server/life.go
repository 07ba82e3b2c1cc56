package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// life is how a node of several goes: for a while, until it is started again, or for
// good.
type life struct {
	registry *Registry
	spread   *spread
	log      *slog.Logger
	timeout  time.Duration // of a graceful stop
	leaving  atomic.Bool   // for good
	leaveCh  chan struct{} // closed when an operator told the node to go for good

	// What the stores are asked; node.go sets it.
	tell     func(draining, leaving bool) error // the other nodes
	own      func(nothing bool)                 // whether this node owns clients over HTTP
	mayLeave func() error
	stepDown func() error
	remove   func(ctx context.Context) error // this node, out of Raft
}

const (
	// handOverShare of the time for a graceful stop is for clients to go. The rest is
	// for what is under way and for the stores.
	handOverShare = 0.4
	// leaveTimeout bounds how long the leader is asked to take this node out of Raft.
	leaveTimeout = 5 * time.Second
	leaveRetry   = 100 * time.Millisecond
)

// Drain has all clients go to other nodes, and takes no new ones, until it is called
// with false or the node starts again. The node serves whoever is there. It does not
// block for longer than it takes to send a message.
func (l *life) Drain(on bool) error {
	if l.registry.draining.Swap(on) == on {
		return nil
	}
	l.own(on)
	l.log.Info("draining", "on", on)
	return l.tell(on, false)
}

// Leave begins to take the node out for good; the process that runs it has to close it.
// The error says why the other nodes could not go on without it.
func (l *life) Leave() error {
	if err := l.mayLeave(); err != nil {
		return err
	}
	if l.leaving.CompareAndSwap(false, true) {
		close(l.leaveCh)
	}
	return nil
}

// handOver is the first step of a stop: clients go, and so does the leadership.
func (l *life) handOver() error {
	l.spread.stop()
	began := time.Now()
	if err := l.Drain(true); err != nil {
		l.log.Debug("the other nodes were not told", "err", err)
	}
	within := time.Duration(float64(l.timeout) * handOverShare)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	before := l.spread.clients.Present()
	l.spread.empty(ctx, within/2)
	l.log.Info("clients were handed over", "clients", before, "left", l.spread.clients.Present(), "took", time.Since(began).Round(time.Millisecond))
	if err := l.stepDown(); err != nil {
		l.log.Warn("leadership was not handed over", "err", err)
	}
	return nil
}

// end is a later step of a stop: a node that leaves for good goes out of Raft.
func (l *life) end() error {
	if l == nil || !l.leaving.Load() {
		return nil
	}
	if err := l.leave(); err != nil {
		l.log.Error("this node could not leave for good: it still counts for a majority; remove it on another node", "err", err)
		return fmt.Errorf("leave for good: %w", err)
	}
	l.log.Info("left for good")
	return nil
}

// leave takes this node out of Raft.
func (l *life) leave() error {
	if err := l.mayLeave(); err != nil {
		return err
	}
	if err := l.tell(true, true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for {
		err := l.remove(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(leaveRetry):
		}
	}
}
