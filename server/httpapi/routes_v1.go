package httpapi

// routesV1 are the paths of naming in version 1, and the logins.
func (s *Server) routesV1(t table) {
	const (
		service  = "serviceName! groupName namespaceId"
		instance = "serviceName! ip! port! groupName namespaceId clusterName cluster weight healthy enabled enable ephemeral metadata"
		batch    = service + " metadata! instances consistencyType"
	)
	t.handle("/nacos/v1/ns/instance", methods{
		"POST":   s.v1(s.registerV1, "Register an instance", instance),
		"DELETE": s.v1(s.deregisterV1, "Deregister an instance", instance),
		"PUT":    s.v1(s.updateV1, "Lay an override over an instance", instance),
		"PATCH":  s.v1(s.patchV1, "Change what is given of an instance's override", "serviceName! ip! port! groupName namespaceId clusterName cluster weight enabled metadata"),
		"GET":    s.v1(s.detailV1, "One instance", "serviceName! ip! port! groupName namespaceId clusterName"),
	})
	t.handle("/nacos/v1/ns/instance/list", methods{"GET": s.v1(s.listV1, "What a client sees of a service; subscribes to UDP pushes with udpPort", service+" clusters healthyOnly clientIP udpPort app")})
	t.handle("/nacos/v1/ns/instance/beat", methods{"PUT": s.v1(s.beatV1, "Heartbeat", service+" beat ip port clusterName")})
	t.handle("/nacos/v1/ns/instance/statuses", methods{"GET": s.v1(s.statusesV1, "Health of each instance of a service", "key!")})
	t.handle("/nacos/v1/ns/instance/metadata/batch", methods{
		"PUT":    s.v1(s.setMetadataV1, "Set metadata of several instances", batch),
		"DELETE": s.v1(s.removeMetadataV1, "Remove metadata of several instances", batch),
	})
	t.handle("/nacos/v1/ns/service", methods{
		"POST":   s.v1(s.createServiceV1, "Create a service", service+" protectThreshold metadata selector"),
		"DELETE": s.v1(s.deleteServiceV1, "Delete a service without instances", service),
		"PUT":    s.v1(s.updateServiceV1, "Replace the settings of a service", service+" protectThreshold! metadata selector"),
		"GET":    s.v1(s.serviceV1, "Settings of a service", service),
	})
	t.handle("/nacos/v1/ns/service/list", methods{"GET": s.v1(s.serviceListV1, "Names of a group's services", "pageNo! pageSize! groupName namespaceId selector")})
	t.handle("/nacos/v1/ns/service/names", methods{"GET": s.v1(s.serviceNamesV1, "Names of services by namespace", "namespaceId expr responsibleOnly")})
	t.handle("/nacos/v1/ns/service/subscribers", methods{"GET": s.v1(s.subscribersV1, "Subscribers of a service", service+" pageNo pageSize aggregation")})
	t.handle("/nacos/v1/ns/service/selector/types", methods{"GET": s.v1(s.selectorTypesV1, "Types of selectors", "")})
	t.handle("/nacos/v1/ns/cluster", methods{"PUT": s.v1(s.updateClusterV1, "Write the settings of a cluster", service+" clusterName! checkPort! useInstancePort4Check! healthChecker! metadata")})
	t.handle("/nacos/v1/ns/catalog/service", methods{"GET": s.v1(s.catalogServiceV1, "Settings of a service and its clusters", "serviceName groupName namespaceId")})
	t.handle("/nacos/v1/ns/catalog/instances", methods{"GET": s.v1(s.catalogInstancesV1, "Instances of a cluster, disabled ones included", service+" clusterName! pageNo! pageSize!")})
	t.handle("/nacos/v1/ns/catalog/services", methods{"GET": s.v1(s.catalogServicesV1, "Search for services", "namespaceId serviceNameParam groupNameParam hasIpCount withInstances pageNo pageSize instance")})
	t.handle("/nacos/v1/ns/health/server", methods{"GET": s.v1(s.healthServerV1, "A greeting with the number of services", "")})
	t.handle("/nacos/v1/ns/health/checkers", methods{"GET": s.v1(s.checkersV1, "Types of health checkers", "")})
	for _, path := range [...]string{"/nacos/v1/ns/health", "/nacos/v1/ns/health/instance"} {
		t.handle(path, methods{"PUT": s.v1(s.setHealthV1, "Set the health of a persistent instance that is not probed", "serviceName! ip! port! healthy! groupName namespaceId clusterName valid")})
	}
	for _, operator := range [...]string{"operator", "ops"} {
		t.handle("/nacos/v1/ns/"+operator+"/metrics", methods{"GET": s.v1(s.metricsV1, "Status, and counts", "onlyStatus")})
		t.handle("/nacos/v1/ns/"+operator+"/switches", methods{
			"GET": s.v1(s.switchesV1, "Switches of all nodes", ""),
			"PUT": s.v1(s.changeSwitchV1, "Change a switch", "entry! value! debug"),
		})
		t.handle("/nacos/v1/ns/"+operator+"/push/state", methods{"GET": s.v1(s.pushStateV1, "How pushes went", "detail reset")})
		t.handle("/nacos/v1/ns/"+operator+"/log", methods{"PUT": s.v1(s.setLogV1, "Set the level of a log on this node", "logName! logLevel!")})
		t.handle("/nacos/v1/ns/"+operator+"/distro/client", methods{"GET": s.v1(s.responsibleV1, "The node that owns what a client publishes", "ip! port!")})
	}
	t.handle("/nacos/v1/auth/login", methods{"POST": s.v1(s.login, "Log in", "username! password!")})
	t.handle("/nacos/v1/auth/users/login", methods{"POST": s.v1(s.login, "Log in", "username! password!")})
}
