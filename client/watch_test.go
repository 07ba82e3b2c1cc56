package client_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
)

// names collects what a watch tells and checks that it adds up.
type names struct {
	mu     sync.Mutex
	now    []string
	calls  int
	gone   int
	faults []string
}

func (n *names) take(c client.ServicesChange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	have := map[string]bool{}
	for _, s := range n.now {
		have[s] = true
	}
	for _, k := range c.Added {
		if have[k.Name] {
			n.faults = append(n.faults, k.Name+" was added twice")
		}
		have[k.Name] = true
	}
	for _, k := range c.Removed {
		if !have[k.Name] {
			n.faults = append(n.faults, k.Name+" was removed, and was not there")
		}
		delete(have, k.Name)
		n.gone++
	}
	n.now = n.now[:0:0]
	for _, k := range c.Services {
		n.now = append(n.now, k.Name)
		delete(have, k.Name)
	}
	if len(have) > 0 {
		n.faults = append(n.faults, fmt.Sprintf("the changes do not add up: %v", have))
	}
}

func (n *names) await(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.calls > 0 && slices.Equal(n.now, want)
	}, soon, 2*time.Millisecond, "want %v, have %v", want, n)
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Empty(t, n.faults)
}

// watching starts a watch, or skips the test if the server has none.
func watching(t *testing.T, c *client.Client, group, service string) (*names, *client.Watch) {
	t.Helper()
	n := new(names)
	w, err := c.Watch(bounded(t), group, service, n.take)
	if errors.Is(err, client.ErrUnsupported) {
		t.Skip("the server offers no fuzzy watch yet")
	}
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return n, w
}

func TestWatch_FollowsServices(t *testing.T) {
	node := clienttest.Start(t)
	c, provider := dial(t, config(t, node)), dial(t, config(t, node))
	none, _ := watching(t, c, "", "zzz")
	none.await(t)
	register := func(name string) { require.NoError(t, provider.Register(bounded(t), svc(name), host(1))) }
	for n := range 25 { // more than a batch
		register(fmt.Sprintf("order-%02d", n))
	}
	register("billing")
	orders, w := watching(t, c, "DEFAULT_GROUP", "order-*")
	var want []string
	for n := range 25 {
		want = append(want, fmt.Sprintf("order-%02d", n))
	}
	orders.await(t, want...)
	ends, _ := watching(t, c, "", "*1")
	ends.await(t, "order-01", "order-11", "order-21")
	all, _ := watching(t, c, "*", "*")
	all.await(t, append(slices.Clone(want), "billing")...)

	register("order-31")
	orders.await(t, append(slices.Clone(want), "order-31")...)
	ends.await(t, "order-01", "order-11", "order-21", "order-31")
	require.NoError(t, provider.Deregister(bounded(t), svc("order-31"), host(1)))
	orders.await(t, want...)
	again, second := watching(t, c, "DEFAULT_GROUP", "order-*")
	again.await(t, want...)

	// After a reconnect only the difference is told, what is gone after the hold.
	node.Stop(t)
	require.NoError(t, provider.Close())
	provider = dial(t, func() client.Config {
		cfg := config(t, node)
		cfg.ConnectWait = 0
		return cfg
	}())
	node.Restart(t)
	register("order-07")
	register("order-50")
	orders.await(t, "order-07", "order-50")
	orders.mu.Lock()
	require.Equal(t, 25, orders.gone, "24 are gone, and the one before; order-07 was never seen to go")
	orders.mu.Unlock()

	w.Close()
	second.Close()
	w.Close()
	register("order-51")
	ends.await(t, "order-51")
	require.NotContains(t, orders.now, "order-51")
}

func TestWatch_BadInput(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	for _, pattern := range []string{"a*b", "a>>b", "a**"} {
		_, err := c.Watch(bounded(t), "", pattern, func(client.ServicesChange) {})
		require.ErrorContains(t, err, "at its ends only", pattern)
	}
	_, err := c.Watch(bounded(t), "", "a", nil)
	require.Error(t, err)
	cfg := configIn(t, client.ModeHTTP, node)
	_, err = dial(t, cfg).Watch(bounded(t), "", "a", func(client.ServicesChange) {})
	require.ErrorIs(t, err, client.ErrUnsupported)
	require.NoError(t, c.Close())
	_, err = c.Watch(bounded(t), "", "a", func(client.ServicesChange) {})
	require.ErrorIs(t, err, client.ErrClosed)
}
