package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
	"rollcall/server/wire"
)

func TestClient_RegisterFindDeregister(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := dial(t, configIn(t, mode, node))
		require.Equal(t, client.Up, c.Status())
		require.Equal(t, node.Addr(), c.Server())

		a := naming.NewInstance("10.0.0.1", 80)
		a.Metadata = map[string]string{"zone": "east", "text": "ü \" \\ \n"}
		a.Weight = 2.5
		require.NoError(t, c.Register(bounded(t), naming.ServiceKey{Name: "orders"}, a))
		list, err := c.Instances(bounded(t), naming.ServiceKey{Name: "orders"}, naming.Filter{})
		require.NoError(t, err)
		require.Len(t, list.Instances, 1)
		require.True(t, a.Equal(list.Instances[0]), "%+v", list.Instances[0])
		require.Equal(t, svc("orders"), list.Key)

		names, count, err := c.Services(bounded(t), "", 1, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"orders"}, names)
		require.Equal(t, 1, count)

		require.NoError(t, c.Deregister(bounded(t), naming.ServiceKey{Name: "orders"}, a))
		list, err = c.Instances(bounded(t), naming.ServiceKey{Name: "orders"}, naming.Filter{})
		require.NoError(t, err)
		require.Empty(t, list.Instances)
		require.NoError(t, c.Deregister(bounded(t), naming.ServiceKey{Name: "orders"}, a), "nothing there is no error")
	})
}

func TestClient_SubscriptionIsToldEachChangeOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		provider, consumer := dial(t, configIn(t, mode, node)), dial(t, configIn(t, mode, node))
		w := subscribed(t, consumer, svc("orders"), naming.Filter{})
		w.await()
		a, b := host(1), host(2)
		require.NoError(t, provider.Register(bounded(t), svc("orders"), a))
		w.await(a)
		require.NoError(t, provider.Register(bounded(t), svc("orders"), b))
		w.await(a, b)
		b.Metadata = map[string]string{"v": "2"}
		require.NoError(t, provider.Register(bounded(t), svc("orders"), b))
		require.Eventually(t, func() bool { return len(w.last().Changed) == 1 }, soon, time.Millisecond)
		require.Equal(t, "2", w.last().Changed[0].Metadata["v"])
		require.NoError(t, provider.Deregister(bounded(t), svc("orders"), a))
		w.await(b)
		require.NoError(t, provider.Close())
		w.await()
		require.Equal(t, 6, w.count(), "nothing at first, two added, one changed, two removed")
	})
}

func TestClient_SeveralInstancesOfOneService(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := dial(t, configIn(t, mode, node))
		w := subscribed(t, dial(t, configIn(t, mode, node)), svc("s"), naming.Filter{})
		require.NoError(t, c.RegisterBatch(bounded(t), svc("s"), []naming.Instance{host(1), host(2), host(3)}))
		w.await(host(1), host(2), host(3))
		require.NoError(t, c.Register(bounded(t), svc("s"), host(4)))
		w.await(host(1), host(2), host(3), host(4))
		require.NoError(t, c.Deregister(bounded(t), svc("s"), host(2)))
		w.await(host(1), host(3), host(4))
		require.NoError(t, c.RegisterBatch(bounded(t), svc("s"), []naming.Instance{host(5)}))
		w.await(host(5))
		require.NoError(t, c.RegisterBatch(bounded(t), svc("s"), []naming.Instance{host(5), host(6)}))
		w.await(host(5), host(6))
		require.NoError(t, c.RegisterBatch(bounded(t), svc("s"), nil))
		w.await()
	})
}

func TestClient_Filters(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := dial(t, configIn(t, mode, node))
		east, west, sick := host(1), host(2), host(3)
		east.Cluster, west.Cluster, sick.Cluster, sick.Healthy = "east", "west", "east", false
		all := subscribed(t, c, svc("s"), naming.Filter{})
		inEast := subscribed(t, c, svc("s"), naming.Filter{Clusters: "east"})
		healthy := subscribed(t, c, svc("s"), naming.Filter{Clusters: "east,north", HealthyOnly: true})
		require.NoError(t, c.RegisterBatch(bounded(t), svc("s"), []naming.Instance{east, west, sick}))
		all.await(east, west, sick)
		inEast.await(east, sick)
		healthy.await(east)
		before := inEast.count()
		require.NoError(t, c.Deregister(bounded(t), svc("s"), west))
		all.await(east, sick)
		require.Equal(t, before, inEast.count(), "no change in these clusters")
		for range 100 {
			i, err := c.Select(bounded(t), svc("s"), "east")
			require.NoError(t, err)
			require.Equal(t, east.Key(), i.Key())
		}
		_, err := c.Select(bounded(t), svc("s"), "north")
		require.ErrorIs(t, err, client.ErrNoInstance)
		list, err := c.Instances(bounded(t), svc("s"), naming.Filter{HealthyOnly: true})
		require.NoError(t, err)
		require.Equal(t, []string{"10.0.0.2:80"}, addresses(list.Instances))
	})
}

func TestClient_Channel(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := dial(t, configIn(t, mode, node))
		sub, err := c.SubscribeChan(bounded(t), svc("s"), naming.Filter{})
		require.NoError(t, err)
		require.Empty(t, (<-sub.Changes()).Service.Instances)
		for n := range 20 { // nobody reads meanwhile
			require.NoError(t, c.Register(bounded(t), svc("s"), host(n)))
		}
		got := map[naming.InstanceKey]bool{}
		for len(got) < 20 {
			select {
			case change := <-sub.Changes():
				require.Empty(t, change.Removed)
				for _, i := range change.Added {
					require.False(t, got[i.Key()], "told twice")
					got[i.Key()] = true
				}
				require.Len(t, change.Service.Instances, len(got))
			case <-bounded(t).Done():
				t.Fatalf("%d of 20 told", len(got))
			}
		}
		sub.Close()
		sub.Close()
		_, open := <-sub.Changes()
		require.False(t, open)
	})
}

func TestClient_UnsubscribesWithTheLastSubscription(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	one, err := c.Subscribe(bounded(t), svc("s"), naming.Filter{}, func(client.Change) {})
	require.NoError(t, err)
	two, err := c.Subscribe(bounded(t), svc("s"), naming.Filter{Clusters: "a"}, func(client.Change) {})
	require.NoError(t, err)
	require.Equal(t, 1, node.Calls(wire.TypeSubscribeService), "one subscription at the server serves both")
	one.Close()
	two.Close()
	require.Eventually(t, func() bool { return node.Calls(wire.TypeSubscribeService) == 2 }, soon, time.Millisecond)
	three, err := c.Subscribe(bounded(t), svc("s"), naming.Filter{}, func(client.Change) {})
	require.NoError(t, err)
	three.Close()
}

func TestClient_PersistentInstances(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := dial(t, configIn(t, mode, node))
		i := host(1)
		i.Ephemeral = false
		require.NoError(t, c.Register(bounded(t), svc("ledger"), i))
		require.NoError(t, c.Close())
		c = dial(t, configIn(t, mode, node))
		list, err := c.Instances(bounded(t), svc("ledger"), naming.Filter{})
		require.NoError(t, err)
		require.Len(t, list.Instances, 1, "it outlives the client")
		require.False(t, list.Instances[0].Ephemeral)
		require.NoError(t, c.Deregister(bounded(t), svc("ledger"), i))
		list, err = c.Instances(bounded(t), svc("ledger"), naming.Filter{})
		require.NoError(t, err)
		require.Empty(t, list.Instances)
	})
}

func TestClient_RefusedRegistrations(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	p := host(1)
	p.Ephemeral = false
	require.NoError(t, c.Register(bounded(t), svc("kind"), p))
	err := c.Register(bounded(t), svc("kind"), host(2))
	var refusal *client.ServerError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, 400, refusal.Code)
	require.ErrorContains(t, err, "is persistent service")
	node.Drop()
	require.NoError(t, c.Register(bounded(t), svc("other"), host(2)), "what was refused is not wanted any more")
	list, err := c.Instances(bounded(t), svc("kind"), naming.Filter{})
	require.NoError(t, err)
	require.Len(t, list.Instances, 1)
}

func TestClient_BadInput(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	bad := func(change func(*naming.Instance)) naming.Instance {
		i := host(1)
		change(&i)
		return i
	}
	ctx := bounded(t)
	for name, call := range map[string]func() error{
		"no service":      func() error { return c.Register(ctx, naming.ServiceKey{}, host(1)) },
		"bad group":       func() error { return c.Register(ctx, naming.ServiceKey{Name: "s", Group: "a b"}, host(1)) },
		"other namespace": func() error { return c.Register(ctx, naming.ServiceKey{Name: "s", Namespace: "x"}, host(1)) },
		"no ip":           func() error { return c.Register(ctx, svc("s"), naming.NewInstance("", 80)) },
		"port":            func() error { return c.Register(ctx, svc("s"), naming.NewInstance("10.0.0.1", 65536)) },
		"weight":          func() error { return c.Register(ctx, svc("s"), bad(func(i *naming.Instance) { i.Weight = -1 })) },
		"cluster":         func() error { return c.Register(ctx, svc("s"), bad(func(i *naming.Instance) { i.Cluster = "a_b" })) },
		"batch": func() error {
			return c.RegisterBatch(ctx, svc("s"), []naming.Instance{host(1), bad(func(i *naming.Instance) { i.IP = "999.1.1.1" })})
		},
		"persistent batch": func() error {
			return c.RegisterBatch(ctx, svc("s"), []naming.Instance{bad(func(i *naming.Instance) { i.Ephemeral = false })})
		},
		"clusters": func() error {
			_, err := c.Instances(ctx, svc("s"), naming.Filter{Clusters: "a b"})
			return err
		},
		"no callback": func() error {
			_, err := c.Subscribe(ctx, svc("s"), naming.Filter{}, nil)
			return err
		},
		"page": func() error {
			_, _, err := c.Services(ctx, "", 0, 10)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, call()) })
	}
	require.Zero(t, node.Calls(wire.TypeInstance)+node.Calls(wire.TypeBatchInstance), "nothing of that went to the server")
}

func TestClient_Closed(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		node := clienttest.Start(t)
		c := dial(t, configIn(t, mode, node))
		sub, err := c.SubscribeChan(bounded(t), svc("s"), naming.Filter{})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Register(bounded(t), svc("s"), host(1)), client.ErrClosed)
		require.ErrorIs(t, c.Deregister(bounded(t), svc("s"), host(1)), client.ErrClosed)
		_, err = c.Subscribe(bounded(t), svc("s"), naming.Filter{}, func(client.Change) {})
		require.ErrorIs(t, err, client.ErrClosed)
		_, err = c.Instances(bounded(t), svc("t"), naming.Filter{})
		require.ErrorIs(t, err, client.ErrClosed)
		require.Equal(t, client.Down, c.Status())
		sub.Close()
	})
}

func TestClient_CloseIsBoundedByACallbackThatBlocks(t *testing.T) {
	node := clienttest.Start(t)
	cfg := config(t, node)
	cfg.CloseTimeout = 400 * time.Millisecond
	c, err := client.New(t.Context(), cfg)
	require.NoError(t, err)
	release := make(chan struct{})
	entered := make(chan struct{})
	_, err = c.Subscribe(bounded(t), svc("s"), naming.Filter{}, func(client.Change) {
		close(entered)
		<-release
	})
	require.NoError(t, err)
	<-entered
	began := time.Now()
	require.ErrorContains(t, c.Close(), "does a callback block?")
	require.Less(t, time.Since(began), soon)
	close(release)
}

func TestNew_WithoutAServer(t *testing.T) {
	cfg := client.DefaultConfig()
	cfg.Servers, cfg.ConnectWait, cfg.Logger = []string{"127.0.0.1:1"}, 20*time.Millisecond, logTo(t)
	c, err := client.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, client.Down, c.Status())
	_, err = c.Instances(bounded(t), svc("s"), naming.Filter{})
	require.ErrorIs(t, err, client.ErrNotConnected)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = c.Register(ctx, svc("s"), host(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, client.ErrNotConnected)
	require.NoError(t, c.Close())

	ended, end := context.WithCancel(t.Context())
	end()
	cfg.ConnectWait = soon
	_, err = client.New(ended, cfg)
	require.ErrorIs(t, err, context.Canceled)
}

func TestClient_Metrics(t *testing.T) {
	node := clienttest.Start(t)
	registry := prometheus.NewRegistry()
	cfg := config(t, node)
	cfg.Metrics = registry
	c := dial(t, cfg)
	_, err := client.New(t.Context(), cfg)
	require.ErrorContains(t, err, "WrapRegistererWith")
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 7)
	require.NoError(t, c.Close())
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}
