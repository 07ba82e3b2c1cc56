package server_test

func badEndpointsV2() []badEndpoint {
	const health = "namespaceId=fixtures&serviceName=persistent&ip=127.0.0.1&port=80&healthy=false"
	list := []badEndpoint{
		{"POST", "/nacos/v2/ns/instance", badV2, lacksForm, badCreated, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName:newCluster weight:weightV2 metadata:behaviour healthy enabled ephemeral"},
		{"POST", "/nacos/v2/ns/instance", badV2, lacksForm, badCreated + "&ephemeral=false", "serviceName!:nameV2 ip! port! namespaceId groupName clusterName:newCluster weight:weightV2 metadata:behaviour healthy enabled"},
		{"DELETE", "/nacos/v2/ns/instance", badV2, lacksForm, badAimed, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName weight:weightV2 metadata:removed healthy enabled ephemeral"},
		{"PUT", "/nacos/v2/ns/instance", badV2, lacksForm, badAimed + "&weight=3", "serviceName!:nameV2 ip! port! namespaceId groupName clusterName weight:weightV2 metadata:behaviour healthy enabled ephemeral"},
		{"PATCH", "/nacos/v2/ns/instance", badV2, lacksSingle, badGrouped + "&weight=3&enabled=true&metadata=b=2", "serviceName!:groupedName ip! port! weight!:weightV2 enabled! metadata!:behaviour namespaceId cluster"},
		{"GET", "/nacos/v2/ns/instance", badV2, lacksSingle, badAimed, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName"},
		{"GET", "/nacos/v2/ns/instance/list", badV2, lacksSingle, badOf, "serviceName!:nameV2 namespaceId groupName clusterName:clusters port:portV2 healthyOnly"},
		{"PUT", "/nacos/v2/ns/instance/beat", badV2, lacksSingle, badBeatV2, "serviceName!:groupedName namespaceId beat ip port"},
		{"PUT", "/nacos/v2/ns/instance/beat", badV2, lacksSingle, badGrouped, "serviceName!:groupedName namespaceId ip port"},
		{"PUT", "/nacos/v2/ns/instance/metadata/batch", badV2, lacksForm, badOf + "&metadata=b=2", "serviceName!:nameV2 metadata!:behaviour namespaceId groupName instances"},
		{"DELETE", "/nacos/v2/ns/instance/metadata/batch", badV2, lacksForm, badOf + "&metadata=a=", "serviceName!:nameV2 metadata!:removed namespaceId groupName instances"},
		{"POST", "/nacos/v2/ns/service", badV2, lacksForm, "namespaceId=bad&serviceName=new", "serviceName!:nameV2 namespaceId groupName protectThreshold metadata:serviceMetadata selector ephemeral"},
		{"DELETE", "/nacos/v2/ns/service", badV2, lacksSingle, "namespaceId=fixtures&serviceName=empty", "serviceName!:nameV2 namespaceId groupName"},
		{"PUT", "/nacos/v2/ns/service", badV2, lacksForm, badTo, "serviceName!:nameV2 namespaceId groupName protectThreshold metadata:serviceMetadata selector"},
		{"GET", "/nacos/v2/ns/service", badV2, lacksSingle, badOf, "serviceName!:nameV2 namespaceId groupName"},
		{"GET", "/nacos/v2/ns/service/list", badV2, lacksSingle, "namespaceId=fixtures", "namespaceId groupName pageNo pageSize:pageSizeV2"},
		{"GET", "/nacos/v2/ns/catalog/instances", badV1, lacksSpring, badOf + "&pageNo=1&pageSize=10", "serviceName!:nameV2 pageNo! pageSize!:pageSizeV2 namespaceId groupName healthyOnly enabledOnly"},
		{"PUT", "/nacos/v2/ns/health", badV2, lacksForm, health, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName healthy"},
		{"PUT", "/nacos/v2/ns/health/instance", badV2, lacksForm, health, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName healthy"},
		{"GET", "/nacos/v2/ns/client", badV2, lacksSingle, badClient, "clientId!"},
		{"GET", "/nacos/v2/ns/client/list", badV2, "", "", ""},
		{"GET", "/nacos/v2/ns/client/publish/list", badV2, lacksSingle, badClient, "clientId!"},
		{"GET", "/nacos/v2/ns/client/subscribe/list", badV2, lacksSingle, badClient, "clientId!"},
		{"GET", "/nacos/v2/ns/client/service/publisher/list", badV2, lacksSingle, badOf, "serviceName!:nameV2 namespaceId groupName ephemeral ip port"},
		{"GET", "/nacos/v2/ns/client/service/subscriber/list", badV2, lacksSingle, badOf, "serviceName!:nameV2 namespaceId groupName ephemeral ip port"},
	}
	for _, method := range [...]string{"GET", "POST", "PUT", "DELETE"} {
		list = append(list, badEndpoint{method, "/nacos/v2/ns/instance/statuses/{key}", badV2, "", "", "key"})
	}
	for _, operator := range [...]string{"operator", "ops"} {
		at := "/nacos/v2/ns/" + operator
		list = append(list,
			badEndpoint{"GET", at + "/metrics", badV2, "", "", "onlyStatus"},
			badEndpoint{"GET", at + "/switches", badV2, "", "", ""},
			badEndpoint{"PUT", at + "/switches", badV2, lacksForm, badFlag, "entry! value:switchFlag debug"},
			badEndpoint{"PUT", at + "/switches", badV2, lacksForm, badNumber, "value:switchNumber"},
		)
	}
	return list
}
