package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/server/wire"
)

const scenarioFill = "fill"

// perService is how many instances a service of scenario fill has.
const perService = 10

// fill registers all instances in batches, one for each service, subscribes to the
// services in turns, and then does nothing: what the server uses at rest is the result.
func fill(ctx context.Context, cfg Config) (*Result, error) {
	conns, err := connectAll(ctx, cfg.Servers, cfg.Connections)
	if err != nil {
		return nil, err
	}
	var listeners sync.WaitGroup
	defer listeners.Wait()
	defer closeAll(conns)
	for _, c := range conns {
		listeners.Go(func() { c.listen(func([]byte) {}) })
	}
	services := (cfg.Instances + perService - 1) / perService
	service := func(n int) string { return fmt.Sprintf("bench-fill-%d", n%services) }
	began := time.Now()
	batches, err := callAll(ctx, cfg, conns, "services", services, func(n int) *wire.Payload {
		first := n * perService
		return batchRequest(service(n), first, min(perService, cfg.Instances-first), 0)
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	subscriptions, err := callAll(ctx, cfg, conns, "subscriptions", cfg.Subscribers, func(n int) *wire.Payload {
		return subscribeRequest(service(n), true)
	})
	if err != nil {
		return nil, err
	}
	pause(ctx, cfg.WarmUp)
	before, _ := processUsage(cfg.PID)
	began = time.Now()
	pause(ctx, cfg.Duration)
	after, rss := processUsage(cfg.PID)
	return &Result{
		Scenario: cfg.Scenario, Servers: cfg.Servers, Calls: int64(services), Seconds: took.Seconds(),
		Rate:  float64(services) / took.Seconds(),
		Times: []Time{batches, subscriptions},
		CPU:   (after - before).Seconds() / time.Since(began).Seconds(), RSS: rss,
	}, ctx.Err()
}

// callAll makes n calls, numbered from 0, in turns over the connections, each of which has
// one under way. It returns how long they took, or the first error.
func callAll(ctx context.Context, cfg Config, conns []*conn, what string, n int, request func(n int) *wire.Payload) (Time, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var mu sync.Mutex
	all := histogram()
	var workers sync.WaitGroup
	for k, c := range conns {
		workers.Go(func() {
			h := histogram()
			for call := k; call < n && ctx.Err() == nil; call += len(conns) {
				at := time.Now()
				answer, err := c.call(ctx, request(call))
				if err == nil {
					err = quickRefusal(answer)
				}
				if err != nil {
					cancel(err)
					return
				}
				record(h, time.Since(at))
				if have := done.Add(1); have%1000 == 0 {
					_, _ = fmt.Fprintf(cfg.Progress, "\r%s: %d of %d %s ", cfg.Scenario, have, n, what)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.Merge(h)
		})
	}
	workers.Wait()
	_, _ = fmt.Fprintln(cfg.Progress)
	return times(what, all), context.Cause(ctx)
}
