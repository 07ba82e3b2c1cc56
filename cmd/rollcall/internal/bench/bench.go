package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Config of one measurement. Start from [DefaultConfig].
type Config struct {
	Servers     []string // host:port of HTTP; gRPC is at port + 1000
	Beside      []string // further servers, each measured for itself in turns with the others
	Scenario    string   // see [Scenarios]
	Connections int      // of gRPC, or workers over HTTP; each works by itself
	Workers     int      // calls under way on one connection of gRPC
	Instances   int      // of the service that is asked for or watched; of scenario fill in all
	Subscribers int      // of scenario fanout; subscriptions of scenario fill
	Slow        int      // further subscribers of scenario fanout, which read nothing
	Rate        int      // calls per second of all workers; 0: as many as are answered, changes of scenario propagation one at a time
	Duration    time.Duration
	WarmUp      time.Duration
	PID         int  // of the server on this machine, to tell what it uses; 0: it is not told
	Limits      bool // measure the bare limit beside it
	Progress    io.Writer
}

// DefaultConfig returns a measurement of registrations at a server on this machine.
func DefaultConfig() Config {
	return Config{
		Servers: []string{"127.0.0.1:8848"}, Scenario: "register",
		Connections: 200, Workers: 1, Instances: 10, Subscribers: 500,
		Duration: 10 * time.Second, WarmUp: 2 * time.Second, Progress: io.Discard,
	}
}

// Validate refuses what cannot be measured, each by its name.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if s := find(c.Scenario); s == nil {
		var names []string
		for _, x := range Scenarios() {
			names = append(names, x.Name)
		}
		errs = append(errs, fmt.Errorf("scenario is %q: it must be one of %s", c.Scenario, strings.Join(names, ", ")))
	} else {
		check(!c.Limits || s.limit, "limits: there is no bare limit for scenario %s; leave --limits out", c.Scenario)
		check(c.Rate == 0 || !s.unpaced, "rate is %d: scenario %s has none; leave --rate out", c.Rate, c.Scenario)
	}
	check(len(c.Servers) > 0, "servers are missing: give host:port")
	check(c.Connections > 0, "connections is %d: it must be above zero", c.Connections)
	check(c.Workers > 0, "workers is %d: it must be above zero", c.Workers)
	most := 100_000
	if c.Scenario == scenarioFill {
		most = 10_000_000
	}
	check(c.Instances > 0 && c.Instances <= most, "instances is %d: it must be from 1 to %d", c.Instances, most)
	check(c.Subscribers > 0, "subscribers is %d: it must be above zero", c.Subscribers)
	check(c.Slow >= 0 && c.Rate >= 0, "slow is %d and rate is %d: they must not be negative", c.Slow, c.Rate)
	check(c.Duration > 0, "duration is %v: it must be above zero", c.Duration)
	check(c.WarmUp >= 0, "warm-up is %v: it must not be negative", c.WarmUp)
	return errors.Join(errs...)
}

// Scenario is one kind of load.
type Scenario struct {
	Name string
	Does string

	limit   bool // there is a bare limit to compare it with
	unpaced bool // it has no rate
	run     func(ctx context.Context, cfg Config) (*Result, error)
}

// Scenarios returns all kinds of load, in the order in which they are listed.
func Scenarios() []Scenario {
	calls := func(name, does string, make preparation) Scenario {
		return Scenario{Name: name, Does: does, limit: true, run: func(ctx context.Context, cfg Config) (*Result, error) {
			return measureCalls(ctx, cfg, make)
		}}
	}
	return []Scenario{
		calls("register", "gRPC registrations that change the instance", registerLoad(true)),
		calls("reregister", "gRPC registrations that change nothing", registerLoad(false)),
		calls("churn", "gRPC registration and deregistration in turns", churnLoad),
		calls("query", "gRPC queries of a service", queryLoad),
		calls("subscribe", "gRPC subscription and its end in turns", subscribeLoad),
		calls("http-register", "HTTP registrations", httpRegisterLoad("true")),
		calls("persistent", "HTTP registrations of persistent instances", httpRegisterLoad("false")),
		calls("grpc-persistent", "gRPC registrations of persistent instances", persistentLoad),
		calls("list", "HTTP queries of a service", listLoad),
		calls("beat", "HTTP heartbeats", beatLoad),
		{Name: "mixed", Does: "all of these but persistent at once, best at a --rate", run: func(ctx context.Context, cfg Config) (*Result, error) {
			return measureCalls(ctx, cfg, mixedLoad)
		}},
		{Name: "fanout", Does: "one change to all subscribers of a service, again and again", unpaced: true, run: oneByOne(fanout)},
		{Name: "propagation", Does: "a registration at the first server to a subscriber of the last, one at a time or at a --rate", run: func(ctx context.Context, cfg Config) (*Result, error) {
			if cfg.Rate > 0 {
				return measureCalls(ctx, cfg, changesLoad)
			}
			return oneByOne(propagation)(ctx, cfg)
		}},
		{Name: scenarioFill, Does: "--instances, ten in a service, and --subscribers; then nothing, to tell what --pid uses", unpaced: true, run: oneByOne(fill)},
	}
}

func find(name string) *Scenario {
	all := Scenarios()
	at := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// Result is what was measured. Times are milliseconds.
type Result struct {
	Scenario string    `json:"scenario"`
	Servers  []string  `json:"servers"`
	Calls    int64     `json:"calls"`
	Errors   int64     `json:"errors"`
	Error    string    `json:"error,omitempty"` // one of them
	Seconds  float64   `json:"seconds"`
	Rate     float64   `json:"rate"` // calls per second; of several turns the median
	Times    []Time    `json:"times"`
	Limit    *Result   `json:"limit,omitempty"`  // the bare server
	Ratio    float64   `json:"ratio,omitempty"`  // of the rates: to the bare server's, or of the first server's to this one's
	Beside   []*Result `json:"beside,omitempty"` // the other servers
	Syncs    float64   `json:"syncs,omitempty"`  // of 4 KB per second, with the limit of persistent writes
	CPU      float64   `json:"cpu,omitempty"`    // of the server, cores
	RSS      int64     `json:"rss,omitempty"`    // of the server at the end, bytes
}

// Time is how long something took.
type Time struct {
	What string  `json:"what"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Run measures. It blocks for the warm-up and the duration of each server, the bare one
// included, and as long as the preparation takes; several servers take turns, each with a
// warm-up. Errors are a configuration that cannot be, a server that is not reached or
// refuses the preparation, and the end of ctx; calls that fail are counted.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return find(cfg.Scenario).run(ctx, cfg)
}

// histogram returns one for 1 us to 2 minutes, with three digits.
func histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (2 * time.Minute).Microseconds(), 3)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, d.Microseconds()), h.HighestTrackableValue())) // it is in range
}

func times(what string, h *hdrhistogram.Histogram) Time {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return Time{
		What: what, Mean: h.Mean() / 1000, P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)),
		P99: ms(h.ValueAtQuantile(99)), P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max()),
	}
}

// load is what workers do.
type load struct {
	kind    string // of the bare server, see [ServeLimit]
	onDisk  bool   // what is written is made safe on a disk
	answer  []byte // what one call was answered with, for the limit
	workers []worker
	close   func()
}

// worker makes one call after another.
type worker struct {
	what string // they are, in the table of times
	call func(ctx context.Context) error
}

// preparation makes a load on the servers of a configuration.
type preparation func(context.Context, Config) (*load, error)

// turns is how often several servers are measured: what else the machine does meets all.
const turns = 5

// contender is a server, or several nodes of one kind, that is measured.
type contender struct {
	cfg  Config
	load *load
	came *tally
}

// measureCalls measures a load, in turns with the servers beside and the bare limit.
func measureCalls(ctx context.Context, cfg Config, prepare preparation) (*Result, error) {
	var all []*contender
	defer func() {
		for _, c := range all {
			c.load.close()
		}
	}()
	enter := func(cfg Config, prepare preparation) error {
		l, err := prepare(ctx, cfg)
		if err == nil {
			all = append(all, &contender{cfg, l, newTally()})
		}
		return err
	}
	if err := enter(cfg, prepare); err != nil {
		return nil, err
	}
	for _, server := range cfg.Beside {
		if err := enter(cfg.at(server), prepare); err != nil {
			return nil, err
		}
	}
	first := all[0].load
	if cfg.Limits {
		bare, err := startLimit(ctx, first.kind, first.answer)
		if err != nil {
			return nil, err
		}
		defer bare.stop()
		own := cfg.at(bare.addr)
		own.Scenario = "bare " + first.kind + " server"
		if err := enter(own, bareLoad(first.kind)); err != nil {
			return nil, err
		}
	}
	rounds := 1
	if len(all) > 1 {
		rounds = turns
	}
	for range rounds {
		for _, c := range all {
			c.cfg.Duration = cfg.Duration / time.Duration(rounds)
			if err := c.came.drive(ctx, c.cfg, c.load); err != nil {
				return nil, err
			}
		}
	}
	r := all[0].came.result(cfg)
	for n, c := range all[1:] {
		other := c.came.result(c.cfg)
		if n < len(cfg.Beside) {
			other.Ratio = ratio(r.Rate, other.Rate)
			r.Beside = append(r.Beside, other)
			continue
		}
		r.Limit, r.Ratio = other, ratio(r.Rate, other.Rate)
	}
	var err error
	if cfg.Limits && first.onDisk {
		r.Syncs, err = syncRate()
	}
	return r, err
}

// at is the same measurement of another server, of which no process is known.
func (c Config) at(server string) Config {
	c.Servers, c.Beside, c.PID = []string{server}, nil, 0
	return c
}

// oneByOne is a scenario that measures the servers beside after the first. One of these
// that cannot be measured is told with its error.
func oneByOne(run func(context.Context, Config) (*Result, error)) func(context.Context, Config) (*Result, error) {
	return func(ctx context.Context, cfg Config) (*Result, error) {
		r, err := run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		for _, server := range cfg.Beside {
			other, err := run(ctx, cfg.at(server))
			if err != nil {
				other = &Result{Scenario: cfg.Scenario, Servers: []string{server}, Errors: 1, Error: err.Error()}
			}
			r.Beside = append(r.Beside, other)
		}
		return r, ctx.Err()
	}
}

// tally is what came of a load so far.
type tally struct {
	calls, failed atomic.Int64
	failure       atomic.Pointer[error]
	measured      time.Duration
	rates         []float64 // of each turn, calls per second
	cpu           time.Duration
	rss           int64

	mu    sync.Mutex
	times map[string]*hdrhistogram.Histogram // by what workers did
}

func newTally() *tally { return &tally{times: make(map[string]*hdrhistogram.Histogram)} }

// drive lets the workers work for the warm-up and the duration.
func (t *tally) drive(ctx context.Context, cfg Config, l *load) error {
	began, callsBefore := time.Now(), t.calls.Load()
	from, until := began.Add(cfg.WarmUp), began.Add(cfg.WarmUp+cfg.Duration)
	var pace time.Duration // between two calls of one worker
	if cfg.Rate > 0 {
		pace = time.Duration(len(l.workers)) * time.Second / time.Duration(cfg.Rate)
	}
	working, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var workers sync.WaitGroup
	for n, w := range l.workers {
		workers.Go(func() {
			h := histogram()
			due := began.Add(pace * time.Duration(n) / time.Duration(len(l.workers)))
			for working.Err() == nil {
				at := time.Now()
				if pace > 0 {
					if wait := due.Sub(at); wait > 0 && !pause(working, wait) {
						break
					}
					at, due = due, due.Add(pace)
				}
				err := w.call(working)
				if now := time.Now(); !now.Before(until) || now.Before(from) {
					continue
				}
				if err != nil {
					t.failed.Add(1)
					t.failure.CompareAndSwap(nil, &err)
					continue
				}
				t.calls.Add(1)
				record(h, time.Since(at))
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.times[w.what] == nil {
				t.times[w.what] = histogram()
			}
			t.times[w.what].Merge(h)
		})
	}
	pause(working, cfg.WarmUp)
	before, _ := processUsage(cfg.PID)
	for working.Err() == nil {
		pause(working, time.Second)
		_, _ = fmt.Fprintf(cfg.Progress, "\r%s: %d calls, %d errors ", cfg.Scenario, t.calls.Load(), t.failed.Load())
	}
	after, rss := processUsage(cfg.PID)
	workers.Wait()
	_, _ = fmt.Fprintln(cfg.Progress)
	t.measured += cfg.Duration
	t.rates = append(t.rates, float64(t.calls.Load()-callsBefore)/cfg.Duration.Seconds())
	t.cpu += after - before
	t.rss = rss
	return ctx.Err()
}

func (t *tally) result(cfg Config) *Result {
	seconds := t.measured.Seconds()
	r := &Result{
		Scenario: cfg.Scenario, Servers: cfg.Servers, Calls: t.calls.Load(), Errors: t.failed.Load(), Seconds: seconds,
		Rate: median(t.rates), CPU: t.cpu.Seconds() / seconds, RSS: t.rss,
	}
	for _, what := range slices.Sorted(maps.Keys(t.times)) {
		r.Times = append(r.Times, times(what, t.times[what]))
	}
	if err := t.failure.Load(); err != nil {
		r.Error = (*err).Error()
	}
	return r
}

// median returns the middle one of the values; of an even number the upper one.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// ratio returns a/b, and 0 for a server that answered nothing: JSON has no infinity.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// pause waits; false when ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
