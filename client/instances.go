package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"rollcall/naming"
	"rollcall/server/wire"
)

// Register makes an instance known, or changes one that this client has registered at
// the same cluster, ip and port. An empty cluster is DEFAULT; start from
// [naming.NewInstance].
//
// An ephemeral instance lives as long as the client: it is registered again after every
// disconnect, until Deregister or Close. Several instances of one service are sent as
// one batch. Register blocks until a server has taken it. When ctx ends before, the
// error is that of ctx and the wish stays: it is carried out as soon as there is a
// server, unless Deregister takes it back. When the server refuses it, the error is a
// [*ServerError], and what was registered before stays.
//
// A persistent instance (Ephemeral false) is registered once and lives until it is
// deregistered, whoever does it; it is never repeated, and needs a server now.
func (c *Client) Register(ctx context.Context, svc naming.ServiceKey, i naming.Instance) error {
	key, err := c.checked(svc, &i)
	if err != nil {
		return fmt.Errorf("register in %s: %w", svc.Grouped(), err)
	}
	if !i.Ephemeral {
		err = c.persistent(ctx, wire.RegisterInstance, key, i)
	} else {
		err = c.keep.change(ctx, key, func(list []naming.Instance) []naming.Instance { return put(list, i) })
	}
	if err != nil {
		return fmt.Errorf("register %s in %s: %w", i.Key().Address(), key.Grouped(), err)
	}
	return nil
}

// RegisterBatch makes these instances all that the client has in a service; none
// deregisters. All must be ephemeral. It blocks and fails like Register.
func (c *Client) RegisterBatch(ctx context.Context, svc naming.ServiceKey, instances []naming.Instance) error {
	key, err := c.key(svc)
	var list []naming.Instance
	for n, i := range instances {
		if err == nil {
			_, err = c.checked(svc, &i)
		}
		if err == nil && !i.Ephemeral {
			err = errors.New("field Ephemeral is false: persistent instances are registered one by one")
		}
		if err != nil {
			err = fmt.Errorf("instances[%d]: %w", n, err)
			break
		}
		list = put(list, i)
	}
	if err == nil {
		err = c.keep.change(ctx, key, func([]naming.Instance) []naming.Instance { return list })
	}
	if err != nil {
		return fmt.Errorf("register %d instances in %s: %w", len(instances), svc.Grouped(), err)
	}
	return nil
}

// Deregister withdraws the instance that the client has registered at the same cluster,
// ip and port; if there is none it does nothing. It blocks until a server has taken it.
// When ctx ends before, the error is that of ctx, and the deregistration is carried out
// as soon as there is a server.
func (c *Client) Deregister(ctx context.Context, svc naming.ServiceKey, i naming.Instance) error {
	key, err := c.checked(svc, &i)
	if err != nil {
		return fmt.Errorf("deregister from %s: %w", svc.Grouped(), err)
	}
	if !i.Ephemeral {
		err = c.persistent(ctx, wire.DeregisterInstance, key, i)
	} else {
		err = c.keep.change(ctx, key, func(list []naming.Instance) []naming.Instance {
			return slices.DeleteFunc(list, func(o naming.Instance) bool { return o.Key() == i.Key() })
		})
	}
	if err != nil {
		return fmt.Errorf("deregister %s from %s: %w", i.Key().Address(), key.Grouped(), err)
	}
	return nil
}

// Instances returns a service's instances. If the client is subscribed to the service,
// or failover files are in force for it, it answers from memory and does not block; else
// it asks a server, once, and blocks for the answer. While no server is reached the disk
// cache as it was at the start has to do. An unknown service has no instances and is no error. Errors are
// [ErrNotConnected], a [*ServerError], the end of ctx, [ErrClosed], or a wrong name.
func (c *Client) Instances(ctx context.Context, svc naming.ServiceKey, f naming.Filter) (Service, error) {
	key, err := c.key(svc)
	if err == nil {
		err = naming.CheckClusters(f.Clusters)
	}
	if err != nil {
		return Service{}, fmt.Errorf("list %s: %w", svc.Grouped(), err)
	}
	if s, ok := c.remembered(key, false); ok {
		s.Instances = filter(f, s.Instances)
		return s, nil
	}
	var list *Service
	err = c.ask(ctx, func(ctx context.Context, s connection) (err error) {
		list, err = s.query(ctx, key, f)
		return err
	})
	if s, ok := c.remembered(key, errors.Is(err, ErrNotConnected)); ok {
		s.Instances = filter(f, s.Instances)
		return s, nil
	}
	if err != nil {
		return Service{}, fmt.Errorf("list %s: %w", key.Grouped(), err)
	}
	return *list, nil
}

// remembered returns a list without asking a server: of a subscription or from failover
// files; with loaded also what the disk cache had at the start.
func (c *Client) remembered(key naming.ServiceKey, loaded bool) (Service, bool) {
	if e := c.cache.find(key); e != nil {
		if now := e.shown.Load(); now != nil {
			return now.service, true
		}
	}
	s := c.cache.failed(key)
	if s == nil && loaded {
		s = c.cache.loaded(key)
	}
	if s == nil {
		return Service{}, false
	}
	return *s, true
}

// Services returns a page of the plain names of a group's services, in no particular
// order, and how many there are in all. An empty group is DEFAULT_GROUP; pages count
// from 1. It asks a server and blocks for the answer; errors are those of Instances.
func (c *Client) Services(ctx context.Context, group string, page, size int) (names []string, count int, err error) {
	if group == "" {
		group = naming.DefaultGroup
	}
	if err := naming.CheckGroup(group); err != nil {
		return nil, 0, fmt.Errorf("list services: %w", err)
	}
	if page < 1 || size < 1 {
		return nil, 0, fmt.Errorf("list services: page is %d and size is %d: both must be above zero", page, size)
	}
	err = c.ask(ctx, func(ctx context.Context, s connection) (err error) {
		names, count, err = s.services(ctx, c.cfg.Namespace, group, page, size)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list services of %s: %w", group, err)
	}
	return names, count, nil
}

// checked completes an instance and checks it with its service.
func (c *Client) checked(svc naming.ServiceKey, i *naming.Instance) (naming.ServiceKey, error) {
	key, err := c.key(svc)
	if err != nil {
		return key, err
	}
	if i.Cluster == "" {
		i.Cluster = naming.DefaultCluster
	}
	return key, naming.CheckInstance(i, metadataLimit)
}

// metadataLimit is left to the server, which may allow more than the default.
const metadataLimit = 1 << 20

// put replaces the instance with the same key, or adds it.
func put(list []naming.Instance, i naming.Instance) []naming.Instance {
	if n := slices.IndexFunc(list, func(o naming.Instance) bool { return o.Key() == i.Key() }); n >= 0 {
		list[n] = i
		return list
	}
	return append(list, i)
}

// ask makes one call over the session, and once more over the next one if that breaks
// meanwhile.
func (c *Client) ask(ctx context.Context, call func(context.Context, connection) error) error {
	if c.closing.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	s := c.connect.current()
	if s == nil {
		return ErrNotConnected
	}
	err := call(ctx, s)
	if err == nil || answered(err) && !unknownConnection(err) {
		return err
	}
	s.doubtful(err)
	select {
	case <-s.state().done():
	case <-ctx.Done():
		return err
	}
	if s = c.connect.next(ctx, s); s == nil {
		return err
	}
	return call(ctx, s)
}

// persistent makes one call about a persistent instance: over gRPC where the server
// offers that, else over HTTP (C17).
func (c *Client) persistent(ctx context.Context, operation string, svc naming.ServiceKey, i naming.Instance) error {
	return c.ask(ctx, func(ctx context.Context, s connection) error {
		err := s.persistent(ctx, operation, svc, i)
		if !errors.Is(err, ErrUnsupported) {
			return err
		}
		method := http.MethodPost
		if operation == wire.DeregisterInstance {
			method = http.MethodDelete
		}
		return c.plain(ctx, s.state().server, method, pathInstance, instanceQuery(svc, i), nil)
	})
}
