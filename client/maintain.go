package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

// Settings are what an operator says about a service.
type Settings struct {
	// ProtectThreshold is the share of healthy instances, 0 to 1, at or below which
	// servers show all instances as healthy.
	ProtectThreshold float64
	// Metadata of the service; nil for none.
	Metadata map[string]string
	// Ephemeral is the kind of the service's instances. CreateService sets it where the
	// server lets it be chosen (2.x on); UpdateService does not change it.
	Ephemeral bool
}

// CreateService creates a service without instances. One that exists is refused with a
// [*ServerError]. Like the other operations on services it asks a server over HTTP and
// blocks for the answer; errors are also [ErrNotConnected], the end of ctx, or a wrong
// name.
func (c *Client) CreateService(ctx context.Context, svc naming.ServiceKey, s Settings) error {
	return c.maintain(ctx, "create", http.MethodPost, svc, &s, nil)
}

// UpdateService replaces a service's settings, its metadata as a whole.
func (c *Client) UpdateService(ctx context.Context, svc naming.ServiceKey, s Settings) error {
	return c.maintain(ctx, "update", http.MethodPut, svc, &s, nil)
}

// DeleteService deletes a service, which must have no instances.
func (c *Client) DeleteService(ctx context.Context, svc naming.ServiceKey) error {
	return c.maintain(ctx, "delete", http.MethodDelete, svc, nil, nil)
}

// ServiceSettings returns a service's settings.
func (c *Client) ServiceSettings(ctx context.Context, svc naming.ServiceKey) (Settings, error) {
	var detail struct {
		Threshold wire.Float    `json:"protectThreshold"`
		Metadata  wire.Metadata `json:"metadata"`
		Ephemeral wire.Bool     `json:"ephemeral"`
	}
	if err := c.maintain(ctx, "show", http.MethodGet, svc, nil, &detail); err != nil {
		return Settings{}, err
	}
	s := Settings{ProtectThreshold: detail.Threshold.Value, Ephemeral: detail.Ephemeral.Value}
	if len(detail.Metadata) > 0 {
		s.Metadata = detail.Metadata
	}
	return s, nil
}

func (c *Client) maintain(ctx context.Context, verb, method string, svc naming.ServiceKey, s *Settings, into any) error {
	key, err := c.key(svc)
	if err != nil {
		return fmt.Errorf("%s service %s: %w", verb, svc.Grouped(), err)
	}
	q := url.Values{"namespaceId": {key.Namespace}, "groupName": {key.Group}, "serviceName": {key.Name}}
	if s != nil {
		q.Set("protectThreshold", strconv.FormatFloat(s.ProtectThreshold, 'g', -1, 64))
		q.Set("ephemeral", strconv.FormatBool(s.Ephemeral))
		b, _ := json.Marshal(s.Metadata) // a map of strings always encodes
		if s.Metadata == nil {
			b = []byte("{}")
		}
		q.Set("metadata", string(b))
	}
	err = c.ask(ctx, func(ctx context.Context, s connection) error {
		to := s.state().server
		return firstOffered(
			func() error { return c.result(ctx, to, method, "/v2/ns/service", q, into) },
			func() error { return c.plain(ctx, to, method, "/v1/ns/service", q, into) },
			func() error { return c.result(ctx, to, method, "/v3/admin/ns/service", q, into) },
		)
	})
	if err != nil {
		return fmt.Errorf("%s service %s: %w", verb, key.Grouped(), err)
	}
	return nil
}

// ChangeInstance lays a change over an instance, as an operator does: it holds whatever
// the provider registers, until the instance has been gone for a while (semantics.md M2
// to M4). Metadata, if not nil, replaces what earlier changes laid over it. The instance
// must exist. Blocking and errors are those of the operations on services.
func (c *Client) ChangeInstance(ctx context.Context, svc naming.ServiceKey, i naming.InstanceKey, change naming.Change) error {
	key, err := c.key(svc)
	if err != nil {
		return fmt.Errorf("change %s in %s: %w", i.Address(), svc.Grouped(), err)
	}
	if i.Cluster == "" {
		i.Cluster = naming.DefaultCluster
	}
	q := serviceQuery(key)
	q.Set("ip", i.IP)
	q.Set("port", strconv.Itoa(i.Port))
	q.Set("clusterName", i.Cluster)
	if change.Weight != nil {
		q.Set("weight", strconv.FormatFloat(*change.Weight, 'g', -1, 64))
	}
	if change.Enabled != nil {
		q.Set("enabled", strconv.FormatBool(*change.Enabled))
	}
	if change.Metadata != nil {
		b, _ := json.Marshal(change.Metadata) // a map of strings always encodes
		q.Set("metadata", string(b))
	}
	err = c.ask(ctx, func(ctx context.Context, s connection) error {
		to := s.state().server
		return firstOffered(
			func() error { return c.plain(ctx, to, http.MethodPatch, pathInstance, q, nil) },
			func() error { return c.changeV3(ctx, to, key, q) },
		)
	})
	if err != nil {
		return fmt.Errorf("change %s in %s: %w", i.Address(), key.Grouped(), err)
	}
	return nil
}

// changeV3 is ChangeInstance for servers of 3.x that have their own paths alone. They
// take a value that is left out for the default, so it is asked for first.
func (c *Client) changeV3(ctx context.Context, to server, key naming.ServiceKey, change url.Values) error {
	const path = "/v3/admin/ns/instance"
	q := url.Values{
		"namespaceId": {key.Namespace}, "groupName": {key.Group}, "serviceName": {key.Name},
		"ip": change["ip"], "port": change["port"], "clusterName": change["clusterName"],
	}
	var now struct {
		Weight  wire.Float `json:"weight"`
		Enabled wire.Bool  `json:"enabled"`
	}
	if err := c.result(ctx, to, http.MethodGet, path, q, &now); err != nil {
		return err
	}
	q.Set("weight", strconv.FormatFloat(now.Weight.Or(1), 'g', -1, 64))
	q.Set("enabled", strconv.FormatBool(now.Enabled.Or(true)))
	for _, name := range []string{"weight", "enabled", "metadata"} {
		if v, ok := change[name]; ok {
			q[name] = v
		}
	}
	return c.result(ctx, to, http.MethodPut, path+"/partial", q, nil)
}

// firstOffered makes the first of several calls that the server has a path for.
func firstOffered(calls ...func() error) error {
	var errs []error
	for _, call := range calls {
		err := call()
		if !unoffered(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, ErrUnsupported)...)
}

// unoffered tells whether a server has no such path, or has it switched off.
func unoffered(err error) bool {
	var refusal *ServerError
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Status {
	case http.StatusNotFound:
		return refusal.Code == http.StatusNotFound // else it is about what was asked for
	case http.StatusGone, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// plain makes a call of the v1 API.
func (c *Client) plain(ctx context.Context, to server, method, path string, q url.Values, into any) error {
	return c.web.call(ctx, to, method, path, q, c.auth.token(), into)
}

// result makes a call of the v2 and v3 APIs, which wrap what they answer.
func (c *Client) result(ctx context.Context, to server, method, path string, q url.Values, into any) error {
	var wrapped struct {
		Code    wire.Int        `json:"code"`
		Message wire.Str        `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := c.web.call(ctx, to, method, path, q, c.auth.token(), &wrapped); err != nil {
		return err
	}
	if wrapped.Code != wire.CodeSuccess {
		return &ServerError{
			Server: to.String(), Request: method + " " + path, Code: int(wrapped.Code), Status: http.StatusOK, Message: string(wrapped.Message),
		}
	}
	if into == nil {
		return nil
	}
	if err := wire.Unmarshal(wrapped.Data, into); err != nil {
		return fmt.Errorf("decode the answer of %s to %s %s: %w", to, method, path, err)
	}
	return nil
}
