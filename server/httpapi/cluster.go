package httpapi

import (
	"errors"
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

// clusterSettings returns what is written about a cluster, or what holds without.
func clusterSettings(in *naming.Service, name string) *naming.Cluster {
	if c := in.Clusters[name]; c != nil {
		return c
	}
	return naming.DefaultClusterSettings()
}

// appendChecker writes a checker as operators read it (http.md 9.4).
func appendChecker(b []byte, c naming.Checker) []byte {
	b = wire.AppendString(append(b, `{"type":`...), c.Type)
	switch c.Type {
	case naming.CheckHTTP:
		b = wire.AppendString(append(b, `,"path":`...), c.Path)
		b = wire.AppendString(append(b, `,"headers":`...), c.Headers)
		b = strconv.AppendInt(append(b, `,"expectedResponseCode":`...), int64(c.ExpectedCode), 10)
	case naming.CheckMySQL:
		b = wire.AppendString(append(b, `,"user":`...), c.User)
		b = wire.AppendString(append(b, `,"pwd":`...), c.Password)
		b = wire.AppendString(append(b, `,"cmd":`...), c.Command)
	}
	return append(b, '}')
}

// checkers are the types of checkers with their fields (http.md 2.5).
const checkers = `{"TCP":{},"HTTP":{"path":"","headers":"","expectedResponseCode":200},"MYSQL":{"user":null,"pwd":null,"cmd":null},"NONE":{}}`

func (s *Server) checkersV1(*request) (answer, error) { return jsonBody([]byte(checkers)), nil }

func (s *Server) checkersV3(*request) ([]byte, error) { return []byte(checkers), nil }

// maxChecker bounds the JSON of a checker, in bytes.
const maxChecker = 16 << 10

// checker reads the healthChecker of a request. A type that there is not is refused:
// taken for one that never checks, as in the original, a misspelt type would turn
// every check off.
func (q *request) checker() (naming.Checker, error) {
	raw := q.text("healthChecker", "")
	bad := func(why string) (naming.Checker, error) {
		return naming.Checker{}, &naming.InvalidError{
			Fault: naming.FaultValue, Field: "healthChecker",
			Text: "Param 'healthChecker' is illegal, it should be a JSON object whose type is TCP, HTTP, MYSQL or NONE: " + why + ".",
		}
	}
	if len(raw) > maxChecker {
		return bad("it is longer than " + strconv.Itoa(maxChecker) + " bytes")
	}
	var given *struct {
		Type         wire.Str `json:"type"`
		Path         wire.Str `json:"path"`
		Headers      wire.Str `json:"headers"`
		ExpectedCode wire.Int `json:"expectedResponseCode"`
		User         wire.Str `json:"user"`
		Password     wire.Str `json:"pwd"`
		Command      wire.Str `json:"cmd"`
	}
	if err := wire.Unmarshal([]byte(raw), &given); err != nil {
		return bad(err.Error())
	}
	if given == nil {
		return bad("it is null")
	}
	c := naming.Checker{Type: string(given.Type)}
	switch c.Type {
	case naming.CheckTCP, naming.CheckNone:
	case naming.CheckHTTP:
		c.Path, c.Headers, c.ExpectedCode = string(given.Path), string(given.Headers), int(given.ExpectedCode)
		if c.ExpectedCode == 0 {
			c.ExpectedCode = 200
		}
		if c.ExpectedCode < 100 || c.ExpectedCode > 599 {
			return bad("expectedResponseCode is " + strconv.Itoa(c.ExpectedCode) + ", which is no HTTP status")
		}
	case naming.CheckMySQL:
		c.User, c.Password, c.Command = string(given.User), string(given.Password), string(given.Command)
	default:
		name := clipText(c.Type)
		return bad("there is no type '" + name + "'")
	}
	return c, nil
}

// clusterForm reads the settings of a cluster; lacking makes the error for a missing
// field of the given type.
func (q *request) clusterForm(lacking func(name, typ string) error) (name string, c naming.Cluster, err error) {
	if name = q.text("clusterName", ""); name == "" {
		return "", c, lacking("clusterName", "String")
	}
	for _, f := range [...]struct{ name, typ string }{{"checkPort", "Integer"}, {"useInstancePort4Check", "Boolean"}, {"healthChecker", "String"}} {
		if q.text(f.name, "") == "" {
			return "", c, lacking(f.name, f.typ)
		}
	}
	if c.CheckPort, err = naming.ParsePort(q.text("checkPort", "")); err != nil {
		return "", c, err
	}
	if err = naming.CheckClusters(name); err != nil {
		return "", c, err
	}
	if c.Metadata, err = q.metadata(); err != nil {
		return "", c, err
	}
	if c.UseInstancePort, err = q.boolean("useInstancePort4Check", true); err != nil {
		return "", c, err
	}
	c.Checker, err = q.checker()
	return name, c, err
}

func (s *Server) updateClusterV1(q *request) (answer, error) {
	svc, err := q.service()
	if err != nil {
		return answer{}, err
	}
	name, c, err := q.clusterForm(func(name, _ string) error { return missing(name) })
	if err != nil {
		return answer{}, err
	}
	return okText(), s.updateCluster(q, svc, name, c, "service not found:"+svc.Grouped())
}

func (s *Server) updateClusterV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	name, c, err := q.clusterForm(lackingForm)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.updateCluster(q, svc, name, c, "service not found groupName: "+svc.Group+",serviceName: "+svc.Name)
}

// updateCluster writes the settings of a cluster; unknown is the text for a service
// that there is not.
func (s *Server) updateCluster(q *request, svc naming.ServiceKey, name string, c naming.Cluster, unknown string) error {
	err := s.registry.UpdateCluster(q.Context(), svc, name, c)
	if invalid := (*naming.InvalidError)(nil); errors.As(err, &invalid) && invalid.Fault == naming.FaultServiceUnknown {
		return &naming.InvalidError{Fault: naming.FaultOther, Field: "serviceName", Text: unknown}
	}
	return err
}
