package httpapi

import (
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// routesDNS are the paths of the 1.x protocol that DNS servers ask (http.md 2.7). They
// know the default group alone.
func (s *Server) routesDNS(t table) {
	t.handle("/nacos/v1/ns/api/allDomNames", methods{"GET": s.v1(s.domNames, "Names of services by namespace, for DNS servers", "responsibleOnly")})
	t.handle("/nacos/v1/ns/api/srvIPXT", methods{"GET": s.v1(s.domList, "What a DNS server sees of a service; subscribes to UDP pushes with udpPort", "dom! namespaceId clusters clientIP udpPort healthyOnly app")})
	t.handle("/nacos/v1/ns/api/hello", methods{"GET": s.v1(func(*request) (answer, error) { return okText(), nil }, "Is the server there", "")})
}

// oldDNS tells a DNS server that reads names as a list: the agent Nacos-DNS up to
// version 1.0.1.
func oldDNS(agent string) bool {
	version, ok := strings.CutPrefix(agent, "Nacos-DNS:v")
	return ok && !atLeast(version, "1.0.2")
}

func (s *Server) domNames(q *request) (answer, error) {
	keys := s.registry.Search(naming.Search{})
	if oldDNS(agent(q.Request)) {
		var names []string
		for _, k := range keys {
			if k.Namespace == naming.DefaultNamespace {
				names = append(names, k.Name)
			}
		}
		b := strconv.AppendInt([]byte(`{"count":`), int64(len(names)), 10)
		return jsonBody(append(wire.AppendStrings(append(b, `,"doms":`...), names), '}')), nil
	}
	b := strconv.AppendInt([]byte(`{"count":`), int64(len(keys)), 10)
	b = append(b, `,"doms":{`...)
	for n := 0; n < len(keys); {
		namespace := keys[n].Namespace
		var names []string
		for ; n < len(keys) && keys[n].Namespace == namespace; n++ {
			names = append(names, keys[n].Name)
		}
		b = wire.AppendStrings(append(wire.AppendString(b, namespace), ':'), names)
		if n < len(keys) {
			b = append(b, ',')
		}
	}
	return jsonBody(append(b, `}}`...)), nil
}

func (s *Server) domList(q *request) (answer, error) {
	name := q.text("dom", "")
	if name == "" {
		return answer{}, missing("dom")
	}
	svc := naming.ServiceKey{Namespace: q.text("namespaceId", naming.DefaultNamespace), Group: naming.DefaultGroup, Name: name}
	if group, plain, ok := naming.SplitGrouped(name); ok && group != "" && plain != "" {
		svc.Group, svc.Name = group, plain
	}
	port, err := q.integer("udpPort", 0)
	if err != nil {
		return answer{}, numberFormat("udpPort", q.text("udpPort", ""))
	}
	f := naming.Filter{Clusters: q.params["clusters"], HealthyOnly: strings.EqualFold(q.text("healthyOnly", ""), "true")}
	info, err := s.list(q, svc, f, q.text("clientIP", ""), port)
	if err != nil {
		return answer{}, err
	}
	return jsonBody(wire.ServiceInfoDom(info)), nil
}
