package integration

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rules P: push.
//
// Not tested: P7 beyond one node (clocks of several), P10 (an exception inside the
// server).

func TestP1_WhatIsPushed(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, nil)
	subs := []*Conn{subscriber(t, n, s, ""), subscriber(t, n, s, ""), subscriber(t, n, s, "DEFAULT")}
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, s.Params())
	socket.Next(t, soon)
	c := Connect(t, n.GRPCAddr())
	p := s.at("10.0.0.1", 1)
	first := func(check func(Host) bool) func(ServiceInfo) bool {
		return func(i ServiceInfo) bool {
			h, ok := i.Host("10.0.0.1:1")
			return ok && check(h)
		}
	}
	for i, step := range []struct {
		change func()
		want   func(ServiceInfo) bool
	}{
		{func() { register(t, n, p) }, has("10.0.0.1:1")},
		{func() { register(t, n, p.With(Params{"weight": "2"})) }, first(func(h Host) bool { return h.Weight == 2 })},
		{func() { register(t, n, p.With(Params{"healthy": "false"})) }, first(func(h Host) bool { return h.Healthy })}, // protected
		{func() { beat(t, n, p) }, first(func(h Host) bool { return h.Healthy })},
		{func() { update(t, n, p.With(Params{"weight": "3"})) }, first(func(h Host) bool { return h.Weight == 3 })},
		{func() { update(t, n, p.With(Params{"metadata": metadataJSON(t, "a", "1")})) }, first(func(h Host) bool { return h.Metadata["a"] == "1" })},
		{func() { update(t, n, p.With(Params{"enabled": "false"})) }, has()},
		{func() { update(t, n, p.With(Params{"enabled": "true"})) }, has("10.0.0.1:1")},
		{func() { c.Register(t, s, Instance("10.0.0.2", 2)).OK(t) }, has("10.0.0.1:1", "10.0.0.2:2")},
		{func() { c.Batch(t, s, Instance("10.0.0.2", 3)).OK(t) }, has("10.0.0.1:1", "10.0.0.2:3")},
		{func() { c.Deregister(t, s, Instance("10.0.0.2", 3)).OK(t) }, has("10.0.0.1:1")},
		{func() { deregister(t, n, p) }, has()},
	} {
		step.change()
		for _, sub := range subs {
			sub.PushUntil(t, soon, func(i ServiceInfo) bool { return step.want(i) })
		}
		socket.Until(t, soon, step.want)
		t.Logf("step %d", i)
	}

	// Settings that change no list are not pushed. Deviation: settings that do change
	// it may be (on Nacos they show only with the next push or query).
	register(t, n, p.With(Params{"healthy": "false"}))
	register(t, n, s.at("10.0.0.3", 3))
	for _, sub := range subs {
		sub.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.3:3"))
		sub.Collect(t, secs(0.7))
	}
	require.False(t, list(t, n, s.Params()).Protected)
	requireOK(t, n.Do(t, http.MethodPut, v1Service, s.Params().With(Params{"protectThreshold": "0.1", "metadata": metadataJSON(t, "a", "b")})))
	subs[0].Quiet(t, secs(1.5))
	requireOK(t, n.Do(t, http.MethodPut, v1Service, s.Params().With(Params{"protectThreshold": "0.9"})))
	require.True(t, list(t, n, s.Params()).Protected)
	for _, info := range subs[0].Collect(t, secs(1.5)) {
		require.True(t, info.Protected)
	}
	register(t, n, s.at("10.0.0.4", 4))
	require.True(t, subs[0].NextPush(t, soon).Protected)
}

func TestP1_HealthOfPersistentInstancesIsPushed(t *testing.T) {
	t.Parallel()
	t.Skip("persistent instances are not probed yet")
	n := sharedNode(t)
	s := newService(t)
	p := s.at("127.0.0.1", 9).With(Params{"ephemeral": "false"})
	sub := subscriber(t, n, s, "")
	register(t, n, p) // nobody listens there: refused connections turn it unhealthy
	sub.PushUntil(t, secs(20), func(i ServiceInfo) bool { return len(i.Hosts) == 1 && !i.Hosts[0].Healthy })
	requireHosts(t, n, s, "127.0.0.1:9") // still listed
	deregister(t, n, p)
	sub.PushUntil(t, soon, has())
}

// Deviation: the first change of a quiet service is pushed at once, not after
// 500 ms; those that follow are merged and wait 500 ms at most.
func TestP2_LeadingEdgeAndMerging(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		best := time.Hour
		for range 10 { // the best of several: the machine is shared
			s := newService(t)
			sub := subscriber(t, n, s, "")
			pause(t, secs(0.7)) // quiet
			began := time.Now()
			register(t, n, s.at("10.0.0.1", 1))
			info, m := sub.NextPushMessage(t, soon)
			require.Len(t, info.Hosts, 1)
			best = min(best, m.At.Sub(began))
		}
		require.Less(t, best, 250*time.Millisecond, "far below the 500 ms of Nacos")
	})
	t.Run("merged", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		c := Connect(t, n.GRPCAddr())
		const changes = 200
		for weight := 1; weight <= changes; weight++ {
			c.Register(t, s, Instance("10.0.0.1", 1, Fields{"weight": weight})).OK(t)
		}
		pushes := 0
		sub.PushUntil(t, soon, func(i ServiceInfo) bool {
			pushes++
			return len(i.Hosts) == 1 && i.Hosts[0].Weight == changes
		})
		require.Less(t, pushes, changes/4, "changes in a row are merged")
		sub.Quiet(t, secs(1))
	})
	t.Run("never starved", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		c := Connect(t, n.GRPCAddr())
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for weight := 1; ; weight = weight%9000 + 1 {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.TryRegister(s, Instance("10.0.0.1", 1, Fields{"weight": weight})); err != nil {
					return
				}
			}
		}()
		pushes := len(sub.Collect(t, secs(4)))
		close(stop)
		<-done
		require.GreaterOrEqual(t, pushes, 4, "continuous change must not postpone pushes")
	})
}

func TestP3_FirstPushOfANewSubscription(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 1))
	old := subscriber(t, n, s, "")
	old.Quiet(t, secs(0.7))
	c := Connect(t, n.GRPCAddr())
	answer := c.Subscribe(t, s, "")
	require.Equal(t, []string{"10.0.0.1:1"}, answer.Addrs())
	first := c.NextPush(t, soon)
	require.Equal(t, []string{"10.0.0.1:1"}, first.Addrs())
	require.GreaterOrEqual(t, first.LastRefTime, answer.LastRefTime)
	c.Subscribe(t, s, "") // repeated: answered, no push
	c.Quiet(t, secs(1.5))
	old.Quiet(t, 100*time.Millisecond) // nobody else is disturbed

	socket := ListenUDP(t, true)
	require.Equal(t, []string{"10.0.0.1:1"}, socket.Subscribe(t, n, s.Params()).Addrs())
	require.Equal(t, []string{"10.0.0.1:1"}, socket.Next(t, soon).Info.Addrs())
	socket.Subscribe(t, n, s.Params())
	socket.Quiet(t, secs(1.5))
}

// A change right after the subscription: the newest list is the last to arrive,
// over both roads.
func TestP3_ChangeRightAfterSubscribing(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for range 50 {
		s := newService(t)
		register(t, n, s.at("10.0.0.9", 9))
		socket, c := ListenUDP(t, true), Connect(t, n.GRPCAddr())
		socket.Subscribe(t, n, s.Params())
		answer := c.Subscribe(t, s, "")
		register(t, n, s.at("10.0.0.1", 1))
		both := has("10.0.0.1:1", "10.0.0.9:9")
		ref := answer.LastRefTime
		newer := func(i ServiceInfo) bool {
			require.GreaterOrEqual(t, i.LastRefTime, ref)
			ref = i.LastRefTime
			return both(i)
		}
		c.PushUntil(t, soon, newer)
		ref = 0
		socket.Until(t, soon, newer)
		for _, info := range c.Collect(t, 20*time.Millisecond) {
			require.True(t, both(info))
		}
		if d, more := socket.next(t, 20*time.Millisecond); more {
			require.True(t, both(d.Info))
		}
		c.Close()
	}
}

func TestP4_MissingAckIsRepeated(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	good := Fields{"resultCode": 200, "errorCode": 0, "success": true}
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		other := subscriber(t, n, s, "")
		c := Connect(t, n.GRPCAddr(), WithoutAck())
		c.Subscribe(t, s, "")
		_, first := c.NextPushMessage(t, soon)
		// The repetition carries the list of its own time.
		_, second := c.NextPushMessage(t, secs(12))
		wait := second.At.Sub(first.At)
		require.GreaterOrEqual(t, wait, secs(4.5))
		require.NotEqual(t, first.RequestID, second.RequestID)
		register(t, n, s.at("10.0.0.1", 1))
		info, third := c.NextPushMessage(t, secs(12))
		require.Equal(t, []string{"10.0.0.1:1"}, info.Addrs())
		c.Answer(t, third, good)
		for _, later := range c.Collect(t, secs(8)) { // one may have been on its way
			require.Equal(t, []string{"10.0.0.1:1"}, later.Addrs())
		}
		other.PushUntil(t, soon, has("10.0.0.1:1")) // the others don't wait
		other.Quiet(t, 100*time.Millisecond)        // and get no repetitions
	})
	t.Run("failure", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr(), WithoutAck())
		c.Subscribe(t, s, "")
		for range 2 {
			_, m := c.NextPushMessage(t, soon)
			c.Answer(t, m, Fields{"resultCode": 500, "errorCode": 500, "success": false})
		}
		info, m := c.NextPushMessage(t, soon)
		require.Empty(t, info.Hosts)
		c.Answer(t, m, good)
		c.Quiet(t, secs(7))
	})
	t.Run("answer to another request", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr(), WithoutAck())
		c.Subscribe(t, s, "")
		_, m := c.NextPushMessage(t, soon)
		c.Send(t, "NotifySubscriberResponse", good.With(Fields{"requestId": m.RequestID + "0"}))
		c.NextPush(t, secs(12))
	})
	t.Run("answer of Go", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr(), WithAnswer(Fields{"resultCode": 200, "errorCode": 0, "success": false, "message": ""}))
		c.Subscribe(t, s, "")
		c.NextPush(t, soon)
		c.Quiet(t, secs(7)) // resultCode decides, not success
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr(), WithoutAck())
		c.Subscribe(t, s, "")
		c.NextPush(t, soon)
		c.Close()
		eventually(t, soon, func() error {
			if subs := subscribersOf(t, n, s); len(subs) > 0 {
				return fmt.Errorf("subscribers %v", subs)
			}
			return nil
		})
	})
}

func TestP5_ContentOfAPush(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, Params{"protectThreshold": "0.3"})
	all, one := subscriber(t, n, s, ""), subscriber(t, n, s, "c1")
	pair := subscriber(t, n, s, "c2,c1")
	register(t, n, s.at("10.0.0.1", 1).With(Params{"clusterName": "c1", "metadata": metadataJSON(t, "a", "1")}))
	register(t, n, s.at("10.0.0.1", 2).With(Params{"clusterName": "c2", "healthy": "false"}))
	register(t, n, s.at("10.0.0.1", 3).With(Params{"clusterName": "c3", "weight": "0"}))
	register(t, n, s.at("10.0.0.1", 4).With(Params{"clusterName": "c1", "enabled": "false"}))
	register(t, n, s.at("10.0.0.1", 5).With(Params{"clusterName": "c1", "healthy": "false"}))

	info := all.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:5"))
	require.Equal(t, s.Name, info.Name)
	require.Equal(t, "DEFAULT_GROUP", info.GroupName)
	require.Empty(t, info.Clusters)
	require.Equal(t, int64(10000), info.CacheMillis)
	require.WithinDuration(t, time.Now(), time.UnixMilli(info.LastRefTime), time.Minute)
	require.False(t, info.Protected)
	h, _ := info.Host("10.0.0.1:2")
	require.False(t, h.Healthy, "unhealthy ones are pushed")
	for _, key := range []string{"name", "groupName", "clusters", "cacheMillis", "hosts", "lastRefTime", "checksum", "reachProtectionThreshold"} {
		require.Contains(t, info.Raw, key)
		require.NotEqual(t, "null", string(info.Raw[key]), key)
	}
	for _, h := range info.Hosts {
		for _, key := range []string{"instanceId", "ip", "port", "weight", "healthy", "enabled", "ephemeral", "clusterName", "serviceName", "metadata"} {
			require.Contains(t, h.Raw, key)
			require.NotEqual(t, "null", string(h.Raw[key]), key)
		}
	}

	info = one.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:5"))
	require.Equal(t, "c1", info.Clusters, "the subscriber's own text")
	require.False(t, info.Protected, "1/2 > 0.3")
	info = pair.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:5"))
	require.Equal(t, "c2,c1", info.Clusters)

	update(t, n, s.at("10.0.0.1", 1).With(Params{"clusterName": "c1", "enabled": "false"}))
	info = one.PushUntil(t, soon, has("10.0.0.1:5"))
	require.True(t, info.Protected, "0/1 <= 0.3")
	require.True(t, info.Hosts[0].Healthy)

	// The message around it.
	register(t, n, s.at("10.0.0.1", 6))
	_, m := all.NextPushMessage(t, soon)
	require.Equal(t, "NotifySubscriberRequest", m.Type)
	_, err := strconv.ParseUint(m.RequestID, 10, 64)
	require.NoError(t, err, "requestId is a text of digits")
	require.Contains(t, string(m.Body), `"headers":{}`)
}

func TestP5_ContentOfADatagram(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, Params{"protectThreshold": "0.9"})
	all, healthyOnly, one := ListenUDP(t, true), ListenUDP(t, true), ListenUDP(t, true)
	all.Subscribe(t, n, s.Params())
	healthyOnly.Subscribe(t, n, s.Params().With(Params{"healthyOnly": "true"}))
	one.Subscribe(t, n, s.Params().With(Params{"clusters": "c1"}))
	register(t, n, s.at("10.0.0.1", 1).With(Params{"enabled": "false"}))
	register(t, n, s.at("10.0.0.1", 2).With(Params{"healthy": "false"}))
	register(t, n, s.at("10.0.0.1", 3).With(Params{"clusterName": "c1"}))
	for _, socket := range []*UDP{all, healthyOnly} {
		d := socket.Until(t, soon, has("10.0.0.1:2", "10.0.0.1:3"))
		require.Equal(t, "DEFAULT_GROUP@@"+s.Name, d.Info.Name)
		require.NotContains(t, d.Info.Raw, "groupName")
		require.False(t, d.Info.Protected, "a datagram never says so")
		for _, h := range d.Info.Hosts {
			require.True(t, h.Healthy, "though it shows it")
		}
	}
	require.Equal(t, "c1", one.Until(t, soon, has("10.0.0.1:3")).Info.Clusters)
}

func TestP6_CompleteListAndEmptyList(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, s.Params())
	socket.Next(t, soon)
	var want []string
	for port := 1; port <= 5; port++ {
		register(t, n, s.at("10.0.0.1", port))
		want = append(want, fmt.Sprintf("10.0.0.1:%d", port))
		sub.PushUntil(t, soon, has(want...))
		socket.Until(t, soon, has(want...))
	}
	for port := 1; port <= 5; port++ {
		deregister(t, n, s.at("10.0.0.1", port))
		want = want[1:]
		sub.PushUntil(t, soon, has(want...))
		d := socket.Until(t, soon, has(want...))
		require.NotEqual(t, "null", string(d.Info.Raw["hosts"]))
	}
}

func TestP7_LastRefTimeGoesUp(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	ref := c.Subscribe(t, s, "").LastRefTime
	for i := range 20 {
		register(t, n, s.at("10.0.0.1", i))
		info := c.PushUntil(t, soon, func(info ServiceInfo) bool {
			if i == 0 && info.LastRefTime == ref { // the first push is due, and nothing has changed
				require.Empty(t, info.Hosts)
				return false
			}
			// Clients drop what is not newer than what they have.
			require.Greater(t, info.LastRefTime, ref)
			ref = info.LastRefTime
			return true
		})
		answer := c.List(t, s, "", false)
		require.GreaterOrEqual(t, answer.LastRefTime, info.LastRefTime)
	}
}

// Answers to queries and subscriptions go into the same cache of a client as
// pushes, in any order: a list with newer content has the larger lastRefTime,
// whichever road it came by, and equal times mean equal content.
func TestP7_AnswersAndPushesAgree(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	const last = 400
	publisher := Connect(t, n.GRPCAddr())
	var conns []*Conn
	for range 3 {
		conns = append(conns, Connect(t, n.GRPCAddr()))
	}
	done := make(chan error, 1)
	go func() {
		for weight := 1; weight <= last; weight++ {
			if reply, err := publisher.TryRegister(s, Instance("10.0.0.1", 1, Fields{"weight": weight})); err != nil || reply.ErrorCode != 0 {
				done <- fmt.Errorf("register: %w %s", err, reply.Body)
				return
			}
		}
		done <- nil
	}()
	type seen struct {
		ref    int64
		weight float64
	}
	var all []seen
	note := func(info ServiceInfo) {
		weight := 0.0
		if len(info.Hosts) > 0 {
			weight = info.Hosts[0].Weight
		}
		all = append(all, seen{info.LastRefTime, weight})
	}
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
		}
		for _, c := range conns {
			note(c.Subscribe(t, s, ""))
			note(c.List(t, s, "", false))
			note(list(t, n, s.Params()))
			c.Unsubscribe(t, s, "")
		}
	}
	for _, c := range conns {
		note(c.Subscribe(t, s, ""))
		for _, info := range c.Collect(t, secs(1)) {
			note(info)
		}
	}
	slices.SortStableFunc(all, func(a, b seen) int {
		return cmp.Or(cmp.Compare(a.ref, b.ref), cmp.Compare(a.weight, b.weight))
	})
	for i := 1; i < len(all); i++ {
		require.LessOrEqual(t, all[i-1].weight, all[i].weight, "at %d", all[i].ref)
		if all[i-1].ref == all[i].ref {
			require.InDelta(t, all[i-1].weight, all[i].weight, 0, "one time, two lists: %d", all[i].ref)
		}
	}
	require.InDelta(t, last, all[len(all)-1].weight, 0)
}

// Deviation: on Nacos the later subscription replaces the earlier (C117).
func TestP8_SubscriptionsWithOtherClustersLiveTogether(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	for _, clusters := range []string{"c1", "c2"} {
		c.Subscribe(t, s, clusters)
		c.PushUntil(t, soon, func(i ServiceInfo) bool { return i.Clusters == clusters })
	}
	for port, clusters := range []string{"c1", "c2", "c1", "c2"} {
		register(t, n, s.at("10.0.0.1", port).With(Params{"clusterName": clusters}))
		c.PushUntil(t, soon, func(i ServiceInfo) bool {
			_, ok := i.Host(fmt.Sprintf("10.0.0.1:%d", port))
			return ok && i.Clusters == clusters
		})
	}
}

func TestP9_PushSwitchHoldsPushes(t *testing.T) {
	t.Parallel()
	n := StartNode(t) // its switches are changed
	set := func(value string) {
		requireOK(t, n.Query(t, http.MethodPut, v1Switches, Params{"entry": "pushEnabled", "value": value}))
	}
	s := newService(t)
	sub := subscriber(t, n, s, "")
	if resp := n.Query(t, http.MethodPut, v1Switches, Params{"entry": "pushEnabled", "value": "true"}); resp.Status != http.StatusOK {
		t.Skip("no switch pushEnabled yet")
	}
	set("false")
	register(t, n, s.at("10.0.0.1", 1))
	register(t, n, s.at("10.0.0.1", 2))
	late := ListenUDP(t, true)
	require.Len(t, late.Subscribe(t, n, s.Params()).Hosts, 2, "lists are answered")
	sub.Quiet(t, secs(2))
	set("true")
	require.Equal(t, []string{"10.0.0.1:1", "10.0.0.1:2"}, sub.NextPush(t, soon).Addrs(), "what was held goes out")
	register(t, n, s.at("10.0.0.1", 3))
	sub.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"))
	late.Quiet(t, secs(1)) // a list call meanwhile subscribed nothing
}

func TestP11_UnsubscribedGetsNothing(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s, other := newService(t), newService(t)
	c := subscriber(t, n, s, "")
	c.Subscribe(t, other, "")
	c.NextPush(t, soon)
	register(t, n, s.at("10.0.0.1", 1))
	c.PushUntil(t, soon, has("10.0.0.1:1"))
	require.Equal(t, []string{"10.0.0.1:1"}, c.Unsubscribe(t, s, "").Addrs(), "the answer has the list")
	c.Collect(t, secs(0.7)) // one that was in flight
	register(t, n, s.at("10.0.0.1", 2))
	c.Quiet(t, secs(1.5))
	require.Empty(t, subscribersOf(t, n, s))
	register(t, n, other.at("10.0.0.1", 3))
	require.Equal(t, other.Name, c.NextPush(t, soon).Name, "other subscriptions stay")
	c.Unsubscribe(t, s, "") // unsubscribing twice is no error
	require.Len(t, c.Subscribe(t, s, "").Hosts, 2)
	require.Len(t, c.NextPush(t, soon).Hosts, 2)
}

func TestP12_DatagramForm(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	socket := ListenUDP(t, false)
	socket.Subscribe(t, n, s.Params())
	d := socket.Next(t, soon)
	require.Equal(t, "dom", d.Type)
	require.False(t, d.Gzip)
	require.Positive(t, d.LastRefTime)
	require.Less(t, d.LastRefTime, int64(1)<<53, "Node reads it as a double")
	require.Less(t, len(d.Text), 1024)
	socket.Ack(t, d, `"`+strconv.FormatInt(d.LastRefTime, 10)+`"`)

	socket.ack = true
	for port := 1; port <= 40; port++ {
		register(t, n, s.at("10.0.0.1", port))
	}
	d = socket.Until(t, soon, func(i ServiceInfo) bool { return len(i.Hosts) == 40 })
	require.True(t, d.Gzip, "from 1 KB of text on")
	require.Greater(t, len(d.Text), 1024)
	require.Less(t, len(d.Wire), 4024, "Go 1.x reads no more")
}

func TestP12_AckAndOneRepetition(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	number := func(d Datagram) string { return strconv.FormatInt(d.LastRefTime, 10) }
	for name, ack := range map[string]func(*testing.T, *UDP, Datagram){
		"text":   func(t *testing.T, u *UDP, d Datagram) { t.Helper(); u.Ack(t, d, `"`+number(d)+`"`) },
		"number": func(t *testing.T, u *UDP, d Datagram) { t.Helper(); u.Ack(t, d, number(d)) },
	} {
		t.Run("acknowledged by "+name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			socket := ListenUDP(t, false)
			socket.Subscribe(t, n, s.Params())
			ack(t, socket, socket.Next(t, soon))
			socket.Quiet(t, secs(12))
		})
	}
	for name, ack := range map[string]func(*testing.T, *UDP, Datagram){
		"nothing":        func(*testing.T, *UDP, Datagram) {},
		"another number": func(t *testing.T, u *UDP, d Datagram) { t.Helper(); u.Ack(t, d, `"1"`) },
		"garbage": func(t *testing.T, u *UDP, d Datagram) {
			t.Helper()
			for _, text := range []string{"garbage", "", "{}", `{"type":"push-ack"}`, `{"type":"push-ack","lastRefTime":{}}`, strings.Repeat("x", 60_000)} {
				u.Send(t, d, text)
			}
		},
	} {
		t.Run("not acknowledged by "+name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			socket := ListenUDP(t, false)
			socket.Subscribe(t, n, s.Params())
			first := socket.Next(t, soon)
			ack(t, socket, first)
			again := socket.Next(t, secs(14))
			require.GreaterOrEqual(t, again.At.Sub(first.At), secs(9))
			require.Equal(t, first.LastRefTime, again.LastRefTime)
			require.Equal(t, first.Text, again.Text)
			socket.Quiet(t, secs(12)) // two in all
		})
	}
}

func TestP12_AgentsThatArePushedTo(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for _, agent := range []string{
		"Nacos-Java-Client:v1.4.2", "Nacos-Java-Client:v1.0.0", "Nacos-Go-Client:v1.1.4", "Nacos-C-Client:v1.0.12",
		"vip-client4cpp:v1.0.12", "Nacos-DNS:v0.4.3", "Nacos-CSharp-Client:v0.9.0",
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			socket := ListenUDP(t, true)
			socket.Subscribe(t, n, s.Params(), WithHeader("User-Agent", agent))
			socket.Next(t, soon)
			register(t, n, s.at("10.0.0.1", 1))
			socket.Until(t, soon, has("10.0.0.1:1"))
		})
	}
	t.Run("Client-Version without User-Agent", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		socket := ListenUDP(t, true)
		// An empty value keeps Go from sending a User-Agent.
		socket.Subscribe(t, n, s.Params(), WithHeader("User-Agent", ""), WithHeader("Client-Version", PushAgent))
		socket.Next(t, soon)
	})
	for name, p := range map[string]Params{"port 0": {"udpPort": "0"}, "no port": {"udpPort": ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			socket := ListenUDP(t, true)
			socket.Subscribe(t, n, s.Params().With(p))
			register(t, n, s.at("10.0.0.1", 1))
			socket.Quiet(t, secs(1))
			require.Empty(t, subscribersOf(t, n, s))
		})
	}
}

func TestP12_TwoServicesOnOneSocket(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	a, b := newService(t), newService(t)
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, a.Params())
	socket.Next(t, soon)
	socket.Subscribe(t, n, b.Params())
	socket.Next(t, soon)
	register(t, n, a.at("10.0.0.1", 1))
	require.Equal(t, "DEFAULT_GROUP@@"+a.Name, socket.Next(t, soon).Info.Name)
	Connect(t, n.GRPCAddr()).Register(t, b, Instance("10.0.0.2", 2)).OK(t) // of any publisher
	require.Equal(t, "DEFAULT_GROUP@@"+b.Name, socket.Next(t, soon).Info.Name)
	require.Equal(t, []string{"127.0.0.1:" + socket.Port()}, subscribersOf(t, n, a))
}
