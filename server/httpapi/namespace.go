package httpapi

import (
	"errors"
	"slices"
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

// dialect is which version's words an answer about namespaces is in: the default
// namespace is "" and the type of the others 2, in the third version "public" and 1.
type dialect struct{ third bool }

func (d dialect) version() string {
	if d.third {
		return protocolVersion3
	}
	return protocolVersion
}

func (d dialect) bind(h func(*request, dialect) (answer, error)) func(*request) (answer, error) {
	return func(q *request) (answer, error) { return h(q, d) }
}

func (d dialect) bindData(h func(*request, dialect) ([]byte, error)) func(*request) ([]byte, error) {
	return func(q *request) ([]byte, error) { return h(q, d) }
}

// namespaceQuota is the number of configurations that a namespace may hold, which
// tools read (http.md 2.9).
const namespaceQuota = 200

func (d dialect) append(b []byte, n naming.Namespace) []byte {
	id, kind := n.ID, 2
	switch {
	case n.ID == naming.DefaultNamespace && !d.third:
		id, kind = "", 0
	case n.ID == naming.DefaultNamespace:
		kind = 0
	case d.third:
		kind = 1
	}
	b = wire.AppendString(append(b, `{"namespace":`...), id)
	b = wire.AppendString(append(b, `,"namespaceShowName":`...), n.Name)
	b = appendNullable(append(b, `,"namespaceDesc":`...), n.Description)
	b = strconv.AppendInt(append(b, `,"quota":`...), namespaceQuota, 10)
	b = strconv.AppendInt(append(b, `,"configCount":0,"type":`...), int64(kind), 10)
	return append(b, '}')
}

func (s *Server) appendNamespaces(d dialect) []byte {
	b := []byte{'['}
	for n, one := range s.registry.Namespaces() {
		if n > 0 {
			b = append(b, ',')
		}
		b = d.append(b, one)
	}
	return append(b, ']')
}

// namespaceForm reads a namespace whose fields have these names. Blanks within an id
// are no part of what is meant, so they are refused, not cut off.
func (q *request) namespaceForm(id, name string) naming.Namespace {
	return naming.Namespace{ID: q.text(id, ""), Name: q.text(name, ""), Description: q.text("namespaceDesc", "")}
}

// faulty tells whether an error is one of these faults.
func faulty(err error, faults ...naming.Fault) bool {
	var invalid *naming.InvalidError
	if !errors.As(err, &invalid) {
		return false
	}
	return slices.Contains(faults, invalid.Fault)
}

func (s *Server) namespacesV1(q *request, d dialect) (answer, error) {
	switch {
	case q.isTrue("checkNamespaceIdExist"):
		id, ok := q.params["customNamespaceId"]
		if !ok {
			return answer{}, parameterMissing("customNamespaceId")
		}
		_, err := s.registry.Namespace(id)
		return flagText(err == nil && id != naming.DefaultNamespace), nil
	case q.word("show") == "all":
		id, ok := q.params["namespaceId"]
		if !ok {
			return answer{}, parameterMissing("namespaceId")
		}
		if id == "" {
			id = naming.DefaultNamespace
			d.third = false // an empty id is answered with one
		}
		n, err := s.registry.Namespace(id)
		return jsonBody(d.append(nil, n)), err
	}
	b := restResult(200, "", s.appendNamespaces(d))
	if d.third {
		b = append(b[:len(b)-1], `,"noRight":false}`...)
	}
	return jsonBody(b), nil
}

func (s *Server) createNamespaceV1(q *request) (answer, error) {
	if _, ok := q.params["customNamespaceId"]; !ok {
		return answer{}, parameterMissing("customNamespaceId")
	}
	if q.text("namespaceName", "") == "" {
		return answer{}, parameterMissing("namespaceName")
	}
	err := s.registry.CreateNamespace(q.Context(), q.namespaceForm("customNamespaceId", "namespaceName"))
	if faulty(err, naming.FaultNamespaceExists) {
		return flagText(false), nil
	}
	return flagText(true), err
}

func (s *Server) updateNamespaceV1(q *request) (answer, error) {
	for _, name := range [...]string{"namespace", "namespaceShowName"} {
		if q.text(name, "") == "" {
			return answer{}, parameterMissing(name)
		}
	}
	n := q.namespaceForm("namespace", "namespaceShowName")
	if fault := naming.CheckNamespaceName(n.Name); fault != nil {
		return flagText(false), nil //nolint:nilerr // which is how the protocol says it
	}
	err := s.registry.UpdateNamespace(q.Context(), n)
	if faulty(err, naming.FaultNamespaceUnknown, naming.FaultNamespace) {
		return flagText(false), nil
	}
	return flagText(true), err
}

func (s *Server) deleteNamespaceV1(q *request) (answer, error) {
	id := q.text("namespaceId", "")
	if id == "" {
		return answer{}, parameterMissing("namespaceId")
	}
	return flagText(true), s.registry.DeleteNamespace(q.Context(), id)
}

func (s *Server) namespacesV2(_ *request, d dialect) ([]byte, error) {
	return s.appendNamespaces(d), nil
}

func (s *Server) namespaceV2(q *request, d dialect) ([]byte, error) {
	id, ok := q.params["namespaceId"]
	if !ok {
		return nil, lackingParameter("namespaceId")
	}
	if id == "" {
		id = naming.DefaultNamespace
	}
	n, err := s.registry.Namespace(id)
	return d.append(nil, n), err
}

// lackingField is the text of the console for a missing field of a form.
func lackingField(name string) error {
	return &naming.InvalidError{Fault: naming.FaultMissing, Field: name, Text: "required parameter '" + name + "' is missing"}
}

func (s *Server) createNamespaceV2(q *request) ([]byte, error) {
	if q.text("namespaceName", "") == "" {
		return nil, lackingField("namespaceName")
	}
	n := q.namespaceForm("namespaceId", "namespaceName")
	err := s.registry.CreateNamespace(q.Context(), n)
	if faulty(err, naming.FaultNamespaceExists) && n.ID != naming.DefaultNamespace {
		err = &naming.InvalidError{Fault: naming.FaultNamespace, Field: "namespaceId", Text: "the namespaceId is existed, namespaceId: " + n.ID}
	}
	return []byte("true"), err
}

func (s *Server) updateNamespaceV2(q *request) ([]byte, error) {
	for _, name := range [...]string{"namespaceId", "namespaceName"} {
		if q.text(name, "") == "" {
			return nil, lackingField(name)
		}
	}
	return []byte("true"), s.registry.UpdateNamespace(q.Context(), q.namespaceForm("namespaceId", "namespaceName"))
}

func (s *Server) deleteNamespaceV2(q *request) ([]byte, error) {
	id := q.text("namespaceId", "")
	if id == "" {
		return nil, lackingParameter("namespaceId")
	}
	return []byte("true"), s.registry.DeleteNamespace(q.Context(), id)
}

// routesNamespacesV3 are the namespaces of the third version: for operators, and for
// the console, which names the new id otherwise.
func (s *Server) routesNamespacesV3(t table, path string) {
	admin := path == "/nacos/v3/admin/core/namespace"
	d := dialect{third: true}
	t.handle(path+"/list", methods{"GET": s.v2(d.bindData(s.namespacesV2), "All namespaces", "")})
	create := s.v2(s.createNamespaceV3("customNamespaceId", false), "Create a namespace", "namespaceName! customNamespaceId namespaceDesc")
	if admin {
		create = s.v2(s.createNamespaceV3("namespaceId", true), "Create a namespace", "namespaceName! namespaceId namespaceDesc")
		t.handle(path+"/check", methods{"GET": s.v2(s.namespaceCount, "How many namespaces have the id", "namespaceId!")})
	} else {
		t.handle(path+"/exist", methods{"GET": s.v2(s.namespaceExists, "Whether an id is taken", "customNamespaceId!")})
	}
	t.handle(path, methods{
		"GET":    s.v2(d.bindData(s.namespaceV2), "One namespace", "namespaceId!"),
		"POST":   create,
		"PUT":    s.v2(s.updateNamespaceV2, "Rename a namespace", "namespaceId! namespaceName! namespaceDesc"),
		"DELETE": s.v2(s.deleteNamespaceV2, "Delete a namespace", "namespaceId!"),
	})
}

// createNamespaceV3 words a malformed id or name as v3 does for operators, if plain.
func (s *Server) createNamespaceV3(id string, plain bool) func(*request) ([]byte, error) {
	return func(q *request) ([]byte, error) {
		if q.text("namespaceName", "") == "" {
			return nil, lackingField("namespaceName")
		}
		n := q.namespaceForm(id, "namespaceName")
		if plain {
			if n.ID != "" && naming.CheckNamespace(n.ID) != nil {
				return nil, &naming.InvalidError{Fault: naming.FaultNamespace, Field: id, Text: "namespaceId [" + clipText(n.ID) + "] mismatch the pattern"}
			}
			if naming.CheckNamespaceName(n.Name) != nil {
				return nil, &naming.InvalidError{Fault: naming.FaultNamespace, Field: "namespaceName", Text: "namespaceName [" + clipText(n.Name) + "] contains illegal char"}
			}
		}
		return []byte("true"), s.registry.CreateNamespace(q.Context(), n)
	}
}

func (s *Server) namespaceCount(q *request) ([]byte, error) {
	id := q.text("namespaceId", "")
	if id == "" {
		return nil, lackingParameter("namespaceId")
	}
	if _, err := s.registry.Namespace(id); err != nil {
		return []byte("0"), nil //nolint:nilerr // that it is unknown is the answer
	}
	return []byte("1"), nil
}

func (s *Server) namespaceExists(q *request) ([]byte, error) {
	id := q.text("customNamespaceId", "")
	if id == "" {
		return nil, lackingParameter("customNamespaceId")
	}
	_, err := s.registry.Namespace(id)
	return strconv.AppendBool(nil, err == nil), nil
}
