package server_test

func badEndpointsV3() []badEndpoint {
	const (
		admin    = "/nacos/v3/admin/ns/"
		instance = "serviceName!:nameV2 ip! port! namespaceId groupName clusterName weight:weightV2 metadata:behaviour healthy enabled ephemeral"
		created  = "serviceName!:nameV2 ip! port! namespaceId groupName clusterName:newCluster weight:weightV2 metadata:behaviour healthy enabled ephemeral"
		removed  = "serviceName!:nameV2 ip! port! namespaceId groupName clusterName weight:weightV2 metadata:removed healthy enabled ephemeral"
		service  = "serviceName!:nameV2 namespaceId groupName"
		settings = service + " protectThreshold metadata:serviceMetadata selector"
		page     = " pageNo:positiveNo pageSize:positiveSize"
	)
	return []badEndpoint{
		{"POST", "/nacos/v3/auth/user/login", badV2, lacksParam, "username=ops&password=x", "username! password!"},
		{"POST", "/nacos/v3/client/ns/instance", badV2, lacksForm, badCreated, created + " heartBeat"},
		{"DELETE", "/nacos/v3/client/ns/instance", badV2, lacksForm, badAimed, removed},
		{"GET", "/nacos/v3/client/ns/instance/list", badV2, lacksForm, badOf, service + " clusterName:clusters healthyOnly"},

		{"POST", admin + "instance", badV2, lacksForm, badCreated, created},
		{"DELETE", admin + "instance", badV2, lacksForm, badAimed, removed},
		{"PUT", admin + "instance", badV2, lacksForm, badAimed + "&weight=3", instance},
		{"GET", admin + "instance", badV2, lacksForm, badAimed, service + " ip! port! clusterName"},
		{"PUT", admin + "instance/partial", badV2, lacksForm, badAimed + "&weight=3", service + " ip! port! clusterName weight:weightV2 enabled metadata:behaviour"},
		{"GET", admin + "instance/list", badV2, lacksForm, badOf, service + " clusterName healthyOnly"},
		{"PUT", admin + "instance/metadata/batch", badV2, lacksForm, badOf + "&metadata=b=2", service + " metadata!:behaviour instances"},
		{"DELETE", admin + "instance/metadata/batch", badV2, lacksForm, badOf + "&metadata=a=", service + " metadata!:removed instances"},
		{"POST", admin + "service", badV2, lacksForm, "namespaceId=bad&serviceName=new", settings + " ephemeral"},
		{"DELETE", admin + "service", badV2, lacksForm, "namespaceId=fixtures&serviceName=empty", service},
		{"PUT", admin + "service", badV2, lacksForm, badTo, settings},
		{"GET", admin + "service", badV2, lacksForm, badOf, service},
		{"GET", admin + "service/list", badV2, "", "namespaceId=fixtures", "namespaceId ignoreEmptyService withInstances" + page},
		{"GET", admin + "service/subscribers", badV2, lacksForm, badOf, service + " aggregation" + page},
		{"GET", admin + "service/selector/types", badV2, "", "", ""},
		{"PUT", admin + "cluster", badV2, lacksForm, badOf + badCluster, service + " clusterName!:written checkPort!:port useInstancePort4Check! healthChecker!:checker metadata:serviceMetadata"},
		{"PUT", admin + "health/instance", badV2, lacksForm, "namespaceId=fixtures&serviceName=persistent&ip=127.0.0.1&port=80&healthy=false", service + " ip! port! clusterName healthy"},
		{"GET", admin + "health/checkers", badV2, "", "", ""},
		{"GET", admin + "client", badV2, lacksSingle, badClient, "clientId!"},
		{"GET", admin + "client/list", badV2, "", "", ""},
		{"GET", admin + "client/publish/list", badV2, lacksSingle, badClient, "clientId!"},
		{"GET", admin + "client/subscribe/list", badV2, lacksSingle, badClient, "clientId!"},
		{"GET", admin + "client/service/publisher/list", badV2, lacksForm, badOf, service + " ip port"},
		{"GET", admin + "client/service/subscriber/list", badV2, lacksForm, badOf, service + " ip port"},
		{"GET", admin + "client/distro", badV2, lacksSingle, "ip=10.0.0.1&port=80", "ip! port"},
		{"GET", admin + "ops/metrics", badV2, "", "", "onlyStatus"},
		{"GET", admin + "ops/switches", badV2, "", "", ""},
		{"PUT", admin + "ops/switches", badV2, lacksForm, badFlag, "entry! value:switchFlag debug"},
		{"PUT", admin + "ops/log", badV2, lacksSingle, "logName=http&logLevel=INFO", "logName! logLevel!"},
	}
}

func badEndpointsCore() []badEndpoint {
	const v1, v2, v3 = "/nacos/v1/core/", "/nacos/v2/core/", "/nacos/v3/admin/core/"
	list := []badEndpoint{
		{"GET", "/nacos/serverlist", badV1, "", "", ""},
		{"GET", v1 + "cluster/self", badV1, "", "", ""},
		{"GET", v1 + "cluster/nodes", badV1, "", "", "keyword"},
		{"GET", v1 + "cluster/simple/nodes", badV1, "", "", ""},
		{"GET", v1 + "cluster/health", badV1, "", "", ""},
		{"POST", v1 + "cluster/report", badV1, "", "", ""},
		{"POST", v1 + "cluster/switch/lookup", badV1, lacksSpring, "type=file", "type!"},
		{"POST", v1 + "cluster/server/leave", badV1, "", "", ""},
		{"GET", v1 + "ops/idInfo", badV1, "", "", ""},
		{"PUT", v1 + "ops/log", badV1, "", "", ""},
		{"POST", v1 + "ops/raft", badV1, "", "", ""},
		{"GET", v2 + "cluster/node/self", badV2, "", "", ""},
		{"GET", v2 + "cluster/node/self/health", badV2, "", "", ""},
		{"DELETE", v2 + "cluster/nodes", badV2, "", "", ""},
		{"GET", v3 + "cluster/node/self", badV2, "", "", ""},
		{"GET", v3 + "cluster/node/self/health", badV2, "", "", ""},
		{"GET", v3 + "state", badV2, "", "", ""},
		{"GET", v3 + "state/liveness", badV2, "", "", ""},
		{"GET", v3 + "state/readiness", badV2, "", "", ""},
		{"GET", v3 + "namespace/list", badV2, "", "", ""},
		{"GET", v3 + "namespace/check", badV2, lacksSingle, "namespaceId=public", "namespaceId!:any"},
		{"GET", v3 + "namespace", badV2, "", "namespaceId=public", ""},
		{"POST", v3 + "namespace", badV2, lacksField, "namespaceId=bad&namespaceName=n", "namespaceName!:adminName namespaceId:adminNamespace namespaceDesc"},
		{"PUT", v3 + "namespace", badV2, lacksField, "namespaceId=bad&namespaceName=n", "namespaceId!:newNamespace namespaceName! namespaceDesc"},
		{"DELETE", v3 + "namespace", badV2, lacksSingle, "namespaceId=bad", "namespaceId!:newNamespace"},
		{"GET", "/nacos/prometheus", badV1, "", "", ""},
		{"GET", "/nacos/prometheus/namespaceId/{namespaceId}", badV1, "", "", ""},
		{"GET", "/nacos/prometheus/namespaceId/{namespaceId}/service/{serviceName}", badV1, "", "", ""},
		{"GET", "/nacos/actuator/health", badV1, "", "", ""},
		{"GET", "/nacos/actuator/metrics", badV1, "", "", ""},
	}
	for _, core := range [...]string{v2, v3} {
		move := map[string]string{v2: "GET", v3: "POST"}[core]
		list = append(list,
			badEndpoint{"GET", core + "cluster/node/list", badV2, "", "", "state"},
			badEndpoint{"PUT", core + "cluster/node/list", badV2, "", "", ""},
			badEndpoint{"PUT", core + "cluster/lookup", badV2, lacksField, "type=file", "type!"},
			badEndpoint{"GET", core + "ops/ids", badV2, "", "", ""},
			badEndpoint{"PUT", core + "ops/log", badV2, "", "", ""},
			badEndpoint{"POST", core + "ops/raft", badV2, "", "", ""},
			badEndpoint{"GET", core + "loader/current", badV2, "", "", ""},
			badEndpoint{"GET", core + "loader/cluster", badV2, "", "", ""},
			badEndpoint{move, core + "loader/reloadClient", badV2, lacksSingle, "connectionId=x", "connectionId! redirectAddress"},
			badEndpoint{move, core + "loader/reloadCurrent", badV2, lacksSingle, "count=9", "count! redirectAddress"},
			badEndpoint{move, core + "loader/smartReloadCluster", badV2, "", "", "loaderFactor"},
		)
	}
	return list
}
