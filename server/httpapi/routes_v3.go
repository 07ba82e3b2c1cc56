package httpapi

// routesV3 are the paths of naming in version 3: for clients without gRPC, and for
// operators.
func (s *Server) routesV3(t table) {
	const (
		service  = "serviceName! groupName namespaceId"
		instance = "serviceName! ip! port! groupName namespaceId clusterName weight healthy enabled ephemeral metadata"
		batch    = service + " metadata! instances consistencyType"
		settings = service + " ephemeral protectThreshold metadata selector"
		listed   = service + " clusterName healthyOnly"
		client   = "clientId!"
		admin    = "/nacos/v3/admin/ns/"
	)
	t.handle("/nacos/v3/auth/user/login", methods{"POST": s.raw(s.login, "Log in", "username! password!")})
	t.handle("/nacos/v3/client/ns/instance", methods{
		"POST":   s.raw(s.registerV3, "Register an instance, or send its heartbeat", instance+" heartBeat"),
		"DELETE": s.v2(s.deregisterV2, "Deregister an instance", instance),
	})
	t.handle("/nacos/v3/client/ns/instance/list", methods{"GET": s.v2(s.listV3, "What a client sees of a service", listed)})

	t.handle(admin+"instance", methods{
		"POST":   s.v2(s.registerV2, "Register an instance", instance),
		"DELETE": s.v2(s.deregisterV2, "Deregister an instance", instance),
		"PUT":    s.v2(s.updateV2, "Lay an override over an instance", instance),
		"GET":    s.v2(s.detailV3, "One instance", "serviceName! ip! port! groupName namespaceId clusterName"),
	})
	t.handle(admin+"instance/partial", methods{"PUT": s.v2(s.partialV3, "Change what is given of an instance's override", "serviceName! ip! port! groupName namespaceId clusterName weight enabled metadata")})
	t.handle(admin+"instance/list", methods{"GET": s.v2(s.adminListV3, "Instances of a cluster, disabled ones included", listed)})
	t.handle(admin+"instance/metadata/batch", methods{
		"PUT":    s.v2(s.setMetadataV2, "Set metadata of several instances", batch),
		"DELETE": s.v2(s.removeMetadataV2, "Remove metadata of several instances", batch),
	})
	t.handle(admin+"service", methods{
		"POST":   s.v2(s.createServiceV2, "Create a service", settings),
		"DELETE": s.v2(s.deleteServiceV3, "Delete a service without instances", service),
		"PUT":    s.v2(s.updateServiceV2, "Replace the settings of a service", settings),
		"GET":    s.v2(s.serviceV3, "Settings of a service", service),
	})
	t.handle(admin+"service/list", methods{"GET": s.v2(s.serviceListV3, "Search for services", "namespaceId serviceNameParam groupNameParam ignoreEmptyService withInstances pageNo pageSize")})
	t.handle(admin+"service/subscribers", methods{"GET": s.v2(s.subscribersV3, "Subscribers of a service", service+" aggregation pageNo pageSize")})
	t.handle(admin+"service/selector/types", methods{"GET": s.v2(s.selectorTypesV3, "Types of selectors", "")})
	t.handle(admin+"cluster", methods{"PUT": s.v2(s.updateClusterV3, "Write the settings of a cluster", service+" clusterName! checkPort! useInstancePort4Check! healthChecker! metadata")})
	t.handle(admin+"health/instance", methods{"PUT": s.v2(s.setHealthV2, "Set the health of a persistent instance that is not probed", "serviceName! ip! port! healthy! groupName namespaceId clusterName")})
	t.handle(admin+"health/checkers", methods{"GET": s.v2(s.checkersV3, "Types of health checkers", "")})
	t.handle(admin+"client", methods{"GET": s.v2(s.clientV3, "One client", client)})
	t.handle(admin+"client/list", methods{"GET": s.v2(s.clientsV2, "Ids of all clients", "")})
	t.handle(admin+"client/publish/list", methods{"GET": s.v2(s.publishedV3, "What a client publishes", client)})
	t.handle(admin+"client/subscribe/list", methods{"GET": s.v2(s.subscribedV3, "What a client subscribes to", client)})
	t.handle(admin+"client/service/publisher/list", methods{"GET": s.v2(s.publishersV3, "Clients that publish in a service", service+" ip port")})
	t.handle(admin+"client/service/subscriber/list", methods{"GET": s.v2(s.subscribersOfV3, "Clients that subscribe to a service", service+" ip port")})
	t.handle(admin+"client/distro", methods{"GET": s.v2(s.responsibleV3, "The node that owns what a client publishes", "ip! port!")})
	t.handle(admin+"ops/metrics", methods{"GET": s.v2(s.metricsV3, "Status, and counts", "onlyStatus")})
	t.handle(admin+"ops/log", methods{"PUT": s.v2(s.setLogV3, "Set the level of a log on this node", "logName! logLevel!")})
	t.handle(admin+"ops/switches", methods{
		"GET": s.v2(s.switchesV2, "Switches of all nodes", ""),
		"PUT": s.v2(s.changeSwitchV2, "Change a switch", "entry! value! debug"),
	})
}
