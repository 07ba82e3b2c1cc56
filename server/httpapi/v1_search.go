package httpapi

import (
	"slices"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// serviceNamesV1 lists grouped names by namespace (http.md 2.2). The first key is the
// one that tools know, an accident of the original's.
func (s *Server) serviceNamesV1(q *request) (answer, error) {
	namespace := q.text("namespaceId", "")
	if namespace != "" {
		if err := naming.CheckNamespace(namespace); err != nil {
			return answer{}, err
		}
	}
	keys := s.registry.Search(naming.Search{Namespace: namespace})
	expr := q.word("expr")
	keys = slices.DeleteFunc(keys, func(k naming.ServiceKey) bool { return !strings.Contains(k.Grouped(), expr) })
	b := []byte(`{"META-INF/services":{`)
	open := ""
	if namespace != "" {
		open = namespace
		b = append(wire.AppendString(b, namespace), ':', '[')
	}
	for n, k := range keys {
		switch {
		case k.Namespace != open:
			if open != "" {
				b = append(b, ']', ',')
			}
			b = append(wire.AppendString(b, k.Namespace), ':', '[')
			open = k.Namespace
		case n > 0:
			b = append(b, ',')
		}
		b = wire.AppendString(b, k.Grouped())
	}
	if open != "" {
		b = append(b, ']')
	}
	b = strconv.AppendInt(append(b, `},"count":`...), int64(len(keys)), 10)
	return jsonBody(append(b, '}')), nil
}

// selectorTypes are the types of selectors that a service may have.
const selectorTypes = `["label","none"]`

func (s *Server) selectorTypesV1(*request) (answer, error) {
	return jsonBody(restResult(200, "", []byte(selectorTypes))), nil
}

func (s *Server) selectorTypesV3(*request) ([]byte, error) { return []byte(selectorTypes), nil }
