package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Service names a service in requests. Empty fields take the defaults.
type Service struct {
	Namespace string
	Group     string
	Name      string
}

func (s Service) fields() Fields {
	if s.Namespace == "" {
		s.Namespace = "public"
	}
	if s.Group == "" {
		s.Group = "DEFAULT_GROUP"
	}
	return Fields{
		"headers": Fields{}, "namespace": s.Namespace, "groupName": s.Group, "serviceName": s.Name, "module": "naming",
	}
}

// Params are the service's parameters in HTTP requests.
func (s Service) Params() Params {
	p := Params{"serviceName": s.Name}
	if s.Namespace != "" {
		p["namespaceId"] = s.Namespace
	}
	if s.Group != "" {
		p["groupName"] = s.Group
	}
	return p
}

// Instance is an instance as the Java SDK sends it, with other fields on top.
func Instance(ip string, port any, more ...Fields) Fields {
	f := Fields{
		"ip": ip, "port": port, "weight": 1.0, "healthy": true, "enabled": true, "ephemeral": true,
		"clusterName": "DEFAULT", "metadata": Fields{},
	}
	for _, m := range more {
		f = f.With(m)
	}
	return f
}

// Register registers one instance.
func (c *Conn) Register(tb testing.TB, s Service, instance Fields) Reply {
	tb.Helper()
	return c.Call(tb, "InstanceRequest", s.fields().With(Fields{"type": "registerInstance", "instance": instance}))
}

// TryRegister is Register without a test.
func (c *Conn) TryRegister(s Service, instance Fields) (Reply, error) {
	return c.TryCall("InstanceRequest", s.fields().With(Fields{"type": "registerInstance", "instance": instance}))
}

// Deregister deregisters one instance.
func (c *Conn) Deregister(tb testing.TB, s Service, instance Fields) Reply {
	tb.Helper()
	return c.Call(tb, "InstanceRequest", s.fields().With(Fields{"type": "deregisterInstance", "instance": instance}))
}

// Batch registers a batch.
func (c *Conn) Batch(tb testing.TB, s Service, instances ...Fields) Reply {
	tb.Helper()
	list := append([]Fields{}, instances...)
	return c.Call(tb, "BatchInstanceRequest", s.fields().With(Fields{"type": "batchRegisterInstance", "instances": list}))
}

// RegisterPersistent registers a persistent instance.
func (c *Conn) RegisterPersistent(tb testing.TB, s Service, instance Fields) Reply {
	tb.Helper()
	return c.Call(tb, "PersistentInstanceRequest",
		s.fields().With(Fields{"type": "registerInstance", "instance": instance.With(Fields{"ephemeral": false})}))
}

// DeregisterPersistent deregisters a persistent instance.
func (c *Conn) DeregisterPersistent(tb testing.TB, s Service, instance Fields) Reply {
	tb.Helper()
	return c.Call(tb, "PersistentInstanceRequest",
		s.fields().With(Fields{"type": "deregisterInstance", "instance": instance.With(Fields{"ephemeral": false})}))
}

// List asks for the instances of the clusters (comma separated, "" for all).
func (c *Conn) List(tb testing.TB, s Service, clusters string, healthyOnly bool) ServiceInfo {
	tb.Helper()
	reply := c.Call(tb, "ServiceQueryRequest",
		s.fields().With(Fields{"cluster": clusters, "healthyOnly": healthyOnly, "udpPort": 0})).OK(tb)
	require.NotNil(tb, reply.ServiceInfo, reply.Body)
	return *reply.ServiceInfo
}

// Subscribe subscribes to the clusters (comma separated, "" for all) and returns
// the list of the answer.
func (c *Conn) Subscribe(tb testing.TB, s Service, clusters string) ServiceInfo {
	tb.Helper()
	return c.subscription(tb, s, clusters, true)
}

// Unsubscribe ends a subscription.
func (c *Conn) Unsubscribe(tb testing.TB, s Service, clusters string) ServiceInfo {
	tb.Helper()
	return c.subscription(tb, s, clusters, false)
}

func (c *Conn) subscription(tb testing.TB, s Service, clusters string, subscribe bool) ServiceInfo {
	tb.Helper()
	reply := c.Call(tb, "SubscribeServiceRequest",
		s.fields().With(Fields{"clusters": clusters, "subscribe": subscribe})).OK(tb)
	require.NotNil(tb, reply.ServiceInfo, reply.Body)
	return *reply.ServiceInfo
}

// Services asks for a page of service names.
func (c *Conn) Services(tb testing.TB, namespace, group string, page, size int) Reply {
	tb.Helper()
	return c.Call(tb, "ServiceListRequest",
		Service{Namespace: namespace, Group: group}.fields().With(Fields{"pageNo": page, "pageSize": size, "selector": ""}))
}
