package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
)

// soon bounds what should take milliseconds; the machine may be busy.
const soon = 10 * time.Second

// logTo writes what a client logs into the test's output.
func logTo(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// config returns settings with short times, so that faults are noticed soon.
func config(t *testing.T, nodes ...*clienttest.Node) client.Config {
	t.Helper()
	cfg := client.DefaultConfig()
	cfg.Servers = nil
	for _, n := range nodes {
		cfg.Servers = append(cfg.Servers, n.Addr())
	}
	cfg.Logger = logTo(t)
	cfg.CloseTimeout = 2 * soon // the machine may be busy
	cfg.HealthInterval, cfg.HealthTimeout = 500*time.Millisecond, time.Second
	return cfg
}

// configIn is config with a mode.
func configIn(t *testing.T, mode client.Mode, nodes ...*clienttest.Node) client.Config {
	t.Helper()
	cfg := config(t, nodes...)
	cfg.Mode = mode
	return cfg
}

// eachMode runs a test with both protocols.
func eachMode(t *testing.T, test func(t *testing.T, mode client.Mode)) {
	t.Helper()
	t.Run("grpc", func(t *testing.T) { test(t, client.ModeGRPC) })
	t.Run("http", func(t *testing.T) { test(t, client.ModeHTTP) })
}

// dial makes a client that is closed with the test.
func dial(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// bounded returns a context that ends in time for the test to fail by itself.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	t.Cleanup(cancel)
	return ctx
}

func svc(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: naming.DefaultNamespace, Group: naming.DefaultGroup, Name: name}
}

func host(n int) naming.Instance {
	return naming.NewInstance(fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), 80)
}

func addresses(list []*naming.Instance) []string {
	out := []string{}
	for _, i := range list {
		out = append(out, i.Key().Address())
	}
	return out
}

// watcher checks that the changes that a subscription is told fit together, and keeps
// the state that they add up to.
type watcher struct {
	t *testing.T

	mu      sync.Mutex
	changes []client.Change
	state   map[naming.InstanceKey]*naming.Instance
	gone    map[naming.InstanceKey]int // how often each was removed
	faults  []string
}

func newWatcher(t *testing.T) *watcher {
	t.Helper()
	w := &watcher{t: t, state: make(map[naming.InstanceKey]*naming.Instance), gone: make(map[naming.InstanceKey]int)}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Empty(t, w.faults)
	})
	return w
}

func (w *watcher) take(c client.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fault := func(what string, i *naming.Instance) {
		w.faults = append(w.faults, fmt.Sprintf("%s %s %s", c.Service.Key.Name, i.Key().Address(), what))
	}
	for _, i := range c.Added {
		if w.state[i.Key()] != nil {
			fault("was added twice", i)
		}
		w.state[i.Key()] = i
	}
	for _, i := range c.Removed {
		if w.state[i.Key()] == nil {
			fault("was removed, and was not there", i)
		}
		w.gone[i.Key()]++
		delete(w.state, i.Key())
	}
	for _, i := range c.Changed {
		if old := w.state[i.Key()]; old == nil || old.Equal(i) {
			fault("was told as changed", i)
		}
		w.state[i.Key()] = i
	}
	if len(w.state) != len(c.Service.Instances) {
		w.faults = append(w.faults, fmt.Sprintf("%s: the changes add up to %d, the list has %d", c.Service.Key.Name, len(w.state), len(c.Service.Instances)))
	}
	w.changes = append(w.changes, c)
}

func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.changes)
}

func (w *watcher) removals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, k := range w.gone {
		n += k
	}
	return n
}

func (w *watcher) last() client.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.changes) == 0 {
		return client.Change{}
	}
	return w.changes[len(w.changes)-1]
}

// await waits until the service has exactly these instances.
func (w *watcher) await(want ...naming.Instance) {
	w.t.Helper()
	keys := make(map[string]bool)
	for _, i := range want {
		keys[i.Key().Address()] = true
	}
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.changes) == 0 || len(w.state) != len(keys) {
			return false
		}
		for k := range w.state {
			if !keys[k.Address()] {
				return false
			}
		}
		return true
	}, soon, 2*time.Millisecond, "wanted %v, have %v", keys, addresses(w.last().Service.Instances))
}

// subscribed subscribes with a watcher.
func subscribed(t *testing.T, c *client.Client, s naming.ServiceKey, f naming.Filter) *watcher {
	t.Helper()
	w := newWatcher(t)
	sub, err := c.Subscribe(bounded(t), s, f, w.take)
	require.NoError(t, err)
	t.Cleanup(sub.Close)
	return w
}
