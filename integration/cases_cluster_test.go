package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Section K of the cases: ephemeral data on several nodes.
//
// C137 is TestEphemeral_WrittenOnOneReadOnAll. C149, a jump of the wall clock, is
// left to the simulator of package distro and to the timers' own tests: the clock of
// a process cannot be set from outside.

func TestC099_BeatsSprayedOverThreeNodes(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	s := newService(t)
	instance := s.Params().With(Params{
		"ip": "10.0.0.1", "port": "8080",
		"metadata": `{"preserved.heart.beat.interval":"1000","preserved.heart.beat.timeout":"3000","preserved.ip.delete.timeout":"6000"}`,
	})
	require.Equal(t, "ok", c.Nodes[0].Do(t, http.MethodPost, "/nacos/v1/ns/instance", instance).Body)
	for _, node := range c.Nodes {
		eventually(t, soon, hostsAre(t, node, s, "10.0.0.1:8080"))
	}
	sub := subscriber(t, c.Nodes[1], s, "")
	var wg sync.WaitGroup
	wg.Go(func() { sub.Quiet(t, secs(30)) })
	for k := range 30 {
		r := c.Nodes[k%3].Do(t, http.MethodPut, "/nacos/v1/ns/instance/beat", s.Params().With(Params{"ip": "10.0.0.1", "port": "8080"}))
		require.Contains(t, r.Body, "10200")
		for _, node := range c.Nodes {
			h, ok := list(t, node, s.Params()).Host("10.0.0.1:8080")
			require.True(t, ok, "absent at second %d", k)
			require.True(t, h.Healthy, "unhealthy at second %d", k)
		}
		pause(t, secs(1))
	}
	wg.Wait()
	// Without a heartbeat it goes, on every node.
	for _, node := range c.Nodes {
		eventually(t, secs(10), hostsAre(t, node, s))
	}
}

func TestC101_ClientDiedWhileAllServersWereDown(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	instance := s.Params().With(Params{"ip": "10.0.0.1", "port": "8080", "metadata": `{"preserved.heart.beat.interval":"1000","preserved.heart.beat.timeout":"2000","preserved.ip.delete.timeout":"4000"}`})
	require.Equal(t, "ok", c.Nodes[0].Do(t, http.MethodPost, "/nacos/v1/ns/instance", instance).Body)
	for _, node := range c.Nodes {
		node.Stop(t)
	}
	c.StartAll(t)
	for _, node := range c.Nodes {
		eventually(t, secs(10), hostsAre(t, node, s))
	}
}

func TestC139_DeadPeerDelaysNobody(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	c.Nodes[2].Kill(t)
	client := Connect(t, c.Nodes[0].GRPCAddr())
	name := newService(t).Name
	for k := range 2000 {
		client.Register(t, Service{Name: fmt.Sprintf("%s-%d", name, k)}, Instance("10.0.0.1", 8080)).OK(t)
		if k%100 == 0 {
			eventually(t, secs(1), hostsAre(t, c.Nodes[1], Service{Name: fmt.Sprintf("%s-%d", name, k)}, "10.0.0.1:8080"))
		}
	}
	require.NoError(t, c.Nodes[2].Start())
	for k := range 2000 {
		eventually(t, secs(10), hostsAre(t, c.Nodes[2], Service{Name: fmt.Sprintf("%s-%d", name, k)}, "10.0.0.1:8080"))
	}
}

func TestC141_FullRestart(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	f.PublishAll([]string{"a", "b", "c", "d", "e"}, 200, c.Nodes...)
	f.Complete(t, secs(20), c.Nodes...)
	for _, node := range c.Nodes {
		node.Kill(t)
	}
	c.StartAll(t)
	f.Complete(t, secs(20), c.Nodes...)
	f.Holds(t, secs(40), c.Nodes...) // nothing of the former runs comes or goes
}

func TestC145_SameNameOtherAddress(t *testing.T) {
	t.Parallel()
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	all := []string{"n1", "n2", "n3"}
	knows := func(at string) func() error {
		return func() error {
			for _, node := range c.Nodes {
				if alive := node.Alive(); !slices.Equal(alive, all) {
					return fmt.Errorf("%s sees %v", node.Addr(), alive)
				}
				r := node.Do(t, http.MethodGet, "/rollcall/v1/nodes", nil)
				if n := strings.Count(r.Body, `"address":"`+at+":"); n != 1 {
					return fmt.Errorf("%s has the address %d times: %s", node.Addr(), n, r.Body)
				}
			}
			return nil
		}
	}
	third := c.Nodes[2]
	third.Stop(t)
	network.Move(t, third)
	require.NoError(t, third.Start())
	eventually(t, secs(5), knows(third.host))
	third.Kill(t)
	network.Move(t, third)
	require.NoError(t, third.Start())
	eventually(t, secs(15), knows(third.host))
}

func TestC147_LostMessagesExpireNobody(t *testing.T) {
	long(t)
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	s := newService(t)
	at := Params{"ip": "10.0.0.1", "port": "8080"}
	for _, a := range c.Nodes {
		for _, b := range c.Nodes {
			if a != b {
				network.Lose(t, a, b, 0.2)
			}
		}
	}
	require.Equal(t, "ok", c.Nodes[0].Do(t, http.MethodPost, "/nacos/v1/ns/instance", s.Params().With(at)).Body)
	for _, node := range c.Nodes {
		eventually(t, secs(10), hostsAre(t, node, s, "10.0.0.1:8080"))
	}
	for range 10 { // twice the time of deletion
		require.Contains(t, c.Nodes[0].Do(t, http.MethodPut, "/nacos/v1/ns/instance/beat", s.Params().With(at)).Body, "10200")
		for _, node := range c.Nodes {
			require.NoError(t, hostsAre(t, node, s, "10.0.0.1:8080")())
		}
		pause(t, secs(5))
	}
}

func TestC151_MemberMarkedDown(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	sees := func(want ...string) func() error {
		return func() error {
			if alive := c.Nodes[0].Alive(); !slices.Equal(alive, want) {
				return fmt.Errorf("alive: %v, want %v", alive, want)
			}
			return nil
		}
	}
	require.NoError(t, sees("n1", "n2", "n3")())
	c.Nodes[2].Kill(t)
	eventually(t, secs(10), sees("n1", "n2"))
	require.NoError(t, c.Nodes[2].Start())
	eventually(t, secs(5), sees("n1", "n2", "n3"))
}

func TestC153_Growing(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	services := fleetServices(f, 30, 60, c.Nodes...)
	f.Complete(t, secs(20), c.Nodes...)
	f.Subscribe(20, services, c.Nodes...)
	f.Watched(t, 20*len(services))
	fourth := c.Add(t)
	require.Empty(t, f.wrong([]*Node{fourth}), "it is ready and does not have everything")
	for _, node := range c.Nodes {
		eventually(t, secs(5), func() error {
			if alive := node.Alive(); len(alive) != 4 {
				return fmt.Errorf("alive: %v", alive)
			}
			return nil
		})
	}
	f.Holds(t, secs(35), c.Nodes...) // owners have changed: nobody is taken to be silent
	f.Unharmed(t)
}

// large registers instances in batches and returns how many it has registered.
func large(t *testing.T, node *Node, services, each int, metadata string) int {
	t.Helper()
	for k := range services {
		batch := make([]Fields, each)
		for n := range batch {
			batch[n] = Instance(fmt.Sprintf("10.%d.%d.%d", k, n>>8, n&255), 80, Fields{"metadata": Fields{"text": metadata}})
		}
		Connect(t, node.GRPCAddr()).Batch(t, Service{Name: "large-" + strconv.Itoa(k)}, batch...).OK(t)
	}
	return services * each
}

func TestC155_MoreThanAMessageHolds(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	c.Nodes[2].Stop(t)
	total := large(t, c.Nodes[0], 40, 1000, strings.Repeat("x", 500))
	began := time.Now()
	require.NoError(t, c.Nodes[2].Start())
	t.Logf("ready with %d instances after %v", total, time.Since(began))
	require.Less(t, time.Since(began), secs(20))
	for k := range 40 {
		require.Len(t, list(t, c.Nodes[2], Params{"serviceName": "large-" + strconv.Itoa(k)}).Hosts, 1000)
	}
}

func TestC157_RegistrationStorm(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	f.Beat("storm", 1000)
	f.Complete(t, secs(30), c.Nodes...)
	f.Holds(t, secs(40), c.Nodes...)
	f.Unharmed(t)
}
