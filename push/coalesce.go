package push

import (
	"container/heap"
	"sync"
	"time"
)

// coalescer decides when a service's changes are flushed: the first change of a
// quiet service at once, the following ones merged until it is quiet again or the
// maximum has passed since the first of them.
type coalescer struct {
	last    time.Time // of the last change or flush
	first   time.Time // of the first change that is not flushed
	pending bool
	due     time.Time // as the heap has it
}

// changed records a change: atOnce, it is to be flushed now; planned, it is the
// first to wait for a later flush.
func (c *coalescer) changed(cfg Config, now time.Time) (atOnce, planned bool) {
	quiet := now.Sub(c.last) >= cfg.Quiet
	c.last = now
	switch {
	case c.pending:
		return false, false
	case quiet:
		return true, false
	}
	c.pending, c.first = true, now
	c.due = c.flushAt(cfg)
	return false, true
}

// flushAt is when pending changes are to be flushed, as known now.
func (c *coalescer) flushAt(cfg Config) time.Time {
	quiet, latest := c.last.Add(cfg.Quiet), c.first.Add(cfg.Max)
	if quiet.Before(latest) {
		return quiet
	}
	return latest
}

// agenda is what the dispatcher has to do, and when.
type agenda struct {
	signal chan struct{} // capacity 1: there is something new

	mu     sync.Mutex
	atOnce []*topic
	merge  mergeHeap
	firsts fifo
	retry  delayed
	acks   delayed
}

func (a *agenda) changed(t *topic, cfg Config, now time.Time) {
	a.mu.Lock()
	atOnce, planned := t.coalesce.changed(cfg, now)
	if atOnce {
		a.atOnce = append(a.atOnce, t)
	}
	if planned {
		heap.Push(&a.merge, t)
	}
	a.mu.Unlock()
	if atOnce || planned {
		a.ring()
	}
}

func (a *agenda) firstAt(at time.Time, x *subscription) {
	a.add(func() *fifo { return &a.firsts }, entry{at: at, x: x})
}

func (a *agenda) retryAt(at time.Time, x *subscription, seq uint64) {
	a.add(func() *fifo { return a.retry.of(x.subscriber.policy.Retry) }, entry{at, x, seq})
}

func (a *agenda) ackBy(at time.Time, x *subscription, seq uint64) {
	a.add(func() *fifo { return a.acks.of(x.subscriber.policy.Ack) }, entry{at, x, seq})
}

func (a *agenda) add(to func() *fifo, e entry) {
	a.mu.Lock()
	first := to().push(e)
	a.mu.Unlock()
	if first {
		a.ring()
	}
}

func (a *agenda) ring() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// work is what is due.
type work struct {
	flush        []*topic
	first, retry []entry
	overdue      []entry
	next         time.Time // when more will be due; zero: unknown
}

// take removes what is due now.
func (a *agenda) take(cfg Config, now time.Time) (w work) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.flush, a.atOnce = a.atOnce, nil
	for len(a.merge) > 0 && !a.merge[0].coalesce.due.After(now) {
		t := a.merge[0]
		if at := t.coalesce.flushAt(cfg); at.After(now) { // changed again meanwhile
			t.coalesce.due = at
			heap.Fix(&a.merge, 0)
			continue
		}
		heap.Pop(&a.merge)
		t.coalesce.pending, t.coalesce.last = false, now
		w.flush = append(w.flush, t)
	}
	if len(a.merge) > 0 {
		w.next = a.merge[0].coalesce.due
	}
	w.first = a.firsts.take(now, &w.next)
	w.retry = a.retry.take(now, &w.next)
	w.overdue = a.acks.take(now, &w.next)
	return w
}

// dispatch is the dispatcher goroutine.
func (e *Engine) dispatch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w := e.agenda.take(e.cfg, time.Now())
		for _, t := range w.flush {
			e.flush(t)
		}
		for _, f := range w.first {
			e.first(f.x)
		}
		for _, r := range w.retry {
			e.retry(r.x, r.seq)
		}
		for _, o := range w.overdue {
			e.overdue(o.x, o.seq)
		}
		wait := time.Hour
		if !w.next.IsZero() {
			wait = time.Until(w.next)
		}
		timer.Reset(wait)
		select {
		case <-e.done:
			return
		case <-e.agenda.signal:
		case <-timer.C:
		}
	}
}

// entry is something to do with a subscription at a time.
type entry struct {
	at  time.Time
	x   *subscription
	seq uint64
}

// fifo holds entries in order of time: each queue has one constant delay.
type fifo struct {
	entries []entry
	head    int
}

// push adds an entry and tells whether the queue was empty.
func (q *fifo) push(e entry) (first bool) {
	first = q.head == len(q.entries)
	if q.head > 1024 && q.head > len(q.entries)/2 {
		q.entries = append(q.entries[:0], q.entries[q.head:]...)
		q.head = 0
	}
	q.entries = append(q.entries, e)
	return first
}

// take removes the entries that are due and lowers next to the time of the first
// that is not.
func (q *fifo) take(now time.Time, next *time.Time) (due []entry) {
	for q.head < len(q.entries) && !q.entries[q.head].at.After(now) {
		due = append(due, q.entries[q.head])
		q.entries[q.head] = entry{}
		q.head++
	}
	if q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
	} else if at := q.entries[q.head].at; next.IsZero() || at.Before(*next) {
		*next = at
	}
	return due
}

// delayed are queues by their delay.
type delayed map[time.Duration]*fifo

// of returns the queue with that delay.
func (d *delayed) of(delay time.Duration) *fifo {
	if *d == nil {
		*d = make(delayed)
	}
	q := (*d)[delay]
	if q == nil {
		q = new(fifo)
		(*d)[delay] = q
	}
	return q
}

func (d delayed) take(now time.Time, next *time.Time) (due []entry) {
	for _, q := range d {
		due = append(due, q.take(now, next)...)
	}
	return due
}

// mergeHeap orders the services with pending changes by when they are due.
type mergeHeap []*topic

func (h mergeHeap) Len() int           { return len(h) }
func (h mergeHeap) Less(i, j int) bool { return h[i].coalesce.due.Before(h[j].coalesce.due) }
func (h mergeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *mergeHeap) Push(x any)        { *h = append(*h, x.(*topic)) }
func (h *mergeHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
