package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// values reads "a=1&b=2".
func values(t *testing.T, query string) url.Values {
	t.Helper()
	v, err := url.ParseQuery(query)
	require.NoError(t, err)
	return v
}

// One row for each thing that a client can ask: what the registry is told, and
// what is answered. The rows hold for parameters in the query and in a form.
func TestCalls(t *testing.T) {
	const (
		plain   = "text/plain;charset=UTF-8"
		v2ok    = `{"code":0,"message":"success","data":"ok"}`
		updated = `{"updated":["10.0.0.1:80:unknown:DEFAULT:ephemeral","10.0.0.2:80:unknown:c:persist"]}`
	)
	for name, c := range map[string]struct {
		request, params string
		calls           []string
		answer          string
	}{
		"register": {
			"POST /nacos/v1/ns/instance", "serviceName=g@@s&ip=10.0.0.1&port=80",
			[]string{`Register public##g@@s 10.0.0.1:80 {id="" 10.0.0.1:80 DEFAULT w=1 healthy=true enabled=true ephemeral=true map[]}`},
			"ok",
		},
		"register with everything": {
			"POST /nacos/v1/ns/instance", `namespaceId=dev&groupName=g&serviceName=s&ip=10.0.0.1&port=80&weight=2.5&healthy=False&enable=no&ephemeral=false&cluster=c&metadata={"k":"v"}`,
			[]string{`Register dev##g@@s 10.0.0.1:80 {id="" 10.0.0.1:80 c w=2.5 healthy=false enabled=false ephemeral=false map[k:v]}`},
			"ok",
		},
		"register, group beside a grouped name": {
			"POST /nacos/v1/ns/instance", "groupName=other&serviceName=g@@s&ip=10.0.0.1&port=80&enabled=true&enable=false&metadata=a=1,b=2",
			[]string{`Register public##g@@s 10.0.0.1:80 {id="" 10.0.0.1:80 DEFAULT w=1 healthy=true enabled=true ephemeral=true map[a:1 b:2]}`},
			"ok",
		},
		"deregister": {
			"DELETE /nacos/v1/ns/instance", "serviceName=s&ip=10.0.0.1&port=80&ephemeral=false",
			[]string{`Deregister public##DEFAULT_GROUP@@s 10.0.0.1:80 ephemeral=false 10.0.0.1 80`},
			"ok",
		},
		"deregister in a cluster": {
			"DELETE /nacos/v1/ns/instance", "serviceName=s&ip=10.0.0.1&port=80&clusterName=c",
			[]string{`Deregister public##DEFAULT_GROUP@@s 10.0.0.1:80 ephemeral=true 10.0.0.1 80 of c`},
			"ok",
		},
		"update": {
			"PUT /nacos/v1/ns/instance", "serviceName=s&ip=10.0.0.1&port=80&weight=3&enabled=false&clusterName=c",
			[]string{`ChangeInstance public##DEFAULT_GROUP@@s {c 10.0.0.1 80} w=3 enabled=false map[]`},
			"ok",
		},
		"patch": {
			"PATCH /nacos/v1/ns/instance", "serviceName=s&ip=10.0.0.1&port=80&weight=3",
			[]string{`ChangeInstance public##DEFAULT_GROUP@@s {DEFAULT 10.0.0.1 80} w=3`},
			"ok",
		},
		"patch of all": {
			"PATCH /nacos/v1/ns/instance", "serviceName=s&ip=10.0.0.1&port=80&enabled=off&metadata=null&weight=1",
			[]string{`ChangeInstance public##DEFAULT_GROUP@@s {DEFAULT 10.0.0.1 80} w=1 enabled=false map[]`},
			"ok",
		},
		"detail": {
			"GET /nacos/v1/ns/instance", "serviceName=s&ip=10.0.0.2&port=80&clusterName=c", nil,
			`{"service":"DEFAULT_GROUP@@s","instanceId":"own","ip":"10.0.0.2","port":80,"clusterName":"c","weight":1.0,"healthy":false,"metadata":{}}`,
		},
		"list": {
			"GET /nacos/v1/ns/instance/list", "serviceName=s&healthyOnly=TRUE&clusters=DEFAULT", nil,
			`{"name":"DEFAULT_GROUP@@s","groupName":"DEFAULT_GROUP","clusters":"DEFAULT","cacheMillis":10000,"hosts":[{"instanceId":"10.0.0.1#80#DEFAULT#DEFAULT_GROUP@@s","ip":"10.0.0.1","port":80,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","serviceName":"DEFAULT_GROUP@@s","metadata":{},"instanceHeartBeatInterval":5000,"instanceHeartBeatTimeOut":15000,"ipDeleteTimeout":30000,"instanceIdGenerator":"simple"}],"lastRefTime":1,"checksum":"","allIPs":false,"allIps":false,"reachProtectionThreshold":false,"valid":true}`,
		},
		"light beat": {
			"PUT /nacos/v1/ns/instance/beat", "serviceName=g@@s&ip=10.0.0.1&port=80&clusterName=c",
			[]string{"Beat public##g@@s 10.0.0.1 80 nil"},
			`{"clientBeatInterval":7000,"code":10200,"lightBeatEnabled":true}`,
		},
		"full beat": {
			"PUT /nacos/v1/ns/instance/beat", `serviceName=g@@s&beat={"ip":"10.0.0.1","port":80,"weight":2,"cluster":"c","metadata":{"k":"v"},"serviceName":"x@@y","scheduled":false,"instanceId":"i"}`,
			[]string{`Beat public##g@@s 10.0.0.1 80 {id="" 10.0.0.1:80 c w=2 healthy=true enabled=true ephemeral=true map[k:v]}`},
			`{"clientBeatInterval":7000,"code":10200,"lightBeatEnabled":true}`,
		},
		"full beat, cluster beside it": {
			"PUT /nacos/v1/ns/instance/beat", `serviceName=g@@s&clusterName=c&beat={"ip":"10.0.0.1","port":80}`,
			[]string{`Beat public##g@@s 10.0.0.1 80 {id="" 10.0.0.1:80 c w=1 healthy=true enabled=true ephemeral=true map[]}`},
			`{"clientBeatInterval":7000,"code":10200,"lightBeatEnabled":true}`,
		},
		"statuses":                  {"GET /nacos/v1/ns/instance/statuses", "key=g@@s", nil, `{"ips":["10.0.0.1:80_true","10.0.0.2:80_false"]}`},
		"statuses with a namespace": {"GET /nacos/v1/ns/instance/statuses", "key=dev%23%23g@@s", nil, `{"ips":["10.0.0.1:80_true","10.0.0.2:80_false"]}`},
		"set metadata": {
			"PUT /nacos/v1/ns/instance/metadata/batch", `serviceName=s&metadata={"k":"v"}`,
			[]string{"ChangeMetadata public##DEFAULT_GROUP@@s [] set=map[k:v] remove=[]"},
			updated,
		},
		"set metadata of some": {
			"PUT /nacos/v1/ns/instance/metadata/batch", `serviceName=s&metadata=k=v&instances=[{"ip":"10.0.0.1","port":80},{"ip":"10.0.0.2","port":"81","clusterName":"c"}]`,
			[]string{"ChangeMetadata public##DEFAULT_GROUP@@s [{DEFAULT 10.0.0.1 80} {c 10.0.0.2 81}] set=map[k:v] remove=[]"},
			updated,
		},
		"remove metadata": {
			"DELETE /nacos/v1/ns/instance/metadata/batch", `serviceName=s&metadata={"k":""}`,
			[]string{"ChangeMetadata public##DEFAULT_GROUP@@s [] set=map[] remove=[k]"},
			updated,
		},
		"login": {
			"POST /nacos/v1/auth/login", "username=ops&password=x", nil,
			`{"accessToken":"AUTH_DISABLED","tokenTtl":18000,"globalAdmin":true,"username":"ops"}`,
		},
		"login where users are": {
			"POST /nacos/v1/auth/users/login", `username=o"s&password=x`, nil,
			`{"accessToken":"AUTH_DISABLED","tokenTtl":18000,"globalAdmin":true,"username":"o\"s"}`,
		},
		"create service": {
			"POST /nacos/v1/ns/service", `serviceName=s&groupName=g&protectThreshold=0.5&metadata=k=v&selector={"type":"none"}`,
			[]string{"CreateService public##g@@s {Kind:2 ProtectThreshold:0.5 Metadata:map[k:v] Selector:{Type:none Expression: Labels:[]}}"},
			"ok",
		},
		"create service with a selector": {
			"POST /nacos/v1/ns/service", `serviceName=s&selector={"type":"label","expression":"CONSUMER.label.a = PROVIDER.label.a %26 CONSUMER.label.b=PROVIDER.label.b"}`,
			[]string{"CreateService public##DEFAULT_GROUP@@s {Kind:2 ProtectThreshold:0 Metadata:map[] Selector:{Type:label Expression:CONSUMER.label.a = PROVIDER.label.a & CONSUMER.label.b=PROVIDER.label.b Labels:[a b]}}"},
			"ok",
		},
		"update service": {
			"PUT /nacos/v1/ns/service", "serviceName=s&protectThreshold=0.25",
			[]string{"UpdateService public##DEFAULT_GROUP@@s {Kind:0 ProtectThreshold:0.25 Metadata:map[] Selector:{Type:none Expression: Labels:[]}}"},
			"ok",
		},
		"delete service": {"DELETE /nacos/v1/ns/service", "serviceName=s", []string{"DeleteService public##DEFAULT_GROUP@@s"}, "ok"},
		"service": {
			"GET /nacos/v1/ns/service", "serviceName=s", nil,
			`{"namespaceId":"public","groupName":"DEFAULT_GROUP","name":"s","protectThreshold":0.5,"metadata":{"m":"n"},"selector":{"type":"label","expression":"e","labels":["l"],"contextType":"CMDB"},"clusters":[{"name":"DEFAULT","healthChecker":{"type":"TCP"},"metadata":{}},{"name":"c","healthChecker":{"type":"TCP"},"metadata":{}}]}`,
		},
		"service list":              {"GET /nacos/v1/ns/service/list", "pageNo=2&pageSize=3&groupName=g", []string{"ServicePage public g 2 3"}, `{"count":7,"doms":["a","b"]}`},
		"service list, no numbers":  {"GET /nacos/v1/ns/service/list", "pageNo=x&pageSize=y", []string{"ServicePage public DEFAULT_GROUP 0 0"}, `{"count":7,"doms":["a","b"]}`},
		"subscribers":               {"GET /nacos/v1/ns/service/subscribers", "serviceName=s", nil, `{"count":0,"subscribers":[]}`},
		"state":                     {"GET /nacos/v1/ns/operator/metrics", "", nil, `{"status":"UP"}`},
		"change switch":             {"PUT /nacos/v1/ns/operator/switches", "entry=lightBeatEnabled&value= false ", []string{`ChangeSwitch lightBeatEnabled "false"`}, "ok"},
		"change switch, other path": {"PUT /nacos/v1/ns/ops/switches", "entry=e&value=", []string{`ChangeSwitch e ""`}, "ok"},

		"v2 register": {
			"POST /nacos/v2/ns/instance", `serviceName=s&groupName=g&ip=10.0.0.1&port=80&weight=2&healthy=0&enabled=off&ephemeral=false&clusterName=c&metadata={"k":"v"}`,
			[]string{`Register public##g@@s 10.0.0.1:80 {id="" 10.0.0.1:80 c w=2 healthy=false enabled=false ephemeral=false map[k:v]}`},
			v2ok,
		},
		"v2 deregister": {
			"DELETE /nacos/v2/ns/instance", "namespaceId=dev&serviceName=s&ip=10.0.0.1&port=80",
			[]string{"Deregister dev##DEFAULT_GROUP@@s 10.0.0.1:80 ephemeral=true 10.0.0.1 80"},
			v2ok,
		},
		"v2 update": {
			"PUT /nacos/v2/ns/instance", "serviceName=s&ip=10.0.0.1&port=80&metadata=k=v",
			[]string{"ChangeInstance public##DEFAULT_GROUP@@s {DEFAULT 10.0.0.1 80} w=1 enabled=true map[k:v]"},
			v2ok,
		},
		"v2 patch": {
			"PATCH /nacos/v2/ns/instance", "serviceName=g@@s&ip=10.0.0.2&port=80&cluster=c&weight=2&enabled=true&metadata=k=v",
			[]string{"ChangeInstance public##g@@s {c 10.0.0.2 80} w=2 enabled=true map[k:v]"},
			"ok",
		},
		"v2 detail": {
			"GET /nacos/v2/ns/instance", "serviceName=s&ip=10.0.0.1&port=80", nil,
			`{"code":0,"message":"success","data":{"serviceName":"DEFAULT_GROUP@@s","instanceId":null,"ip":"10.0.0.1","port":80,"clusterName":"DEFAULT","weight":1.0,"healthy":true,"metadata":{}}}`,
		},
		"v2 detail with an id": {
			"GET /nacos/v2/ns/instance", "serviceName=s&ip=10.0.0.2&port=80&clusterName=c", nil,
			`{"code":0,"message":"success","data":{"serviceName":"DEFAULT_GROUP@@s","instanceId":"own","ip":"10.0.0.2","port":80,"clusterName":"c","weight":1.0,"healthy":false,"metadata":{}}}`,
		},
		"v2 beat": {
			"PUT /nacos/v2/ns/instance/beat", "serviceName=g@@s&ip=10.0.0.1&port=80",
			[]string{"Beat public##g@@s 10.0.0.1 80 nil"},
			`{"clientBeatInterval":7000,"code":10200,"lightBeatEnabled":true}`,
		},
		"v2 statuses": {"GET /nacos/v2/ns/instance/statuses/g@@s", "", nil, `{"ips":["10.0.0.1:80_true","10.0.0.2:80_false"]}`},
		"v2 set metadata": {
			"PUT /nacos/v2/ns/instance/metadata/batch", `serviceName=s&metadata={"k":"v"}`,
			[]string{"ChangeMetadata public##DEFAULT_GROUP@@s [] set=map[k:v] remove=[]"},
			`{"code":0,"message":"success","data":` + updated + `}`,
		},
		"v2 remove metadata": {
			"DELETE /nacos/v2/ns/instance/metadata/batch", `serviceName=s&metadata={"k":"v"}`,
			[]string{"ChangeMetadata public##DEFAULT_GROUP@@s [] set=map[] remove=[k]"},
			`{"code":0,"message":"success","data":` + updated + `}`,
		},
		"v2 create service": {
			"POST /nacos/v2/ns/service", "serviceName=s&ephemeral=true",
			[]string{"CreateService public##DEFAULT_GROUP@@s {Kind:1 ProtectThreshold:0 Metadata:map[] Selector:{Type:none Expression: Labels:[]}}"},
			v2ok,
		},
		"v2 create persistent service": {
			"POST /nacos/v2/ns/service", "serviceName=s",
			[]string{"CreateService public##DEFAULT_GROUP@@s {Kind:2 ProtectThreshold:0 Metadata:map[] Selector:{Type:none Expression: Labels:[]}}"},
			v2ok,
		},
		"v2 update service": {
			"PUT /nacos/v2/ns/service", "serviceName=s&protectThreshold=0.75",
			[]string{"UpdateService public##DEFAULT_GROUP@@s {Kind:0 ProtectThreshold:0.75 Metadata:map[] Selector:{Type:none Expression: Labels:[]}}"},
			v2ok,
		},
		"v2 delete service": {"DELETE /nacos/v2/ns/service", "serviceName=s&groupName=g", []string{"DeleteService public##g@@s"}, v2ok},
		"v2 service": {
			"GET /nacos/v2/ns/service", "serviceName=s", nil,
			`{"code":0,"message":"success","data":{"namespace":"public","serviceName":"s","groupName":"DEFAULT_GROUP","clusterMap":{"DEFAULT":{"clusterName":"DEFAULT","healthChecker":{"type":"TCP"},"metadata":{},"hosts":null},"c":{"clusterName":"c","healthChecker":{"type":"TCP"},"metadata":{},"hosts":null}},"protectThreshold":0.5,"metadata":{"m":"n"},"selector":{"type":"label","expression":"e","labels":["l"],"contextType":"CMDB"},"ephemeral":true}}`,
		},
		"v2 service list":            {"GET /nacos/v2/ns/service/list", "pageNo=2&pageSize=900", []string{"ServicePage public DEFAULT_GROUP 2 500"}, `{"code":0,"message":"success","data":{"count":7,"services":["a","b"]}}`},
		"v2 service list by default": {"GET /nacos/v2/ns/service/list", "", []string{"ServicePage public DEFAULT_GROUP 1 20"}, `{"code":0,"message":"success","data":{"count":7,"services":["a","b"]}}`},
		"v2 state":                   {"GET /nacos/v2/ns/ops/metrics", "onlyStatus=1", nil, `{"code":0,"message":"success","data":{"status":"UP"}}`},
		"v2 change switch":           {"PUT /nacos/v2/ns/operator/switches", "entry=e&value=v", []string{`ChangeSwitch e "v"`}, v2ok},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.registry.beat.Known, n.registry.beat.Interval = true, 7e9
			n.registry.set(host("10.0.0.1"), host("10.0.0.2", func(i *naming.Instance) {
				i.ID, i.Cluster, i.Healthy, i.Ephemeral = "own", "c", false, false
			}))
			n.registry.service.Settings = &naming.Settings{
				ProtectThreshold: 0.5, Metadata: map[string]string{"m": "n"}, Selector: naming.Selector{Type: "label", Expression: "e", Labels: []string{"l"}},
			}
			params := values(t, c.params)
			for _, inForm := range []bool{false, true} {
				request, body := c.request, url.Values(nil)
				if method, _, _ := strings.Cut(request, " "); inForm && method != http.MethodGet {
					body = params
				} else {
					request += "?" + params.Encode()
				}
				r := n.do(t, request, nil, body)
				require.Equal(t, 200, r.status, r.body)
				require.Equal(t, c.answer, r.body)
				require.Equal(t, c.calls, n.registry.told())
				kind := jsonType
				if r.body == "ok" {
					kind = plain
				}
				require.Equal(t, []string{kind}, r.header["Content-Type"])
				require.Equal(t, kind == jsonType, json.Valid([]byte(r.body)))
				require.Equal(t, fmt.Sprint(len(r.body)), r.header.Get("Content-Length"))
			}
		})
	}
}

func TestBeat_Unknown(t *testing.T) {
	n := start(t)
	n.registry.beat.Interval = 5e9
	n.registry.switches.LightBeatEnabled = false
	r := n.do(t, "PUT /nacos/v1/ns/instance/beat?serviceName=s", nil, nil)
	require.Equal(t, `{"clientBeatInterval":5000,"code":20404,"lightBeatEnabled":false}`, r.body)
	require.Equal(t, []string{"Beat public##DEFAULT_GROUP@@s  0 nil"}, n.registry.told())
}

func TestRegister_DefaultKindIsASwitch(t *testing.T) {
	n := start(t)
	n.registry.switches.DefaultInstanceEphemeral = false
	for _, version := range []string{"v1", "v2"} {
		instance := values(t, "serviceName=s&ip=10.0.0.1&port=80")
		n.do(t, "POST /nacos/"+version+"/ns/instance", nil, instance)
		n.do(t, "DELETE /nacos/"+version+"/ns/instance", nil, instance)
		told := n.registry.told()
		require.Len(t, told, 2)
		require.Contains(t, told[0], "ephemeral=false")
		require.Contains(t, told[1], "ephemeral=false")
	}
}

func TestMetrics(t *testing.T) {
	n := start(t)
	n.udp.subscribe(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}, naming.Filter{}, "127.0.0.1", 5555, javaClient, "")
	var v1 map[string]any
	require.NoError(t, json.Unmarshal([]byte(n.do(t, "GET /nacos/v1/ns/operator/metrics?onlyStatus=false", nil, nil).body), &v1))
	var v2 struct {
		Code int
		Data map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(n.do(t, "GET /nacos/v2/ns/operator/metrics?onlyStatus=false", nil, nil).body), &v2))
	require.Zero(t, v2.Code)
	want := map[string]any{
		"status": "UP", "serviceCount": 1.0, "instanceCount": 2.0, "subscribeCount": 3.0, "clientCount": 16.0,
		"connectionBasedClientCount": 4.0, "ephemeralIpPortClientCount": 6.0, "persistentIpPortClientCount": 6.0, "responsibleClientCount": 16.0,
	}
	for _, got := range []map[string]any{v1, v2.Data} {
		for _, name := range []string{"cpu", "load", "mem"} {
			value, ok := got[name].(float64)
			require.True(t, ok, name)
			require.GreaterOrEqual(t, value, 0.0)
			delete(got, name)
		}
	}
	require.Equal(t, want, v2.Data)
	want["responsibleInstanceCount"] = 2.0
	require.Equal(t, want, v1)
}

func TestSwitches(t *testing.T) {
	n := start(t)
	var bare map[string]any
	require.NoError(t, json.Unmarshal([]byte(n.do(t, "GET /nacos/v1/ns/operator/switches", nil, nil).body), &bare))
	require.Equal(t, true, bare["lightBeatEnabled"])
	require.InDelta(t, 5000, bare["clientBeatInterval"], 0)
	require.Equal(t, "00-00---000-NACOS_SWITCH_DOMAIN-000---00-00", bare["name"])
	require.Nil(t, bare["overriddenServerStatus"])
	require.Contains(t, bare, "overriddenServerStatus")
	var enveloped struct{ Data map[string]any }
	require.NoError(t, json.Unmarshal([]byte(n.do(t, "GET /nacos/v2/ns/ops/switches", nil, nil).body), &enveloped))
	require.Equal(t, bare, enveloped.Data)
}

func TestService_KindThatIsShown(t *testing.T) {
	for name, c := range map[string]struct {
		settings *naming.Settings
		hosts    []*naming.Instance
		want     string
	}{
		"created as persistent": {&naming.Settings{Kind: naming.KindPersistent}, nil, `"ephemeral":false`},
		"created as ephemeral":  {&naming.Settings{Kind: naming.KindEphemeral}, nil, `"ephemeral":true`},
		"came with an instance": {nil, []*naming.Instance{host("10.0.0.1", func(i *naming.Instance) { i.Ephemeral = false })}, `"ephemeral":false`},
		"the instances decide":  {&naming.Settings{Kind: naming.KindPersistent}, []*naming.Instance{host("10.0.0.1")}, `"ephemeral":true`},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.registry.set(c.hosts...)
			n.registry.service.Settings = c.settings
			r := n.do(t, "GET /nacos/v2/ns/service?serviceName=s", nil, nil)
			require.Contains(t, r.body, c.want)
			require.Contains(t, r.body, `"protectThreshold":0.0`)
		})
	}
	n := start(t)
	r := n.do(t, "GET /nacos/v1/ns/service?serviceName=s", nil, nil)
	require.Equal(t, 400, r.status)
	require.Contains(t, r.body, "service not found")
	r = n.do(t, "GET /nacos/v1/ns/instance?serviceName=s&ip=10.0.0.1&port=80", nil, nil)
	require.Equal(t, 404, r.status)
}

func TestSelector(t *testing.T) {
	for raw, want := range map[string]naming.Selector{
		"":                                 {Type: "none"},
		`{"type":"none"}`:                  {Type: "none"},
		`{"type":"label","expression":""}`: {Type: "label", Labels: []string{}},
		`%7B%22type%22%3A%22none%22%7D`:    {Type: "none"}, // escaped once more
		`{"type":"label","expression":"CONSUMER.label.a=PROVIDER.label.a&CONSUMER.label.a=PROVIDER.label.a"}`: {
			Type: "label", Expression: "CONSUMER.label.a=PROVIDER.label.a&CONSUMER.label.a=PROVIDER.label.a", Labels: []string{"a"},
		},
	} {
		got, err := parseSelector(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	for _, raw := range []string{
		"x", "[]", "{}", `{"type":"other"}`, "%zz", `{"type":{}}`,
		`{"type":"label","expression":"a=b"}`, `{"type":"label","expression":"CONSUMER.label.a=PROVIDER.label.b"}`,
		`{"type":"label","expression":"CONSUMER.label.=PROVIDER.label."}`, `{"type":"label","expression":"CONSUMER.label.a"}`,
	} {
		_, err := parseSelector(raw)
		require.Error(t, err, raw)
	}
}

// Each thing that a request needs and does not have: what v1 and v2 say.
func TestMissing(t *testing.T) {
	n := start(t)
	for request, want := range map[string]string{
		"POST /nacos/v1/ns/instance?":                                                            "Param 'serviceName' is required.",
		"POST /nacos/v1/ns/instance?serviceName=s":                                               "Param 'ip' is required.",
		"POST /nacos/v1/ns/instance?serviceName=s&ip=10.0.0.1":                                   "Param 'port' is required.",
		"PATCH /nacos/v1/ns/instance?serviceName=s&ip=10.0.0.1":                                  "Param 'port' is required.",
		"GET /nacos/v1/ns/instance/list?":                                                        "Param 'serviceName' is required.",
		"PUT /nacos/v1/ns/instance/beat?":                                                        "Param 'serviceName' is required.",
		"GET /nacos/v1/ns/instance/statuses?":                                                    "Parameter 'key' is missing",
		"GET /nacos/v1/ns/instance/statuses?key=s":                                               nameFormat,
		"PUT /nacos/v1/ns/instance/metadata/batch?serviceName=s":                                 "Param 'metadata' is required.",
		"POST /nacos/v1/ns/service?":                                                             "Parameter 'serviceName' is missing",
		"DELETE /nacos/v1/ns/service?":                                                           "Parameter 'serviceName' is missing",
		"GET /nacos/v1/ns/service?":                                                              "Parameter 'serviceName' is missing",
		"PUT /nacos/v1/ns/service?serviceName=s":                                                 "Param 'protectThreshold' is required.",
		"GET /nacos/v1/ns/service/list?":                                                         "Param 'pageNo' is required.",
		"GET /nacos/v1/ns/service/list?pageNo=1":                                                 "Param 'pageSize' is required.",
		"GET /nacos/v1/ns/service/subscribers?":                                                  "Param 'serviceName' is required.",
		"PUT /nacos/v1/ns/operator/switches?":                                                    "Parameter 'entry' is missing",
		"PUT /nacos/v1/ns/operator/switches?entry=e":                                             "Parameter 'value' is missing",
		"GET /nacos/v1/ns/instance/list?serviceName=@@s":                                         "groupName can't be empty",
		"GET /nacos/v1/ns/instance/list?serviceName=g@@":                                         "Service name filter error",
		"GET /nacos/v1/ns/instance/list?serviceName=%20":                                         nameFormat,
		"POST /nacos/v2/ns/instance?":                                                            "Required parameter 'serviceName' type String is not present",
		"POST /nacos/v2/ns/instance?serviceName=s":                                               "Required parameter 'ip' type String is not present",
		"POST /nacos/v2/ns/instance?serviceName=s&ip=10.0.0.1":                                   "Required parameter 'port' type Integer is not present",
		"GET /nacos/v2/ns/instance?":                                                             "Required request parameter 'serviceName' for method parameter type String is not present",
		"GET /nacos/v2/ns/instance?serviceName=s":                                                "Required request parameter 'ip' for method parameter type String is not present",
		"GET /nacos/v2/ns/instance?serviceName=s&ip=10.0.0.1":                                    "Required request parameter 'port' for method parameter type Integer is not present",
		"GET /nacos/v2/ns/instance/list?":                                                        "Required request parameter 'serviceName'",
		"PATCH /nacos/v2/ns/instance?":                                                           "Required request parameter 'serviceName'",
		"PATCH /nacos/v2/ns/instance?serviceName=s":                                              nameFormat,
		"PATCH /nacos/v2/ns/instance?serviceName=g@@s":                                           "Required request parameter 'ip'",
		"PATCH /nacos/v2/ns/instance?serviceName=g@@s&ip=10.0.0.1":                               "Required request parameter 'port'",
		"PATCH /nacos/v2/ns/instance?serviceName=g@@s&ip=10.0.0.1&port=80":                       "Required request parameter 'weight' for method parameter type Double",
		"PATCH /nacos/v2/ns/instance?serviceName=g@@s&ip=10.0.0.1&port=80&weight=1":              "Required request parameter 'enabled' for method parameter type Boolean",
		"PATCH /nacos/v2/ns/instance?serviceName=g@@s&ip=10.0.0.1&port=80&weight=1&enabled=true": "Required request parameter 'metadata' for method parameter type String",
		"PUT /nacos/v2/ns/instance/beat?serviceName=s":                                           nameFormat,
		"GET /nacos/v2/ns/instance/statuses/s":                                                   nameFormat,
		"PUT /nacos/v2/ns/instance/metadata/batch?serviceName=s":                                 "Required parameter 'metadata' type String is not present",
		"POST /nacos/v2/ns/service?":                                                             "Required parameter 'serviceName' type String is not present",
		"DELETE /nacos/v2/ns/service?":                                                           "Required request parameter 'serviceName'",
		"PUT /nacos/v2/ns/operator/switches?":                                                    "Required parameter 'entry' type String is not present",
		"PUT /nacos/v2/ns/operator/switches?entry=e":                                             "Required parameter 'value' type String is not present",
	} {
		r := n.do(t, request, nil, nil)
		require.Equal(t, 400, r.status, request)
		require.Contains(t, r.body, want, request)
		require.Empty(t, n.registry.told(), request)
	}
}

// A consistent read waits before it looks; only reads do, and only when asked to.
func TestConsistent_ReadsWait(t *testing.T) {
	n := start(t)
	n.registry.set(host("10.0.0.1"))
	for _, read := range []string{
		"GET /nacos/v1/ns/instance/list?serviceName=a", "GET /nacos/v2/ns/instance/list?serviceName=a",
		"GET /nacos/v1/ns/instance?serviceName=a&ip=10.0.0.1&port=80", "GET /nacos/v2/ns/instance?serviceName=a&ip=10.0.0.1&port=80",
		"GET /nacos/v1/ns/service?serviceName=a", "GET /nacos/v2/ns/service?serviceName=a",
		"GET /nacos/v1/ns/service/list?pageNo=1&pageSize=9", "GET /nacos/v2/ns/service/list?pageNo=1&pageSize=9",
		"GET /nacos/v1/ns/instance/statuses?key=g@@a", "HEAD /nacos/v1/ns/instance/list?serviceName=a",
		"GET /nacos/v1/ns/operator/switches?",
	} {
		n.registry.told()
		require.Equal(t, 200, n.do(t, read, nil, nil).status, read)
		require.NotContains(t, n.registry.told(), "AwaitConsistent", read)
		require.Equal(t, 200, n.do(t, read+"&consistent=false", nil, nil).status, read)
		require.NotContains(t, n.registry.told(), "AwaitConsistent", read)
		require.Equal(t, 200, n.do(t, read+"&consistent=true", nil, nil).status, read)
		require.Equal(t, "AwaitConsistent", n.registry.told()[0], read)
	}
	r := n.do(t, "GET /nacos/v1/ns/instance/list?serviceName=a&consistent=maybe", nil, nil)
	require.Equal(t, 400, r.status)
	require.Contains(t, r.body, `consistent is "maybe": it must be true or false`)

	n.registry.mu.Lock()
	n.registry.fault = errors.New("no leader")
	n.registry.mu.Unlock()
	r = n.do(t, "GET /nacos/v1/ns/instance/list?serviceName=a&consistent=true", nil, nil)
	require.Equal(t, 500, r.status)
	require.Contains(t, r.body, "no leader")
	require.Equal(t, 200, n.do(t, "GET /nacos/v1/ns/instance/list?serviceName=a", nil, nil).status)
}
