package httpapi

import (
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
	all := distinctSubscribers(s.udp.engine.Subscribers(svc))
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

// subscriber is one line of the list of subscribers.
type subscriber struct {
	push.Peer
	clusters string
}

// distinctSubscribers lists a client once: over gRPC by its address, over UDP by
// address and port.
func distinctSubscribers(peers []push.Peer, clusters []string) []subscriber {
	seen := make(map[string]bool, len(peers))
	var out []subscriber
	for n, p := range peers {
		if name := naming.Address(p.IP, p.Port); !seen[name] {
			seen[name] = true
			out = append(out, subscriber{p, clusters[n]})
		}
	}
	slices.SortFunc(out, func(a, b subscriber) int {
		return strings.Compare(naming.Address(a.IP, a.Port), naming.Address(b.IP, b.Port))
	})
	return out
}

func appendSubscriber(b []byte, p subscriber, svc naming.ServiceKey) []byte {
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
	b = wire.AppendString(append(b, `,"cluster":`...), p.clusters)
	return append(b, '}')
}
