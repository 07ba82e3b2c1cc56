package httpapi

import (
	"strconv"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

func (s *Server) deleteServiceV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.DeleteService(q.Context(), svc)
}

func (s *Server) serviceV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	in, err := s.findService(svc)
	if err != nil {
		return nil, err
	}
	return appendServiceV3(nil, &in), nil
}

// appendServiceV3 writes the settings of a service and of its clusters.
func appendServiceV3(b []byte, in *naming.Service) []byte {
	b = wire.AppendString(append(b, `{"namespaceId":`...), in.Key.Namespace)
	b = wire.AppendString(append(b, `,"serviceName":`...), in.Key.Name)
	b = wire.AppendString(append(b, `,"groupName":`...), in.Key.Group)
	b = append(b, `,"clusterMap":{`...)
	for n, name := range clusters(*in) {
		if n > 0 {
			b = append(b, ',')
		}
		c := clusterSettings(in, name)
		b = wire.AppendString(append(wire.AppendString(b, name), `:{"clusterName":`...), name)
		b = appendChecker(append(b, `,"healthChecker":`...), c.Checker)
		b = strconv.AppendInt(append(b, `,"healthyCheckPort":`...), int64(c.CheckPort), 10)
		b = strconv.AppendBool(append(b, `,"useInstancePortForCheck":`...), c.UseInstancePort)
		b = wire.AppendMetadata(append(b, `,"metadata":`...), c.Metadata)
		b = append(b, `,"hosts":null}`...)
	}
	b = appendSettings(append(b, '}'), in.Settings)
	return append(strconv.AppendBool(append(b, `,"ephemeral":`...), takesEphemeral(in)), '}')
}

// pageV3 reads pageNo and pageSize, which must be above 0.
func (q *request) pageV3(size int64) (int64, int64, error) {
	no, err := q.integer("pageNo", 1)
	if err != nil {
		return 0, 0, err
	}
	if size, err = q.integer("pageSize", size); err != nil {
		return 0, 0, err
	}
	for _, v := range [...]struct {
		name  string
		value int64
	}{{"pageNo", no}, {"pageSize", size}} {
		if v.value < 1 {
			return 0, 0, &naming.InvalidError{
				Fault: naming.FaultValue, Field: v.name,
				Text: "Required parameter '" + v.name + "' should be positive integer, current is " + strconv.FormatInt(v.value, 10),
			}
		}
	}
	return no, size, nil
}

// appendPage writes a page of v3 out of a list; one writes an element.
func appendPage[T any](b []byte, list []T, no, size int64, one func([]byte, T) []byte) []byte {
	pages := (int64(len(list)) + size - 1) / size
	if size > int64(len(list)) {
		pages = min(int64(len(list)), 1)
	}
	b = strconv.AppendInt(append(b, `{"totalCount":`...), int64(len(list)), 10)
	b = strconv.AppendInt(append(b, `,"pageNumber":`...), no, 10)
	b = strconv.AppendInt(append(b, `,"pagesAvailable":`...), pages, 10)
	b = append(b, `,"pageItems":[`...)
	for n, element := range paged(list, no, size) {
		if n > 0 {
			b = append(b, ',')
		}
		b = one(b, element)
	}
	return append(b, `]}`...)
}

// defaultPageV3 is the size of a page that states none.
const defaultPageV3 = 100

func (s *Server) serviceListV3(q *request) ([]byte, error) {
	search, err := q.search("ignoreEmptyService")
	if err != nil {
		return nil, err
	}
	withInstances, err := q.boolean("withInstances", false)
	if err != nil {
		return nil, err
	}
	no, size, err := q.pageV3(defaultPageV3)
	if err != nil {
		return nil, err
	}
	one := s.appendSummary
	if withInstances {
		one = s.appendServiceWithInstances
	}
	return appendPage(nil, s.registry.Search(search), no, size, one), nil
}

// appendServiceWithInstances writes a service with its instances; what the original
// leaves null there is null.
func (s *Server) appendServiceWithInstances(b []byte, k naming.ServiceKey) []byte {
	in, _ := s.registry.Service(k)
	b = wire.AppendString(append(b, `{"namespaceId":null,"serviceName":`...), k.Name)
	b = wire.AppendString(append(b, `,"groupName":`...), k.Group)
	b = append(b, `,"clusterMap":{`...)
	rest := in.Effective()
	for len(rest) > 0 {
		cluster, n := rest[0].Cluster, 1
		for n < len(rest) && rest[n].Cluster == cluster {
			n++
		}
		b = append(wire.AppendString(b, cluster), `:{"clusterName":null,"healthChecker":null,"healthyCheckPort":`...)
		c := clusterSettings(&in, cluster)
		b = strconv.AppendInt(b, int64(c.CheckPort), 10)
		b = strconv.AppendBool(append(b, `,"useInstancePortForCheck":`...), c.UseInstancePort)
		b = append(wire.AppendInstances(append(b, `,"metadata":null,"hosts":`...), rest[:n], k), '}')
		if rest = rest[n:]; len(rest) > 0 {
			b = append(b, ',')
		}
	}
	return append(appendOwn(append(b, '}'), in.Settings), `,"selector":null,"ephemeral":null}`...)
}

func (s *Server) subscribersV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	everywhere, err := q.boolean("aggregation", true)
	if err != nil {
		return nil, err
	}
	no, size, err := q.pageV3(defaultPageV3)
	if err != nil {
		return nil, err
	}
	return appendPage(nil, s.subscribers(q, svc, everywhere), no, size, func(b []byte, p push.Subscription) []byte {
		b = wire.AppendString(append(b, `{"namespaceId":`...), svc.Namespace)
		b = wire.AppendString(append(b, `,"groupName":`...), svc.Group)
		b = wire.AppendString(append(b, `,"serviceName":`...), svc.Name)
		b = wire.AppendString(append(b, `,"ip":`...), p.IP)
		b = strconv.AppendInt(append(b, `,"port":`...), int64(p.Port), 10)
		b = wire.AppendString(append(b, `,"agent":`...), p.Agent)
		b = wire.AppendString(append(b, `,"appName":`...), p.App)
		return append(wire.AppendString(append(b, `,"address":`...), naming.Address(p.IP, p.Port)), '}')
	}), nil
}
