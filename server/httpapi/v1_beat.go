package httpapi

import (
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// Codes of the answer to a heartbeat (http.md 6.2).
const (
	beatKnown   = 10200
	beatUnknown = 20404
)

func (s *Server) beatV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	return s.beat(q, svc)
}

// beat takes a heartbeat: with the JSON of the instance, or a light one with its
// address alone. The service is the parameter's; the one within the JSON is what
// some clients leave out or spell otherwise.
func (s *Server) beat(q *request, svc naming.ServiceKey) (answer, error) {
	var full *naming.Instance
	ip, port := q.text("ip", ""), 0
	var err error
	if text := q.text("port", ""); text != "" {
		if port, err = naming.ParsePort(text); err != nil {
			return answer{}, err
		}
	}
	if ip != "" {
		if err := naming.CheckIP(ip); err != nil {
			return answer{}, err
		}
	}
	if raw := q.text("beat", ""); raw != "" {
		if full, err = beatInstance(raw, q.text("clusterName", naming.DefaultCluster)); err != nil {
			return answer{}, err
		}
		ip, port = full.IP, full.Port
	}
	result, err := s.registry.Beat(q.Context(), svc, ip, port, full)
	if err != nil {
		return answer{}, err
	}
	code := beatUnknown
	if result.Known {
		code = beatKnown
	}
	b := strconv.AppendInt([]byte(`{"clientBeatInterval":`), result.Interval.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"code":`...), int64(code), 10)
	b = strconv.AppendBool(append(b, `,"lightBeatEnabled":`...), s.registry.Switches().LightBeatEnabled)
	return jsonBody(append(b, '}')), nil
}

// beatInstance reads the JSON of a heartbeat.
func beatInstance(raw, cluster string) (*naming.Instance, error) {
	bad := func(why string) error {
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "beat", Text: "Param 'beat' is illegal, it should be a JSON object with ip and port: " + why + "."}
	}
	if strings.TrimSpace(raw) == "null" {
		return nil, bad("it is null")
	}
	var info wire.Beat
	if err := wire.Unmarshal([]byte(raw), &info); err != nil {
		return nil, bad(err.Error())
	}
	switch {
	case info.IP == "":
		return nil, bad("ip is missing")
	case !info.Ephemeral.Or(true):
		return nil, bad("ephemeral is false, and persistent instances do not beat")
	}
	info.ClusterName = info.Cluster
	if info.ClusterName == "" {
		info.ClusterName = wire.Str(cluster)
	}
	i := info.Naming(true)
	i.ID, i.Healthy, i.Enabled = "", true, true
	return i, nil
}
