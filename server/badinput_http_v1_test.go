package server_test

func badEndpointsV1() []badEndpoint {
	list := []badEndpoint{
		{"POST", "/nacos/v1/ns/instance", badV1, lacksParam, badCreated, "serviceName! ip! port! namespaceId groupName clusterName:newCluster cluster:newCluster weight metadata:behaviour"},
		{"POST", "/nacos/v1/ns/instance", badV1, lacksParam, badCreated + "&ephemeral=false", "serviceName! ip! port! namespaceId groupName clusterName:newCluster weight metadata:behaviour"},
		{"DELETE", "/nacos/v1/ns/instance", badV1, lacksParam, badAimed, "serviceName! ip! port! namespaceId groupName clusterName cluster weight metadata:removed"},
		{"PUT", "/nacos/v1/ns/instance", badV1, lacksParam, badAimed + "&weight=3", "serviceName! ip! port! namespaceId groupName clusterName cluster weight metadata:behaviour"},
		{"PATCH", "/nacos/v1/ns/instance", badV1, lacksParam, badAimed + "&weight=3", "serviceName! ip! port! namespaceId groupName clusterName cluster weight metadata:behaviour"},
		{"GET", "/nacos/v1/ns/instance", badV1, lacksParam, badAimed, "serviceName! ip! port! namespaceId groupName clusterName"},
		{"GET", "/nacos/v1/ns/instance/list", badV1, lacksParam, badOf, "serviceName! namespaceId groupName clusters udpPort"},
		{"PUT", "/nacos/v1/ns/instance/beat", badV1, lacksParam, badBeatV1, "serviceName! namespaceId groupName beat ip port"},
		{"PUT", "/nacos/v1/ns/instance/beat", badV1, lacksParam, badAimed, "serviceName! namespaceId groupName ip port"},
		{"GET", "/nacos/v1/ns/instance/statuses", badV1, lacksSpring, "key=fixtures%23%23DEFAULT_GROUP@@ephemeral", "key!"},
		{"PUT", "/nacos/v1/ns/instance/metadata/batch", badV1, lacksParam, badOf + "&metadata=b=2", "serviceName! metadata!:behaviour namespaceId groupName instances"},
		{"DELETE", "/nacos/v1/ns/instance/metadata/batch", badV1, lacksParam, badOf + "&metadata=a=", "serviceName! metadata!:removed namespaceId groupName instances"},
		{"POST", "/nacos/v1/ns/service", badV1, lacksSpring, "namespaceId=bad&serviceName=new", "serviceName! namespaceId groupName protectThreshold metadata:serviceMetadata selector"},
		{"DELETE", "/nacos/v1/ns/service", badV1, lacksSpring, "namespaceId=fixtures&serviceName=empty", "serviceName! namespaceId groupName"},
		{"PUT", "/nacos/v1/ns/service", badV1, lacksParam, badTo, "serviceName! protectThreshold! namespaceId groupName metadata:serviceMetadata selector"},
		{"GET", "/nacos/v1/ns/service", badV1, lacksSpring, badOf, "serviceName! namespaceId groupName"},
		{"GET", "/nacos/v1/ns/service/list", badV1, lacksParam, "namespaceId=fixtures&pageNo=1&pageSize=10", "pageNo!:any pageSize!:negative namespaceId groupName"},
		{"GET", "/nacos/v1/ns/service/subscribers", badV1, lacksParam, badOf, "serviceName! namespaceId groupName"},
		{"GET", "/nacos/v1/ns/service/names", badV1, "", "namespaceId=fixtures", "namespaceId"},
		{"GET", "/nacos/v1/ns/service/selector/types", badV1, "", "", ""},
		{"PUT", "/nacos/v1/ns/cluster", badV1, lacksParam, badOf + badCluster, "serviceName! clusterName!:written checkPort!:port useInstancePort4Check! healthChecker!:checker namespaceId groupName metadata:serviceMetadata"},
		{"GET", "/nacos/v1/ns/catalog/service", badV1, "", badOf, "serviceName:plainName namespaceId groupName"},
		{"GET", "/nacos/v1/ns/catalog/instances", badV1, lacksSpring, badOf + "&clusterName=DEFAULT&pageNo=1&pageSize=10", "serviceName! clusterName! pageNo! pageSize!:pageSizeV2 namespaceId groupName"},
		{"GET", "/nacos/v1/ns/catalog/services", badV1, "", "namespaceId=fixtures", "namespaceId hasIpCount withInstances pageNo pageSize:pageSizeV2"},
		{"GET", "/nacos/v1/ns/health/server", badV1, "", "", ""},
		{"GET", "/nacos/v1/ns/health/checkers", badV1, "", "", ""},
		{"GET", "/nacos/v1/ns/api/allDomNames", badV1, "", "", ""},
		{"GET", "/nacos/v1/ns/api/srvIPXT", badV1, lacksParam, "namespaceId=fixtures&dom=ephemeral", "dom! namespaceId clusters udpPort"},
		{"GET", "/nacos/v1/ns/api/hello", badV1, "", "", ""},
	}
	for _, path := range [...]string{"/nacos/v1/ns/health", "/nacos/v1/ns/health/instance"} {
		list = append(list, badEndpoint{"PUT", path, badV1, lacksParam, "namespaceId=fixtures&serviceName=persistent&ip=127.0.0.1&port=80&healthy=false", "serviceName! ip! port! namespaceId groupName clusterName healthy:healthV1"})
	}
	for _, path := range [...]string{"/nacos/v1/auth/login", "/nacos/v1/auth/users/login"} {
		list = append(list, badEndpoint{"POST", path, badV1, lacksParam, "username=ops&password=x", "username! password!"})
	}
	for _, operator := range [...]string{"operator", "ops"} {
		at := "/nacos/v1/ns/" + operator
		list = append(list,
			badEndpoint{"GET", at + "/metrics", badV1, "", "", ""},
			badEndpoint{"GET", at + "/switches", badV1, "", "", ""},
			badEndpoint{"PUT", at + "/switches", badV1, lacksSpring, badFlag, "entry! value:switchFlag debug"},
			badEndpoint{"PUT", at + "/switches", badV1, lacksSpring, badNumber, "value:switchNumber"},
			badEndpoint{"PUT", at + "/switches", badV1, lacksSpring, badStatus, "value:switchStatus"},
			badEndpoint{"PUT", at + "/switches", badV1, lacksSpring, "entry=limitedUrlMap&value=/a:503", "value:switchURLs"},
			badEndpoint{"PUT", at + "/switches", badV1, lacksSpring, "entry=tcpHealthParams&value={}", "value:switchTimes"},
			badEndpoint{"GET", at + "/push/state", badV1, "", "", "detail reset"},
			badEndpoint{"PUT", at + "/log", badV1, lacksSpring, "logName=http&logLevel=INFO", "logName! logLevel!"},
			badEndpoint{"GET", at + "/distro/client", badV1, lacksSpring, "ip=10.0.0.1&port=80", "ip! port!"},
		)
	}
	return list
}
