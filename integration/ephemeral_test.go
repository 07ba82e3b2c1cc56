package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleetServices are the services of the stories: some over gRPC, some over HTTP.
func fleetServices(f *Fleet, grpc, web int, at ...*Node) []string {
	var services []string
	for k := range 3 {
		name := fmt.Sprintf("grpc-%d", k)
		f.Publish(name, grpc/3, at...)
		services = append(services, name)
	}
	for k := range 3 {
		name := fmt.Sprintf("http-%d", k)
		f.Beat(name, web/3)
		services = append(services, name)
	}
	return services
}

func TestEphemeral_WrittenOnOneReadOnAll(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	for n := range 60 {
		at := c.Nodes[n%3]
		address := Params{"serviceName": "all", "ip": fmt.Sprintf("10.0.0.%d", n), "port": "80"}
		r := at.Do(t, http.MethodPost, "/nacos/v1/ns/instance", address)
		require.Equal(t, "ok", r.Body)
		_, ok := list(t, at, Params{"serviceName": "all"}).Host(fmt.Sprintf("10.0.0.%d:80", n))
		require.True(t, ok, "the node that took the registration does not show it")
		if n%2 == 1 { // a client may go to another node with its next request
			r = c.Nodes[(n+1)%3].Do(t, http.MethodDelete, "/nacos/v1/ns/instance", address)
			require.Equal(t, "ok", r.Body)
		}
	}
	for _, node := range c.Nodes {
		require.Eventually(t, func() bool { return len(list(t, node, Params{"serviceName": "all"}).Hosts) == 30 }, 2*time.Second, 10*time.Millisecond)
	}
}

func TestEphemeral_KilledNodeIsNotSeen(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	f.Redo = 15 * time.Second // some are back long after the node is known to be dead
	services := fleetServices(f, 300, 90, c.Nodes[0])
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(100, services, c.Nodes[1:]...)
	f.Watched(t, 100*len(services))
	c.Nodes[0].Kill(t)
	f.Holds(t, 40*time.Second, c.Nodes[1:]...) // longer than the grace
	f.Unharmed(t)
}

func TestEphemeral_PausedNodeIsNotSeen(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	services := fleetServices(f, 300, 90, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(100, services, c.Nodes...)
	f.Watched(t, 100*len(services))
	c.Nodes[0].Pause(t)
	f.Holds(t, 30*time.Second, c.Nodes[1:]...)
	c.Nodes[0].Resume(t)
	f.Complete(t, 10*time.Second, c.Nodes...)
	f.Holds(t, 40*time.Second, c.Nodes...)
	f.Unharmed(t)
}

func TestEphemeral_RollingRestartIsNotSeen(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	services := fleetServices(f, 300, 90, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(100, services, c.Nodes...)
	f.Watched(t, 100*len(services))
	for _, node := range c.Nodes {
		node.Restart(t)
		f.Complete(t, 10*time.Second, c.Nodes...)
	}
	f.Holds(t, 40*time.Second, c.Nodes...)
	f.Unharmed(t)
}

func TestEphemeral_PartitionHeals(t *testing.T) {
	long(t)
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	f := StartFleet(t, c.Nodes)
	services := fleetServices(f, 60, 60, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(30, services, c.Nodes...)
	f.Watched(t, 30*len(services))

	network.Isolate(t, c.Nodes[0], c.Nodes...)
	// Both sides take registrations and deregistrations.
	both := []*Node{c.Nodes[0], c.Nodes[1]}
	for k, node := range both {
		f.Publish(fmt.Sprintf("cut-%d", k), 20, node)
	}
	f.Leave(services[0], 5)
	f.Holds(t, 60*time.Second) // nothing is asked of the lists: the sides differ
	network.Heal(t)
	f.Complete(t, 10*time.Second, c.Nodes...)
	f.Holds(t, 40*time.Second, c.Nodes...)
	f.Unharmed(t)
}

func TestEphemeral_WhatDiesWithItsNodeGoes(t *testing.T) {
	long(t)
	const grace = 5 * time.Second
	c := StartCluster(t, 3, WithArgs("--grace", grace.String()))
	f := StartFleet(t, c.Nodes)
	f.Publish("stays", 20, c.Nodes[0], c.Nodes[1])
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Publish("goes", 40, c.Nodes[0])
	f.Complete(t, 20*time.Second, c.Nodes...)
	c.Nodes[0].Kill(t)
	f.Die("goes", 40)
	began := time.Now()
	// Found dead, then gone over the last tenth of the grace.
	f.Complete(t, 60*time.Second, c.Nodes[1:]...)
	t.Logf("gone everywhere %v after the death of the node; the grace is %v", time.Since(began), grace)
	require.Greater(t, time.Since(began), grace*9/10)
	f.Unharmed(t)
}

func TestEphemeral_SilentClientGoesEverywhere(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	client := Connect(t, c.Nodes[0].GRPCAddr(), Silent())
	client.Register(t, s, Instance("10.0.0.1", 80)).OK(t)
	for _, node := range c.Nodes {
		eventually(t, soon, hostsAre(t, node, s, "10.0.0.1:80"))
	}
	began := time.Now()
	for _, node := range c.Nodes {
		eventually(t, secs(15), hostsAre(t, node, s))
	}
	t.Logf("gone everywhere after %v", time.Since(began))
}

func TestEphemeral_SubscribersOfAllNodesAreListed(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	for k, node := range c.Nodes {
		Connect(t, node.GRPCAddr(), WithClientIP(fmt.Sprintf("10.0.0.%d", k+1))).Subscribe(t, s, "")
	}
	listed := func(node *Node, more Params) (addresses []string) {
		var list struct {
			Count       int
			Subscribers []struct{ IP string }
		}
		node.Do(t, http.MethodGet, "/nacos/v1/ns/service/subscribers", s.Params().With(more)).JSON(t, &list)
		require.Len(t, list.Subscribers, list.Count)
		for _, x := range list.Subscribers {
			addresses = append(addresses, x.IP)
		}
		return addresses
	}
	for k, node := range c.Nodes {
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, listed(node, nil))
		require.Equal(t, []string{fmt.Sprintf("10.0.0.%d", k+1)}, listed(node, Params{"aggregation": "false"}))
	}
	c.Nodes[2].Kill(t) // who does not answer is left out
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, listed(c.Nodes[0], nil))
}
