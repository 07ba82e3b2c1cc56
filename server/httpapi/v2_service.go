package httpapi

import (
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) createServiceV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	ephemeral, err := q.boolean("ephemeral", false)
	if err != nil {
		return nil, err
	}
	settings, err := q.settings(naming.KindOf(ephemeral))
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.CreateService(q.Context(), svc, settings)
}

func (s *Server) deleteServiceV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(lackingParameter)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.DeleteService(q.Context(), svc)
}

func (s *Server) updateServiceV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	settings, err := q.settings(naming.KindNone)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.UpdateService(q.Context(), svc, settings)
}

func (s *Server) serviceV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(lackingParameter)
	if err != nil {
		return nil, err
	}
	in, err := s.findService(svc)
	if err != nil {
		return nil, err
	}
	ephemeral := takesEphemeral(&in)
	b := wire.AppendString([]byte(`{"namespace":`), svc.Namespace)
	b = wire.AppendString(append(b, `,"serviceName":`...), svc.Name)
	b = wire.AppendString(append(b, `,"groupName":`...), svc.Group)
	b = append(b, `,"clusterMap":{`...)
	for n, name := range clusters(in) {
		if n > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(b, name)
		b = wire.AppendString(append(b, `:{"clusterName":`...), name)
		c := clusterSettings(&in, name)
		b = appendChecker(append(b, `,"healthChecker":`...), c.Checker)
		b = wire.AppendMetadata(append(b, `,"metadata":`...), c.Metadata)
		b = append(b, `,"hosts":null}`...)
	}
	b = appendSettings(append(b, '}'), in.Settings)
	return append(strconv.AppendBool(append(b, `,"ephemeral":`...), ephemeral), '}'), nil
}

// takesEphemeral tells the kind of a service as operators see it.
func takesEphemeral(in *naming.Service) bool {
	if len(in.Instances) > 0 {
		return in.Instances[0].Ephemeral
	}
	return in.Settings == nil || in.Settings.Kind != naming.KindPersistent
}

// maxPage is the largest page of v2.
const maxPage = 500

func (s *Server) serviceListV2(q *request) ([]byte, error) {
	namespace, group := q.text("namespaceId", naming.DefaultNamespace), q.text("groupName", naming.DefaultGroup)
	if err := checkGroup(namespace, group); err != nil {
		return nil, err
	}
	no, err := q.integer("pageNo", 1)
	if err != nil {
		return nil, err
	}
	size, err := q.integer("pageSize", 20)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, negativePage(size)
	}
	selector, err := listSelector(q.text("selector", ""))
	if err != nil {
		return nil, err
	}
	names, count, err := s.registry.ServicePage(namespace, group, selector, no, min(size, maxPage))
	if err != nil {
		return nil, err
	}
	b := strconv.AppendInt([]byte(`{"count":`), int64(count), 10)
	return append(wire.AppendStrings(append(b, `,"services":`...), names), '}'), nil
}
