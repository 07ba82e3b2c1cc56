package httpapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) createServiceV1(q *request) (answer, error) {
	if q.params["serviceName"] == "" {
		return answer{}, parameterMissing("serviceName")
	}
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	settings, err := q.settings(naming.KindPersistent)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.CreateService(q.Context(), svc, settings)
}

// settings reads a service's settings.
func (q *request) settings(kind naming.Kind) (naming.Settings, error) {
	out := naming.Settings{Kind: kind}
	var err error
	if out.ProtectThreshold, err = q.number("protectThreshold", 0); err != nil {
		return out, err
	}
	if out.Metadata, err = q.metadata(); err != nil {
		return out, err
	}
	out.Selector, err = parseSelector(q.text("selector", ""))
	return out, err
}

// maxSelector bounds a selector, in bytes.
const maxSelector = 64 << 10

// parseSelector reads a selector in JSON, possibly escaped once more; blank is
// none.
func parseSelector(raw string) (naming.Selector, error) {
	if raw == "" {
		return naming.Selector{Type: "none"}, nil
	}
	bad := func(text string) (naming.Selector, error) {
		return naming.Selector{}, &naming.InvalidError{Fault: naming.FaultSelector, Field: "selector", Text: text}
	}
	if len(raw) > maxSelector {
		return naming.Selector{}, &naming.InvalidError{Fault: naming.FaultParam, Field: "selector", Text: "Param 'selector' is illegal, the param length should not exceed " + strconv.Itoa(maxSelector) + "."}
	}
	if strings.HasPrefix(raw, "%") {
		if plain, err := url.QueryUnescape(raw); err == nil {
			raw = plain
		}
	}
	var given struct {
		Type       wire.Str `json:"type"`
		Expression wire.Str `json:"expression"`
	}
	if err := wire.Unmarshal([]byte(raw), &given); err != nil {
		return bad("Param 'selector' is illegal, it should be a JSON object with type and expression: " + err.Error() + ".")
	}
	switch given.Type {
	case "none":
		return naming.Selector{Type: "none"}, nil
	case "label":
		labels, ok := selectorLabels(string(given.Expression))
		if !ok {
			return bad("Selector parses failed: the expression should be CONSUMER.label.x = PROVIDER.label.x, joined by &.")
		}
		return naming.Selector{Type: "label", Expression: string(given.Expression), Labels: labels}, nil
	}
	return bad("not match any type of selector!")
}

// listSelector returns the expression of a selector of services, in JSON; none and a
// blank one are empty.
func listSelector(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	bad := func(why string) error {
		return &naming.InvalidError{Fault: naming.FaultSelector, Field: "selector", Text: "Param 'selector' is illegal, it should be a JSON object with type and expression: " + why + "."}
	}
	if len(raw) > maxSelector {
		return "", bad("it is longer than " + strconv.Itoa(maxSelector) + " bytes")
	}
	var given struct {
		Type       wire.Str `json:"type"`
		Expression wire.Str `json:"expression"`
	}
	if err := wire.Unmarshal([]byte(raw), &given); err != nil {
		return "", bad(err.Error())
	}
	switch given.Type {
	case "", "none":
		return "", nil
	case "label":
		return string(given.Expression), nil
	}
	return "", &naming.InvalidError{Fault: naming.FaultSelector, Field: "selector", Text: "not match any type of selector!"}
}

// selectorLabels returns the labels that an expression compares.
func selectorLabels(expression string) ([]string, bool) {
	labels := []string{}
	if strings.TrimSpace(expression) == "" {
		return labels, true
	}
	for term := range strings.SplitSeq(expression, "&") {
		left, right, ok := strings.Cut(term, "=")
		left, okLeft := strings.CutPrefix(strings.TrimSpace(left), "CONSUMER.label.")
		right, okRight := strings.CutPrefix(strings.TrimSpace(right), "PROVIDER.label.")
		if !ok || !okLeft || !okRight || left == "" || left != right {
			return nil, false
		}
		if !slices.Contains(labels, left) {
			labels = append(labels, left)
		}
	}
	return labels, true
}

func (s *Server) deleteServiceV1(q *request) (answer, error) {
	if q.params["serviceName"] == "" {
		return answer{}, parameterMissing("serviceName")
	}
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.DeleteService(q.Context(), svc)
}

func (s *Server) updateServiceV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	if _, err := q.required("protectThreshold"); err != nil {
		return answer{}, err
	}
	settings, err := q.settings(naming.KindNone)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.UpdateService(q.Context(), svc, settings)
}

func (s *Server) serviceV1(q *request) (answer, error) {
	if q.params["serviceName"] == "" {
		return answer{}, parameterMissing("serviceName")
	}
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	in, err := s.findService(svc)
	if err != nil {
		return answer{}, err
	}
	b := wire.AppendString([]byte(`{"namespaceId":`), svc.Namespace)
	b = wire.AppendString(append(b, `,"groupName":`...), svc.Group)
	b = wire.AppendString(append(b, `,"name":`...), svc.Name)
	b = appendSettings(b, in.Settings)
	b = append(b, `,"clusters":[`...)
	for n, name := range clusters(in) {
		if n > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(append(b, `{"name":`...), name)
		c := clusterSettings(&in, name)
		b = appendChecker(append(b, `,"healthChecker":`...), c.Checker)
		b = append(wire.AppendMetadata(append(b, `,"metadata":`...), c.Metadata), '}')
	}
	return jsonBody(append(b, `]}`...)), nil
}

// findService returns a service that must exist.
func (s *Server) findService(svc naming.ServiceKey) (naming.Service, error) {
	if err := naming.CheckKey(svc); err != nil {
		return naming.Service{}, err
	}
	in, ok := s.registry.Service(svc)
	if !ok {
		return in, &naming.InvalidError{
			Fault: naming.FaultServiceUnknown, Field: "serviceName",
			Text: "service not found, namespace: " + svc.Namespace + ", serviceName: " + svc.Grouped(),
		}
	}
	return in, nil
}

// appendSettings writes the settings that the details of v1 and v2 share, from the
// comma on; nil shows the defaults.
func appendSettings(b []byte, s *naming.Settings) []byte {
	if s == nil {
		s = &naming.Settings{Selector: naming.Selector{Type: "none"}}
	}
	b = wire.AppendFloat(append(b, `,"protectThreshold":`...), s.ProtectThreshold)
	b = wire.AppendMetadata(append(b, `,"metadata":`...), s.Metadata)
	b = wire.AppendString(append(b, `,"selector":{"type":`...), s.Selector.Type)
	if s.Selector.Type != "label" {
		return append(b, `,"contextType":"NONE"}`...)
	}
	b = wire.AppendString(append(b, `,"expression":`...), s.Selector.Expression)
	b = wire.AppendStrings(append(b, `,"labels":`...), s.Selector.Labels)
	return append(b, `,"contextType":"CMDB"}`...)
}

// clusters returns the sorted names of the clusters that have instances.
func clusters(s naming.Service) []string {
	var out []string
	for _, i := range s.Instances { // sorted by cluster
		if len(out) == 0 || out[len(out)-1] != i.Cluster {
			out = append(out, i.Cluster)
		}
	}
	return out
}

func (s *Server) serviceListV1(q *request) (answer, error) {
	for _, name := range [...]string{"pageNo", "pageSize"} {
		if _, err := q.required(name); err != nil {
			return answer{}, err
		}
	}
	namespace, group := q.text("namespaceId", naming.DefaultNamespace), q.text("groupName", naming.DefaultGroup)
	if err := checkGroup(namespace, group); err != nil {
		return answer{}, err
	}
	no, _ := q.integer("pageNo", 0)
	size, _ := q.integer("pageSize", 0)
	if size < 0 {
		return answer{}, negativePage(size)
	}
	selector, err := listSelector(q.text("selector", ""))
	if err != nil {
		return answer{}, err
	}
	names, count, err := s.registry.ServicePage(namespace, group, selector, no, size)
	if err != nil {
		return answer{}, err
	}
	b := strconv.AppendInt([]byte(`{"count":`), int64(count), 10)
	return jsonBody(append(wire.AppendStrings(append(b, `,"doms":`...), names), '}')), nil
}

// negativePage is the protocol's text for a page of less than nothing.
func negativePage(size int64) error {
	return &naming.InvalidError{Fault: naming.FaultValue, Field: "pageSize", Text: "fromIndex(0) > toIndex(" + strconv.FormatInt(size, 10) + ")"}
}

func checkGroup(namespace, group string) error {
	if err := naming.CheckNamespace(namespace); err != nil {
		return err
	}
	return naming.CheckGroup(group)
}
