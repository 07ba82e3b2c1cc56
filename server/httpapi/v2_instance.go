package httpapi

import (
	"errors"

	"rollcall/naming"
	"rollcall/server/wire"
)

// lackingForm is the text of v2 for a missing field of a form.
func lackingForm(name, typ string) error {
	return &naming.InvalidError{Fault: naming.FaultMissing, Field: name, Text: "Required parameter '" + name + "' type " + typ + " is not present"}
}

// lackingParameter is the text of v2 for a missing single parameter.
func lackingParameter(name string) error {
	return &naming.InvalidError{Fault: naming.FaultMissing, Field: name, Text: "Required request parameter '" + name + "' for method parameter type " + parameterType(name) + " is not present"}
}

// parameterType is the type that the protocol's texts give a parameter.
func parameterType(name string) string {
	switch name {
	case "port":
		return "Integer"
	case "weight":
		return "Double"
	case "enabled":
		return "Boolean"
	}
	return "String"
}

// serviceV2 reads the service that a v2 request names by its plain name and its
// group. lacking makes the error for a missing name.
func (q *request) serviceV2(lacking func(string) error) (naming.ServiceKey, error) {
	k := naming.ServiceKey{
		Namespace: q.text("namespaceId", naming.DefaultNamespace),
		Group:     q.text("groupName", naming.DefaultGroup),
		Name:      q.params["serviceName"],
	}
	if q.text("serviceName", "") == "" {
		return k, lacking("serviceName")
	}
	if group, name, ok := naming.SplitGrouped(k.Name); ok && group != "" && name != "" {
		k.Group, k.Name = group, name
	}
	return k, naming.CheckKey(k)
}

// groupedV2 reads a service that must be named in the grouped form.
func (q *request) groupedV2() (naming.ServiceKey, error) {
	raw := q.text("serviceName", "")
	if raw == "" {
		return naming.ServiceKey{}, lackingParameter("serviceName")
	}
	group, name, ok := naming.SplitGrouped(raw)
	if !ok || group == "" || name == "" {
		return naming.ServiceKey{}, &naming.InvalidError{Fault: naming.FaultValue, Field: "serviceName", Text: nameFormat}
	}
	k := naming.ServiceKey{Namespace: q.text("namespaceId", naming.DefaultNamespace), Group: group, Name: name}
	return k, naming.CheckKey(k)
}

func formString(name string) error { return lackingForm(name, "String") }

// instanceV2 reads the instance of a v2 form.
func (q *request) instanceV2(defaultEphemeral bool) (naming.ServiceKey, *naming.Instance, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return svc, nil, err
	}
	i := naming.NewInstance(q.params["ip"], 0)
	if q.text("ip", "") == "" {
		return svc, nil, formString("ip")
	}
	port := q.text("port", "")
	if port == "" {
		return svc, nil, lackingForm("port", "Integer")
	}
	if i.Port, err = naming.ParsePort(port); err != nil {
		return svc, nil, err
	}
	i.Cluster = q.text("clusterName", naming.DefaultCluster)
	if err = checkTarget(i.Key()); err != nil {
		return svc, nil, err
	}
	if i.Weight, err = q.number("weight", 1); err != nil {
		return svc, nil, err
	}
	if i.Metadata, err = q.metadata(); err != nil {
		return svc, nil, err
	}
	for _, flag := range [...]struct {
		name string
		into *bool
		def  bool
	}{{"healthy", &i.Healthy, true}, {"enabled", &i.Enabled, true}, {"ephemeral", &i.Ephemeral, defaultEphemeral}} {
		if *flag.into, err = q.boolean(flag.name, flag.def); err != nil {
			return svc, nil, err
		}
	}
	ownTexts(&i)
	return svc, &i, naming.CheckWeight(i.Weight)
}

// checkTarget checks the address and the cluster that a request names.
func checkTarget(k naming.InstanceKey) error {
	if err := naming.CheckIP(k.IP); err != nil {
		return err
	}
	return naming.CheckClusters(k.Cluster)
}

const okJSON = `"ok"`

func (s *Server) registerV2(q *request) ([]byte, error) {
	svc, i, err := q.instanceV2(s.registry.Switches().DefaultInstanceEphemeral)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.Register(q.Context(), svc, i.Key().Address(), i)
}

func (s *Server) deregisterV2(q *request) ([]byte, error) {
	svc, i, err := q.instanceV2(s.registry.Switches().DefaultInstanceEphemeral)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.Deregister(q.Context(), svc, i.Key().Address(), i.Ephemeral, q.withdrawn(i))
}

func (s *Server) updateV2(q *request) ([]byte, error) {
	svc, i, err := q.instanceV2(true)
	if err != nil {
		return nil, err
	}
	err = s.registry.ChangeInstance(q.Context(), svc, i.Key(), wholeChange(i))
	var invalid *naming.InvalidError
	if errors.As(err, &invalid) && invalid.Fault == naming.FaultServiceUnknown { // an instance error here
		err = &naming.InvalidError{Fault: naming.FaultInstance, Field: invalid.Field, Text: invalid.Text}
	}
	return []byte(okJSON), err
}

func (s *Server) patchV2(q *request) (answer, error) {
	svc, err := q.groupedV2()
	if err != nil {
		return answer{}, err
	}
	k := naming.InstanceKey{Cluster: q.text("cluster", naming.DefaultCluster), IP: q.text("ip", "")}
	if k.IP == "" {
		return answer{}, lackingParameter("ip")
	}
	port := q.text("port", "")
	if port == "" {
		return answer{}, lackingParameter("port")
	}
	if k.Port, err = naming.ParsePort(port); err != nil {
		return answer{}, err
	}
	if err := checkTarget(k); err != nil {
		return answer{}, err
	}
	for _, name := range [...]string{"weight", "enabled", "metadata"} {
		if q.text(name, "") == "" {
			return answer{}, lackingParameter(name)
		}
	}
	w, err := q.number("weight", 1)
	if err != nil {
		return answer{}, err
	}
	enabled, err := q.boolean("enabled", true)
	if err != nil {
		return answer{}, err
	}
	change := naming.Change{Weight: &w, Enabled: &enabled}
	if change.Metadata, err = q.metadata(); err != nil {
		return answer{}, err
	}
	return okText(), s.patch(q, svc, k, change)
}

func (s *Server) detailV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(lackingParameter)
	if err != nil {
		return nil, err
	}
	k := naming.InstanceKey{Cluster: q.text("clusterName", naming.DefaultCluster), IP: q.text("ip", "")}
	if k.IP == "" {
		return nil, lackingParameter("ip")
	}
	port := q.text("port", "")
	if port == "" {
		return nil, lackingParameter("port")
	}
	if k.Port, err = naming.ParsePort(port); err != nil {
		return nil, err
	}
	if err := checkTarget(k); err != nil {
		return nil, err
	}
	i, err := s.registry.Instance(svc, k)
	if err != nil {
		return nil, err
	}
	b := wire.AppendString([]byte(`{"serviceName":`), svc.Grouped())
	b = append(b, `,"instanceId":`...)
	if i.ID == "" {
		b = append(b, "null"...)
	} else {
		b = wire.AppendString(b, i.ID)
	}
	return append(appendDetail(b, i), '}'), nil
}

func (s *Server) listV2(q *request) ([]byte, error) {
	svc, err := q.serviceV2(lackingParameter)
	if err != nil {
		return nil, err
	}
	port, err := q.integer("port", 0)
	if err != nil {
		return nil, err
	}
	f := naming.Filter{Clusters: q.params["clusterName"]}
	if f.HealthyOnly, err = q.boolean("healthyOnly", false); err != nil {
		return nil, err
	}
	info, err := s.list(q, svc, f, q.text("ip", ""), port)
	if err != nil {
		return nil, err
	}
	return wire.ServiceInfoHTTP(info), nil
}

func (s *Server) beatV2(q *request) (answer, error) {
	svc, err := q.groupedV2()
	if err != nil {
		return answer{}, err
	}
	return s.beat(q, svc)
}

func (s *Server) statusesV2(q *request) (answer, error) {
	svc, err := statusKey(q.PathValue("key"))
	if err != nil {
		return answer{}, err
	}
	in, _ := s.registry.Service(svc)
	return jsonBody(ips(in)), nil
}

func (s *Server) setMetadataV2(q *request) ([]byte, error) { return s.metadataBatchV2(q, false) }

func (s *Server) removeMetadataV2(q *request) ([]byte, error) { return s.metadataBatchV2(q, true) }

func (s *Server) metadataBatchV2(q *request, remove bool) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	if q.text("metadata", "") == "" {
		return nil, formString("metadata")
	}
	return s.metadataBatch(q, svc, remove)
}
