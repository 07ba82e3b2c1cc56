package client

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// schedule runs tasks again and again, each at its time: heartbeats and polls.
type schedule struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	runCh  chan *task
	wakeCh chan struct{} // capacity 1: the next time may have changed

	mu    sync.Mutex
	tasks taskHeap
}

// task is one thing that is done repeatedly. Its fields are guarded by the schedule.
type task struct {
	// run does it once, bounded by ctx, and returns when to do it again.
	run     func(ctx context.Context) time.Duration
	due     time.Time
	index   int // in the heap; -1: it is not in it
	stopped bool
}

func newSchedule() *schedule {
	s := &schedule{runCh: make(chan *task), wakeCh: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// start starts the clock and a number of workers.
func (s *schedule) start(workers int) {
	s.wg.Go(s.tick)
	for range workers {
		s.wg.Go(s.work)
	}
}

// close cuts off what runs and waits for the goroutines.
func (s *schedule) close() {
	s.cancel()
	s.wg.Wait()
}

// add runs a task after a time, and from then on.
func (s *schedule) add(after time.Duration, run func(ctx context.Context) time.Duration) *task {
	t := &task{run: run, due: time.Now().Add(after), index: -1}
	s.mu.Lock()
	heap.Push(&s.tasks, t)
	s.mu.Unlock()
	s.wake()
	return t
}

// stop ends a task; a run of it that is under way goes on to its end.
func (s *schedule) stop(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.stopped = true
	if t.index >= 0 {
		heap.Remove(&s.tasks, t.index)
	}
}

// hurry makes every task due within a time, at random, if it is not sooner anyway.
func (s *schedule) hurry(within time.Duration) {
	s.mu.Lock()
	now := time.Now()
	for _, t := range s.tasks {
		if due := now.Add(rand.N(within)); due.Before(t.due) {
			t.due = due
		}
	}
	heap.Init(&s.tasks)
	s.mu.Unlock()
	s.wake()
}

func (s *schedule) wake() {
	select {
	case s.wakeCh <- struct{}{}:
	default:
	}
}

// next takes the first task if it is due, else it returns how long that takes.
func (s *schedule) next() (*task, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks) == 0 {
		return nil, time.Hour
	}
	if wait := time.Until(s.tasks[0].due); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&s.tasks).(*task), 0
}

func (s *schedule) tick() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, wait := s.next()
		if t != nil {
			select {
			case s.runCh <- t:
			case <-s.ctx.Done():
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wakeCh:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *schedule) work() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case t := <-s.runCh:
			again := t.run(s.ctx)
			s.mu.Lock()
			if !t.stopped {
				t.due = time.Now().Add(again)
				heap.Push(&s.tasks, t)
			}
			s.mu.Unlock()
			s.wake()
		}
	}
}

// taskHeap has the task that is due first on top.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	t.index = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
