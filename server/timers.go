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

	soonerCh chan struct{} // told when a task came that is due before run wakes

	mu    sync.Mutex
	slots map[int64][]task // by tick
	ran   int64            // the last tick that ran
	next  int64            // the tick that run sleeps until
}

const (
	tick = 100 * time.Millisecond
	// restTicks is how many ticks run sleeps at most when nothing is planned: a longer
	// sleep would hide a longer part of a pause.
	restTicks = 5
)

// pauseGap is how much later than planned a tick must run to count as a pause of
// the process.
const pauseGap = time.Second

func newTimers(gap func(time.Duration)) *timers {
	return &timers{start: time.Now(), gap: gap, soonerCh: make(chan struct{}, 1), slots: make(map[int64][]task)}
}

// at plans a task; it runs up to one tick late and never early.
func (t *timers) at(when time.Time, what task) {
	slot := max(t.slot(when), t.slot(time.Now()))
	t.mu.Lock()
	defer t.mu.Unlock()
	slot = max(slot, t.ran+1)
	t.slots[slot] = append(t.slots[slot], what)
	if slot < t.next {
		t.next = slot
		select {
		case t.soonerCh <- struct{}{}:
		default:
		}
	}
}

// slot returns the first tick that is not before a time.
func (t *timers) slot(when time.Time) int64 { return int64((when.Sub(t.start) + tick - 1) / tick) }

// run is the sweeper goroutine; it ends when done is closed.
func (t *timers) run(done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	now := time.Now()
	for {
		for _, what := range t.take(now) {
			what.due(now)
		}
		next := t.start.Add(tick * time.Duration(t.until()))
		timer.Reset(time.Until(next))
		select {
		case <-done:
			return
		case <-t.soonerCh:
		case <-timer.C:
		}
		now = time.Now()
		if late := now.Sub(next); late > pauseGap {
			t.gap(late)
		}
	}
}

// take returns the tasks of the ticks that have ended.
func (t *timers) take(now time.Time) (due []task) {
	ended := int64(now.Sub(t.start) / tick)
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.ran < ended && len(t.slots) > 0; t.ran++ {
		due = append(due, t.slots[t.ran+1]...)
		delete(t.slots, t.ran+1)
	}
	t.ran = max(t.ran, ended)
	return due
}

// until returns the tick to sleep until: the first one with a task, or the end of a rest.
func (t *timers) until() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = t.ran + 1
	for t.next < t.ran+restTicks && t.slots[t.next] == nil {
		t.next++
	}
	return t.next
}
