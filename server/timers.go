package server

import (
	"sync"
	"time"
)

// task is something that happens at a time. due runs on the sweeper goroutine:
// it must not wait for disk or network.
type task interface {
	due(now time.Time)
}

// taskFunc makes a task of a function.
type taskFunc func(now time.Time)

func (f taskFunc) due(now time.Time) { f(now) }

// timers runs tasks at their times, to a resolution of one tick. Adding a task
// and taking it out again cost the same however many there are: a tick looks at
// its own tasks only. Tasks are not removed: a task finds out itself whether it
// is still wanted.
type timers struct {
	start time.Time
	gap   func(time.Duration) // told when the process was paused, before tasks run

	mu    sync.Mutex
	slots map[int64][]task // by tick
	ran   int64            // the last tick that ran
}

const tick = 100 * time.Millisecond

// pauseGap is how much later than planned a tick must run to count as a pause of
// the process.
const pauseGap = time.Second

func newTimers(gap func(time.Duration)) *timers {
	return &timers{start: time.Now(), gap: gap, slots: make(map[int64][]task)}
}

// at plans a task; it runs up to one tick late and never early.
func (t *timers) at(when time.Time, what task) {
	slot := int64((when.Sub(t.start) + tick - 1) / tick)
	t.mu.Lock()
	slot = max(slot, t.ran+1)
	t.slots[slot] = append(t.slots[slot], what)
	t.mu.Unlock()
}

// run is the sweeper goroutine; it ends when done is closed.
func (t *timers) run(done <-chan struct{}) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	now := time.Now()
	for {
		// Where slots end, not a tick from now: a task whose slot has just ended
		// would wait another tick.
		next := t.start.Add(now.Sub(t.start).Truncate(tick) + tick)
		timer.Reset(time.Until(next))
		select {
		case <-done:
			return
		case <-timer.C:
		}
		now = time.Now()
		if late := now.Sub(next); late > pauseGap {
			t.gap(late)
		}
		for _, what := range t.take(now) {
			what.due(now)
		}
	}
}

func (t *timers) take(now time.Time) (due []task) {
	slot := int64(now.Sub(t.start) / tick)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.slots) == 0 {
		t.ran = slot
	}
	for t.ran < slot {
		t.ran++
		if tasks, ok := t.slots[t.ran]; ok {
			due = append(due, tasks...)
			delete(t.slots, t.ran)
		}
	}
	return due
}
