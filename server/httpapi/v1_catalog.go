package httpapi

import (
	"math"
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

// listed returns a service that is to be listed.
func (s *Server) listed(svc naming.ServiceKey) (naming.Service, error) {
	in, ok := s.registry.Service(svc)
	if !ok {
		return in, &naming.InvalidError{Fault: naming.FaultCatalogUnknown, Field: "serviceName", Text: "service " + svc.Grouped() + " is not found!"}
	}
	return in, nil
}

func (s *Server) catalogServiceV1(q *request) (answer, error) {
	if q.text("serviceName", "") == "" {
		return answer{}, &naming.InvalidError{Fault: naming.FaultCatalogUnknown, Field: "serviceName", Text: "service @@ is not found!"}
	}
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	if err := naming.CheckKey(svc); err != nil {
		return answer{}, err
	}
	in, err := s.listed(svc)
	if err != nil {
		return answer{}, err
	}
	b := wire.AppendString([]byte(`{"service":{"name":`), svc.Name)
	b = wire.AppendString(append(b, `,"groupName":`...), svc.Group)
	b = append(appendSettings(b, in.Settings), `},"clusters":[`...)
	for n, name := range clusters(in) {
		if n > 0 {
			b = append(b, ',')
		}
		c := clusterSettings(&in, name)
		b = wire.AppendString(append(b, `{"serviceName":`...), svc.Grouped())
		b = wire.AppendString(append(b, `,"name":`...), name)
		b = appendChecker(append(b, `,"healthChecker":`...), c.Checker)
		b = strconv.AppendInt(append(b, `,"defaultPort":80,"defaultCheckPort":`...), int64(c.CheckPort), 10)
		b = strconv.AppendBool(append(b, `,"useIPPort4Check":`...), c.UseInstancePort)
		b = append(wire.AppendMetadata(append(b, `,"metadata":`...), c.Metadata), '}')
	}
	return jsonBody(append(b, `]}`...)), nil
}

func (s *Server) catalogInstancesV1(q *request) (answer, error) {
	if q.params["serviceName"] == "" {
		return answer{}, parameterMissing("serviceName")
	}
	for _, name := range [...]string{"clusterName", "pageNo", "pageSize"} {
		if q.text(name, "") == "" {
			return answer{}, parameterMissing(name)
		}
	}
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	if err := naming.CheckKey(svc); err != nil {
		return answer{}, err
	}
	cluster := q.text("clusterName", "")
	if err := naming.CheckClusters(cluster); err != nil {
		return answer{}, err
	}
	no, size, err := q.page(1, 0)
	if err != nil {
		return answer{}, err
	}
	in, err := s.listed(svc)
	if err != nil {
		return answer{}, err
	}
	list, err := ofCluster(&in, cluster)
	if err != nil {
		return answer{}, err
	}
	b := wire.AppendInstances([]byte(`{"list":`), paged(list, no, size), svc)
	b = strconv.AppendInt(append(b, `,"count":`...), int64(len(list)), 10)
	return jsonBody(append(b, '}')), nil
}

// ofCluster returns the effective instances of one cluster, of which there must be
// one.
func ofCluster(in *naming.Service, cluster string) ([]*naming.Instance, error) {
	var list []*naming.Instance
	for _, i := range in.Effective() {
		if i.Cluster == cluster {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return nil, &naming.InvalidError{Fault: naming.FaultCatalogUnknown, Field: "clusterName", Text: "cluster " + cluster + " is not found!"}
	}
	return list, nil
}

// page reads pageNo and pageSize. A page below 1 is the first; a size below 0 is
// refused.
func (q *request) page(no, size int64) (int64, int64, error) {
	no, err := q.integer("pageNo", no)
	if err != nil {
		return 0, 0, err
	}
	if size, err = q.integer("pageSize", size); err != nil {
		return 0, 0, err
	}
	if size < 0 {
		return 0, 0, negativePage(size)
	}
	return max(no, 1), size, nil
}

// paged returns the elements of a page, of which there may be none.
func paged[T any](list []T, no, size int64) []T {
	if size <= 0 || no-1 > math.MaxInt64/size {
		return nil
	}
	first := min((no-1)*size, int64(len(list)))
	return list[first : first+min(size, int64(len(list))-first)]
}

// search reads what the searches for services of v1 and v3 share. Texts that could
// stand in no name find nothing; they are no fault.
func (q *request) search(notEmpty string) (naming.Search, error) {
	search := naming.Search{
		Namespace: q.text("namespaceId", naming.DefaultNamespace), Name: q.word("serviceNameParam"), Group: q.word("groupNameParam"),
	}
	if err := naming.CheckNamespace(search.Namespace); err != nil {
		return search, err
	}
	var err error
	search.NotEmpty, err = q.boolean(notEmpty, false)
	return search, err
}

// defaultCatalogPage is the size of a page that states none.
const defaultCatalogPage = 20

func (s *Server) catalogServicesV1(q *request) (answer, error) {
	search, err := q.search("hasIpCount")
	if err != nil {
		return answer{}, err
	}
	withInstances, err := q.boolean("withInstances", false)
	if err != nil {
		return answer{}, err
	}
	no, size, err := q.page(1, defaultCatalogPage)
	if err != nil {
		return answer{}, err
	}
	keys := s.registry.Search(search)
	if withInstances {
		b := []byte{'['}
		for n, k := range paged(keys, no, size) {
			if n > 0 {
				b = append(b, ',')
			}
			b = s.appendServiceWithHosts(b, k)
		}
		return jsonBody(append(b, ']')), nil
	}
	b := strconv.AppendInt([]byte(`{"count":`), int64(len(keys)), 10)
	b = append(b, `,"serviceList":[`...)
	for n, k := range paged(keys, no, size) {
		if n > 0 {
			b = append(b, ',')
		}
		b = s.appendSummary(b, k)
	}
	return jsonBody(append(b, `]}`...)), nil
}

// appendSummary writes one line of the search for services.
func (s *Server) appendSummary(b []byte, k naming.ServiceKey) []byte {
	in, _ := s.registry.Service(k)
	healthy, all := 0, in.Effective()
	for _, i := range all {
		if i.Healthy {
			healthy++
		}
	}
	threshold := 0.0
	if in.Settings != nil {
		threshold = in.Settings.ProtectThreshold
	}
	triggered := len(all) > 0 && float64(healthy)/float64(len(all)) <= threshold
	b = wire.AppendString(append(b, `{"name":`...), k.Name)
	b = wire.AppendString(append(b, `,"groupName":`...), k.Group)
	b = strconv.AppendInt(append(b, `,"clusterCount":`...), int64(len(clusters(in))), 10)
	b = strconv.AppendInt(append(b, `,"ipCount":`...), int64(len(all)), 10)
	b = strconv.AppendInt(append(b, `,"healthyInstanceCount":`...), int64(healthy), 10)
	return append(wire.AppendString(append(b, `,"triggerFlag":`...), strconv.FormatBool(triggered)), '}')
}

// appendServiceWithHosts writes a service with its instances in the short form; what
// the original leaves null there is null.
func (s *Server) appendServiceWithHosts(b []byte, k naming.ServiceKey) []byte {
	in, _ := s.registry.Service(k)
	b = wire.AppendString(append(b, `{"namespace":null,"serviceName":`...), k.Name)
	b = wire.AppendString(append(b, `,"groupName":`...), k.Group)
	b = append(b, `,"clusterMap":{`...)
	cluster := ""
	for n, i := range in.Effective() {
		switch {
		case n == 0 || i.Cluster != cluster:
			if n > 0 {
				b = append(b, `]},`...)
			}
			b = append(wire.AppendString(b, i.Cluster), `:{"clusterName":null,"healthChecker":null,"metadata":null,"hosts":[`...)
			cluster = i.Cluster
		default:
			b = append(b, ',')
		}
		b = strconv.AppendBool(append(b, `{"valid":`...), i.Healthy)
		b = wire.AppendMetadata(append(b, `,"metadata":`...), i.Metadata)
		b = strconv.AppendInt(append(b, `,"port":`...), int64(i.Port), 10)
		b = wire.AppendString(append(b, `,"ip":`...), i.IP)
		b = wire.AppendFloat(append(b, `,"weight":`...), i.Weight)
		b = append(strconv.AppendBool(append(b, `,"enabled":`...), i.Enabled), '}')
	}
	if len(in.Instances) > 0 {
		b = append(b, `]}`...)
	}
	return append(appendOwn(append(b, '}'), in.Settings), `,"selector":null,"ephemeral":null}`...)
}

// appendOwn writes a service's metadata and threshold, from the comma on.
func appendOwn(b []byte, s *naming.Settings) []byte {
	if s == nil {
		s = &naming.Settings{}
	}
	b = wire.AppendMetadata(append(b, `,"metadata":`...), s.Metadata)
	return wire.AppendFloat(append(b, `,"protectThreshold":`...), s.ProtectThreshold)
}
