package httpapi

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

func (s *Server) subscribersV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	if err := naming.CheckKey(svc); err != nil {
		return answer{}, err
	}
	no, _ := q.integer("pageNo", 1)
	size, _ := q.integer("pageSize", 1000)
	all := s.subscribers(q, svc, !strings.EqualFold(cmp.Or(q.params["aggregation"], "true"), "false"))
	first, last := int64(len(all)), int64(len(all))
	if page := max(no, 1) - 1; size > 0 && page <= last/size {
		first = page * size
		last = first + min(size, last-first)
	}
	b := strconv.AppendInt([]byte(`{"count":`), int64(len(all)), 10)
	b = append(b, `,"subscribers":[`...)
	for n := first; n < last; n++ {
		if n > first {
			b = append(b, ',')
		}
		b = appendSubscriber(b, all[n], svc)
	}
	return jsonBody(append(b, `]}`...)), nil
}

// subscribers returns who is subscribed to a service, sorted by address, at this node
// alone or at all of them. A client is listed once: over gRPC by its address, over UDP
// by address and port.
func (s *Server) subscribers(q *request, svc naming.ServiceKey, everywhere bool) []push.Subscription {
	all := s.udp.engine.Subscribers(svc)
	if everywhere && s.cfg.SubscribersElsewhere != nil {
		all = append(all, s.cfg.SubscribersElsewhere(q.Context(), svc)...)
	}
	slices.SortFunc(all, func(a, b push.Subscription) int {
		return strings.Compare(naming.Address(a.IP, a.Port), naming.Address(b.IP, b.Port))
	})
	return slices.CompactFunc(all, func(a, b push.Subscription) bool { return a.IP == b.IP && a.Port == b.Port })
}

func appendSubscriber(b []byte, p push.Subscription, svc naming.ServiceKey) []byte {
	addr := p.IP
	if p.Port != 0 {
		addr = naming.Address(p.IP, p.Port)
	}
	b = wire.AppendString(append(b, `{"addrStr":`...), addr)
	b = wire.AppendString(append(b, `,"agent":`...), p.Agent)
	b = wire.AppendString(append(b, `,"app":`...), p.App)
	b = wire.AppendString(append(b, `,"ip":`...), p.IP)
	b = strconv.AppendInt(append(b, `,"port":`...), int64(p.Port), 10)
	b = wire.AppendString(append(b, `,"namespaceId":`...), svc.Namespace)
	b = wire.AppendString(append(b, `,"serviceName":`...), svc.Grouped())
	b = wire.AppendString(append(b, `,"cluster":`...), p.Clusters)
	return append(b, '}')
}
