package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
	"rollcall/server/wire"
)

// many is how many registrations and subscriptions the large stories have.
const many = 200

// hold is longer than providers need to come back on a busy machine.
const hold = 4 * time.Second

// crowd is a client with many registrations and another with a subscription to each.
type crowd struct {
	t         *testing.T
	providers *client.Client
	consumers *client.Client
	watchers  []*watcher
	// rest is how long it takes to look at everything while all is well: a busy machine
	// needs more time for all.
	rest time.Duration
	// fastest is the shortest time that it took to be complete after a fault.
	fastest time.Duration
}

func name(n int) naming.ServiceKey { return svc(fmt.Sprintf("service-%d", n)) }

func newCrowd(t *testing.T, cfg client.Config) *crowd {
	t.Helper()
	cfg.Hold = hold
	c := &crowd{t: t, providers: dial(t, cfg), consumers: dial(t, cfg)}
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, many)
	for n := range many {
		w := newWatcher(t)
		c.watchers = append(c.watchers, w)
		wg.Go(func() {
			if errs[n] = c.providers.Register(ctx, name(n), host(n)); errs[n] == nil {
				_, errs[n] = c.consumers.Subscribe(ctx, name(n), naming.Filter{}, w.take)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	began := time.Now()
	c.complete()
	c.rest, c.fastest = time.Since(began), time.Hour
	return c
}

// within is how long a client may take to have everything back once a server can be
// reached. One fault of a story must show it: a machine that stands still for a moment
// has clients leave a healthy server, too.
const within = 3 * time.Second

// complete requires that every service has its one instance soon, at the server and at
// the subscriber.
func (c *crowd) complete() {
	c.t.Helper()
	d := soon + 4*c.rest
	began := time.Now()
	missing := ""
	require.Eventually(c.t, func() bool {
		for n, w := range c.watchers {
			want := host(n)
			if got := addresses(w.last().Service.Instances); len(got) != 1 || got[0] != want.Key().Address() {
				missing = fmt.Sprintf("service %d shows %v", n, got)
				return false
			}
		}
		return true
	}, d, 5*time.Millisecond, "%s", &missing)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), d-time.Since(began))
	defer cancel()
	for {
		err := c.atServer(ctx)
		if err == nil {
			break
		}
		require.NoError(c.t, ctx.Err(), "%v", err)
	}
	c.fastest = min(c.fastest, time.Since(began))
	c.t.Logf("complete after %v", time.Since(began).Round(time.Millisecond))
}

// atServer asks the server that the providers are connected to.
func (c *crowd) atServer(ctx context.Context) error {
	address := c.providers.Server()
	if address == "" {
		return client.ErrNotConnected
	}
	cfg := configOf(c.t, address)
	cfg.ConnectWait = 200 * time.Millisecond
	fresh, err := client.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { require.NoError(c.t, fresh.Close()) }()
	for n := range many {
		list, err := fresh.Instances(ctx, name(n), naming.Filter{})
		if err != nil {
			return err
		}
		if len(list.Instances) != 1 {
			return fmt.Errorf("service %d has %v", n, addresses(list.Instances))
		}
	}
	return nil
}

// configOf returns settings for one address.
func configOf(t *testing.T, address string) client.Config {
	t.Helper()
	cfg := config(t)
	cfg.Servers = []string{address}
	return cfg
}

// removals returns how many removals subscribers have been told.
func (c *crowd) removals() int {
	n := 0
	for _, w := range c.watchers {
		n += w.removals()
	}
	return n
}

// works requires that changes still come through, each once, and that everything was
// back in time.
func (c *crowd) works() {
	c.t.Helper()
	require.Less(c.t, c.fastest, within+4*c.rest)
	for _, n := range []int{0, many / 2, many - 1} {
		before := c.watchers[n].removals()
		extra := host(1000 + n)
		require.NoError(c.t, c.consumers.Register(bounded(c.t), name(n), extra))
		c.watchers[n].await(host(n), extra)
		require.NoError(c.t, c.consumers.Deregister(bounded(c.t), name(n), extra))
		c.watchers[n].await(host(n))
		require.Equal(c.t, before+1, c.watchers[n].removals())
	}
}

func TestStory_DroppedConnections(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := newCrowd(t, configIn(t, mode, node))
		for range 3 {
			node.Drop()
			c.complete()
		}
		require.Zero(t, c.removals(), "nobody was seen to go")
		c.works()
	})
}

func TestStory_RestartedServer(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := newCrowd(t, configIn(t, mode, node))
		for range 2 {
			node.Stop(t)
			require.Eventually(t, func() bool { return c.providers.Status() == client.Down }, soon, time.Millisecond)
			list, err := c.consumers.Instances(bounded(t), name(7), naming.Filter{})
			require.NoError(t, err)
			require.Len(t, list.Instances, 1, "the last list serves on")
			node.Restart(t)
			c.complete()
		}
		require.Zero(t, c.removals(), "nobody was seen to go")
		c.works()
	})
}

func TestStory_FrozenServer(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := newCrowd(t, configIn(t, mode, node))
		node.Freeze()
		require.Eventually(t, func() bool { return c.providers.Status() == client.Down && c.consumers.Status() == client.Down }, soon, time.Millisecond)
		node.Thaw()
		c.complete()
		require.Zero(t, c.removals(), "nobody was seen to go")
		c.works()
	})
}

func TestStory_FailoverToAnotherServer(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		one, two := clienttest.Start(t), clienttest.Start(t)
		cfg := configIn(t, mode, one, two)
		two.Stop(t) // both clients are to be on the same server: these two share nothing
		c := newCrowd(t, cfg)
		two.Restart(t)
		one.Stop(t)
		c.complete()
		require.Equal(t, two.Addr(), c.providers.Server())
		one.Restart(t)
		two.Freeze()
		c.complete()
		require.Equal(t, one.Addr(), c.providers.Server())
		require.Zero(t, c.removals(), "nobody was seen to go")
		c.works()
		two.Thaw()
	})
}

func TestStory_MovedAtTheServersRequest(t *testing.T) {
	one, two := clienttest.Start(t), clienttest.Start(t)
	two.Stop(t)
	c := newCrowd(t, config(t, one, two))
	two.Restart(t)
	one.Move(two)
	require.Eventually(t, func() bool { return c.providers.Server() == two.Addr() && c.consumers.Server() == two.Addr() }, soon, time.Millisecond)
	c.complete()
	require.Eventually(t, func() bool { return one.Connections() == 0 }, soon, time.Millisecond)
	two.Move(nil)
	require.Eventually(t, func() bool { return c.providers.Server() == one.Addr() && c.consumers.Server() == one.Addr() }, soon, time.Millisecond)
	c.complete()
	one.Move(one) // to where it is: to another one, that is
	require.Eventually(t, func() bool { return c.providers.Server() == two.Addr() }, soon, time.Millisecond)
	c.complete()
	require.Zero(t, c.removals(), "nobody was seen to go")
	c.works()
}

func TestStory_MoveWithoutAnotherServer(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	node.Move(nil)
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	require.Equal(t, 1, node.Connections())
}

func TestClient_UnknownConnectionIsMadeAnew(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	node.Answer(wire.TypeHealthCheck, 1, 301)
	require.Eventually(t, func() bool { return node.Calls(wire.TypeServerCheck) == 2 }, soon, time.Millisecond)
	require.NoError(t, c.Register(bounded(t), svc("s"), host(2)))
	w.await(host(1), host(2))
	require.Zero(t, w.removals())
}

func TestClient_StormOfUnknownConnections(t *testing.T) {
	node := clienttest.Start(t)
	cfg := config(t, node)
	cfg.BackoffMin, cfg.BackoffMax = 20*time.Millisecond, 200*time.Millisecond
	c := dial(t, cfg)
	node.Answer(wire.TypeInstance, 1000, 301)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := c.Register(ctx, svc("s"), host(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, node.Calls(wire.TypeServerCheck), 30, "pauses grow")
	node.Answer("", 0, 0)
	require.Greater(t, node.Calls(wire.TypeServerCheck), 3)
}

func TestClient_BusyAndStartingServers(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	for _, code := range []int{300, 503, -401, 500} {
		node.Answer(wire.TypeInstance, 3, code)
		require.NoError(t, c.Register(bounded(t), svc(fmt.Sprintf("s%d", code)), host(1)), "%d is asked again", code)
	}
	require.Equal(t, 1, node.Calls(wire.TypeServerCheck), "on the same connection")
}

func TestClient_CutOffDeregistrationIsFinished(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, dial(t, config(t, node)), svc("s"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	calls := node.Calls(wire.TypeInstance)
	node.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Deregister(ctx, svc("s"), host(1)), context.DeadlineExceeded)
	node.Drop()
	node.Thaw()
	require.Eventually(t, func() bool { return node.Calls(wire.TypeInstance) > calls }, soon, time.Millisecond)
	w.await()
}

func TestClient_WishesMadeWithoutAServerAreCarriedOut(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	node.Stop(t)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	require.Error(t, c.Register(short(), svc("s"), host(2)))
	require.Error(t, c.Deregister(short(), svc("s"), host(1)))
	_, err := c.Subscribe(short(), svc("t"), naming.Filter{}, func(client.Change) {})
	require.ErrorIs(t, err, client.ErrNotConnected)
	node.Restart(t)
	w.await(host(2))
}

func TestClient_DelayedPushesComeInTheEnd(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	node.DelayPushes(200 * time.Millisecond)
	for n := range 5 {
		require.NoError(t, c.Register(bounded(t), svc("s"), host(n)))
	}
	w.await(host(0), host(1), host(2), host(3), host(4))
}

func TestClient_HiddenInstance(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	require.NoError(t, c.RegisterBatch(bounded(t), svc("s"), []naming.Instance{host(1), host(2)}))
	w.await(host(1), host(2))
	one := host(1)
	node.Hide(t, svc("s"), one.Key())
	w.await(host(2))
	node.Show(t, svc("s"), one.Key())
	w.await(host(1), host(2))
}

func TestClient_RemovalsAreBelievedAfterTheHold(t *testing.T) {
	node := clienttest.Start(t)
	cfg := config(t, node)
	cfg.Hold = 300 * time.Millisecond
	c, provider := dial(t, cfg), dial(t, cfg)
	w := subscribed(t, c, svc("s"), naming.Filter{})
	require.NoError(t, provider.RegisterBatch(bounded(t), svc("s"), []naming.Instance{host(1), host(2)}))
	w.await(host(1), host(2))
	node.Stop(t)
	require.NoError(t, provider.Close())
	node.Restart(t)
	require.NoError(t, c.Register(bounded(t), svc("s"), host(3)))
	w.await(host(1), host(2), host(3))
	w.await(host(3))
	require.Equal(t, 2, w.removals())
}
