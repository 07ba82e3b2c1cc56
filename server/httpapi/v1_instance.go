package httpapi

import (
	"errors"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

const nameFormat = "Param 'serviceName' is illegal, it should be format as 'groupName@@serviceName'"

// service reads the service that a v1 request names: grouped, or with its group
// beside it.
func (q *request) service() (naming.ServiceKey, error) {
	raw := q.params["serviceName"]
	if raw == "" {
		return naming.ServiceKey{}, missing("serviceName")
	}
	k := naming.ServiceKey{Namespace: q.text("namespaceId", naming.DefaultNamespace)}
	group, name, grouped := naming.SplitGrouped(raw)
	switch {
	case strings.TrimSpace(raw) == "":
		return k, &naming.InvalidError{Fault: naming.FaultValue, Field: "serviceName", Text: nameFormat}
	case grouped && group == "":
		return k, &filterError{400, "Service name filter error,caused: Param 'serviceName' is illegal, groupName can't be empty;"}
	case grouped && name == "":
		return k, &filterError{400, "Service name filter error,caused: " + nameFormat + ";"}
	case grouped:
		k.Group, k.Name = group, name
	default:
		// Joined and taken apart again, a separator within the group shows as a
		// fault of the name, as the original reports it.
		k.Group, k.Name, _ = naming.SplitGrouped(q.text("groupName", naming.DefaultGroup) + naming.Separator + raw)
	}
	return k, nil
}

// address reads the ip and port that a request must have.
func (q *request) address() (ip string, port int, err error) {
	if ip, err = q.required("ip"); err != nil {
		return "", 0, err
	}
	text, err := q.required("port")
	if err != nil {
		return "", 0, err
	}
	if port, err = naming.ParsePort(text); err != nil {
		return "", 0, err
	}
	return ip, port, naming.CheckIP(ip)
}

// cluster reads the cluster by its name or its alias.
func (q *request) cluster() string {
	return q.text("clusterName", q.text("cluster", naming.DefaultCluster))
}

// weight reads a v1 weight.
func (q *request) weight(def float64) (float64, error) {
	w, err := q.number("weight", def)
	if err != nil {
		return 0, numberFormat("weight", q.text("weight", ""))
	}
	return w, naming.CheckWeight(w)
}

// numberFormat is the text of v1 for a number that cannot be read.
func numberFormat(field, value string) error {
	return &naming.InvalidError{Fault: naming.FaultValue, Field: field, Text: `For input string: "` + value + `"`}
}

func (q *request) metadata() (map[string]string, error) {
	m, err := wire.ParseMetadata(q.params["metadata"])
	if err != nil {
		return nil, &naming.InvalidError{
			Fault: naming.FaultMetadata, Field: "metadata",
			Text: "Param 'metadata' is illegal, it should be a flat JSON object of strings or k=v pairs separated by commas: " + err.Error() + ".",
		}
	}
	return m, nil
}

// instance reads the instance of a v1 request.
func (q *request) instance(defaultEphemeral bool) (naming.ServiceKey, *naming.Instance, error) {
	svc, err := q.service()
	if err != nil {
		return svc, nil, err
	}
	i := naming.NewInstance("", 0)
	if i.IP, i.Port, err = q.address(); err != nil {
		return svc, nil, err
	}
	if err = naming.CheckKey(svc); err != nil {
		return svc, nil, err
	}
	i.Cluster = q.cluster()
	if err = naming.CheckClusters(i.Cluster); err != nil {
		return svc, nil, err
	}
	if i.Metadata, err = q.metadata(); err != nil {
		return svc, nil, err
	}
	if i.Weight, err = q.weight(1); err != nil {
		return svc, nil, err
	}
	i.Healthy = q.flag("healthy", true)
	i.Enabled = q.flag("enabled", q.flag("enable", true))
	i.Ephemeral = q.flag("ephemeral", defaultEphemeral)
	ownTexts(&i)
	return svc, &i, nil
}

// ownTexts has an instance that will be kept keep nothing else of the request.
func ownTexts(i *naming.Instance) {
	i.IP = strings.Clone(i.IP)
	if i.Cluster == naming.DefaultCluster {
		i.Cluster = naming.DefaultCluster
	} else {
		i.Cluster = strings.Clone(i.Cluster)
	}
}

func (s *Server) registerV1(q *request) (answer, error) {
	svc, i, err := q.instance(s.registry.Switches().DefaultInstanceEphemeral)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.Register(q.Context(), svc, i.Key().Address(), i)
}

func (s *Server) deregisterV1(q *request) (answer, error) {
	svc, i, err := q.instance(s.registry.Switches().DefaultInstanceEphemeral)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.Deregister(q.Context(), svc, i.Key().Address(), i.Ephemeral, q.withdrawn(i))
}

// withdrawn is the key of an instance to deregister: a cluster that the client does not
// name is any.
func (q *request) withdrawn(i *naming.Instance) naming.InstanceKey {
	k := i.Key()
	if q.word("clusterName") == "" && q.word("cluster") == "" {
		k.Cluster = ""
	}
	return k
}

func (s *Server) updateV1(q *request) (answer, error) {
	svc, i, err := q.instance(true)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.ChangeInstance(q.Context(), svc, i.Key(), wholeChange(i))
}

// wholeChange replaces everything that an override holds.
func wholeChange(i *naming.Instance) naming.Change {
	metadata := i.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	return naming.Change{Weight: &i.Weight, Enabled: &i.Enabled, Metadata: metadata}
}

func (s *Server) patchV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	ip, port, err := q.address()
	if err != nil {
		return answer{}, err
	}
	k := naming.InstanceKey{Cluster: q.cluster(), IP: ip, Port: port}
	if err := naming.CheckClusters(k.Cluster); err != nil {
		return answer{}, err
	}
	change, err := q.change()
	if err != nil {
		return answer{}, err
	}
	return okText(), s.patch(q, svc, k, change)
}

// patch changes an instance; the error for one that there is not is that of the detail.
func (s *Server) patch(q *request, svc naming.ServiceKey, k naming.InstanceKey, c naming.Change) error {
	err := s.registry.ChangeInstance(q.Context(), svc, k, c)
	if invalid := (*naming.InvalidError)(nil); errors.As(err, &invalid) && (invalid.Fault == naming.FaultServiceUnknown || invalid.Fault == naming.FaultInstanceUnknown) {
		if _, unknown := s.registry.Instance(svc, k); unknown != nil {
			return unknown
		}
	}
	return err
}

// change reads what a patch gives.
func (q *request) change() (c naming.Change, err error) {
	if q.text("weight", "") != "" {
		w, err := q.weight(1)
		if err != nil {
			return c, err
		}
		c.Weight = &w
	}
	if q.text("enabled", "") != "" {
		enabled := q.flag("enabled", true)
		c.Enabled = &enabled
	}
	if q.text("metadata", "") != "" {
		if c.Metadata, err = q.metadata(); err != nil {
			return c, err
		}
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
	}
	return c, nil
}

func (s *Server) detailV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	ip, port, err := q.address()
	if err != nil {
		return answer{}, err
	}
	k := naming.InstanceKey{Cluster: q.text("clusterName", naming.DefaultCluster), IP: ip, Port: port}
	if err := naming.CheckClusters(k.Cluster); err != nil {
		return answer{}, err
	}
	i, err := s.registry.Instance(svc, k)
	if err != nil {
		return answer{}, err
	}
	b := wire.AppendString([]byte(`{"service":`), svc.Grouped())
	b = wire.AppendString(append(b, `,"instanceId":`...), i.InstanceID(svc))
	return jsonBody(append(appendDetail(b, i), '}')), nil
}

// appendDetail writes the fields that the details of v1 and v2 share, from the
// comma on.
func appendDetail(b []byte, i *naming.Instance) []byte {
	b = wire.AppendString(append(b, `,"ip":`...), i.IP)
	b = strconv.AppendInt(append(b, `,"port":`...), int64(i.Port), 10)
	b = wire.AppendString(append(b, `,"clusterName":`...), i.Cluster)
	b = wire.AppendFloat(append(b, `,"weight":`...), i.Weight)
	b = strconv.AppendBool(append(b, `,"healthy":`...), i.Healthy)
	return wire.AppendMetadata(append(b, `,"metadata":`...), i.Metadata)
}

func (s *Server) listV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
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
	return jsonBody(wire.ServiceInfoHTTP(info)), nil
}

// list returns what a client sees, and subscribes it to UDP pushes if it asks for
// that: first, so that no change falls between.
func (s *Server) list(q *request, svc naming.ServiceKey, f naming.Filter, ip string, port int64) (*naming.ServiceInfo, error) {
	if err := naming.CheckKey(svc); err != nil {
		return nil, err
	}
	if err := naming.CheckClusters(f.Clusters); err != nil {
		return nil, err
	}
	if now := s.registry.Switches(); port > 0 && now.PushEnabled && pushable(agent(q.Request), now) {
		s.udp.subscribe(svc, f, ip, port, agent(q.Request), q.text("app", ""))
	}
	return s.registry.ServiceInfo(svc, f), nil
}

func (s *Server) statusesV1(q *request) (answer, error) {
	key := q.text("key", "")
	if key == "" {
		return answer{}, parameterMissing("key")
	}
	svc, err := statusKey(key)
	if err != nil {
		return answer{}, err
	}
	in, _ := s.registry.Service(svc)
	return jsonBody(ips(in)), nil
}

// parameterMissing is the text for a missing parameter of some v1 paths.
func parameterMissing(name string) error {
	return &naming.InvalidError{Fault: naming.FaultMissing, Field: name, Text: "Parameter '" + name + "' is missing"}
}

// statusKey reads "namespace##group@@service" or "group@@service".
func statusKey(key string) (naming.ServiceKey, error) {
	namespace, grouped, ok := strings.Cut(key, "##")
	if !ok {
		namespace, grouped = naming.DefaultNamespace, key
	}
	group, name, ok := naming.SplitGrouped(grouped)
	k := naming.ServiceKey{Namespace: namespace, Group: group, Name: name}
	if !ok || group == "" || name == "" {
		return k, &naming.InvalidError{Fault: naming.FaultValue, Field: "key", Text: nameFormat}
	}
	return k, naming.CheckKey(k)
}

func (s *Server) setMetadataV1(q *request) (answer, error) {
	return s.metadataBatchV1(q, false)
}

func (s *Server) removeMetadataV1(q *request) (answer, error) {
	return s.metadataBatchV1(q, true)
}

func (s *Server) metadataBatchV1(q *request, remove bool) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	if _, err := q.required("metadata"); err != nil {
		return answer{}, err
	}
	b, err := s.metadataBatch(q, svc, remove)
	return jsonBody(b), err
}

// metadataBatch sets or removes metadata entries of several instances and returns
// the JSON that names them.
func (s *Server) metadataBatch(q *request, svc naming.ServiceKey, remove bool) ([]byte, error) {
	metadata, err := q.metadata()
	if err != nil {
		return nil, err
	}
	var keys []naming.InstanceKey
	if raw := q.text("instances", ""); raw != "" {
		if keys, err = instanceKeys(raw); err != nil {
			return nil, err
		}
	}
	set, names := metadata, []string(nil)
	if remove {
		set = nil
		for k := range metadata {
			names = append(names, k)
		}
	}
	changed, err := s.registry.ChangeMetadata(q.Context(), svc, keys, set, names)
	if err != nil {
		return nil, err
	}
	updated := make([]string, 0, len(changed))
	for _, i := range changed {
		kind := "ephemeral"
		if !i.Ephemeral {
			kind = "persist"
		}
		updated = append(updated, i.Key().Address()+":unknown:"+i.Cluster+":"+kind)
	}
	return append(wire.AppendStrings([]byte(`{"updated":`), updated), '}'), nil
}

// instanceKeys reads a JSON list of instances.
func instanceKeys(raw string) ([]naming.InstanceKey, error) {
	var list []*wire.Instance
	bad := func(why string) error {
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "instances", Text: "Param 'instances' is illegal, it should be a JSON list of objects with ip and port: " + why + "."}
	}
	if err := wire.Unmarshal([]byte(raw), &list); err != nil {
		return nil, bad(err.Error())
	}
	keys := make([]naming.InstanceKey, 0, len(list))
	for n, i := range list {
		if i == nil || i.IP == "" {
			return nil, bad("element " + strconv.Itoa(n) + " has no ip")
		}
		keys = append(keys, i.Naming(true).Key())
	}
	return keys, nil
}
