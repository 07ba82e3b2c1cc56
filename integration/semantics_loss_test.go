package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rules L and H: losing an owner, heartbeats over HTTP.
//
// Not tested: L5 (several nodes).

const linger = 500 * time.Millisecond

// Deviation: instances of a lost connection stay listed for 500 ms, because SDKs
// that reconnect register again sooner and pushes are immediate here.
func TestL1_LostConnectionLosesEverything(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	one, two := newService(t), newService(t)
	subOne, subTwo := subscriber(t, n, one, ""), subscriber(t, n, two, "")
	c := Connect(t, n.GRPCAddr())
	c.Register(t, one, Instance("10.0.0.1", 1)).OK(t)
	c.Batch(t, two, Instance("10.0.0.1", 1), Instance("10.0.0.1", 2)).OK(t)
	c.Subscribe(t, one, "")
	subOne.PushUntil(t, soon, has("10.0.0.1:1"))
	subTwo.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2"))
	register(t, n, two.at("10.0.0.9", 9)) // of another owner
	subTwo.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.9:9"))
	require.Len(t, subscribersOf(t, n, one), 1) // one address, several connections

	began := time.Now()
	c.Close()
	info, m := subOne.NextPushMessage(t, soon)
	require.Empty(t, info.Hosts)
	require.GreaterOrEqual(t, m.At.Sub(began), linger)
	require.Equal(t, []string{"10.0.0.9:9"}, subTwo.NextPush(t, soon).Addrs())
	subOne.Quiet(t, secs(1)) // one event per service
	subTwo.Quiet(t, 100*time.Millisecond)
	requireHosts(t, n, one)
	requireHosts(t, n, two, "10.0.0.9:9")
}

func TestL1_EndOfTheStreamAloneLosesNothing(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
	require.NoError(t, c.stream.CloseSend())
	always(t, secs(2), hostsAre(t, n, s, "10.0.0.1:1"))
	c.Call(t, "HealthCheckRequest", Fields{}).OK(t)
	require.Len(t, c.List(t, s, "", false).Hosts, 1)
	c.Abort(t)
	eventually(t, soon, hostsAre(t, n, s))
}

func TestL2_SilentConnection(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s, answered, byGo := newService(t), newService(t), newService(t)
	silent := Connect(t, n.GRPCAddr(), Silent())
	polite := Connect(t, n.GRPCAddr())
	// Go answers with success false and resultCode 200: a success.
	goAck := Connect(t, n.GRPCAddr(), WithAnswer(Fields{"resultCode": 200, "errorCode": 0, "success": false, "message": ""}))
	silent.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
	polite.Register(t, answered, Instance("10.0.0.1", 1)).OK(t)
	goAck.Register(t, byGo, Instance("10.0.0.1", 1)).OK(t)
	sub := subscriber(t, n, s, "")

	m := silent.Next(t, secs(30))
	require.Equal(t, "ClientDetectionRequest", m.Type)
	require.NotEmpty(t, m.RequestID)
	requireHosts(t, n, s, "10.0.0.1:1") // not before it was asked
	silent.AwaitEnd(t, secs(15))
	sub.PushUntil(t, soon, has())
	requireHosts(t, n, s)
	// Ejecting closes the transport, not just the stream.
	eventually(t, soon, func() error {
		if _, err := silent.TryCall("HealthCheckRequest", Fields{}); err == nil {
			return fmt.Errorf("the transport is still open")
		}
		return nil
	})
	require.Equal(t, "ClientDetectionRequest", polite.Next(t, soon).Type)
	require.Equal(t, "ClientDetectionRequest", goAck.Next(t, soon).Type)
	always(t, secs(8), hostsAre(t, n, answered, "10.0.0.1:1"))
	requireHosts(t, n, byGo, "10.0.0.1:1")
	require.True(t, polite.Alive())
	require.True(t, goAck.Alive())
}

func TestL3_NoUnhealthyPhaseForConnections(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	for _, leave := range []func(*Conn){
		func(c *Conn) { c.Deregister(t, s, Instance("10.0.0.1", 1)).OK(t) },
		func(c *Conn) { c.Close() },
		func(c *Conn) { c.Abort(t) },
	} {
		c := Connect(t, n.GRPCAddr())
		c.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
		require.True(t, onlyHost(t, sub.NextPush(t, soon)).Healthy)
		leave(c)
		require.Empty(t, sub.NextPush(t, soon).Hosts)
	}
}

func TestL4_ReconnectIsNoFlap(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	one := Instance("10.0.0.1", 1, Fields{"metadata": Fields{"a": "1"}})
	t.Run("new before old", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		old := Connect(t, n.GRPCAddr())
		old.Register(t, s, one).OK(t)
		sub.PushUntil(t, soon, has("10.0.0.1:1"))
		fresh := Connect(t, n.GRPCAddr())
		fresh.Register(t, s, one).OK(t)
		old.Close()
		sub.Quiet(t, secs(2))
		requireHosts(t, n, s, "10.0.0.1:1")
		fresh.Close()
		require.Empty(t, sub.NextPush(t, soon).Hosts)
	})
	t.Run("new after old", func(t *testing.T) {
		t.Parallel()
		// A Go client is back after some 100 ms, within the linger. Slow machines need
		// another try.
		for range 5 {
			s := newService(t)
			sub := subscriber(t, n, s, "")
			old := Connect(t, n.GRPCAddr())
			old.Register(t, s, one).OK(t)
			sub.PushUntil(t, soon, has("10.0.0.1:1"))
			began := time.Now()
			old.Abort(t)
			fresh := Connect(t, n.GRPCAddr())
			fresh.Register(t, s, one).OK(t)
			if time.Since(began) > linger/2 {
				continue
			}
			sub.Quiet(t, secs(2))
			requireHosts(t, n, s, "10.0.0.1:1")
			return
		}
		t.Skip("the machine is too slow to reconnect within the linger")
	})
	t.Run("changed while away", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		old := Connect(t, n.GRPCAddr())
		old.Register(t, s, one).OK(t)
		sub.PushUntil(t, soon, has("10.0.0.1:1"))
		fresh := Connect(t, n.GRPCAddr())
		fresh.Register(t, s, one.With(Fields{"metadata": Fields{"a": "2"}})).OK(t)
		old.Close()
		info := sub.NextPush(t, soon)
		require.Equal(t, "2", onlyHost(t, info).Metadata["a"])
		for _, later := range sub.Collect(t, secs(2)) {
			require.Equal(t, "2", onlyHost(t, later).Metadata["a"], "the old one must not come back")
		}
	})
}

func TestL6_HTTPOwnersEndWithTheirInstances(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	a, b := newService(t), newService(t)
	quick := Params{"metadata": beatTimes(t, secs(1), secs(1), secs(2))}
	register(t, n, a.at("10.0.0.1", 1).With(quick))
	register(t, n, b.at("10.0.0.1", 1)) // the same owner in another service
	eventually(t, secs(20), hostsAre(t, n, a))
	requireHosts(t, n, b, "10.0.0.1:1")
	require.Equal(t, 20404, beat(t, n, a.at("10.0.0.1", 1)).Code)
	require.Equal(t, 10200, beat(t, n, b.at("10.0.0.1", 1)).Code)
}

// beatingLife watches an instance without beats: it must be shown as unhealthy after a
// time and gone after a longer one, or not much later, since times are exact.
func beatingLife(t *testing.T, n *Node, p Params, unhealthy, gone time.Duration) {
	t.Helper()
	within(t, secs(2), func() time.Duration {
		s := newService(t)
		sub := subscriber(t, n, s, "")
		began := time.Now()
		register(t, n, s.at("10.0.0.1", 1).With(p))
		require.True(t, onlyHost(t, sub.NextPush(t, soon)).Healthy)
		info, m := sub.NextPushMessage(t, unhealthy+secs(10))
		require.False(t, onlyHost(t, info).Healthy, "listed as unhealthy first")
		late := m.At.Sub(began) - unhealthy
		require.GreaterOrEqual(t, late, time.Duration(0))
		info, m = sub.NextPushMessage(t, gone-unhealthy+secs(10))
		require.Empty(t, info.Hosts)
		require.GreaterOrEqual(t, m.At.Sub(began), gone)
		return max(late, m.At.Sub(began)-gone)
	})
}

// Deviation: Nacos looks every 5 s.
func TestH1_DefaultTimes(t *testing.T) {
	t.Parallel()
	beatingLife(t, sharedNode(t), nil, secs(15), secs(30))
}

func TestH2_TimesFromMetadataAreExact(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	t.Run("registered", func(t *testing.T) {
		t.Parallel()
		beatingLife(t, n, Params{"metadata": beatTimes(t, secs(1), secs(2), secs(4))}, secs(2), secs(4))
	})
	t.Run("overridden", func(t *testing.T) {
		t.Parallel()
		// What an operator writes counts before what was registered.
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 1))
		update(t, n, s.at("10.0.0.1", 1).With(Params{"metadata": beatTimes(t, secs(1), secs(1), secs(3))}))
		eventually(t, secs(8), hostsAre(t, n, s))
	})
	t.Run("a beat restarts both clocks", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		p := s.at("10.0.0.1", 1).With(Params{"metadata": beatTimes(t, secs(1), secs(3), secs(5))})
		register(t, n, p)
		for range 4 {
			pause(t, secs(1))
			require.Equal(t, 10200, beat(t, n, s.at("10.0.0.1", 1)).Code)
		}
		last := time.Now()
		require.True(t, onlyHost(t, list(t, n, s.Params())).Healthy)
		eventually(t, secs(10), hostsAre(t, n, s))
		require.GreaterOrEqual(t, time.Since(last), secs(5))
		// Registering again restarts them, too.
		register(t, n, p)
		pause(t, secs(2))
		register(t, n, p)
		pause(t, secs(2))
		require.True(t, onlyHost(t, list(t, n, s.Params())).Healthy)
	})
}

func TestH3_UnhealthyIsListedAndABeatHeals(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, s.Params())
	socket.Next(t, soon)
	health := func(want bool) func(ServiceInfo) bool {
		return func(i ServiceInfo) bool { return len(i.Hosts) == 1 && i.Hosts[0].Healthy == want }
	}
	p := s.at("10.0.0.1", 1)
	register(t, n, p.With(Params{"metadata": beatTimes(t, secs(1), secs(1), time.Hour)}))
	for range 2 {
		sub.PushUntil(t, secs(10), health(false))
		socket.Until(t, secs(10), health(false))
		h := onlyHost(t, readEverywhere(t, n, s))
		require.False(t, h.Healthy)
		require.Empty(t, list(t, n, s.Params().With(Params{"healthyOnly": "true"})).Hosts)
		require.Equal(t, 10200, beat(t, n, p).Code)
		require.True(t, onlyHost(t, list(t, n, s.Params())).Healthy, "healed at once")
		sub.PushUntil(t, soon, health(true))
		socket.Until(t, soon, health(true))
		socket.Subscribe(t, n, s.Params())
	}
}

func TestH4_BeatForUnknownInstance(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	require.Equal(t, 20404, beat(t, n, s.at("10.0.0.1", 1)).Code)
	requireHosts(t, n, s)
	text := fullBeat(t, Fields{"ip": "10.0.0.1", "port": 1, "serviceName": "DEFAULT_GROUP@@" + s.Name})
	sub := subscriber(t, n, s, "")
	require.Equal(t, 10200, beat(t, n, s.Params().With(Params{"beat": text})).Code)
	sub.PushUntil(t, soon, has("10.0.0.1:1"))
	// Deviation: a missing weight is 1, not 0.
	require.InDelta(t, 1, onlyHost(t, list(t, n, s.Params())).Weight, 0)

	// The cluster is not compared; namespace, group and service are.
	inCluster := newService(t)
	register(t, n, inCluster.at("10.0.0.1", 1).With(Params{"clusterName": "c1"}))
	require.Equal(t, 10200, beat(t, n, inCluster.at("10.0.0.1", 1)).Code)
	require.Equal(t, 10200, beat(t, n, inCluster.at("10.0.0.1", 1).With(Params{"clusterName": "c2"})).Code)
	require.Equal(t, 20404, beat(t, n, inCluster.at("10.0.0.1", 1).With(Params{"namespaceId": "other"})).Code)
	require.Equal(t, 20404, beat(t, n, inCluster.at("10.0.0.1", 1).With(Params{"groupName": "other"})).Code)

	// Deviation: malformed beats are 400, not 500, and store nothing.
	bad := newService(t)
	for _, text := range []string{"{bad", "[]", "null", `"x"`, "{}", `{"ip":"10.0.0.1","port":"x"}`, `{"ip":"","port":1}`, `{"ip":"10.0.0.1","port":1,"ephemeral":false}`} {
		resp := n.Do(t, "PUT", v1Beat, bad.Params().With(Params{"beat": text}))
		require.Equal(t, 400, resp.Status, "%s: %s", text, resp.Body)
	}
	requireHosts(t, n, bad)
}

func TestH5_BeatAnswer(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 1))
	register(t, n, s.at("10.0.0.1", 2).With(Params{"metadata": metadataJSON(t, "preserved.heart.beat.interval", "1234")}))
	require.Equal(t, beatAnswer{Code: 10200, Interval: 5000, Light: true}, beat(t, n, s.at("10.0.0.1", 1)))
	require.Equal(t, beatAnswer{Code: 10200, Interval: 1234, Light: true}, beat(t, n, s.at("10.0.0.1", 2)))
	unknown := beat(t, n, s.at("10.0.0.1", 3))
	require.Equal(t, 20404, unknown.Code)
	require.Equal(t, int64(5000), unknown.Interval)
}

func TestH6_ClientBeatMetadataSkipsTheCheck(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 1).With(Params{"metadata": metadataJSON(t, "enableClientBeat", "true",
		"preserved.heart.beat.interval", "1000", "preserved.heart.beat.timeout", "1000", "preserved.ip.delete.timeout", "2000")}))
	register(t, n, s.at("10.0.0.1", 2).With(Params{"metadata": beatTimes(t, secs(1), secs(1), secs(2))}))
	eventually(t, secs(10), hostsAre(t, n, s, "10.0.0.1:1"))
	always(t, secs(3), func() error {
		info := list(t, n, s.Params())
		if len(info.Hosts) != 1 || !info.Hosts[0].Healthy {
			return fmt.Errorf("hosts %+v", info.Hosts)
		}
		return nil
	})
	// In the metadata of the service it counts for all its instances.
	whole := newService(t)
	createService(t, n, whole, Params{"metadata": metadataJSON(t, "enableClientBeat", "true")})
	register(t, n, whole.at("10.0.0.1", 1).With(Params{"metadata": beatTimes(t, secs(1), secs(1), secs(2))}))
	always(t, secs(5), func() error {
		info := list(t, n, whole.Params())
		if len(info.Hosts) != 1 || !info.Hosts[0].Healthy {
			return fmt.Errorf("hosts %+v", info.Hosts)
		}
		return nil
	})
}

func TestH7_PersistentInstancesDoNotBeat(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	p := s.at("127.0.0.1", 1).With(Params{"ephemeral": "false"})
	register(t, n, p.With(Params{"metadata": beatTimes(t, secs(1), secs(1), secs(2))}))
	require.Equal(t, 20404, beat(t, n, s.at("127.0.0.1", 1)).Code, "a beat knows no persistent instance")
	always(t, secs(6), hostsAre(t, n, s, "127.0.0.1:1"))
	deregister(t, n, p)
}
