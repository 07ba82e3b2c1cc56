package integration

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/naming"
)

// Rollcall's own client, over gRPC and over HTTP, tells the same stories as the
// official SDKs.

type sdkClient struct {
	*client.Client
	t *testing.T
}

func makerOf(mode client.Mode) sdkMaker {
	return func(t *testing.T, n *Node, namespace string) sdk {
		t.Helper()
		return sdkClient{dialClient(t, mode, namespace, n), t}
	}
}

// dialClient makes a client that is closed with the test.
func dialClient(t *testing.T, mode client.Mode, namespace string, nodes ...*Node) *client.Client {
	t.Helper()
	cfg := client.DefaultConfig()
	cfg.Servers, cfg.Mode = nil, mode
	for _, n := range nodes {
		cfg.Servers = append(cfg.Servers, n.Addr())
	}
	if namespace != "" {
		cfg.Namespace = namespace
	}
	cfg.HealthInterval, cfg.HealthTimeout = time.Second, time.Second
	cfg.Hold = 4 * time.Second // the machine may be busy, and all providers come back at once
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	c, err := client.New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func (c sdkClient) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), soon)
	c.t.Cleanup(cancel)
	return ctx
}

func (i sdkInstance) naming() (naming.ServiceKey, naming.Instance) {
	out := naming.NewInstance(i.ip, i.port)
	out.Cluster, out.Weight, out.Metadata, out.Ephemeral = i.cluster, i.weight, i.metadata, !i.persistent
	return naming.ServiceKey{Group: i.group, Name: i.service}, out
}

func (c sdkClient) register(i sdkInstance) error {
	svc, instance := i.naming()
	return c.Register(c.ctx(), svc, instance)
}

func (c sdkClient) deregister(i sdkInstance) error {
	svc, instance := i.naming()
	return c.Deregister(c.ctx(), svc, instance)
}

func (c sdkClient) list(service, group string, f naming.Filter) ([]Host, error) {
	svc := naming.ServiceKey{Group: group, Name: service}
	if _, err := c.Picker(c.ctx(), svc, ""); err != nil { // the stories expect a list that is kept
		return nil, err
	}
	s, err := c.Instances(c.ctx(), svc, f)
	return hostsOfClient(s), err
}

func (c sdkClient) all(service, group string, clusters ...string) ([]Host, error) {
	return c.list(service, group, naming.Filter{Clusters: strings.Join(clusters, ",")})
}

func (c sdkClient) healthy(service, group string, clusters ...string) ([]Host, error) {
	return c.list(service, group, naming.Filter{Clusters: strings.Join(clusters, ","), HealthyOnly: true})
}

func (c sdkClient) one(service, group string) (Host, error) {
	svc := naming.ServiceKey{Group: group, Name: service}
	i, err := c.Select(c.ctx(), svc, "")
	if err != nil {
		return Host{}, err
	}
	return hostsOfClient(client.Service{Key: svc, Instances: []*naming.Instance{i}})[0], nil
}

func (c sdkClient) subscribe(service, group string, clusters []string, fn func([]Host)) error {
	_, err := c.Subscribe(c.ctx(), naming.ServiceKey{Group: group, Name: service}, naming.Filter{Clusters: strings.Join(clusters, ",")},
		func(change client.Change) { fn(hostsOfClient(change.Service)) })
	return err
}

func (c sdkClient) services(group string, page, size int) (count int, names []string, err error) {
	names, count, err = c.Services(c.ctx(), group, page, size)
	return count, names, err
}

func hostsOfClient(s client.Service) []Host {
	hosts := make([]Host, 0, len(s.Instances))
	for _, i := range s.Instances {
		hosts = append(hosts, Host{
			InstanceID: i.InstanceID(s.Key), IP: i.IP, Port: i.Port, Weight: i.Weight, Healthy: i.Healthy, Enabled: i.Enabled,
			Ephemeral: i.Ephemeral, ClusterName: i.Cluster, ServiceName: s.Key.Grouped(), Metadata: i.Metadata,
		})
	}
	return hosts
}

// clientStories runs the SDKs' stories with a mode.
func clientStories(t *testing.T, mode client.Mode) {
	t.Helper()
	for name, story := range map[string]func(*testing.T, sdkMaker){
		"Life": sdkLife, "Subscription": sdkSubscription, "ClustersAndGroups": sdkClustersAndGroups, "Namespaces": sdkNamespaces,
		"Services": sdkServices, "Persistent": sdkPersistent, "Restart": sdkRestart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, makerOf(mode))
		})
	}
}

func TestClient_StoriesOverGRPC(t *testing.T) {
	t.Parallel()
	clientStories(t, client.ModeGRPC)
}

func TestClient_StoriesOverHTTP(t *testing.T) {
	t.Parallel()
	clientStories(t, client.ModeHTTP)
}

var errIncomplete = errors.New("incomplete")
