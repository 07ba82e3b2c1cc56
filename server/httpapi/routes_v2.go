package httpapi

// routesV2 are the paths of naming in version 2.
func (s *Server) routesV2(t table) {
	const (
		service  = "serviceName! groupName namespaceId"
		instance = "serviceName! ip! port! groupName namespaceId clusterName weight healthy enabled ephemeral metadata"
		batch    = service + " metadata! instances consistencyType"
		settings = service + " ephemeral protectThreshold metadata selector"
		client   = "clientId!"
	)
	t.handle("/nacos/v2/ns/instance", methods{
		"POST":   s.v2(s.registerV2, "Register an instance", instance),
		"DELETE": s.v2(s.deregisterV2, "Deregister an instance", instance),
		"PUT":    s.v2(s.updateV2, "Lay an override over an instance", instance),
		"PATCH":  s.raw(s.patchV2, "Change an instance's override", "serviceName! ip! port! weight! enabled! metadata! namespaceId cluster"),
		"GET":    s.v2(s.detailV2, "One instance", "serviceName! ip! port! groupName namespaceId clusterName"),
	})
	t.handle("/nacos/v2/ns/instance/list", methods{"GET": s.v2(s.listV2, "What a client sees of a service; subscribes to UDP pushes with port", service+" clusterName healthyOnly ip port app")})
	t.handle("/nacos/v2/ns/instance/beat", methods{"PUT": s.raw(s.beatV2, "Heartbeat", "serviceName! namespaceId beat ip port clusterName")})
	statuses := s.raw(s.statusesV2, "Health of each instance of a service", "key!")
	t.handle("/nacos/v2/ns/instance/statuses/{key}", methods{"GET": statuses, "POST": statuses, "PUT": statuses, "DELETE": statuses})
	t.handle("/nacos/v2/ns/instance/metadata/batch", methods{
		"PUT":    s.v2(s.setMetadataV2, "Set metadata of several instances", batch),
		"DELETE": s.v2(s.removeMetadataV2, "Remove metadata of several instances", batch),
	})
	t.handle("/nacos/v2/ns/service", methods{
		"POST":   s.v2(s.createServiceV2, "Create a service", settings),
		"DELETE": s.v2(s.deleteServiceV2, "Delete a service without instances", service),
		"PUT":    s.v2(s.updateServiceV2, "Replace the settings of a service", settings),
		"GET":    s.v2(s.serviceV2, "Settings of a service", service),
	})
	t.handle("/nacos/v2/ns/service/list", methods{"GET": s.v2(s.serviceListV2, "Names of a group's services", "groupName namespaceId pageNo pageSize selector")})
	t.handle("/nacos/v2/ns/catalog/instances", methods{"GET": s.v1(s.catalogInstancesV2, "Instances of a service, disabled ones included", service+" healthyOnly enabledOnly pageNo! pageSize!")})
	for _, path := range [...]string{"/nacos/v2/ns/health", "/nacos/v2/ns/health/instance"} {
		t.handle(path, methods{"PUT": s.v2(s.setHealthV2, "Set the health of a persistent instance that is not probed", "serviceName! ip! port! healthy! groupName namespaceId clusterName")})
	}
	t.handle("/nacos/v2/ns/client", methods{"GET": s.v2(s.clientV2, "One client", client)})
	t.handle("/nacos/v2/ns/client/list", methods{"GET": s.v2(s.clientsV2, "Ids of all clients", "")})
	t.handle("/nacos/v2/ns/client/publish/list", methods{"GET": s.v2(s.publishedV2, "What a client publishes", client)})
	t.handle("/nacos/v2/ns/client/subscribe/list", methods{"GET": s.v2(s.subscribedV2, "What a client subscribes to", client)})
	t.handle("/nacos/v2/ns/client/service/publisher/list", methods{"GET": s.v2(s.publishersV2, "Clients that publish an address in a service", service+" ephemeral ip port")})
	t.handle("/nacos/v2/ns/client/service/subscriber/list", methods{"GET": s.v2(s.subscribersV2, "Clients that subscribe to a service", service+" ephemeral ip port")})
	for _, operator := range [...]string{"operator", "ops"} {
		t.handle("/nacos/v2/ns/"+operator+"/metrics", methods{"GET": s.v2(s.metricsV2, "Status, and counts", "onlyStatus")})
		t.handle("/nacos/v2/ns/"+operator+"/switches", methods{
			"GET": s.v2(s.switchesV2, "Switches of all nodes", ""),
			"PUT": s.v2(s.changeSwitchV2, "Change a switch", "entry! value! debug"),
		})
	}
}
