package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// routesPrometheus are service discovery for Prometheus and the actuator of the
// original (http.md 4.6 and 4.7).
func (s *Server) routesPrometheus(t table) {
	find := s.v1(s.targets, "Targets for Prometheus (http_sd)", "")
	t.handle("/nacos/prometheus", methods{"GET": find})
	t.handle("/nacos/prometheus/namespaceId/{namespaceId}", methods{"GET": find})
	t.handle("/nacos/prometheus/namespaceId/{namespaceId}/service/{serviceName}", methods{"GET": find})
	t.handle("/nacos/actuator/health", methods{"GET": s.v1(s.actuatorHealth, "Health", "")})
	t.handle("/nacos/actuator/metrics", methods{"GET": s.v1(s.actuatorMetrics, "Names of the metrics", "")})
}

// actuatorType is the content type of the actuator.
const actuatorType = "application/vnd.spring-boot.actuator.v3+json"

func (s *Server) actuatorHealth(*request) (answer, error) {
	if s.notReady() != "" {
		return answer{http.StatusServiceUnavailable, actuatorType, []byte(`{"status":"DOWN"}`)}, nil
	}
	return answer{http.StatusOK, actuatorType, []byte(`{"status":"UP"}`)}, nil
}

func (s *Server) actuatorMetrics(*request) (answer, error) {
	names, err := s.cfg.MetricNames()
	return answer{http.StatusOK, actuatorType, append(wire.AppendStrings([]byte(`{"names":`), names), '}')}, err
}

// targets lists every instance, unhealthy and disabled ones too: whoever scrapes wants
// to see that they do not answer.
func (s *Server) targets(q *request) (answer, error) {
	search := naming.Search{Namespace: q.PathValue("namespaceId"), NotEmpty: true}
	if search.Namespace != "" {
		if err := naming.CheckNamespace(search.Namespace); err != nil {
			return answer{}, err
		}
	}
	name := q.PathValue("serviceName")
	b := []byte{'['}
	for _, k := range s.registry.Search(search) {
		if name != "" && k.Name != name {
			continue
		}
		in, _ := s.registry.Service(k)
		for _, i := range in.Effective() {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = appendTarget(b, i)
		}
	}
	return answer{http.StatusOK, jsonType + ";charset=UTF-8", append(b, ']')}, nil
}

func appendTarget(b []byte, i *naming.Instance) []byte {
	b = wire.AppendString(append(b, `{"targets":[`...), i.Key().Address())
	b = wire.AppendString(append(b, `],"labels":{"__meta_clusterName":`...), i.Cluster)
	taken := map[string]bool{"__meta_clusterName": true}
	for _, key := range slices.Sorted(maps.Keys(i.Metadata)) {
		name := labelName(key)
		if taken[name] { // of two keys that become one label, the first counts
			continue
		}
		taken[name] = true
		b = wire.AppendString(append(wire.AppendString(append(b, ','), name), ':'), i.Metadata[key])
	}
	return append(b, `}}`...)
}

// labelName makes a label of a metadata key: Prometheus refuses a whole list for one
// name that it cannot read (Prometheus, data model: metric names and labels).
func labelName(key string) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}
