package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Section I of the cases: subscribe and push.
//
// Left: C115 and C125 (several nodes).

func TestC111_SubscribeBeforeTheServiceExists(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for _, w := range waysOf(t, n) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			within(t, secs(1), func() time.Duration {
				s := newNamespace(t)
				a := Connect(t, n.GRPCAddr())
				info := a.Subscribe(t, s, "")
				require.Empty(t, info.Hosts)
				require.Contains(t, info.Raw, "hosts")
				require.Equal(t, "[]", string(info.Raw["hosts"]))
				socket := ListenUDP(t, true)
				require.Empty(t, socket.Subscribe(t, n, s.Params()).Hosts)
				require.Empty(t, list(t, n, s.Params()).Hosts)
				require.Empty(t, serviceNames(t, n, s), "subscribing and listing create nothing")
				a.NextPush(t, soon)
				socket.Next(t, soon)

				began := time.Now()
				w.send(t, n, s, Instance("127.0.0.1", 8080)).accepted(t)
				a.PushUntil(t, soon, has("127.0.0.1:8080"))
				socket.Until(t, soon, has("127.0.0.1:8080"))
				return time.Since(began)
			})
		})
	}
}

func TestC113_FirstAnswerIsNotDelayed(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	best := time.Hour
	for range 20 { // the best of several: the machine is shared
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 8080))
		c := Connect(t, n.GRPCAddr())
		began := time.Now()
		require.Equal(t, []string{"10.0.0.1:8080"}, c.Subscribe(t, s, "").Addrs())
		best = min(best, time.Since(began))
	}
	require.Less(t, best, 50*time.Millisecond)
}

func TestC117_TwoClusterFiltersOnOneConnection(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	of := func(clusters string) func(ServiceInfo) bool {
		return func(i ServiceInfo) bool { return i.Clusters == clusters }
	}
	c.Subscribe(t, s, "c1")
	c.PushUntil(t, soon, of("c1"))

	// A plain query alters no subscription.
	require.Equal(t, "c2", c.List(t, s, "c2", false).Clusters)
	register(t, n, s.at("10.0.0.1", 1).With(Params{"clusterName": "c1"}))
	pushed := c.NextPush(t, secs(1))
	require.Equal(t, "c1", pushed.Clusters)
	require.Equal(t, []string{"10.0.0.1:1"}, pushed.Addrs())

	// A second subscription lives beside the first; both get pushes.
	c.Subscribe(t, s, "c2")
	c.PushUntil(t, soon, of("c2"))
	c.Subscribe(t, s, "")
	c.PushUntil(t, soon, of(""))
	register(t, n, s.at("10.0.0.1", 2).With(Params{"clusterName": "c2"}))
	register(t, n, s.at("10.0.0.1", 3).With(Params{"clusterName": "c1"}))
	want := map[string]func(ServiceInfo) bool{
		"c1": has("10.0.0.1:1", "10.0.0.1:3"),
		"c2": has("10.0.0.1:2"),
		"":   has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"),
	}
	deadline := time.Now().Add(soon)
	for len(want) > 0 {
		info := c.NextPush(t, time.Until(deadline))
		if ok, pending := want[info.Clusters]; pending && ok(info) {
			delete(want, info.Clusters)
		}
	}

	// Ending one leaves the others.
	c.Collect(t, secs(0.7))
	c.Unsubscribe(t, s, "c2")
	register(t, n, s.at("10.0.0.1", 4).With(Params{"clusterName": "c1"}))
	seen := map[string]bool{}
	for _, info := range c.Collect(t, secs(1.5)) {
		seen[info.Clusters] = true
	}
	require.Equal(t, map[string]bool{"c1": true, "": true}, seen)
}

func TestC119_OldPushMustNotOverwriteNew(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	const last = 100
	flip := func(t *testing.T, s Service) <-chan error {
		t.Helper()
		c := Connect(t, n.GRPCAddr())
		done := make(chan error, 1)
		go func() {
			for weight := 1; weight <= last; weight++ {
				reply, err := c.TryRegister(s, Instance("10.0.0.1", 8080, Fields{"weight": weight}))
				if err != nil || reply.ErrorCode != 0 {
					done <- fmt.Errorf("register: %w %s", err, reply.Body)
					return
				}
			}
			done <- nil
		}()
		return done
	}
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		slow := Connect(t, n.GRPCAddr(), WithoutAck())
		first := slow.Subscribe(t, s, "")
		done := flip(t, s)
		ref, weight := first.LastRefTime-1, 0.0 // the first push may repeat the answer
		for weight != last {
			info, m := slow.NextPushMessage(t, secs(20))
			require.Greater(t, info.LastRefTime, ref, "lastRefTime goes up")
			ref = info.LastRefTime
			if len(info.Hosts) > 0 {
				require.GreaterOrEqual(t, info.Hosts[0].Weight, weight, "data goes forward")
				weight = info.Hosts[0].Weight
			}
			pause(t, 100*time.Millisecond)
			slow.Answer(t, m, Fields{"resultCode": 200, "errorCode": 0, "success": true})
		}
		require.NoError(t, <-done)
		for _, info := range slow.Collect(t, secs(3)) {
			require.Greater(t, info.LastRefTime, ref)
			require.InDelta(t, last, onlyHost(t, info).Weight, 0)
		}
		require.Greater(t, slow.List(t, s, "", false).LastRefTime, first.LastRefTime)
	})
	t.Run("UDP", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		slow := ListenUDP(t, false)
		first := slow.Subscribe(t, n, s.Params())
		done := flip(t, s)
		ref, weight := first.LastRefTime-1, 0.0
		for weight != last {
			d := slow.Next(t, secs(25))
			require.GreaterOrEqual(t, d.Info.LastRefTime, ref)
			ref = d.Info.LastRefTime
			if len(d.Info.Hosts) > 0 {
				require.GreaterOrEqual(t, d.Info.Hosts[0].Weight, weight)
				weight = d.Info.Hosts[0].Weight
			}
		}
		require.NoError(t, <-done)
		// Nothing was acknowledged: what comes again, once, is the newest.
		deadline := time.Now().Add(secs(24))
		for {
			d, ok := slow.next(t, time.Until(deadline))
			if !ok {
				break
			}
			require.GreaterOrEqual(t, d.Info.LastRefTime, ref)
			require.InDelta(t, last, onlyHost(t, d.Info).Weight, 0)
		}
	})
}

func TestC121_UDPSubscriberLivesByPolling(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s, polled := newService(t), newService(t)
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, s.Params())
	socket.Next(t, soon)
	pause(t, secs(5))
	lasting := Params{"metadata": beatTimes(t, secs(5), time.Hour, time.Hour)}
	register(t, n, s.at("10.0.0.1", 1).With(lasting))
	socket.Until(t, soon, has("10.0.0.1:1"))

	// Silent for 40 s: forgotten, while another service is polled all the time.
	other := ListenUDP(t, true)
	other.Subscribe(t, n, polled.Params())
	other.Next(t, soon)
	for range 8 {
		pause(t, secs(5))
		other.Subscribe(t, n, polled.Params())
	}
	register(t, n, s.at("10.0.0.1", 2).With(lasting))
	socket.Quiet(t, secs(3))
	register(t, n, polled.at("10.0.0.1", 3))
	other.Until(t, soon, has("10.0.0.1:3"))

	// Back with the next poll.
	require.Equal(t, []string{"10.0.0.1:1", "10.0.0.1:2"}, socket.Subscribe(t, n, s.Params()).Addrs())
	register(t, n, s.at("10.0.0.1", 4).With(lasting))
	socket.Until(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:4"))
}

func TestC123_SubscriberAddressThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 8080))
	socket := ListenUDP(t, true)
	agent := WithHeader("User-Agent", PushAgent)
	for name, c := range map[string]struct {
		params  Params
		options []HTTPOption
	}{
		"host name":         {Params{"clientIP": "not-a-host"}, nil},
		"empty":             {Params{"clientIP": ""}, nil},
		"blank":             {Params{"clientIP": " "}, nil},
		"broken quad":       {Params{"clientIP": "10.0.0.999"}, nil},
		"port -1":           {Params{"udpPort": "-1", "clientIP": "127.0.0.1"}, nil},
		"port 70000":        {Params{"udpPort": "70000", "clientIP": "127.0.0.1"}, nil},
		"forwarded garbage": {Params{"clientIP": "not-a-host"}, []HTTPOption{WithHeader("X-Forwarded-For", "garbage, more; <x>")}},
		"real garbage":      {Params{"clientIP": ""}, []HTTPOption{WithHeader("X-Real-IP", "not an address")}},
	} {
		p := s.Params().With(Params{"udpPort": socket.Port()}).With(c.params)
		resp := n.Do(t, http.MethodGet, v1List, p, append(c.options, agent)...)
		require.Equal(t, http.StatusOK, resp.Status, "%s: %s", name, resp.Body)
		var info ServiceInfo
		resp.JSON(t, &info)
		require.Equal(t, []string{"10.0.0.1:8080"}, info.Addrs(), name)
	}
	for _, sub := range subscribersOf(t, n, s) {
		require.NotContains(t, sub, "not-a-host")
		require.NotContains(t, sub, "garbage")
		require.NotContains(t, sub, "999")
		require.NotContains(t, sub, ":70000")
		require.NotContains(t, sub, ":-1")
	}
	// The node goes on pushing to those that can be reached.
	socket.Subscribe(t, n, s.Params())
	register(t, n, s.at("10.0.0.1", 8081))
	socket.Until(t, soon, has("10.0.0.1:8080", "10.0.0.1:8081"))
}

// subscribersOf lists the addresses of a service's subscribers.
func subscribersOf(t *testing.T, n *Node, s Service) []string {
	t.Helper()
	resp := n.Do(t, http.MethodGet, "/nacos/v1/ns/service/subscribers", s.Params())
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	var body struct {
		Subscribers []struct {
			Addr string `json:"addrStr"`
		} `json:"subscribers"`
	}
	require.NoError(t, json.Unmarshal([]byte(resp.Body), &body), resp.Body)
	var addrs []string
	for _, sub := range body.Subscribers {
		addrs = append(addrs, sub.Addr)
	}
	return addrs
}

func TestC127_SubscribeResponseCarriesEverything(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	for port := 1; port <= 3; port++ {
		register(t, n, s.at("10.0.0.1", port))
	}
	addrs := []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"}
	// The same client comes again and again; nothing has changed since its cache.
	for range 3 {
		c := Connect(t, n.GRPCAddr(), WithClientIP("10.0.9.9"))
		info := c.Subscribe(t, s, "")
		require.Equal(t, addrs, info.Addrs())
		pushed := c.NextPush(t, secs(1))
		require.Equal(t, addrs, pushed.Addrs())
		require.GreaterOrEqual(t, pushed.LastRefTime, info.LastRefTime)
		again := c.Subscribe(t, s, "")
		require.Equal(t, addrs, again.Addrs(), "a repeated subscription is answered in full, too")
		c.Unsubscribe(t, s, "")
		require.Equal(t, addrs, c.Subscribe(t, s, "").Addrs())
		require.Equal(t, addrs, c.NextPush(t, secs(1)).Addrs())
		c.Close()
	}
}
