package client

import (
	"context"
	"errors"
	"fmt"

	"rollcall/naming"
	"rollcall/server/wire"
)

// instanceJSON is an instance as it is sent (grpc.md 3.1).
type instanceJSON struct {
	InstanceID  string            `json:"instanceId,omitempty"`
	IP          string            `json:"ip"`
	Port        int               `json:"port"`
	Weight      float64           `json:"weight"`
	Healthy     bool              `json:"healthy"`
	Enabled     bool              `json:"enabled"`
	Ephemeral   bool              `json:"ephemeral"`
	ClusterName string            `json:"clusterName"`
	ServiceName string            `json:"serviceName,omitempty"`
	Metadata    map[string]string `json:"metadata"`
}

func toJSON(i naming.Instance) instanceJSON {
	j := instanceJSON{
		InstanceID: i.ID, IP: i.IP, Port: i.Port, Weight: i.Weight, Healthy: i.Healthy, Enabled: i.Enabled,
		Ephemeral: i.Ephemeral, ClusterName: i.Cluster, Metadata: i.Metadata,
	}
	if j.Metadata == nil {
		j.Metadata = map[string]string{}
	}
	return j
}

func (s *session) publish(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	if len(list) == 1 {
		return s.single(ctx, wire.TypeInstance, wire.RegisterInstance, svc, list[0])
	}
	return s.batch(ctx, svc, list)
}

// withdraw ends a batch by an empty one first: some servers take a deregistration for
// that of one member.
func (s *session) withdraw(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	var i naming.Instance
	if len(list) > 0 {
		i = list[0]
	}
	if len(list) != 1 {
		if err := s.batch(ctx, svc, nil); err != nil {
			return err
		}
	}
	return s.single(ctx, wire.TypeInstance, wire.DeregisterInstance, svc, i)
}

// single registers or deregisters one instance.
func (s *session) single(ctx context.Context, typ, operation string, svc naming.ServiceKey, i naming.Instance) error {
	_, err := s.call(ctx, typ, about(svc, request{"type": operation, "instance": toJSON(i)}))
	return err
}

func (s *session) batch(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	instances := make([]instanceJSON, len(list))
	for n, i := range list {
		instances[n] = toJSON(i)
	}
	_, err := s.call(ctx, wire.TypeBatchInstance, about(svc, request{"type": wire.BatchRegisterInstance, "instances": instances}))
	return err
}

// persistent registers or deregisters a persistent instance; ErrUnsupported means that
// the server takes it over HTTP only (C17).
func (s *session) persistent(ctx context.Context, operation string, svc naming.ServiceKey, i naming.Instance) error {
	if !s.abilities[abilityPersistent] {
		return ErrUnsupported
	}
	return s.single(ctx, wire.TypePersistentInstance, operation, svc, i)
}

func (s *session) follow(ctx context.Context, e *entry) error {
	mark := e.mark()
	list, err := s.subscription(ctx, e.key, true, e)
	if err != nil {
		return err
	}
	e.answer(list, s.number, mark)
	return nil
}

func (s *session) unfollow(ctx context.Context, svc naming.ServiceKey) error {
	_, err := s.subscription(ctx, svc, false, nil)
	return err
}

// subscription subscribes to all clusters: a server keeps one subscription for each
// connection and service, so clusters are chosen here (P8, C19).
func (s *session) subscription(ctx context.Context, svc naming.ServiceKey, on bool, e *entry) (*Service, error) {
	answer, err := s.call(ctx, wire.TypeSubscribeService, about(svc, request{"subscribe": on, "clusters": ""}))
	if err != nil {
		return nil, err
	}
	return listIn(answer, wire.TypeSubscribeService, svc, e)
}

// query asks for a service's list once.
func (s *session) query(ctx context.Context, svc naming.ServiceKey, f naming.Filter) (*Service, error) {
	answer, err := s.call(ctx, wire.TypeServiceQuery, about(svc, request{"cluster": f.Clusters, "healthyOnly": f.HealthyOnly, "udpPort": 0}))
	if err != nil {
		return nil, err
	}
	return listIn(answer, wire.TypeServiceQuery, svc, nil)
}

var errNoList = errors.New("the answer has no serviceInfo")

// listIn reads the list in an answer; e, if given, has the one before.
func listIn(answer []byte, typ string, svc naming.ServiceKey, e *entry) (*Service, error) {
	m, err := decodeMessage(answer, func(string, string) *Service {
		if e == nil {
			return nil
		}
		return e.cache.known(svc)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("decode the answer to %s: %w", typ, err)
	case m.service == nil:
		return nil, fmt.Errorf("%s: %w", typ, errNoList)
	}
	m.service.Key = svc
	return m.service, nil
}

// services returns a page of the names of a group.
func (s *session) services(ctx context.Context, namespace, group string, page, size int) (names []string, count int, err error) {
	answer, err := s.call(ctx, wire.TypeServiceList, request{
		"module": "naming", "namespace": namespace, "groupName": group, "serviceName": "", "pageNo": page, "pageSize": size, "selector": "",
	})
	if err != nil {
		return nil, 0, err
	}
	var list struct {
		Count wire.Int   `json:"count"`
		Names []wire.Str `json:"serviceNames"`
	}
	if err := wire.Unmarshal(answer, &list); err != nil {
		return nil, 0, fmt.Errorf("decode the answer to %s: %w", wire.TypeServiceList, err)
	}
	names = make([]string, len(list.Names))
	for n, name := range list.Names {
		names[n] = string(name)
	}
	return names, int(list.Count), nil
}
