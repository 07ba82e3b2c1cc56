//go:build !race

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"github.com/stretchr/testify/require"
)

// The official Go SDK of 2.x: gRPC, and HTTP v1 for persistent instances.

// sdkV2 makes the SDK's client speak the stories' language.
type sdkV2 struct {
	naming_client.INamingClient
}

// newSDKV2 makes a client that is closed with the test, before its folders go.
func newSDKV2(t *testing.T, n *Node, namespace string) sdk {
	t.Helper()
	return sdkV2{dialSDKV2(t, n, namespace)}
}

func dialSDKV2(t *testing.T, n *Node, namespace string) naming_client.INamingClient {
	t.Helper()
	dir := scratchDir(t) // it goes on writing for a moment after it was closed
	c, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: &constant.ClientConfig{
			NamespaceId: namespace, TimeoutMs: 5000, NotLoadCacheAtStart: true, UpdateCacheWhenEmpty: true,
			LogDir: dir, CacheDir: dir, LogLevel: "warn",
		},
		ServerConfigs: []constant.ServerConfig{{IpAddr: "127.0.0.1", Port: uint64(n.HTTPPort()), ContextPath: "/nacos"}},
	})
	require.NoError(t, err)
	t.Cleanup(c.CloseClient)
	// When it has connected, the SDK repeats in the background what is registered by
	// then; a slow repetition may undo a registration that came after it.
	pause(t, secs(0.3))
	return c
}

// done turns the SDK's two ways to say no into one.
func done(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("the SDK answered false")
	}
	return err
}

func (c sdkV2) register(i sdkInstance) error {
	return done(c.RegisterInstance(vo.RegisterInstanceParam{
		ServiceName: i.service, GroupName: i.group, ClusterName: i.cluster, Ip: i.ip, Port: uint64(i.port),
		Weight: i.weight, Enable: true, Healthy: true, Ephemeral: !i.persistent, Metadata: i.metadata,
	}))
}

func (c sdkV2) deregister(i sdkInstance) error {
	return done(c.DeregisterInstance(vo.DeregisterInstanceParam{
		ServiceName: i.service, GroupName: i.group, Cluster: i.cluster, Ip: i.ip, Port: uint64(i.port), Ephemeral: !i.persistent,
	}))
}

func (c sdkV2) all(service, group string, clusters ...string) ([]Host, error) {
	hosts, err := c.SelectAllInstances(vo.SelectAllInstancesParam{ServiceName: service, GroupName: group, Clusters: clusters})
	return hostsV2(hosts), err
}

func (c sdkV2) healthy(service, group string, clusters ...string) ([]Host, error) {
	hosts, err := c.SelectInstances(vo.SelectInstancesParam{ServiceName: service, GroupName: group, Clusters: clusters, HealthyOnly: true})
	return hostsV2(hosts), err
}

func (c sdkV2) one(service, group string) (Host, error) {
	h, err := c.SelectOneHealthyInstance(vo.SelectOneHealthInstanceParam{ServiceName: service, GroupName: group})
	if err != nil {
		return Host{}, err
	}
	return hostsV2([]model.Instance{*h})[0], nil
}

func (c sdkV2) subscribe(service, group string, clusters []string, fn func([]Host)) error {
	return c.Subscribe(&vo.SubscribeParam{
		ServiceName: service, GroupName: group, Clusters: clusters,
		SubscribeCallback: func(hosts []model.Instance, err error) {
			if err == nil {
				fn(hostsV2(hosts))
			}
		},
	})
}

func (c sdkV2) services(group string, page, size int) (int, []string, error) {
	list, err := c.GetAllServicesInfo(vo.GetAllServiceInfoParam{GroupName: group, PageNo: uint32(page), PageSize: uint32(size)})
	return int(list.Count), list.Doms, err
}

func hostsV2(from []model.Instance) []Host {
	hosts := make([]Host, 0, len(from))
	for _, i := range from {
		hosts = append(hosts, Host{
			InstanceID: i.InstanceId, IP: i.Ip, Port: int(i.Port), Weight: i.Weight, Healthy: i.Healthy, Enabled: i.Enable,
			Ephemeral: i.Ephemeral, ClusterName: i.ClusterName, ServiceName: i.ServiceName, Metadata: i.Metadata,
		})
	}
	return hosts
}

func TestSDKv2_Life(t *testing.T) {
	t.Parallel()
	sdkLife(t, newSDKV2)
}

func TestSDKv2_Subscription(t *testing.T) {
	t.Parallel()
	sdkSubscription(t, newSDKV2)
}

func TestSDKv2_ClustersAndGroups(t *testing.T) {
	t.Parallel()
	sdkClustersAndGroups(t, newSDKV2)
}

func TestSDKv2_Namespaces(t *testing.T) {
	t.Parallel()
	sdkNamespaces(t, newSDKV2)
}

func TestSDKv2_Services(t *testing.T) {
	t.Parallel()
	sdkServices(t, newSDKV2)
}

func TestSDKv2_Persistent(t *testing.T) {
	t.Parallel()
	sdkPersistent(t, newSDKV2)
}

func TestSDKv2_Restart(t *testing.T) {
	t.Parallel()
	sdkRestart(t, newSDKV2)
}

func TestSDKv2_UpdateInstance(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := dialSDKV2(t, n, "")
	w := requireSubscribed(t, newSDKV2(t, n, ""), s)
	require.NoError(t, sdkV2{c}.register(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1}))
	w.await(t, soon, has("10.0.0.1:1"))
	require.NoError(t, done(c.UpdateInstance(vo.UpdateInstanceParam{
		ServiceName: s.Name, Ip: "10.0.0.1", Port: 1, Weight: 5, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{"v": "2"},
	})))
	w.await(t, soon, func(i ServiceInfo) bool {
		return len(i.Hosts) == 1 && i.Hosts[0].Weight == 5 && i.Hosts[0].Metadata["v"] == "2"
	})
	require.NoError(t, done(c.UpdateInstance(vo.UpdateInstanceParam{
		ServiceName: s.Name, Ip: "10.0.0.1", Port: 1, Weight: 5, Enable: false, Healthy: true, Ephemeral: true,
	})))
	w.await(t, soon, has())
	require.True(t, c.ServerHealthy())
}

func TestSDKv2_Batch(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := dialSDKV2(t, n, "")
	w := requireSubscribed(t, newSDKV2(t, n, ""), s)
	batch := func(ports ...uint64) {
		t.Helper()
		p := vo.BatchRegisterInstanceParam{ServiceName: s.Name}
		for _, port := range ports {
			p.Instances = append(p.Instances, vo.RegisterInstanceParam{
				Ip: "10.0.0.1", Port: port, Weight: float64(port), Enable: true, Healthy: true, Ephemeral: true,
				Metadata: map[string]string{"port": fmt.Sprint(port)},
			})
		}
		require.NoError(t, done(c.BatchRegisterInstance(p)))
	}
	batch(1, 2, 3)
	w.await(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"))
	info, _ := w.last()
	for _, h := range info.Hosts {
		require.Equal(t, map[string]string{"port": fmt.Sprint(h.Port)}, h.Metadata)
		require.InDelta(t, h.Port, h.Weight, 0)
	}
	batch(1, 3)
	w.await(t, soon, has("10.0.0.1:1", "10.0.0.1:3"))
	// This SDK's deregistration names one member (C067).
	require.NoError(t, sdkV2{c}.deregister(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1}))
	w.await(t, soon, has("10.0.0.1:3"))
}

func TestSDKv2_BatchAfterRestart(t *testing.T) {
	t.Parallel()
	n := StartNode(t)
	s := Service{Name: "svc-a"}
	c := dialSDKV2(t, n, "")
	w := requireSubscribed(t, newSDKV2(t, n, ""), s)
	p := vo.BatchRegisterInstanceParam{ServiceName: s.Name}
	var addrs []string
	for port := 1; port <= 20; port++ {
		p.Instances = append(p.Instances, vo.RegisterInstanceParam{Ip: "10.0.0.1", Port: uint64(port), Weight: 1, Enable: true, Healthy: true, Ephemeral: true})
		addrs = append(addrs, fmt.Sprintf("10.0.0.1:%d", port))
	}
	require.NoError(t, done(c.BatchRegisterInstance(p)))
	w.await(t, soon, has(addrs...))
	n.Kill(t)
	n.Restart(t)
	eventually(t, secs(60), hostsAre(t, n, s, addrs...))
	c.CloseClient()
	eventually(t, secs(10), hostsAre(t, n, s))
	w.await(t, secs(60), has())
}

func TestSDKv2_ClosedClientIsGone(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	w := requireSubscribed(t, newSDKV2(t, n, ""), s)
	c := dialSDKV2(t, n, "")
	require.NoError(t, sdkV2{c}.register(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1}))
	w.await(t, soon, has("10.0.0.1:1"))
	c.CloseClient()
	w.await(t, soon, has())
	requireHosts(t, n, s)
}

// A provider that is cut off is back before a subscriber can notice.
func TestSDKv2_ReconnectIsNoFlap(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	w := requireSubscribed(t, newSDKV2(t, n, ""), s)
	sub := subscriber(t, n, s, "")
	require.NoError(t, newSDKV2(t, n, "").register(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1}))
	w.await(t, soon, has("10.0.0.1:1"))
	for _, info := range sub.Collect(t, secs(8)) { // past a health check of the SDK
		require.Len(t, info.Hosts, 1)
	}
	_, count := w.last()
	require.LessOrEqual(t, count, 2, "registered once, told once")
}

// Names and values that the SDK passes on and the server refuses come back as an
// error, and change nothing.
func TestSDKv2_RefusedRegistration(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := newSDKV2(t, n, "")
	for _, bad := range []sdkInstance{
		{service: s.Name, ip: "10.0.0.999", port: 1, weight: 1},
		{service: s.Name, ip: "10.0.0.1", port: 70000, weight: 1},
		{service: s.Name, ip: "10.0.0.1", port: 1, weight: -1},
		{service: s.Name, cluster: "a_b", ip: "10.0.0.1", port: 1, weight: 1},
		{service: s.Name + " x", ip: "10.0.0.1", port: 1, weight: 1},
		{service: s.Name, group: "g 1", ip: "10.0.0.1", port: 1, weight: 1},
		{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1, metadata: map[string]string{"k": strings.Repeat("x", 1025)}},
	} {
		require.Error(t, c.register(bad), "%+v", bad)
		require.NoError(t, c.deregister(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1}))
	}
	requireHosts(t, n, s)
	require.NoError(t, c.register(sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1}), "the connection is still good")
	requireHosts(t, n, s, "10.0.0.1:1")
}
