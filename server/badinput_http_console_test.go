package server_test

func badEndpointsConsole() (list []badEndpoint) {
	const (
		service  = "serviceName!:nameV2 namespaceId groupName"
		settings = service + " protectThreshold metadata:serviceMetadata selector"
		page     = " pageNo:positiveNo pageSize:positiveSize"
	)
	for _, prefix := range [...]string{"/nacos", ""} {
		v1, v2, v3 := prefix+"/v1/console/", prefix+"/v2/console/", prefix+"/v3/console/"
		list = append(list,
			badEndpoint{"GET", v1 + "namespaces", badV1, "", "", ""},
			badEndpoint{"POST", v1 + "namespaces", badV1, lacksSpring, "customNamespaceId=bad&namespaceName=n", "namespaceName! customNamespaceId:newNamespace namespaceDesc"},
			badEndpoint{"PUT", v1 + "namespaces", badV1, lacksSpring, "namespace=bad&namespaceShowName=n", "namespace!:newNamespace namespaceShowName!:any namespaceDesc"},
			badEndpoint{"DELETE", v1 + "namespaces", badV1, lacksSpring, "namespaceId=bad", "namespaceId!:newNamespace"},
			badEndpoint{"GET", v1 + "server/state", badV1, "", "", ""},
			badEndpoint{"GET", v1 + "server/announcement", badV1, "", "", ""},
			badEndpoint{"GET", v1 + "server/guide", badV1, "", "", ""},
			badEndpoint{"GET", v1 + "health/liveness", badV1, "", "", ""},
			badEndpoint{"GET", v1 + "health/readiness", badV1, "", "", ""},
			badEndpoint{"GET", v2 + "namespace/list", badV2, "", "", ""},
			badEndpoint{"GET", v2 + "namespace", badV2, "", "namespaceId=public", ""},
			badEndpoint{"POST", v2 + "namespace", badV2, lacksField, "namespaceId=bad&namespaceName=n", "namespaceName! namespaceId:newNamespace namespaceDesc"},
			badEndpoint{"PUT", v2 + "namespace", badV2, lacksField, "namespaceId=bad&namespaceName=n", "namespaceId!:newNamespace namespaceName! namespaceDesc"},
			badEndpoint{"DELETE", v2 + "namespace", badV2, lacksSingle, "namespaceId=bad", "namespaceId!:newNamespace"},
			badEndpoint{"GET", v2 + "health/liveness", badV2, "", "", ""},
			badEndpoint{"GET", v2 + "health/readiness", badV2, "", "", ""},

			badEndpoint{"POST", v3 + "ns/service", badV2, lacksForm, "namespaceId=bad&serviceName=new", settings + " ephemeral"},
			badEndpoint{"DELETE", v3 + "ns/service", badV2, lacksForm, "namespaceId=fixtures&serviceName=empty", service},
			badEndpoint{"PUT", v3 + "ns/service", badV2, lacksForm, badTo, settings},
			badEndpoint{"GET", v3 + "ns/service", badV2, lacksForm, badOf, service},
			badEndpoint{"GET", v3 + "ns/service/list", badV2, "", "namespaceId=fixtures", "namespaceId ignoreEmptyService withInstances" + page},
			badEndpoint{"GET", v3 + "ns/service/subscribers", badV2, lacksForm, badOf, service + " aggregation" + page},
			badEndpoint{"GET", v3 + "ns/service/selector/types", badV2, "", "", ""},
			badEndpoint{"PUT", v3 + "ns/service/cluster", badV2, lacksForm, badOf + badCluster, service + " clusterName!:written checkPort!:port healthChecker!:checker"},
			badEndpoint{"GET", v3 + "ns/instance/list", badV2, lacksForm, badOf, service + " clusterName healthyOnly" + page},
			badEndpoint{"POST", v3 + "ns/instance/list", badV2, lacksForm, badOf, service + " clusterName healthyOnly" + page},
			badEndpoint{"PUT", v3 + "ns/instance", badV2, lacksForm, badAimed + "&weight=3", service + " ip! port! clusterName weight:weightV2"},
			badEndpoint{"GET", v3 + "core/namespace/list", badV2, "", "", ""},
			badEndpoint{"GET", v3 + "core/namespace", badV2, "", "namespaceId=public", ""},
			badEndpoint{"GET", v3 + "core/namespace/exist", badV2, lacksSingle, "customNamespaceId=x", "customNamespaceId!:any"},
			badEndpoint{"POST", v3 + "core/namespace", badV2, lacksField, "customNamespaceId=bad&namespaceName=n", "namespaceName! customNamespaceId:newNamespace namespaceDesc"},
			badEndpoint{"PUT", v3 + "core/namespace", badV2, lacksField, "namespaceId=bad&namespaceName=n", "namespaceId!:newNamespace namespaceName! namespaceDesc"},
			badEndpoint{"DELETE", v3 + "core/namespace", badV2, lacksSingle, "namespaceId=bad", "namespaceId!:newNamespace"},
			badEndpoint{"GET", v3 + "core/cluster/nodes", badV2, "", "", "keyword"},
			badEndpoint{"GET", v3 + "server/state", badV2, "", "", ""},
			badEndpoint{"GET", v3 + "server/announcement", badV2, "", "", ""},
			badEndpoint{"GET", v3 + "server/guide", badV2, "", "", ""},
			badEndpoint{"GET", v3 + "health/liveness", badV2, "", "", ""},
			badEndpoint{"GET", v3 + "health/readiness", badV2, "", "", ""},
		)
	}
	return list
}
