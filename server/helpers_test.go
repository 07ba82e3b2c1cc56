package server

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/consistency/storetest"
	"rollcall/naming"
)

const ms = time.Millisecond

// service returns the key of a service by a short name.
func service(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: name}
}

// host returns an ephemeral instance on port 80.
func host(ip string, change ...func(*naming.Instance)) *naming.Instance {
	i := naming.NewInstance(ip, 80)
	for _, c := range change {
		c(&i)
	}
	return &i
}

func persistent(i *naming.Instance) { i.Ephemeral = false }

func cluster(name string) func(*naming.Instance) {
	return func(i *naming.Instance) { i.Cluster = name }
}

// meta sets metadata from pairs of key and value.
func meta(pairs ...string) func(*naming.Instance) {
	return func(i *naming.Instance) {
		i.Metadata = make(map[string]string)
		for n := 0; n < len(pairs); n += 2 {
			i.Metadata[pairs[n]] = pairs[n+1]
		}
	}
}

// beatTimes sets how long an instance may be silent, in milliseconds.
func beatTimes(unhealthy, deleted string) func(*naming.Instance) {
	return meta(naming.MetaBeatInterval, "1", naming.MetaBeatTimeout, unhealthy, naming.MetaDeleteTimeout, deleted)
}

// fixture is a registry over two fake stores. Nobody subscribes unless watch says
// so.
type fixture struct {
	*Registry
	ephemeral, persistent *storetest.Fake
	metrics               *prometheus.Registry

	mu      sync.Mutex
	watches map[naming.ServiceKey]bool
	notices []naming.ServiceKey
}

// newFixture returns a registry that is not started.
func newFixture(t *testing.T, adjust ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{
		ephemeral: storetest.NewFake(), persistent: storetest.NewFake(), metrics: prometheus.NewRegistry(),
		watches: make(map[naming.ServiceKey]bool),
	}
	f.open(t, adjust...)
	return f
}

// open makes a registry over the stores that the fixture has.
func (f *fixture) open(t *testing.T, adjust ...func(*Config)) {
	t.Helper()
	cfg := DefaultConfig()
	for _, a := range adjust {
		a(&cfg)
	}
	require.NoError(t, cfg.Validate())
	f.Registry = newRegistry(cfg, consistency.NewRouter(f.ephemeral, f.persistent), slog.New(slog.DiscardHandler), f.metrics)
	f.watched = func(k naming.ServiceKey) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.watches[k]
	}
	f.notify = func(k naming.ServiceKey) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notices = append(f.notices, k)
	}
}

// reopen returns a registry over the same persistent data, as after a restart.
func (f *fixture) reopen(t *testing.T) *fixture {
	t.Helper()
	next := &fixture{
		ephemeral: storetest.NewFake(), persistent: f.persistent, metrics: prometheus.NewRegistry(),
		watches: make(map[naming.ServiceKey]bool),
	}
	next.open(t)
	return next
}

// begin starts the registry and closes it at the end of the test.
func (f *fixture) begin(t *testing.T) {
	t.Helper()
	require.NoError(t, f.start())
	t.Cleanup(func() { require.NoError(t, f.close()) })
}

func (f *fixture) watch(k naming.ServiceKey, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[k] = on
}

// noticed returns the notices since it was called last.
func (f *fixture) noticed() []naming.ServiceKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.notices
	f.notices = nil
	return out
}

// hosts returns what a client sees of a service, as words: "10.0.0.1" for a
// healthy instance, "10.0.0.1-" for an unhealthy one.
func (f *fixture) hosts(k naming.ServiceKey) []string {
	out := []string{}
	for _, i := range f.ServiceInfo(k, naming.Filter{}).Hosts {
		word := i.IP
		if !i.Healthy {
			word += "-"
		}
		out = append(out, word)
	}
	return out
}

// register registers an instance over HTTP.
func (f *fixture) register(t *testing.T, k naming.ServiceKey, i *naming.Instance) {
	t.Helper()
	require.NoError(t, f.Register(t.Context(), k, i.Key().Address(), i))
}

// beat sends a light heartbeat and tells whether the instance is known.
func (f *fixture) beat(t *testing.T, k naming.ServiceKey, ip string) bool {
	t.Helper()
	a, err := f.Beat(t.Context(), k, ip, 80, nil)
	require.NoError(t, err)
	return a.Known
}

// bubble runs a test on a started registry, in a bubble.
func bubble(t *testing.T, run func(t *testing.T, f *fixture), adjust ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, adjust...)
		f.begin(t)
		run(t, f)
	})
}

// fault requires an error of a family of rules and returns its text.
func fault(t *testing.T, want naming.Fault, err error) string {
	t.Helper()
	var invalid *naming.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, want, invalid.Fault, invalid.Text)
	return invalid.Text
}
