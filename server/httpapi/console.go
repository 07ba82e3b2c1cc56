package httpapi

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// routesConsole are the paths that consoles and their scripts use. The third version
// has them without /nacos, on a port of its own; here one port serves both.
func (s *Server) routesConsole(t table) {
	for _, prefix := range [...]string{"/nacos", ""} {
		s.routesConsoleOld(t, prefix)
		s.routesConsole3(t, prefix+"/v3/console/")
	}
	s.routesNamespacesV3(t, "/nacos/v3/admin/core/namespace")
	t.handle("/nacos/v3/admin/core/state", methods{"GET": s.v2(s.serverStateV3, "Settings of this node", "")})
	t.handle("/nacos/v3/admin/core/state/liveness", methods{"GET": s.v2(s.livenessV2, "Is the process alive", "")})
	t.handle("/nacos/v3/admin/core/state/readiness", methods{"GET": s.raw(s.readinessV2, "Does the node serve", "")})
}

func (s *Server) routesConsoleOld(t table, prefix string) {
	v1, v2 := prefix+"/v1/console/", prefix+"/v2/console/"
	d := dialect{third: prefix == ""}
	t.handle(v1+"namespaces", methods{
		"GET":    s.v1(d.bind(s.namespacesV1), "All namespaces, one with show=all, or whether an id is taken with checkNamespaceIdExist=true", "show namespaceId checkNamespaceIdExist customNamespaceId"),
		"POST":   s.v1(s.createNamespaceV1, "Create a namespace", "customNamespaceId! namespaceName! namespaceDesc"),
		"PUT":    s.v1(s.updateNamespaceV1, "Rename a namespace", "namespace! namespaceShowName! namespaceDesc"),
		"DELETE": s.v1(s.deleteNamespaceV1, "Delete a namespace", "namespaceId!"),
	})
	t.handle(v2+"namespace/list", methods{"GET": s.v2(d.bindData(s.namespacesV2), "All namespaces", "")})
	t.handle(v2+"namespace", methods{
		"GET":    s.v2(d.bindData(s.namespaceV2), "One namespace", "namespaceId!"),
		"POST":   s.v2(s.createNamespaceV2, "Create a namespace", "namespaceName! namespaceId namespaceDesc"),
		"PUT":    s.v2(s.updateNamespaceV2, "Rename a namespace", "namespaceId! namespaceName! namespaceDesc"),
		"DELETE": s.v2(s.deleteNamespaceV2, "Delete a namespace", "namespaceId!"),
	})
	t.handle(v1+"server/state", methods{"GET": s.v1(func(*request) (answer, error) { return s.serverState(d.version()) }, "Settings of this node", "")})
	t.handle(v1+"server/announcement", methods{"GET": s.v1(s.nothingV1, "A text for the console: there is none", "language")})
	t.handle(v1+"server/guide", methods{"GET": s.v1(s.nothingV1, "A text for the console: there is none", "")})
	t.handle(v1+"health/liveness", methods{"GET": s.v1(s.livenessV1, "Is the process alive", "")})
	t.handle(v1+"health/readiness", methods{"GET": s.v1(s.readinessV1, "Does the node serve", "")})
	t.handle(v2+"health/liveness", methods{"GET": s.v2(s.livenessV2, "Is the process alive", "")})
	t.handle(v2+"health/readiness", methods{"GET": s.raw(s.readinessV2, "Does the node serve", "")})
}

func (s *Server) routesConsole3(t table, v3 string) {
	const (
		service  = "serviceName! groupName namespaceId"
		settings = service + " ephemeral protectThreshold metadata selector"
	)
	t.handle(v3+"ns/service", methods{
		"POST":   s.v2(s.createServiceV2, "Create a service", settings),
		"DELETE": s.v2(s.deleteServiceV3, "Delete a service without instances", service),
		"PUT":    s.v2(s.updateServiceV2, "Replace the settings of a service", settings),
		"GET":    s.v2(s.consoleServiceV3, "Settings of a service", service),
	})
	t.handle(v3+"ns/service/list", methods{"GET": s.v2(s.serviceListV3, "Search for services", "namespaceId serviceNameParam groupNameParam ignoreEmptyService withInstances pageNo pageSize")})
	t.handle(v3+"ns/service/subscribers", methods{"GET": s.v2(s.subscribersV3, "Subscribers of a service", service+" aggregation pageNo pageSize")})
	t.handle(v3+"ns/service/selector/types", methods{"GET": s.v2(s.selectorTypesV3, "Types of selectors", "")})
	t.handle(v3+"ns/service/cluster", methods{"PUT": s.v2(s.updateClusterV3, "Write the settings of a cluster", service+" clusterName! checkPort! useInstancePort4Check! healthChecker! metadata")})
	list := s.v2(s.consoleInstancesV3, "Instances of a cluster, disabled ones included", service+" clusterName healthyOnly pageNo pageSize")
	t.handle(v3+"ns/instance/list", methods{"GET": list, "POST": list})
	t.handle(v3+"ns/instance", methods{"PUT": s.v2(s.updateV2, "Lay an override over an instance", "serviceName! ip! port! groupName namespaceId clusterName weight healthy enabled ephemeral metadata")})
	s.routesNamespacesV3(t, v3+"core/namespace")
	t.handle(v3+"core/cluster/nodes", methods{"GET": s.v2(func(q *request) ([]byte, error) {
		return s.nodesOf(protocolVersion3, q.word("keyword"), "")
	}, "All nodes", "keyword")})
	t.handle(v3+"server/state", methods{"GET": s.raw(func(*request) (answer, error) { return s.serverState(protocolVersion3) }, "Settings of this node", "")})
	t.handle(v3+"server/announcement", methods{"GET": s.v2(s.nothingV2, "A text for the console: there is none", "language")})
	t.handle(v3+"server/guide", methods{"GET": s.v2(s.nothingV2, "A text for the console: there is none", "")})
	t.handle(v3+"health/liveness", methods{"GET": s.v2(s.livenessV2, "Is the process alive", "")})
	t.handle(v3+"health/readiness", methods{"GET": s.raw(s.readinessConsole, "Does the node serve", "")})
}

// serverState is the flat object of the protocol, all of whose values are texts or
// null (http.md 2.9). What belongs to configuration management, which there is none
// of, has the original's defaults: tools look for the keys.
func (s *Server) serverState(version string) (answer, error) {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	mode := "standalone"
	if len(s.cfg.Nodes()) > 1 {
		mode = "cluster"
	}
	b, err := json.Marshal(map[string]any{
		"version": version, "startup_mode": mode, "function_mode": nil, "server_port": port,
		"auth_enabled": "false", "auth_system_type": "nacos", "auth_admin_request": "false", "login_page_enabled": "false",
		"console_ui_enabled": "true", "datasource_platform": "", "plugin_datasource_log_enabled": "false",
		"config_retention_days": "30", "notifyConnectTimeout": "100", "notifySocketTimeout": "200",
		"isHealthCheck": "true", "maxHealthCheckFailCount": "12", "maxContent": "10485760",
		"isManageCapacity": "true", "isCapacityLimitCheck": "false", "defaultClusterQuota": "100000", "defaultGroupQuota": "200",
		"defaultMaxSize": "102400", "defaultMaxAggrCount": "10000", "defaultMaxAggrSize": "1024",
	})
	return jsonBody(b), err
}

func (s *Server) serverStateV3(*request) ([]byte, error) {
	a, err := s.serverState(protocolVersion3)
	return a.body, err
}

func (s *Server) nothingV1(*request) (answer, error) { return s.rest([]byte("null"), nil) }

func (s *Server) nothingV2(*request) ([]byte, error) { return []byte("null"), nil }

func (s *Server) livenessV1(*request) (answer, error) { return text("OK"), nil }

func (s *Server) livenessV2(*request) ([]byte, error) { return []byte(okJSON), nil }

// notReady is why the node does not serve, in the words of the protocol; empty when
// it does.
func (s *Server) notReady() string {
	if err := s.registry.Ready(); err != nil {
		return "naming not in readiness: " + err.Error()
	}
	if status := s.registry.Switches().OverriddenStatus; status != "" && status != "UP" {
		return "naming not in readiness: the switch overriddenServerStatus is " + status
	}
	return ""
}

func (s *Server) readinessV1(*request) (answer, error) {
	if why := s.notReady(); why != "" {
		return answer{http.StatusInternalServerError, plainText, []byte(why)}, nil
	}
	return text("OK"), nil
}

// readinessV2 tells in the body alone that the node does not serve.
func (s *Server) readinessV2(*request) (answer, error) {
	if why := s.notReady(); why != "" {
		b := wire.AppendString([]byte(`{"code":30000,"message":`), why)
		return jsonBody(append(b, `,"data":null}`...)), nil
	}
	return jsonBody(result(wire.CodeSuccess, []byte(okJSON))), nil
}

func (s *Server) readinessConsole(q *request) (answer, error) {
	a, err := s.readinessV2(q)
	if s.notReady() != "" {
		a.status = http.StatusInternalServerError
	}
	return a, err
}

// consoleServiceV3 is the detail of v3 with the console's own error.
func (s *Server) consoleServiceV3(q *request) ([]byte, error) {
	svc, err := q.serviceV2(formString)
	if err != nil {
		return nil, err
	}
	in, err := s.listed(svc)
	if err != nil {
		return nil, err
	}
	return appendServiceV3(nil, &in), nil
}

func (s *Server) consoleInstancesV3(q *request) ([]byte, error) {
	no, size, err := q.pageV3(defaultPageV3)
	if err != nil {
		return nil, err
	}
	svc, list, err := s.instancesV3(q)
	if err != nil {
		return nil, err
	}
	return appendPage(nil, list, no, size, func(b []byte, i *naming.Instance) []byte { return wire.AppendInstance(b, i, svc) }), nil
}

// flagText is a boolean of the console's JSON.
func flagText(v bool) answer { return jsonBody([]byte(strconv.FormatBool(v))) }

// isTrue reads a flag of the console that chooses between answers.
func (p params) isTrue(name string) bool { return strings.EqualFold(p.word(name), "true") }
