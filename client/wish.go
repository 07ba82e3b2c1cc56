package client

// wish is what the application wants of one service, registration or
// subscription, against what the server is known to hold of it. It is pure: events
// go in, the next step comes out, and whoever drives it does the calls and keeps
// the time. The zero value is a wish that nobody has made yet.
//
// Each change of the wish is a revision. A call is made for a revision, so an answer
// that comes after the wish has changed says what the server holds, not that the
// wish is met. Calls are numbered: the late answer to one that was given up with its
// connection is not taken for the answer to its repetition.
type wish struct {
	want     bool
	rev      uint64 // of the wish
	lastRev  uint64 // the highest revision given
	accepted uint64 // the revision that a server has accepted last; 0: none
	held     holding
	heldRev  uint64 // with held == holds: the revision that the server has
	call     uint64 // number of the call under way; 0: none
	lastCall uint64
	callRev  uint64 // with call: the revision that it is made for
	calls    bool   // with call: whether it registers
	failures int    // calls that failed since the last that did not
	paused   bool   // a failed call is to be repeated later
	online   bool
	closed   bool
}

// holding is what the present connection is known to hold.
type holding uint8

const (
	holdsNothing holding = iota
	holds
	holdsUnknown // a call was cut off, or a connection was lost with it
)

// step is what is to be done next.
type step uint8

const (
	stepNone step = iota
	stepRegister
	stepDeregister
	stepForget // nothing is wanted and nothing is held: the record can go
	stepPause  // call expire after a pause that grows with failures
)

// register follows a new wish to be there.
func (w *wish) register() step {
	w.want = true
	return w.changed()
}

// deregister follows the wish to be gone.
func (w *wish) deregister() step {
	w.want, w.accepted = false, 0
	return w.changed()
}

func (w *wish) changed() step {
	w.lastRev++
	w.rev = w.lastRev
	w.failures, w.paused = 0, false // whoever asks now need not wait for an older failure
	return w.next()
}

// connect follows a new connection. A server ties what it holds to the connection,
// so it holds nothing yet; what was cut off is finished all the same.
func (w *wish) connect() step {
	w.online, w.failures, w.paused = true, 0, false
	return w.next()
}

// disconnect follows the end of a connection. A call under way may have been done
// or not.
func (w *wish) disconnect() step {
	if w.held == holds || w.call != 0 {
		w.held = holdsUnknown
	}
	w.online, w.call = false, 0
	return w.next()
}

// lost follows the server's word that it does not hold what it did.
func (w *wish) lost() step {
	if w.call == 0 {
		w.held = holdsNothing
	}
	return w.next()
}

// doubt follows a sign that the server's state may not be what it was: the call is
// made again.
func (w *wish) doubt() step {
	if w.held == holds {
		w.held = holdsUnknown
	}
	return w.next()
}

// ok follows the success of a call; an answer to one that has been given up is
// ignored.
func (w *wish) ok(call uint64) step {
	if w.call != call || w.call == 0 {
		return stepNone
	}
	w.call, w.failures = 0, 0
	if w.calls {
		w.held, w.heldRev = holds, w.callRev
		if w.want { // a deregistration that came meanwhile has ended what was accepted
			w.accepted = w.callRev
		}
	} else {
		w.held = holdsNothing
	}
	return w.next()
}

// failed follows a call that may work later, or of which nobody knows what it did.
func (w *wish) failed(call uint64) step {
	if w.call != call || w.call == 0 {
		return stepNone
	}
	w.call = 0
	w.held = holdsUnknown
	return w.pause()
}

// refused follows the server's no to what a registration carries; the server is
// unchanged. A revision that a server has accepted before is tried again. A new one
// is given up: back tells that the wish is now the accepted revision again, or, if
// there is none, that nothing is wanted any more.
func (w *wish) refused(call uint64) (next step, back bool) {
	if w.call != call || w.call == 0 {
		return stepNone, false
	}
	w.call = 0
	switch {
	case !w.calls, w.want && w.callRev == w.accepted:
		return w.pause(), false
	case !w.want || w.callRev != w.rev: // the wish has changed meanwhile
		return w.next(), false
	case w.accepted != 0:
		w.rev = w.accepted
	default:
		w.want = false
	}
	return w.next(), true
}

func (w *wish) pause() step {
	w.failures++
	if w.closed || !w.online {
		return w.next()
	}
	w.paused = true
	return stepPause
}

// expire follows the end of the pause after a failure.
func (w *wish) expire() step {
	w.paused = false
	return w.next()
}

// close ends the wish: nothing is sent after it.
func (w *wish) close() step {
	w.closed, w.call, w.paused = true, 0, false
	return stepNone
}

// met tells whether the server holds what is wanted as of the revision.
func (w *wish) met(rev uint64) bool {
	if w.want {
		return w.held == holds && w.heldRev >= rev
	}
	return w.held == holdsNothing && w.call == 0
}

func (w *wish) next() step {
	switch {
	case w.closed || w.call != 0:
		return stepNone
	case !w.want && w.held == holdsNothing:
		return stepForget
	case !w.online || w.paused:
		return stepNone
	case w.want && (w.held != holds || w.heldRev != w.rev):
		w.begin(true)
		return stepRegister
	case !w.want:
		w.begin(false)
		return stepDeregister
	}
	return stepNone
}

func (w *wish) begin(register bool) {
	w.lastCall++
	w.call, w.callRev, w.calls = w.lastCall, w.rev, register
}
