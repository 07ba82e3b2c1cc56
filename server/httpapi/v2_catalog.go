package httpapi

import (
	"slices"
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

// catalogInstancesV2 answers in the form of v2, and errors in that of v1.
func (s *Server) catalogInstancesV2(q *request) (answer, error) {
	for _, name := range [...]string{"serviceName", "pageNo", "pageSize"} {
		if q.text(name, "") == "" {
			return answer{}, parameterMissing(name)
		}
	}
	svc, err := q.serviceV2(parameterMissing)
	if err != nil {
		return answer{}, err
	}
	no, size, err := q.page(1, 0)
	if err != nil {
		return answer{}, err
	}
	in, _ := s.registry.Service(svc)
	list := slices.Clone(in.Effective())
	for _, filter := range [...]struct {
		name string
		of   func(*naming.Instance) bool
	}{
		{"healthyOnly", func(i *naming.Instance) bool { return i.Healthy }},
		{"enabledOnly", func(i *naming.Instance) bool { return i.Enabled }},
	} {
		if q.text(filter.name, "") == "" {
			continue
		}
		want, err := q.boolean(filter.name, false)
		if err != nil {
			return answer{}, err
		}
		list = slices.DeleteFunc(list, func(i *naming.Instance) bool { return filter.of(i) != want })
	}
	b := []byte{'{'}
	if page := paged(list, no, size); len(page) > 0 {
		b = append(wire.AppendInstances(append(b, `"instances":`...), page, svc), ',')
	}
	b = append(strconv.AppendInt(append(b, `"count":`...), int64(len(list)), 10), '}')
	return jsonBody(result(wire.CodeSuccess, b)), nil
}
