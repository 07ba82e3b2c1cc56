package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Section G of the cases: heartbeats over HTTP.
//
// Left: C099 (several nodes).

// beating sends a beat every interval until the test ends. longest is the longest time
// that has passed so far between the beginnings of two, or since the last one.
func beating(t *testing.T, n *Node, interval time.Duration, p Params) (longest func() time.Duration) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	last, most := time.Now(), time.Duration(0)
	longest = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, time.Since(last))
		return most
	}
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			longest()
			mu.Lock()
			last = time.Now()
			mu.Unlock()
			_, _ = n.TryRaw(http.MethodPut, v1Beat, "", p.encode())
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return longest
}

func TestC089_BeatNamingAnotherService(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, inner := range map[string]Fields{
		"other service and cluster": {"serviceName": "other", "cluster": "c1"},
		"other grouped service":     {"serviceName": "DEFAULT_GROUP@@other"},
		"other group":               {"serviceName": "OTHER_GROUP@@svc"},
		"other cluster":             {"cluster": "c1"},
		"nothing":                   {},
		"plain name":                {"serviceName": "svc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			if name == "plain name" {
				inner["serviceName"] = s.Name
			}
			register(t, n, s.at("10.0.0.1", 8080).With(Params{"metadata": beatTimes(t, secs(1), secs(2), secs(4))}))
			text := fullBeat(t, Fields{"ip": "10.0.0.1", "port": 8080}.With(inner))
			p := s.Params().With(Params{"beat": text})
			resp := n.Do(t, http.MethodPut, v1Beat, p)
			if resp.Status == http.StatusBadRequest {
				return // refusing is the other right answer
			}
			require.Equal(t, 10200, resp.Result(t).Code, resp.Body)
			beating(t, n, 400*time.Millisecond, p)
			always(t, secs(6), func() error {
				info := list(t, n, s.Params())
				if len(info.Hosts) != 1 || !info.Hosts[0].Healthy {
					return fmt.Errorf("hosts %+v", info.Hosts)
				}
				return nil
			})
			require.Equal(t, "DEFAULT", onlyHost(t, list(t, n, s.Params())).ClusterName)
		})
	}
}

func TestC091_BeatForAnUnknownInstance(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newNamespace(t)
	p := s.at("10.0.0.1", 8080)
	answer := beat(t, n, p)
	require.Equal(t, 20404, answer.Code)
	require.Positive(t, answer.Interval)
	requireNothing(t, n, s)

	text := fullBeat(t, Fields{
		"ip": "10.0.0.1", "port": 8080, "weight": 3, "serviceName": "DEFAULT_GROUP@@svc-a", "cluster": "c1",
		"metadata": Fields{"zone": "east"}, "scheduled": false, "period": 5000, "stopped": false,
	})
	require.Equal(t, 10200, beat(t, n, s.Params().With(Params{"beat": text})).Code)
	h := onlyHost(t, readEverywhere(t, n, s))
	require.True(t, h.Ephemeral)
	require.True(t, h.Healthy)
	require.InDelta(t, 3, h.Weight, 0)
	require.Equal(t, "c1", h.ClusterName)
	require.Equal(t, map[string]string{"zone": "east"}, h.Metadata)
	require.Equal(t, 10200, beat(t, n, p.With(Params{"clusterName": "c1"})).Code)

	// Other addresses, groups and namespaces are unknown, as before.
	for _, other := range []Params{
		s.at("10.0.0.1", 8081), s.at("10.0.0.2", 8080), p.With(Params{"groupName": "g"}), newService(t).at("10.0.0.1", 8080),
	} {
		require.Equal(t, 20404, beat(t, n, other).Code, "%v", other)
	}
	// A gRPC instance doesn't beat: nobody of that address is known over HTTP.
	viaGRPC := newService(t)
	Connect(t, n.GRPCAddr()).Register(t, viaGRPC, Instance("10.0.0.1", 8080)).OK(t)
	require.Contains(t, []int{10200, 20404}, beat(t, n, viaGRPC.at("10.0.0.1", 8080)).Code)
	requireHosts(t, n, viaGRPC, "10.0.0.1:8080")
}

func TestC093_IntervalInTheBeatAnswer(t *testing.T) {
	t.Parallel()
	n := StartNode(t) // its switches are changed
	own, plain, odd := newService(t), newService(t), newService(t)
	register(t, n, own.at("10.0.0.1", 1).With(Params{"metadata": metadataJSON(t, "preserved.heart.beat.interval", "2000")}))
	register(t, n, plain.at("10.0.0.1", 1))
	register(t, n, odd.at("10.0.0.1", 1).With(Params{"metadata": metadataJSON(t, "preserved.heart.beat.interval", "abc")}))
	intervals := func(wantOwn, wantDefault int64) {
		t.Helper()
		require.Equal(t, wantOwn, beat(t, n, own.at("10.0.0.1", 1)).Interval)
		require.Equal(t, wantDefault, beat(t, n, plain.at("10.0.0.1", 1)).Interval)
		require.Equal(t, wantDefault, beat(t, n, odd.at("10.0.0.1", 1)).Interval, "what is no number counts as not given")
		require.Equal(t, wantDefault, beat(t, n, newService(t).at("10.0.0.1", 1)).Interval, "unknown instance")
	}
	intervals(2000, 5000)
	requireOK(t, n.Query(t, http.MethodPut, v1Switches, Params{"entry": "clientBeatInterval", "value": "7000"}))
	eventually(t, soon, func() error {
		if got := beat(t, n, plain.at("10.0.0.1", 1)).Interval; got != 7000 {
			return fmt.Errorf("interval %d", got)
		}
		return nil
	})
	intervals(2000, 7000)

	// A full beat that registers gets its own interval at once.
	text := fullBeat(t, Fields{"ip": "10.0.0.2", "port": 1, "metadata": Fields{"preserved.heart.beat.interval": "3000"}})
	require.Equal(t, int64(3000), beat(t, n, own.Params().With(Params{"beat": text})).Interval)
	// An operator's word counts before what was registered.
	update(t, n, own.at("10.0.0.1", 1).With(Params{"metadata": metadataJSON(t, "preserved.heart.beat.interval", "4000")}))
	intervals(4000, 7000)
}

func TestC095_UnitsAreMilliseconds(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	times := func(interval, timeout, remove string) string {
		return metadataJSON(t, "preserved.heart.beat.interval", interval,
			"preserved.heart.beat.timeout", timeout, "preserved.ip.delete.timeout", remove)
	}
	// Below 500 ms counts as 500 ms: who meant seconds sees the instance removed
	// within 2 s, not flapping.
	within(t, secs(2), func() time.Duration {
		s := newService(t)
		sub := subscriber(t, n, s, "")
		began := time.Now()
		register(t, n, s.at("10.0.0.1", 8080).With(Params{"metadata": times("30", "120", "180")}))
		sub.PushUntil(t, soon, has("10.0.0.1:8080"))
		last := sub.PushUntil(t, soon, has())
		took := time.Since(began)
		require.GreaterOrEqual(t, took, 500*time.Millisecond)
		require.Empty(t, last.Hosts)
		sub.Quiet(t, secs(2))
		return took
	})

	// Contradictions are refused, whatever the unit.
	for _, bad := range []string{times("3000", "1000", "9000"), times("3000", "9000", "1000"), times("20000", "15000", "30000")} {
		resp := n.Do(t, http.MethodPost, v1Instance, newService(t).at("10.0.0.1", 8080).With(Params{"metadata": bad}))
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
	}

	// One who beats at the interval it was told stays.
	for again := 2; ; again-- {
		alive := newService(t)
		address := alive.at("10.0.0.1", 8080)
		register(t, n, address.With(Params{"metadata": times("30", "120", "180")}))
		longest := beating(t, n, 30*time.Millisecond, address)
		err := throughout(t, secs(3), hostsAre(t, n, alive, "10.0.0.1:8080"))
		if err == nil {
			return
		}
		if again == 0 || longest() < 400*time.Millisecond { // else it could not, for the machine stood still
			require.NoError(t, err)
		}
	}
}

func TestC097_BeatTimesDoNotApplyToGRPC(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s, batch := newService(t), newService(t)
	metadata := Fields{"metadata": Fields{
		"preserved.heart.beat.interval": "500", "preserved.heart.beat.timeout": "1000", "preserved.ip.delete.timeout": "2000",
	}}
	c, d := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
	sub := subscriber(t, n, s, "")
	c.Register(t, s, Instance("10.0.0.1", 8080, metadata)).OK(t)
	sub.PushUntil(t, soon, has("10.0.0.1:8080"))
	d.Batch(t, batch, Instance("10.0.0.1", 1, metadata), Instance("10.0.0.1", 2, metadata)).OK(t)
	always(t, secs(6), func() error {
		for _, info := range []ServiceInfo{list(t, n, s.Params()), list(t, n, batch.Params())} {
			if len(info.Hosts) == 0 {
				return fmt.Errorf("no hosts in %s", info.Name)
			}
			for _, h := range info.Hosts {
				if !h.Healthy {
					return fmt.Errorf("%s is unhealthy", h.Addr())
				}
			}
		}
		return nil
	})
	sub.Quiet(t, 100*time.Millisecond)
	c.Close()
	d.Close()
	eventually(t, soon, hostsAre(t, n, s))
	eventually(t, soon, hostsAre(t, n, batch))
}

func TestC101_ClientDiedWhileTheServerWasDown(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]func(*testing.T, *Node){
		"stopped": func(t *testing.T, n *Node) { t.Helper(); n.Stop(t) },
		"killed":  func(t *testing.T, n *Node) { t.Helper(); n.Kill(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Absent at once, or unhealthy and gone within the delete timeout.
			within(t, secs(4+3), func() time.Duration {
				n := StartNode(t)
				dead, alive := newService(t), newService(t)
				metadata := Params{"metadata": beatTimes(t, secs(1), secs(2), secs(4))}
				register(t, n, dead.at("10.0.0.1", 8080).With(metadata))
				register(t, n, alive.at("10.0.0.2", 8080).With(metadata))
				down(t, n)
				n.Restart(t)
				text := fullBeat(t, Fields{"ip": "10.0.0.2", "port": 8080, "metadata": Fields{}})
				beating(t, n, 300*time.Millisecond, alive.Params().With(Params{"beat": text}))
				began := time.Now()
				eventually(t, secs(15), hostsAre(t, n, dead))
				took := time.Since(began)
				always(t, secs(2), hostsAre(t, n, dead))
				requireHosts(t, n, alive, "10.0.0.2:8080")
				return took
			})
		})
	}
}
