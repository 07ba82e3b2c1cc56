package client_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
)

// nacosEnv names the environment variable with the address, host:port, of a Nacos server
// 2.x that the suite is to be run against. It leaves persistent instances behind only if
// it fails.
const nacosEnv = "ROLLCALL_TEST_NACOS"

// lag is how long a real server's lists may take to follow (semantics.md O13, P2).
const lag = 15 * time.Second

func TestSuite_Rollcall(t *testing.T) {
	node := clienttest.Start(t)
	eachMode(t, func(t *testing.T, mode client.Mode) { suite(t, node.Addr(), mode) })
}

func TestSuite_Nacos(t *testing.T) {
	address := os.Getenv(nacosEnv)
	if address == "" {
		t.Skipf("NOT RUN against Nacos: set %s to the host:port of a Nacos 2.x server", nacosEnv)
	}
	eachMode(t, func(t *testing.T, mode client.Mode) { suite(t, address, mode) })
}

// suite is what must hold against every server.
func suite(t *testing.T, address string, mode client.Mode) {
	t.Helper()
	base := fmt.Sprintf("suite-%d-%d", os.Getpid(), time.Now().UnixNano())
	name := func(text string) naming.ServiceKey {
		return naming.ServiceKey{Group: "rollcall-suite", Name: base + "-" + text}
	}
	newClient := func(t *testing.T) *client.Client {
		t.Helper()
		cfg := configOf(t, address)
		cfg.Mode, cfg.Username, cfg.Password = mode, os.Getenv(nacosEnv+"_USER"), os.Getenv(nacosEnv+"_PASSWORD")
		return dial(t, cfg)
	}
	// await waits until a client that is not subscribed sees these addresses.
	await := func(t *testing.T, c *client.Client, s naming.ServiceKey, f naming.Filter, want ...string) {
		t.Helper()
		slices.Sort(want)
		var got []string
		require.Eventually(t, func() bool {
			list, err := c.Instances(bounded(t), s, f)
			got = addresses(list.Instances)
			slices.Sort(got)
			return err == nil && slices.Equal(want, got)
		}, lag, 50*time.Millisecond, "want %v, have %v", want, &got)
	}

	t.Run("life", func(t *testing.T) {
		provider, consumer := newClient(t), newClient(t)
		s := name("life")
		await(t, consumer, s, naming.Filter{})
		w := subscribed(t, consumer, s, naming.Filter{})
		i := host(1)
		i.Metadata = map[string]string{"plus": "1+,2", "text": "é 日本", "amp": "x&y=z"}
		i.Weight = 2.5
		require.NoError(t, provider.Register(bounded(t), s, i))
		w.await(i)
		got := w.last().Service.Instances[0]
		require.Equal(t, i.Metadata, got.Metadata)
		require.InDelta(t, 2.5, got.Weight, 0)
		require.True(t, got.Healthy)
		require.True(t, got.Ephemeral)
		i.Metadata = map[string]string{"v": "2"}
		require.NoError(t, provider.Register(bounded(t), s, i))
		require.Eventually(t, func() bool { c := w.last().Changed; return len(c) == 1 && c[0].Metadata["v"] == "2" }, lag, time.Millisecond)
		picked, err := consumer.Select(bounded(t), s, "")
		require.NoError(t, err)
		require.Equal(t, i.Key(), picked.Key())
		require.NoError(t, provider.Deregister(bounded(t), s, i))
		w.await()
		require.NoError(t, provider.Deregister(bounded(t), s, i))
	})

	t.Run("several", func(t *testing.T) {
		provider, consumer := newClient(t), newClient(t)
		s := name("several")
		east, west := host(2), host(3)
		east.Cluster, west.Cluster = "east", "west"
		require.NoError(t, provider.RegisterBatch(bounded(t), s, []naming.Instance{host(1), east, west}))
		await(t, consumer, s, naming.Filter{}, "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
		await(t, consumer, s, naming.Filter{Clusters: "east,west"}, "10.0.0.3:80", "10.0.0.4:80")
		require.NoError(t, provider.Deregister(bounded(t), s, east))
		await(t, consumer, s, naming.Filter{}, "10.0.0.2:80", "10.0.0.4:80")
		require.NoError(t, provider.Register(bounded(t), s, host(5)))
		await(t, consumer, s, naming.Filter{}, "10.0.0.2:80", "10.0.0.4:80", "10.0.0.6:80")
		require.NoError(t, provider.RegisterBatch(bounded(t), s, nil))
		await(t, consumer, s, naming.Filter{})
	})

	t.Run("services", func(t *testing.T) {
		c := newClient(t)
		s := name("listed")
		s.Group += "-" + base
		require.NoError(t, c.Register(bounded(t), s, host(1)))
		require.Eventually(t, func() bool {
			names, count, err := c.Services(bounded(t), s.Group, 1, 10)
			return err == nil && count == 1 && slices.Equal(names, []string{s.Name})
		}, lag, 50*time.Millisecond)
	})

	t.Run("watch", func(t *testing.T) {
		provider, consumer := newClient(t), newClient(t)
		one, two := name("watched-1"), name("watched-2")
		require.NoError(t, provider.Register(bounded(t), one, host(1)))
		seen, w := watching(t, consumer, one.Group, base+"-watched*")
		seen.await(t, one.Name)
		require.NoError(t, provider.Register(bounded(t), two, host(1)))
		seen.await(t, one.Name, two.Name)
		require.NoError(t, provider.Deregister(bounded(t), one, host(1)))
		seen.await(t, two.Name)
		w.Close()
	})

	t.Run("closing", func(t *testing.T) {
		provider, consumer := newClient(t), newClient(t)
		w := subscribed(t, consumer, name("closing"), naming.Filter{})
		require.NoError(t, provider.Register(bounded(t), name("closing"), host(1)))
		w.await(host(1))
		require.NoError(t, provider.Close())
		w.await()
	})

	t.Run("persistent", func(t *testing.T) {
		c, s := newClient(t), name("persistent")
		i := host(1)
		i.Ephemeral = false
		require.NoError(t, c.Register(bounded(t), s, i))
		await(t, c, s, naming.Filter{}, "10.0.0.2:80")
		require.NoError(t, c.Close())
		c = newClient(t)
		await(t, c, s, naming.Filter{}, "10.0.0.2:80")
		require.NoError(t, c.Deregister(bounded(t), s, i))
		await(t, c, s, naming.Filter{})
	})
}
