package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// One row for each thing that operators, and clients of the third version, can ask beside
// what TestCalls has.
func TestCalls_Operators(t *testing.T) {
	const ok, done = `{"code":0,"message":"success","data":"ok"}`, `{"code":0,"message":"success","data":true}`
	for name, c := range map[string]struct {
		request string
		calls   []string
		answer  string
	}{
		"register in v3": {
			"POST /nacos/v3/client/ns/instance?serviceName=s&ip=10.0.0.1&port=80",
			[]string{`Register public##DEFAULT_GROUP@@s 10.0.0.1:80 {id="" 10.0.0.1:80 DEFAULT w=1 healthy=true enabled=true ephemeral=true map[]}`},
			ok,
		},
		"beat in v3": {
			"POST /nacos/v3/client/ns/instance?serviceName=s&ip=10.0.0.1&port=80&heartBeat=true",
			[]string{"Beat public##DEFAULT_GROUP@@s 10.0.0.1 80 nil"},
			ok,
		},
		"deregister in v3": {
			"DELETE /nacos/v3/client/ns/instance?serviceName=s&ip=10.0.0.1&port=80",
			[]string{"Deregister public##DEFAULT_GROUP@@s 10.0.0.1:80 ephemeral=true 10.0.0.1 80"},
			ok,
		},
		"partial update": {
			"PUT /nacos/v3/admin/ns/instance/partial?serviceName=s&ip=10.0.0.1&port=80&weight=2",
			[]string{"ChangeInstance public##DEFAULT_GROUP@@s {DEFAULT 10.0.0.1 80} w=2"},
			ok,
		},
		"cluster": {
			`PUT /nacos/v3/admin/ns/cluster?serviceName=s&clusterName=c&checkPort=81&useInstancePort4Check=true&healthChecker={"type":"NONE"}`,
			[]string{"UpdateCluster public##DEFAULT_GROUP@@s c {CheckPort:81 UseInstancePort:true Checker:{Type:NONE Path: Headers: ExpectedCode:0 User: Password: Command:} Metadata:map[]}"},
			ok,
		},
		"health": {
			"PUT /nacos/v3/admin/ns/health/instance?serviceName=s&ip=10.0.0.1&port=80&healthy=false",
			[]string{"SetHealth public##DEFAULT_GROUP@@s {DEFAULT 10.0.0.1 80} false"},
			ok,
		},
		"names": {
			"GET /nacos/v1/ns/service/names?expr=a",
			[]string{"Search {Namespace: Name: Group: NotEmpty:false}"},
			`{"META-INF/services":{"dev":["g@@a"],"public":["g@@a"]},"count":2}`,
		},
		"names for DNS": {
			"GET /nacos/v1/ns/api/allDomNames",
			[]string{"Search {Namespace: Name: Group: NotEmpty:false}"},
			`{"count":3,"doms":{"dev":["a"],"public":["a","b"]}}`,
		},
		"clients": {"GET /nacos/v3/admin/ns/client/list", nil, `{"code":0,"message":"success","data":["10.0.0.1:80#true","1_10.0.0.7_5"]}`},
		"client over HTTP": {
			"GET /nacos/v3/admin/ns/client?clientId=10.0.0.1:80%23true", nil,
			`{"code":0,"message":"success","data":{"clientId":"10.0.0.1:80#true","ephemeral":true,"lastUpdatedTime":1700000000000,"clientType":"ipPort","connectType":null,"appName":null,"version":null,"clientIp":null,"clientPort":0}}`,
		},
		"client over gRPC": {
			"GET /nacos/v2/ns/client?clientId=1_10.0.0.7_5", nil,
			`{"code":0,"message":"success","data":{"clientId":"1_10.0.0.7_5","ephemeral":true,"lastUpdatedTime":1700000000001,"clientType":"connection","connectType":"GRPC","appName":"shop","version":"Nacos-Java-Client:v2.2.0","clientIp":"10.0.9.9","clientPort":"5"}}`,
		},
		"published": {
			"GET /nacos/v2/ns/client/publish/list?clientId=1_10.0.0.7_5", nil,
			`{"code":0,"message":"success","data":[{"namespace":"public","group":"g","serviceName":"s","registeredInstance":{"ip":"10.0.0.1","port":80,"cluster":"DEFAULT"}}]}`,
		},
		"owner": {
			"GET /nacos/v3/admin/ns/client/distro?ip=10.0.0.1&port=80", nil,
			`{"code":0,"message":"success","data":{"responsibleServer":"owner of 10.0.0.1:80"}}`,
		},
		"create namespace": {"POST /v1/console/namespaces?customNamespaceId=n&namespaceName=N", []string{"CreateNamespace {ID:n Name:N Description:}"}, "true"},
		"update namespace": {"PUT /v2/console/namespace?namespaceId=dev&namespaceName=N&namespaceDesc=d", []string{"UpdateNamespace {ID:dev Name:N Description:d}"}, done},
		"delete namespace": {"DELETE /nacos/v3/admin/core/namespace?namespaceId=dev", []string{"DeleteNamespace dev"}, done},
		"namespace counted": {
			"GET /nacos/v3/admin/core/namespace/check?namespaceId=dev", nil,
			`{"code":0,"message":"success","data":1}`,
		},
		"namespace unknown": {
			"GET /nacos/v3/console/core/namespace/exist?customNamespaceId=x", nil,
			`{"code":0,"message":"success","data":false}`,
		},
		"targets": {
			"GET /nacos/prometheus/namespaceId/dev/service/b",
			[]string{"Search {Namespace:dev Name: Group: NotEmpty:true}"},
			`[{"targets":["10.0.0.1:80"],"labels":{"__meta_clusterName":"DEFAULT","a_b":"first"}}]`,
		},
		"hello": {"GET /nacos/v1/ns/api/hello", nil, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.registry.beat.Known = true
			n.registry.set(host("10.0.0.1", func(i *naming.Instance) { i.Metadata = map[string]string{"a.b": "first", "a_b": "second"} }))
			r := n.do(t, c.request, nil, nil)
			require.Equal(t, 200, r.status, r.body)
			require.Equal(t, c.answer, r.body)
			require.Equal(t, c.calls, n.registry.told())
		})
	}
}

// What the original has and Rollcall has not is answered in one sentence: in text where
// the first version speaks text, gone for good where something would be stored.
func TestAbsent(t *testing.T) {
	n := start(t)
	for path, sentence := range map[string]string{
		"/nacos/v1/cs/configs?dataId=a&group=g": configuration,
		"/nacos/v1/cs/configs/listener":         configuration,
		"/nacos/v2/cs/config":                   configuration,
		"/nacos/v3/client/cs/config":            configuration,
		"/nacos/v3/admin/cs/config/list":        configuration,
		"/v3/console/cs/config":                 configuration,
		"/nacos/v3/client/ai/mcp":               registries,
		"/nacos/v3/admin/ai/agent/list":         registries,
		"/nacos/v3/admin/core/plugin/list":      plugins,
	} {
		for method, status := range map[string]int{"GET": 404, "HEAD": 404, "POST": 410, "PUT": 410, "DELETE": 410} {
			r := n.do(t, method+" "+path, nil, nil)
			require.Equal(t, status, r.status, path)
			switch {
			case method == http.MethodHead:
				require.Empty(t, r.body)
			case strings.Contains(path, "/v1/"):
				require.Equal(t, sentence, r.body)
				require.Equal(t, []string{plainText}, r.header["Content-Type"])
			default:
				require.Contains(t, r.body, sentence)
				require.Equal(t, []string{jsonType}, r.header["Content-Type"])
			}
		}
	}
	r := n.do(t, "POST /nacos/v1/cs/configs", nil, url.Values{"dataId": {"a"}, "content": {"c"}})
	require.Equal(t, 410, r.status)
	require.Empty(t, n.registry.told())
}
