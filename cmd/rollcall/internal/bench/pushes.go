package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/tidwall/gjson"
)

// pushTime is the longest that a push is waited for.
const pushTime = 30 * time.Second

// arrivals are the times at which subscribers got the list of one version.
type arrivals struct {
	mu    sync.Mutex
	mark  []byte // of the version that is waited for
	have  map[int]time.Time
	want  int
	allCh chan struct{}
}

func (a *arrivals) expect(version, want int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mark = fmt.Appendf(nil, `"v":"%d"`, version)
	a.have, a.want, a.allCh = make(map[int]time.Time), want, make(chan struct{})
}

func (a *arrivals) pushed(subscriber int, body []byte) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mark == nil || !bytes.Contains(body, a.mark) || !a.have[subscriber].IsZero() {
		return
	}
	if a.have[subscriber] = now; len(a.have) == a.want {
		close(a.allCh)
	}
}

// wait returns how long each of the pushes took, in their order.
func (a *arrivals) wait(ctx context.Context, began time.Time) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, pushTime)
	defer cancel()
	select {
	case <-a.allCh:
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		return nil, fmt.Errorf("%d of %d subscribers were told of the change: %w", len(a.have), a.want, ctx.Err())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	took := make([]time.Duration, 0, len(a.have))
	for _, at := range a.have {
		took = append(took, at.Sub(began))
	}
	return took, nil
}

// watched is a service whose subscribers tell when they learn of a change.
type watched struct {
	publisher *conn
	conns     []*conn
	arrivals  *arrivals
	listeners sync.WaitGroup
}

const watchedService = "bench-watched"

// watch connects a publisher to a server, and subscribers to others.
func watch(ctx context.Context, publisher string, subscribers []string, n, slow int) (*watched, error) {
	w := &watched{arrivals: new(arrivals)}
	var err error
	if w.publisher, err = connect(ctx, publisher); err != nil {
		return nil, err
	}
	w.listeners.Go(func() { w.publisher.listen(func([]byte) {}) })
	if w.conns, err = connectAll(ctx, subscribers, n+slow); err != nil {
		w.close()
		return nil, err
	}
	for k, c := range w.conns {
		if k < n {
			w.listeners.Go(func() { c.listen(func(body []byte) { w.arrivals.pushed(k, body) }) })
		}
		answer, err := c.call(ctx, subscribeRequest(watchedService, true))
		if err == nil {
			err = refusal(answer)
		}
		if err != nil {
			w.close()
			return nil, fmt.Errorf("subscribe: %w", err)
		}
	}
	return w, nil
}

func (w *watched) close() {
	closeAll(append(w.conns, w.publisher))
	w.listeners.Wait()
}

// change publishes a version of the instances, and returns how long it took until each
// of n subscribers had it.
func (w *watched) change(ctx context.Context, instances, version, n int) ([]time.Duration, error) {
	w.arrivals.expect(version, n)
	request := batchRequest(watchedService, 0, instances, version)
	began := time.Now()
	answer, err := w.publisher.call(ctx, request)
	if err == nil {
		err = refusal(answer)
	}
	if err != nil {
		return nil, err
	}
	return w.arrivals.wait(ctx, began)
}

// quiet is longer than servers merge changes, so that each one is pushed by itself.
const quiet = time.Second

// rounds makes changes until the time is over and gives each to take.
func rounds(ctx context.Context, cfg Config, w *watched, n int, take func(took []time.Duration)) (changes int64, err error) {
	began := time.Now()
	for version := 1; time.Since(began) < cfg.WarmUp+cfg.Duration; version++ {
		took, err := w.change(ctx, cfg.Instances, version, n)
		if err != nil {
			return changes, err
		}
		if time.Since(began) > cfg.WarmUp {
			changes++
			take(took)
			_, _ = fmt.Fprintf(cfg.Progress, "\r%s: %5.1f s, %d changes ", cfg.Scenario, time.Since(began).Seconds(), changes)
		}
		if !pause(ctx, quiet) {
			return changes, ctx.Err()
		}
	}
	_, _ = fmt.Fprintln(cfg.Progress)
	if changes == 0 {
		return 0, errors.New("no change was measured: give it a longer duration")
	}
	return changes, nil
}

// fanout measures one change to many subscribers.
func fanout(ctx context.Context, cfg Config) (*Result, error) {
	w, err := watch(ctx, cfg.Servers[0], cfg.Servers, cfg.Subscribers, cfg.Slow)
	if err != nil {
		return nil, err
	}
	defer w.close()
	each, first, half, last := histogram(), histogram(), histogram(), histogram()
	began := time.Now()
	before, _ := processUsage(cfg.PID)
	changes, err := rounds(ctx, cfg, w, cfg.Subscribers, func(took []time.Duration) {
		one := histogram()
		for _, d := range took {
			record(one, d)
		}
		each.Merge(one)
		for _, x := range []struct {
			h *hdrhistogram.Histogram
			q float64
		}{{first, 0}, {half, 50}, {last, 100}} {
			record(x.h, time.Duration(one.ValueAtQuantile(x.q))*time.Microsecond)
		}
	})
	if err != nil {
		return nil, err
	}
	after, rss := processUsage(cfg.PID)
	return &Result{
		Scenario: cfg.Scenario, Servers: cfg.Servers, Calls: changes, Seconds: cfg.Duration.Seconds(),
		Rate:  float64(changes) / cfg.Duration.Seconds(),
		Times: []Time{times("each subscriber", each), times("the first", first), times("half of them", half), times("the last", last)},
		CPU:   (after - before).Seconds() / time.Since(began).Seconds(), RSS: rss,
	}, nil
}

// propagation measures one change to a subscriber of the last server.
func propagation(ctx context.Context, cfg Config) (*Result, error) {
	w, err := watch(ctx, cfg.Servers[0], cfg.Servers[len(cfg.Servers)-1:], 1, 0)
	if err != nil {
		return nil, err
	}
	defer w.close()
	h := histogram()
	changes, err := rounds(ctx, cfg, w, 1, func(took []time.Duration) { record(h, took[0]) })
	if err != nil {
		return nil, err
	}
	return &Result{
		Scenario: cfg.Scenario, Servers: cfg.Servers, Calls: changes, Seconds: cfg.Duration.Seconds(),
		Rate: float64(changes) / cfg.Duration.Seconds(), Times: []Time{times("call to push", h)},
	}, nil
}

// changesLoad changes as many services as there are changes in a second, each of them
// once a second, so that each change is pushed by itself. A call is over when the
// subscriber was told.
func changesLoad(ctx context.Context, cfg Config) (*load, error) {
	publisher, err := connect(ctx, cfg.Servers[0])
	if err != nil {
		return nil, err
	}
	subscriber, err := connect(ctx, cfg.Servers[len(cfg.Servers)-1])
	if err != nil {
		publisher.close()
		return nil, err
	}
	name := func(n int) string { return watchedService + "-" + strconv.Itoa(n) }
	told := make(map[string]chan string, cfg.Rate) // by service: versions, the newest
	for n := range cfg.Rate {
		told[name(n)] = make(chan string, 1)
	}
	l := new(load)
	var listeners sync.WaitGroup
	listeners.Go(func() { publisher.listen(func([]byte) {}) })
	listeners.Go(func() {
		subscriber.listen(func(body []byte) {
			info := gjson.GetManyBytes(body, "serviceInfo.name", "serviceInfo.hosts.0.metadata.v")
			ch := told[info[0].Str]
			select {
			case <-ch: // nobody waited for that one any more
			default:
			}
			if ch != nil {
				ch <- info[1].Str
			}
		})
	})
	l.close = func() {
		closeAll([]*conn{publisher, subscriber})
		listeners.Wait()
	}
	for n := range cfg.Rate {
		answer, err := subscriber.call(ctx, subscribeRequest(name(n), true))
		if err == nil {
			err = refusal(answer)
		}
		if err != nil {
			l.close()
			return nil, fmt.Errorf("subscribe: %w", err)
		}
	}
	for n := range cfg.Rate {
		service, version := name(n), 0
		l.workers = append(l.workers, worker{"call to push", func(ctx context.Context) error {
			version++
			answer, err := publisher.call(ctx, instanceRequest("registerInstance", service, 0, version))
			if err == nil {
				err = refusal(answer)
			}
			for want := strconv.Itoa(version); err == nil; {
				select {
				case v := <-told[service]:
					if v == want {
						return nil
					}
				case <-time.After(pushTime):
					return fmt.Errorf("the subscriber was not told of a change of %s within %v", service, pushTime)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return err
		}})
	}
	return l, nil
}
