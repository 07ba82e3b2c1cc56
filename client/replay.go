package client

import (
	"context"
	"time"

	"rollcall/naming"
)

// What keeper does with its wishes: the calls, the pauses after failures, and what
// answers mean.

// doLocked carries out what the wish says is next.
func (k *keeper) doLocked(x *kept, next step) {
	x.finish(func(w *waiter) error {
		if x.met(w.rev) {
			return nil
		}
		return errWaiting
	})
	switch next {
	case stepRegister, stepDeregister:
		x.stopTimer()
		if next == stepRegister {
			x.sent = x.wanted
		}
		q := 0
		if !x.registers() {
			q = 1
		}
		k.queues[q] = append(k.queues[q], job{x, next, x.call})
		k.ready.Signal()
	case stepForget:
		x.stopTimer()
		switch {
		case x.registers():
			delete(k.registrations, x.key)
			k.idle.Broadcast()
		case x.users > 0:
		case x.pattern != nil:
			delete(k.watches, x.pattern.key)
			x.repeat.Stop()
			x.pattern.close()
		default:
			delete(k.subscriptions, x.key)
			k.cache.drop(x.entry)
		}
	case stepPause:
		x.stopTimer()
		call := x.lastCall
		x.timer = time.AfterFunc(x.pauses.next(), func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if x.paused && x.lastCall == call {
				k.doLocked(x, x.expire())
			}
		})
	case stepNone:
	}
}

// work makes calls, one after the other, until close.
func (k *keeper) work() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		for len(k.queues[0])+len(k.queues[1]) == 0 && !k.closed {
			k.ready.Wait()
		}
		if k.closed {
			return
		}
		q := &k.queues[0]
		if len(*q) == 0 {
			q = &k.queues[1]
		}
		j := (*q)[0]
		if *q = (*q)[1:]; j.kept.call != j.call || k.link == nil {
			continue // given up meanwhile
		}
		l, sent := k.link, j.kept.sent
		k.calling++
		k.mu.Unlock()
		err := k.make(l, j, sent)
		k.mu.Lock()
		k.calling--
		k.endedLocked(l, j, err)
		if k.calling == 0 {
			k.idle.Broadcast()
		}
	}
}

func (k *keeper) make(l link, j job, list []naming.Instance) error {
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.CallTimeout)
	defer cancel()
	switch x := j.kept; {
	case x.pattern != nil && j.step == stepRegister:
		return l.watch(ctx, x.pattern)
	case x.pattern != nil:
		return l.unwatch(ctx, x.pattern)
	case x.entry == nil && j.step == stepRegister:
		return l.publish(ctx, x.key, list)
	case x.entry == nil:
		return l.withdraw(ctx, x.key, list)
	case j.step == stepRegister:
		return l.follow(ctx, x.entry)
	default:
		return l.unfollow(ctx, x.key)
	}
}

// endedLocked follows the end of a call.
func (k *keeper) endedLocked(l link, j job, err error) {
	x := j.kept
	if x.call != j.call || k.closed {
		return // of a former connection
	}
	x.lastErr = err
	what, name := x.what()
	switch {
	case err == nil:
		x.pauses.reset()
		if j.step == stepRegister {
			x.agreed = x.sent
		} else {
			x.agreed = nil
		}
		k.doLocked(x, x.ok(j.call))
	case final(err):
		rev := x.callRev
		next, back := x.refused(j.call)
		if back {
			if x.wanted = x.agreed; !x.want {
				x.wanted, x.users = nil, 0
			}
		} else {
			k.log.Warn("the server refuses what it has to be asked again", "what", what, "service", name, "err", err)
		}
		x.finish(func(w *waiter) error {
			if w.rev <= rev {
				return err
			}
			return errWaiting
		})
		k.doLocked(x, next)
	default:
		k.log.Debug("call to be repeated", "what", what, "service", name, "err", err)
		k.doLocked(x, x.failed(j.call))
		l.doubtful(err)
	}
	k.metrics.call(what, err)
}

// lost follows a server's word that it does not know what was registered.
func (k *keeper) lost(key naming.ServiceKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.registrations[key]; x != nil {
		k.doLocked(x, x.lost())
	}
}
