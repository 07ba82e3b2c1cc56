package httpapi

import (
	"rollcall/naming"
	"rollcall/server/wire"
)

// registerV3 registers an instance, or takes the heartbeat of one. A heartbeat of an
// instance that is not registered is answered with a code and the status 200.
func (s *Server) registerV3(q *request) (answer, error) {
	svc, i, err := q.instanceV2(s.registry.Switches().DefaultInstanceEphemeral)
	if err != nil {
		return answer{}, err
	}
	beat, err := q.boolean("heartBeat", false)
	if err != nil {
		return answer{}, err
	}
	if !beat {
		return jsonBody(result(wire.CodeSuccess, []byte(okJSON))), s.registry.Register(q.Context(), svc, i.Key().Address(), i)
	}
	told, err := s.registry.Beat(q.Context(), svc, i.IP, i.Port, nil)
	if err != nil {
		return answer{}, err
	}
	if !told.Known {
		return jsonBody(result(wire.CodeInstanceUnknown, []byte("null"))), nil
	}
	return jsonBody(result(wire.CodeSuccess, []byte(okJSON))), nil
}

// listV3 returns hosts alone. A cluster that is not named is the default one, as the
// protocol has it.
func (s *Server) listV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	f := naming.Filter{Clusters: q.text("clusterName", naming.DefaultCluster)}
	if f.HealthyOnly, err = q.boolean("healthyOnly", false); err != nil {
		return nil, err
	}
	if err := naming.CheckClusters(f.Clusters); err != nil {
		return nil, err
	}
	return wire.AppendInstances(nil, s.registry.ServiceInfo(svc, f).Hosts, svc), nil
}

func (s *Server) detailV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	k, err := q.targetV2(formTyped)
	if err != nil {
		return nil, err
	}
	i, err := s.registry.Instance(svc, k)
	if err != nil {
		return nil, err
	}
	return wire.AppendInstance(nil, i, svc), nil
}

// partialV3 changes what is given and leaves the rest.
func (s *Server) partialV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	k, err := q.targetV2(formTyped)
	if err != nil {
		return nil, err
	}
	var c naming.Change
	if q.text("weight", "") != "" {
		w, err := q.number("weight", 1)
		if err != nil {
			return nil, err
		}
		c.Weight = &w
	}
	if q.text("enabled", "") != "" {
		enabled, err := q.boolean("enabled", true)
		if err != nil {
			return nil, err
		}
		c.Enabled = &enabled
	}
	if q.text("metadata", "") != "" {
		if c.Metadata, err = q.metadata(); err != nil {
			return nil, err
		}
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
	}
	return []byte(okJSON), s.patch(q, svc, k, c)
}

// instancesV3 returns the instances of one cluster as operators see them.
func (s *Server) instancesV3(q *request) (svc naming.ServiceKey, list []*naming.Instance, err error) {
	if svc, err = q.serviceV2(formString); err != nil {
		return svc, nil, err
	}
	cluster := q.text("clusterName", naming.DefaultCluster)
	if err = naming.CheckClusters(cluster); err != nil {
		return svc, nil, err
	}
	healthyOnly, err := q.boolean("healthyOnly", false)
	if err != nil {
		return svc, nil, err
	}
	in, err := s.listed(svc)
	if err != nil {
		return svc, nil, err
	}
	all, err := ofCluster(&in, cluster)
	if err != nil || !healthyOnly {
		return svc, all, err
	}
	for _, i := range all {
		if i.Healthy {
			list = append(list, i)
		}
	}
	return svc, list, nil
}

func (s *Server) adminListV3(q *request) ([]byte, error) {
	svc, list, err := s.instancesV3(q)
	if err != nil {
		return nil, err
	}
	return wire.AppendInstances(nil, list, svc), nil
}
