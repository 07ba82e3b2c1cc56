package httpapi

import (
	"net"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) healthServerV1(*request) (answer, error) {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	b := wire.AppendString([]byte(`{"msg":`), "Hello! I am Nacos-Naming and healthy! total services: "+strconv.Itoa(s.registry.Counts().Services)+", local port:"+port)
	return jsonBody(append(b, '}')), nil
}

func (s *Server) setHealthV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	k := naming.InstanceKey{Cluster: q.text("clusterName", naming.DefaultCluster)}
	if k.IP, k.Port, err = q.address(); err != nil {
		return answer{}, err
	}
	name := "healthy"
	if q.text(name, "") == "" && q.text("valid", "") != "" {
		name = "valid"
	}
	if q.text(name, "") == "" {
		return answer{}, &naming.InvalidError{Fault: naming.FaultHealthMissing, Field: name, Text: "Param 'healthy' is required."}
	}
	if err := naming.CheckClusters(k.Cluster); err != nil {
		return answer{}, err
	}
	healthy, err := q.strictFlag(name)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.SetHealth(q.Context(), svc, k, healthy)
}

// strictFlag reads a boolean of v1 that must be one: a misspelt one would set what
// nobody asked for.
func (p params) strictFlag(name string) (bool, error) {
	switch v := p.word(name); strings.ToLower(v) {
	case "true", "yes", "y", "on", "t", "1":
		return true, nil
	case "false", "no", "n", "off", "f", "0":
		return false, nil
	default:
		return false, badValue(name, v, "true or false")
	}
}

func (s *Server) setHealthV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	k, err := q.targetV2(formTyped)
	if err != nil {
		return nil, err
	}
	if q.text("healthy", "") == "" {
		return nil, &naming.InvalidError{Fault: naming.FaultHealthMissing, Field: "healthy", Text: "Required parameter 'healthy' type Boolean is not present"}
	}
	healthy, err := q.boolean("healthy", true)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.SetHealth(q.Context(), svc, k, healthy)
}

// formTyped is the text of v2 for a missing field of a form, by its name.
func formTyped(name string) error { return lackingForm(name, parameterType(name)) }

// targetV2 reads the instance that a request of v2 or v3 names.
func (q *request) targetV2(lacking func(string) error) (k naming.InstanceKey, err error) {
	k = naming.InstanceKey{Cluster: q.text("clusterName", naming.DefaultCluster), IP: q.text("ip", "")}
	if k.IP == "" {
		return k, lacking("ip")
	}
	port := q.text("port", "")
	if port == "" {
		return k, lacking("port")
	}
	if k.Port, err = naming.ParsePort(port); err != nil {
		return k, err
	}
	return k, checkTarget(k)
}
