//go:build !race

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/clients"
	"github.com/nacos-group/nacos-sdk-go/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/common/constant"
	"github.com/nacos-group/nacos-sdk-go/model"
	"github.com/nacos-group/nacos-sdk-go/vo"
	"github.com/stretchr/testify/require"
)

// The official Go SDK of 1.x: HTTP, beats and UDP push. Its client has no close:
// what it registered is deregistered when the test ends, and it goes on polling
// until the process ends. It names a local address of the machine as the target of
// pushes, which needs no route to the outside.

// sdkV1 makes the SDK's client speak the stories' language.
type sdkV1 struct {
	naming_client.INamingClient
	t *testing.T
}

func newSDKV1(t *testing.T, n *Node, namespace string) sdk {
	t.Helper()
	dir := scratchDir(t)
	c, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: &constant.ClientConfig{
			NamespaceId: namespace, TimeoutMs: 5000, NotLoadCacheAtStart: true, UpdateCacheWhenEmpty: true,
			LogDir: dir, CacheDir: dir, LogLevel: "warn",
		},
		ServerConfigs: []constant.ServerConfig{{IpAddr: "127.0.0.1", Port: uint64(n.HTTPPort()), ContextPath: "/nacos"}},
	})
	require.NoError(t, err)
	return sdkV1{c, t}
}

func (c sdkV1) register(i sdkInstance) error {
	c.t.Cleanup(func() { _ = c.deregister(i) }) // ends the beats
	return done(c.RegisterInstance(vo.RegisterInstanceParam{
		ServiceName: i.service, GroupName: i.group, ClusterName: i.cluster, Ip: i.ip, Port: uint64(i.port),
		Weight: i.weight, Enable: true, Healthy: true, Ephemeral: !i.persistent, Metadata: i.metadata,
	}))
}

func (c sdkV1) deregister(i sdkInstance) error {
	return done(c.DeregisterInstance(vo.DeregisterInstanceParam{
		ServiceName: i.service, GroupName: i.group, Cluster: i.cluster, Ip: i.ip, Port: uint64(i.port), Ephemeral: !i.persistent,
	}))
}

func (c sdkV1) all(service, group string, clusters ...string) ([]Host, error) {
	hosts, err := c.SelectAllInstances(vo.SelectAllInstancesParam{ServiceName: service, GroupName: group, Clusters: clusters})
	return hostsV1(hosts), err
}

func (c sdkV1) healthy(service, group string, clusters ...string) ([]Host, error) {
	hosts, err := c.SelectInstances(vo.SelectInstancesParam{ServiceName: service, GroupName: group, Clusters: clusters, HealthyOnly: true})
	return hostsV1(hosts), err
}

func (c sdkV1) one(service, group string) (Host, error) {
	h, err := c.SelectOneHealthyInstance(vo.SelectOneHealthInstanceParam{ServiceName: service, GroupName: group})
	if err != nil {
		return Host{}, err
	}
	return hostsV1([]model.Instance{*h})[0], nil
}

func (c sdkV1) subscribe(service, group string, clusters []string, fn func([]Host)) error {
	return c.Subscribe(&vo.SubscribeParam{
		ServiceName: service, GroupName: group, Clusters: clusters,
		// An empty list comes with an error that says so.
		SubscribeCallback: func(hosts []model.SubscribeService, _ error) { fn(subscribedV1(hosts)) },
	})
}

func (c sdkV1) services(group string, page, size int) (int, []string, error) {
	list, err := c.GetAllServicesInfo(vo.GetAllServiceInfoParam{GroupName: group, PageNo: uint32(page), PageSize: uint32(size)})
	return int(list.Count), list.Doms, err
}

func hostsV1(from []model.Instance) []Host {
	hosts := make([]Host, 0, len(from))
	for _, i := range from {
		hosts = append(hosts, Host{
			InstanceID: i.InstanceId, IP: i.Ip, Port: int(i.Port), Weight: i.Weight, Healthy: i.Healthy, Enabled: i.Enable,
			Ephemeral: i.Ephemeral, ClusterName: i.ClusterName, ServiceName: i.ServiceName, Metadata: i.Metadata,
		})
	}
	return hosts
}

func subscribedV1(from []model.SubscribeService) []Host {
	hosts := make([]Host, 0, len(from))
	for _, i := range from {
		hosts = append(hosts, Host{
			InstanceID: i.InstanceId, IP: i.Ip, Port: int(i.Port), Weight: i.Weight, Healthy: i.Valid, Enabled: i.Enable,
			ClusterName: i.ClusterName, ServiceName: i.ServiceName, Metadata: i.Metadata,
		})
	}
	return hosts
}

func TestSDKv1_Life(t *testing.T) {
	t.Parallel()
	sdkLife(t, newSDKV1)
}

func TestSDKv1_Subscription(t *testing.T) {
	t.Parallel()
	sdkSubscription(t, newSDKV1)
}

func TestSDKv1_ClustersAndGroups(t *testing.T) {
	t.Parallel()
	sdkClustersAndGroups(t, newSDKV1)
}

func TestSDKv1_Namespaces(t *testing.T) {
	t.Parallel()
	sdkNamespaces(t, newSDKV1)
}

func TestSDKv1_Services(t *testing.T) {
	t.Parallel()
	sdkServices(t, newSDKV1)
}

func TestSDKv1_Persistent(t *testing.T) {
	t.Parallel()
	sdkPersistent(t, newSDKV1)
}

func TestSDKv1_Restart(t *testing.T) {
	t.Parallel()
	sdkRestart(t, newSDKV1)
}

func TestSDKv1_BeatsKeepAlive(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	w := requireSubscribed(t, newSDKV1(t, n, ""), s)
	c := newSDKV1(t, n, "")
	one := sdkInstance{service: s.Name, ip: "10.0.0.1", port: 1, weight: 1, metadata: map[string]string{
		"preserved.heart.beat.interval": "1000", "preserved.heart.beat.timeout": "4000", "preserved.ip.delete.timeout": "6000",
	}}
	require.NoError(t, c.register(one))
	w.await(t, soon, has("10.0.0.1:1"))
	_, before := w.last()
	always(t, secs(10), func() error {
		info := list(t, n, s.Params())
		if len(info.Hosts) != 1 || !info.Hosts[0].Healthy {
			return fmt.Errorf("hosts %+v", info.Hosts)
		}
		return nil
	})
	_, after := w.last()
	require.Equal(t, before, after, "beats change nothing")
	require.NoError(t, c.deregister(one))
	w.await(t, soon, has())
	always(t, secs(3), hostsAre(t, n, s)) // a beat on its way may not bring it back
}

// The SDK polls every 10 s; several changes in far less can only come by UDP.
func TestSDKv1_PushesArriveBeforePolls(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	w := requireSubscribed(t, newSDKV1(t, n, ""), s)
	began := time.Now()
	var want []string
	for port := 1; port <= 6; port++ {
		register(t, n, s.at("10.0.0.1", port))
		want = append(want, fmt.Sprintf("10.0.0.1:%d", port))
		w.await(t, soon, has(want...))
	}
	require.Less(t, time.Since(began), secs(9))
	_, count := w.last()
	require.GreaterOrEqual(t, count, 6)

	// More than the 4024 bytes that this SDK reads, when not compressed.
	for port := 7; port <= 40; port++ {
		register(t, n, s.at("10.0.0.1", port))
		want = append(want, fmt.Sprintf("10.0.0.1:%d", port))
	}
	w.await(t, soon, has(want...))
}

func TestSDKv1_UnhealthyAndBack(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := newSDKV1(t, n, "")
	w := requireSubscribed(t, c, s)
	register(t, n, s.at("10.0.0.1", 1).With(Params{"metadata": beatTimes(t, secs(1), secs(1), time.Hour)}))
	w.await(t, soon, has("10.0.0.1:1"))
	health := func(want bool) func(ServiceInfo) bool {
		return func(i ServiceInfo) bool { return len(i.Hosts) == 1 && i.Hosts[0].Healthy == want }
	}
	sees(t, c, s, health(false))
	require.Equal(t, 10200, beat(t, n, s.at("10.0.0.1", 1)).Code)
	sees(t, c, s, health(true))
	_, count := w.last()
	require.GreaterOrEqual(t, count, 3, "every change was told")
}
