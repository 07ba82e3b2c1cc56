package grpcapi

import (
	"context"
	"errors"
	"fmt"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) instance(ctx context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.InstanceRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	svc := q.Key()
	if answer := blank(svc); answer != nil {
		return answer
	}
	switch q.Type {
	case wire.RegisterInstance:
		if q.Instance == nil {
			return wire.ErrorAnswer(400, 400, "Instance can not be null.")
		}
		if err := s.publish(c, svc, func() error { return s.registry.Register(ctx, svc, c.id, q.Instance.Naming(true)) }); err != nil {
			return s.refuseInstance(c, err)
		}
	case wire.DeregisterInstance:
		var k naming.InstanceKey
		if q.Instance != nil {
			k.IP, k.Port = string(q.Instance.IP), int(q.Instance.Port)
			if err := checkNamed(q.Instance); err != nil {
				return s.refuse(c, wire.TypeInstanceAnswer, err, nil)
			}
		}
		if _, err := c.subscribed(); err != nil {
			return s.refuse(c, wire.TypeInstanceAnswer, err, nil)
		}
		if err := s.registry.Deregister(ctx, svc, c.id, true, k); err != nil {
			return s.refuse(c, wire.TypeInstanceAnswer, err, nil)
		}
	default:
		return unsupported(q.Type)
	}
	return wire.InstanceAnswer(wire.TypeInstanceAnswer, string(q.Type))
}

// checkNamed checks what a deregistration says of the instance, as far as it does.
func checkNamed(i *wire.Instance) error {
	if i.IP != "" {
		if err := naming.CheckIP(string(i.IP)); err != nil {
			return err
		}
	}
	if err := naming.CheckPort(int(i.Port)); err != nil {
		return err
	}
	return naming.CheckClusters(string(i.ClusterName))
}

// publish runs a publication of the connection. Once one has succeeded the service
// stays on the list of what the connection has published, since that list is only
// what its end cleans.
func (s *Server) publish(c *conn, svc naming.ServiceKey, publish func() error) error {
	if err := c.track(svc); err != nil {
		return err
	}
	if err := publish(); err != nil {
		if _, ok := errors.AsType[*naming.InvalidError](err); ok {
			c.untrack(svc)
		}
		return err
	}
	return c.settled(svc)
}

// refuseInstance answers a refused registration: a weight in the handler's own
// type, like a parameter; the rules about the instance at connection level.
func (s *Server) refuseInstance(c *conn, err error) *wire.Payload {
	var invalid *naming.InvalidError
	if errors.As(err, &invalid) && invalid.Fault == naming.FaultWeight {
		return wire.Failed(wire.TypeInstanceAnswer, invalid.Text, nil)
	}
	return s.refuse(c, wire.TypeInstanceAnswer, err, nil)
}

func unsupported(typ wire.Str) *wire.Payload {
	if typ == "" {
		return wire.ErrorAnswer(400, 400, "Unsupported request type: Param 'type' is required.")
	}
	return wire.ErrorAnswer(400, 400, "Unsupported request type "+string(typ))
}

func (s *Server) batchInstance(ctx context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.BatchInstanceRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	svc := q.Key()
	if answer := blank(svc); answer != nil {
		return answer
	}
	if q.Type != wire.BatchRegisterInstance {
		return unsupported(q.Type)
	}
	if q.Instances == nil {
		return wire.ErrorAnswer(500, 400, "Param 'instances' is required: a list, which may be empty.")
	}
	instances := make([]*naming.Instance, 0, len(*q.Instances))
	for n, i := range *q.Instances {
		if i == nil {
			return wire.Failed(wire.TypeBatchAnswer, fmt.Sprintf("Param check invalid:instances[%d] is null.", n), nil)
		}
		instances = append(instances, i.Naming(true))
	}
	err := s.publish(c, svc, func() error { return s.registry.RegisterBatch(ctx, svc, c.id, instances) })
	if err != nil {
		return s.refuseOwn(c, wire.TypeBatchAnswer, err)
	}
	return wire.InstanceAnswer(wire.TypeBatchAnswer, string(q.Type))
}

// refuseOwn answers every refused value in the handler's own type.
func (s *Server) refuseOwn(c *conn, typ string, err error) *wire.Payload {
	var invalid *naming.InvalidError
	if errors.As(err, &invalid) && invalid.Fault != naming.FaultKind && invalid.Fault != naming.FaultParam {
		return wire.Failed(typ, invalid.Text, nil)
	}
	return s.refuse(c, typ, err, nil)
}

func (s *Server) persistentInstance(ctx context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.InstanceRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	svc := q.Key()
	if answer := blank(svc); answer != nil {
		return answer
	}
	if q.Type != wire.RegisterInstance && q.Type != wire.DeregisterInstance {
		return unsupported(q.Type)
	}
	if q.Instance == nil {
		return wire.ErrorAnswer(500, 400, "Param 'instance' is required.")
	}
	i := q.Instance.Naming(false)
	publisher := i.Key().Address()
	var err error
	if q.Type == wire.RegisterInstance {
		err = s.registry.Register(ctx, svc, publisher, i)
	} else if err = checkNamed(q.Instance); err == nil {
		err = s.registry.Deregister(ctx, svc, publisher, false, naming.InstanceKey{IP: i.IP, Port: i.Port})
	}
	if err != nil {
		return s.refuseOwn(c, wire.TypeInstanceAnswer, err)
	}
	return wire.InstanceAnswer(wire.TypeInstanceAnswer, string(q.Type))
}
