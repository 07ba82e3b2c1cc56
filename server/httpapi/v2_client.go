package httpapi

import (
	"slices"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// clients returns the ids of all clients: those of the registry and the subscribers
// over UDP, which are known here.
func (s *Server) clients() []string {
	var ids []string
	seen := make(map[string]bool)
	for _, c := range s.registry.Clients() {
		ids = append(ids, c.ID)
		seen[c.ID] = true
	}
	for _, c := range s.udp.list() {
		if !seen[c.ID] {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// client returns the client that a request names.
func (s *Server) client(q *request) (naming.Client, error) {
	id := q.text("clientId", "")
	if id == "" {
		return naming.Client{}, lackingParameter("clientId")
	}
	c, known := s.registry.Client(id)
	for _, u := range s.udp.list() { // whoever publishes may subscribe too
		if u.ID == id && (!known || c.Updated.Before(u.Updated)) {
			c, known = u, true
		}
	}
	if !known {
		id = clipText(id)
		return c, &naming.InvalidError{Fault: naming.FaultResourceUnknown, Field: "clientId", Text: "clientId [ " + id + " ] not exist"}
	}
	return c, nil
}

func (s *Server) clientsV2(*request) ([]byte, error) {
	return wire.AppendStrings(nil, s.clients()), nil
}

// appendClient writes what the details of v2 and v3 share.
func appendClient(b []byte, c naming.Client) []byte {
	kind := "ipPort"
	if c.Connection {
		kind = "connection"
	}
	b = wire.AppendString(append(b, `{"clientId":`...), c.ID)
	b = strconv.AppendBool(append(b, `,"ephemeral":`...), c.Ephemeral)
	b = strconv.AppendInt(append(b, `,"lastUpdatedTime":`...), max(c.Updated.UnixMilli(), 0), 10)
	return wire.AppendString(append(b, `,"clientType":`...), kind)
}

// appendConnection writes what is known of a gRPC client.
func appendConnection(b []byte, c naming.Client) []byte {
	b = append(b, `,"connectType":"GRPC"`...)
	b = wire.AppendString(append(b, `,"appName":`...), c.App)
	b = wire.AppendString(append(b, `,"version":`...), c.Agent)
	return wire.AppendString(append(b, `,"clientIp":`...), c.IP)
}

func (s *Server) clientV2(q *request) ([]byte, error) {
	c, err := s.client(q)
	if err != nil {
		return nil, err
	}
	b := appendClient(nil, c)
	if c.Connection {
		b = appendConnection(b, c)
	} else {
		b = wire.AppendString(append(b, `,"clientIp":`...), c.IP)
	}
	return append(wire.AppendString(append(b, `,"clientPort":`...), strconv.Itoa(c.Port)), '}'), nil
}

func (s *Server) publishedV2(q *request) ([]byte, error) {
	c, err := s.client(q)
	if err != nil {
		return nil, err
	}
	b := []byte{'['}
	for n, p := range s.registry.PublishedBy(c.ID) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendServiceOfClient(b, p.Service)
		b = append(appendAddress(append(b, `,"registeredInstance":{`...), p.Instance), `}}`...)
	}
	return append(b, ']'), nil
}

func appendServiceOfClient(b []byte, k naming.ServiceKey) []byte {
	b = wire.AppendString(append(b, `{"namespace":`...), k.Namespace)
	b = wire.AppendString(append(b, `,"group":`...), k.Group)
	return wire.AppendString(append(b, `,"serviceName":`...), k.Name)
}

// appendAddress writes where an instance is, without braces.
func appendAddress(b []byte, i *naming.Instance) []byte {
	b = wire.AppendString(append(b, `"ip":`...), i.IP)
	b = strconv.AppendInt(append(b, `,"port":`...), int64(i.Port), 10)
	return wire.AppendString(append(b, `,"cluster":`...), i.Cluster)
}

// peerAddress is how operators see a subscriber: over gRPC its ip alone.
func peerAddress(p push.Peer) string {
	if p.Port == 0 {
		return p.IP
	}
	return naming.Address(p.IP, p.Port)
}

func (s *Server) subscribedV2(q *request) ([]byte, error) {
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
		b = appendServiceOfClient(b, k)
		b = wire.AppendString(append(b, `,"subscriberInfo":{"app":`...), peer.App)
		b = wire.AppendString(append(b, `,"agent":`...), peer.Agent)
		b = append(wire.AppendString(append(b, `,"addr":`...), peerAddress(peer)), `}}`...)
	}
	return append(b, ']'), nil
}

// ofService reads the service and the address that the lists of its clients are
// asked for. The address may be left out.
func (q *request) ofService(lacking func(string) error) (svc naming.ServiceKey, ip string, port int, err error) {
	if svc, err = q.serviceV2(lacking); err != nil {
		return svc, "", 0, err
	}
	if ip = q.text("ip", ""); ip != "" {
		if err = naming.CheckIP(ip); err != nil {
			return svc, "", 0, err
		}
	}
	if text := q.text("port", ""); text != "" {
		port, err = naming.ParsePort(text)
	}
	return svc, ip, port, err
}

// publishersV2 lists the clients that publish one address: without an address, none.
func (s *Server) publishersV2(q *request) ([]byte, error) {
	svc, ip, port, err := q.ofService(lackingParameter)
	if err != nil {
		return nil, err
	}
	ephemeral, err := q.boolean("ephemeral", true)
	if err != nil {
		return nil, err
	}
	b := []byte{'['}
	for _, p := range s.registry.Publishers(svc) {
		if p.Instance.IP != ip || p.Instance.Port != port || p.Instance.Ephemeral != ephemeral {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendAddress(append(b, '{'), p.Instance)
		b = append(wire.AppendString(append(b, `,"clientId":`...), p.Client), '}')
	}
	return append(b, ']'), nil
}

// subscribersOf returns the clients that subscribe to a service at an address, sorted
// by id; an empty ip and a port of 0 select all.
func (s *Server) subscribersOf(svc naming.ServiceKey, ip string, port int) []push.Subscription {
	all := slices.DeleteFunc(s.udp.engine.Subscribers(svc), func(p push.Subscription) bool {
		return ip != "" && p.IP != ip || port != 0 && p.Port != port
	})
	slices.SortFunc(all, func(a, b push.Subscription) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b push.Subscription) bool { return a.ID == b.ID })
}

func (s *Server) subscribersV2(q *request) ([]byte, error) {
	svc, ip, port, err := q.ofService(lackingParameter)
	if err != nil {
		return nil, err
	}
	if _, err := q.boolean("ephemeral", true); err != nil {
		return nil, err
	}
	b := []byte{'['}
	for n, p := range s.subscribersOf(svc, ip, port) {
		if n > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(append(b, `{"clientId":`...), p.ID)
		b = wire.AppendString(append(b, `,"ip":`...), p.IP)
		b = append(strconv.AppendInt(append(b, `,"port":`...), int64(p.Port), 10), '}')
	}
	return append(b, ']'), nil
}
