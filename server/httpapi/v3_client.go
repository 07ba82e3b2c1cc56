package httpapi

import (
	"strconv"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

func (s *Server) clientV3(q *request) ([]byte, error) {
	c, err := s.client(q)
	if err != nil {
		return nil, err
	}
	b := appendClient(nil, c)
	if !c.Connection {
		return append(b, `,"connectType":null,"appName":null,"version":null,"clientIp":null,"clientPort":0}`...), nil
	}
	b = appendConnection(b, c)
	return append(strconv.AppendInt(append(b, `,"clientPort":`...), int64(c.Port), 10), '}'), nil
}

// appendOfClient writes one service of a client; publisher and subscriber write what
// the client is there, nil for null.
func appendOfClient(b []byte, k naming.ServiceKey, publisher, subscriber func([]byte) []byte) []byte {
	b = wire.AppendString(append(b, `{"namespaceId":`...), k.Namespace)
	b = wire.AppendString(append(b, `,"groupName":`...), k.Group)
	b = wire.AppendString(append(b, `,"serviceName":`...), k.Name)
	for _, part := range [...]struct {
		name  string
		write func([]byte) []byte
	}{{`,"publisherInfo":`, publisher}, {`,"subscriberInfo":`, subscriber}} {
		b = append(b, part.name...)
		if part.write == nil {
			b = append(b, "null"...)
		} else {
			b = part.write(b)
		}
	}
	return append(b, '}')
}

// appendPublisher writes a publisher; an empty id is null.
func appendPublisher(b []byte, id string, i *naming.Instance) []byte {
	b = appendNullable(append(b, `{"clientId":`...), id)
	b = wire.AppendString(append(b, `,"ip":`...), i.IP)
	b = strconv.AppendInt(append(b, `,"port":`...), int64(i.Port), 10)
	return append(wire.AppendString(append(b, `,"clusterName":`...), i.Cluster), '}')
}

func appendSubscriberV3(b []byte, id string, p push.Peer) []byte {
	b = appendNullable(append(b, `{"clientId":`...), id)
	b = wire.AppendString(append(b, `,"appName":`...), p.App)
	b = wire.AppendString(append(b, `,"agent":`...), p.Agent)
	return append(wire.AppendString(append(b, `,"address":`...), peerAddress(p)), '}')
}

// appendNullable writes a text; an empty one is null.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return wire.AppendString(b, s)
}

func (s *Server) publishedV3(q *request) ([]byte, error) {
	c, err := s.client(q)
	if err != nil {
		return nil, err
	}
	b := []byte{'['}
	for n, p := range s.registry.PublishedBy(c.ID) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendOfClient(b, p.Service, func(b []byte) []byte { return appendPublisher(b, "", p.Instance) }, nil)
	}
	return append(b, ']'), nil
}

func (s *Server) subscribedV3(q *request) ([]byte, error) {
	c, err := s.client(q)
	if err != nil {
		return nil, err
	}
	services, peer := s.udp.engine.SubscribedBy(c.ID)
	b := []byte{'['}
	for n, k := range services {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendOfClient(b, k, nil, func(b []byte) []byte { return appendSubscriberV3(b, "", peer) })
	}
	return append(b, ']'), nil
}

func (s *Server) publishersV3(q *request) ([]byte, error) {
	svc, ip, port, err := q.ofService(formString)
	if err != nil {
		return nil, err
	}
	b := []byte{'['}
	for _, p := range s.registry.Publishers(svc) {
		if ip != "" && p.Instance.IP != ip || port != 0 && p.Instance.Port != port {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendPublisher(b, p.Client, p.Instance)
	}
	return append(b, ']'), nil
}

func (s *Server) subscribersOfV3(q *request) ([]byte, error) {
	svc, ip, port, err := q.ofService(formString)
	if err != nil {
		return nil, err
	}
	b := []byte{'['}
	for n, p := range s.subscribersOf(svc, ip, port) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendSubscriberV3(b, p.ID, p.Peer)
	}
	return append(b, ']'), nil
}

// responsible reads the address of a client and names the node that owns what it
// publishes.
func (s *Server) responsible(q *request, lacking func(string) error) ([]byte, error) {
	for _, name := range [...]string{"ip", "port"} {
		if q.text(name, "") == "" {
			return nil, lacking(name)
		}
	}
	ip, port, err := q.address()
	if err != nil {
		return nil, err
	}
	return append(wire.AppendString([]byte(`{"responsibleServer":`), s.registry.Responsible(ip, port)), '}'), nil
}

func (s *Server) responsibleV1(q *request) (answer, error) {
	b, err := s.responsible(q, parameterMissing)
	return jsonBody(b), err
}

func (s *Server) responsibleV3(q *request) ([]byte, error) {
	return s.responsible(q, func(name string) error {
		return &naming.InvalidError{Fault: naming.FaultMissing, Field: name, Text: "Required request parameter '" + name + "' for method parameter type String is not present"}
	})
}
