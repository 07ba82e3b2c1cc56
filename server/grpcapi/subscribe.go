package grpcapi

import (
	"context"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) serviceQuery(_ context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.ServiceQueryRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	svc, filter := q.Key(), naming.Filter{Clusters: string(q.Cluster), HealthyOnly: q.HealthyOnly.Value}
	if isBlank(svc.Name) || isBlank(svc.Group) { // an unknown service, like any other without hosts
		return wire.QueryAnswer(s.registry.ServiceInfo(svc, naming.Filter{}))
	}
	if err := check(svc, filter); err != nil {
		return s.refuse(c, wire.TypeQueryAnswer, err, wire.WithServiceInfo(s.nothing(svc)))
	}
	return wire.QueryAnswer(s.registry.ServiceInfo(svc, filter))
}

func check(svc naming.ServiceKey, f naming.Filter) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	return naming.CheckClusters(f.Clusters)
}

// nothing is what a refused query or subscription shows of a service.
func (s *Server) nothing(svc naming.ServiceKey) *naming.ServiceInfo {
	unknown := s.registry.ServiceInfo(naming.ServiceKey{}, naming.Filter{})
	return &naming.ServiceInfo{Key: svc, CacheMs: unknown.CacheMs, LastRefTimeMs: unknown.LastRefTimeMs}
}

func (s *Server) subscribeService(_ context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.SubscribeServiceRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	svc, filter := q.Key(), naming.Filter{Clusters: string(q.Clusters)}
	none := func() []byte { return wire.WithServiceInfo(s.nothing(svc)) }
	for _, f := range [...]struct{ name, value string }{{"serviceName", svc.Name}, {"groupName", svc.Group}} {
		if isBlank(f.value) {
			return wire.Failed(wire.TypeError, "Param '"+f.name+"' is illegal, "+f.name+" is blank", none())
		}
	}
	if err := check(svc, filter); err != nil {
		return s.refuse(c, wire.TypeSubscribeAnswer, err, none())
	}
	subscriber, err := c.subscribed()
	if err != nil {
		return s.refuse(c, wire.TypeSubscribeAnswer, err, nil)
	}
	if q.Subscribe.Value {
		subscriber.Subscribe(svc, filter) // before the answer is read: no change falls between
	} else {
		subscriber.Unsubscribe(svc, filter)
	}
	return wire.SubscribeAnswer(s.registry.ServiceInfo(svc, filter))
}

func (s *Server) serviceList(_ context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.ServiceListRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	svc := q.Key()
	if q.PageSize < 0 {
		return wire.Failed(wire.TypeListAnswer, "Param 'pageSize' is illegal, the value should not be below 0.", wire.NoServices())
	}
	if isBlank(svc.Group) {
		return wire.ListAnswer(0, nil)
	}
	err := naming.CheckNamespace(svc.Namespace)
	if err == nil {
		err = naming.CheckGroup(svc.Group)
	}
	if err == nil && svc.Name != "" {
		err = naming.CheckService(svc.Name)
	}
	if err != nil {
		return s.refuse(c, wire.TypeListAnswer, err, wire.NoServices())
	}
	names, count, err := s.registry.ServicePage(svc.Namespace, svc.Group, q.Expression(), int64(q.PageNo), int64(q.PageSize))
	if err != nil {
		return wire.Failed(wire.TypeListAnswer, err.Error(), wire.NoServices())
	}
	return wire.ListAnswer(count, names)
}
