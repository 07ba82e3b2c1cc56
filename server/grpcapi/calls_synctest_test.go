package grpcapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server/wire"
)

// One row for each thing that a client can ask: what the registry is told, with
// ID for the connection's, and what is answered.
func TestCalls(t *testing.T) {
	const (
		key      = `"namespace":"public","groupName":"g","serviceName":"s"`
		instance = `{id="" 10.0.0.1:80 DEFAULT w=1 healthy=true enabled=true ephemeral=true map[]}`
		ok       = `{"resultCode":200,"errorCode":0,`
		shown    = `"groupName":"g","clusters":"","cacheMillis":10000,"hosts":[],"lastRefTime":`
		rest     = `,"checksum":"","allIPs":false,"allIps":false,"reachProtectionThreshold":false,"valid":true}`
	)
	for name, c := range map[string]struct {
		typ, body string
		told      string // empty: nothing
		answer    string
	}{
		"register": {
			"InstanceRequest", `{` + key + `,"type":"registerInstance","instance":{"ip":"10.0.0.1","port":80}}`,
			"Register public##g@@s ID " + instance, `InstanceResponse ` + ok + `"type":"registerInstance","success":true}`,
		},
		"register with everything": {
			"InstanceRequest", `{"namespace":"","groupName":"g","serviceName":"s","type":"registerInstance","instance":{"instanceId":"i","ip":"10.0.0.1","port":"80","weight":2.5,"healthy":false,"enabled":false,"ephemeral":false,"clusterName":"c","metadata":{"k":"v"}}}`,
			`Register public##g@@s ID {id="i" 10.0.0.1:80 c w=2.5 healthy=false enabled=false ephemeral=true map[k:v]}`, `InstanceResponse ` + ok + `"type":"registerInstance","success":true}`,
		},
		"deregister": {
			"InstanceRequest", `{` + key + `,"type":"deregisterInstance","instance":{"ip":"10.0.0.1","port":80}}`,
			`Deregister public##g@@s ID ephemeral=true "10.0.0.1" 80`, `InstanceResponse ` + ok + `"type":"deregisterInstance","success":true}`,
		},
		"deregister without an instance": {
			"InstanceRequest", `{` + key + `,"type":"deregisterInstance"}`,
			`Deregister public##g@@s ID ephemeral=true "" 0`, `InstanceResponse ` + ok + `"type":"deregisterInstance","success":true}`,
		},
		"batch": {
			"BatchInstanceRequest", `{` + key + `,"type":"batchRegisterInstance","instances":[{"ip":"10.0.0.1","port":80},{"ip":"10.0.0.2","port":80}]}`,
			"RegisterBatch public##g@@s ID [" + instance + " " + strings.Replace(instance, "0.1:", "0.2:", 1) + "]", `BatchInstanceResponse ` + ok + `"type":"batchRegisterInstance","success":true}`,
		},
		"empty batch": {
			"BatchInstanceRequest", `{` + key + `,"type":"batchRegisterInstance","instances":[]}`,
			"RegisterBatch public##g@@s ID []", `BatchInstanceResponse ` + ok + `"type":"batchRegisterInstance","success":true}`,
		},
		"register a persistent one": {
			"PersistentInstanceRequest", `{` + key + `,"type":"registerInstance","instance":{"ip":"10.0.0.1","port":80,"ephemeral":true}}`,
			"Register public##g@@s 10.0.0.1:80 " + strings.Replace(instance, "ephemeral=true", "ephemeral=false", 1), `InstanceResponse ` + ok + `"type":"registerInstance","success":true}`,
		},
		"deregister a persistent one": {
			"PersistentInstanceRequest", `{` + key + `,"type":"deregisterInstance","instance":{"ip":"10.0.0.1","port":80}}`,
			`Deregister public##g@@s 10.0.0.1:80 ephemeral=false "10.0.0.1" 80`, `InstanceResponse ` + ok + `"type":"deregisterInstance","success":true}`,
		},
		"query": {
			"ServiceQueryRequest", `{` + key + `}`, "", `QueryServiceResponse ` + ok + `"serviceInfo":{"name":"s",` + shown + `1` + rest + `,"success":true}`,
		},
		"query without a name": {
			"ServiceQueryRequest", `{"groupName":"g"}`, "", `QueryServiceResponse ` + ok + `"serviceInfo":{"name":"",` + shown + `1` + rest + `,"success":true}`,
		},
		"subscribe": {
			"SubscribeServiceRequest", `{` + key + `,"subscribe":true,"clusters":""}`, "", `SubscribeServiceResponse ` + ok + `"message":"success","serviceInfo":{"name":"s",` + shown + `1` + rest + `,"success":true}`,
		},
		"unsubscribe": {
			"SubscribeServiceRequest", `{` + key + `,"subscribe":false}`, "", `SubscribeServiceResponse ` + ok + `"message":"success","serviceInfo":{"name":"s",` + shown + `1` + rest + `,"success":true}`,
		},
		"list": {
			"ServiceListRequest", `{"namespace":"public","groupName":"g","serviceName":"","pageNo":2,"pageSize":10,"selector":""}`,
			"ServicePage public g 2 10", `ServiceListResponse ` + ok + `"count":7,"serviceNames":["a","b"],"success":true}`,
		},
		"list without a group": {
			"ServiceListRequest", `{"namespace":"public","pageNo":1,"pageSize":10}`, "", `ServiceListResponse ` + ok + `"count":0,"serviceNames":[],"success":true}`,
		},
		"health": {"HealthCheckRequest", `{}`, "", healthy},

		"unknown type":     {"NoSuchRequest", `{}`, "", `ErrorResponse {"resultCode":500,"errorCode":302,"message":"RequestHandler Not Found","success":false}`},
		"no type":          {"", `{}`, "", `ErrorResponse {"resultCode":500,"errorCode":302,"message":"RequestHandler Not Found","success":false}`},
		"an answer's type": {"InstanceResponse", `{}`, "", `ErrorResponse {"resultCode":500,"errorCode":302,"message":"RequestHandler Not Found","success":false}`},
		"no JSON":          {"InstanceRequest", `x`, "", `ErrorResponse {"resultCode":500,"errorCode":502,"message":"errCode: 101, errMsg: Nacos deserialize failed.  ","success":false}`},
		"nothing":          {"ServiceQueryRequest", ``, "", `ErrorResponse {"resultCode":500,"errorCode":502,"message":"errCode: 101, errMsg: Nacos deserialize failed.  ","success":false}`},
		"null":             {"HealthCheckRequest", `null`, "", `ErrorResponse {"resultCode":500,"errorCode":502,"message":"Invalid request","success":false}`},
		"blank service": {
			"InstanceRequest", `{"groupName":"g","serviceName":" ","type":"registerInstance","instance":{"ip":"10.0.0.1"}}`, "",
			`ErrorResponse {"resultCode":500,"errorCode":400,"message":"Param 'serviceName' is illegal, serviceName is blank","success":false}`,
		},
		"blank group in a batch": {
			"BatchInstanceRequest", `{"serviceName":"s","type":"batchRegisterInstance","instances":[]}`, "",
			`ErrorResponse {"resultCode":500,"errorCode":400,"message":"Param 'groupName' is illegal, groupName is blank","success":false}`,
		},
		"unsupported operation": {
			"InstanceRequest", `{` + key + `,"type":"other"}`, "", `ErrorResponse {"resultCode":400,"errorCode":400,"message":"Unsupported request type other","success":false}`,
		},
		"no operation": {
			"PersistentInstanceRequest", `{` + key + `}`, "", `ErrorResponse {"resultCode":400,"errorCode":400,"message":"Unsupported request type: Param 'type' is required.","success":false}`,
		},
		"wrong operation for a batch": {
			"BatchInstanceRequest", `{` + key + `,"type":"registerInstance","instances":[]}`, "", `ErrorResponse {"resultCode":400,"errorCode":400,"message":"Unsupported request type registerInstance","success":false}`,
		},
		"no instance": {
			"InstanceRequest", `{` + key + `,"type":"registerInstance"}`, "", `ErrorResponse {"resultCode":400,"errorCode":400,"message":"Instance can not be null.","success":false}`,
		},
		"no persistent instance": {
			"PersistentInstanceRequest", `{` + key + `,"type":"deregisterInstance"}`, "", `ErrorResponse {"resultCode":500,"errorCode":400,"message":"Param 'instance' is required.","success":false}`,
		},
		"no instances": {
			"BatchInstanceRequest", `{` + key + `,"type":"batchRegisterInstance"}`, "", `ErrorResponse {"resultCode":500,"errorCode":400,"message":"Param 'instances' is required: a list, which may be empty.","success":false}`,
		},
		"null in a batch": {
			"BatchInstanceRequest", `{` + key + `,"type":"batchRegisterInstance","instances":[null]}`, "", `BatchInstanceResponse {"resultCode":500,"errorCode":400,"message":"Param check invalid:instances[0] is null.","success":false}`,
		},
		"subscription to a bad name": {
			"SubscribeServiceRequest", `{"groupName":"g","serviceName":"a b","subscribe":true}`, "",
			`SubscribeServiceResponse {"resultCode":500,"errorCode":400,"message":"Param check invalid:Param 'serviceName' is illegal, illegal characters should not appear in the param.","serviceInfo":{"name":"a b",` + shown + `1` + rest + `,"success":false}`,
		},
		"subscription to bad clusters": {
			"SubscribeServiceRequest", `{` + key + `,"subscribe":true,"clusters":"a.b"}`, "",
			`SubscribeServiceResponse {"resultCode":500,"errorCode":400,"message":"Param check invalid:Param 'cluster' is illegal, illegal characters should not appear in the param.","serviceInfo":{"name":"s",` + shown + `1` + rest + `,"success":false}`,
		},
		"subscription to nothing": {
			"SubscribeServiceRequest", `{"groupName":"g","subscribe":true}`, "",
			`ErrorResponse {"resultCode":500,"errorCode":400,"message":"Param 'serviceName' is illegal, serviceName is blank","serviceInfo":{"name":"",` + shown + `1` + rest + `,"success":false}`,
		},
		"query of a bad name": {
			"ServiceQueryRequest", `{"groupName":"*","serviceName":"s"}`, "",
			`QueryServiceResponse {"resultCode":500,"errorCode":400,"message":"Param check invalid:Param 'group' is illegal, illegal characters should not appear in the param.","serviceInfo":{"name":"s",` + strings.Replace(shown, `"g"`, `"*"`, 1) + `1` + rest + `,"success":false}`,
		},
		"negative page": {
			"ServiceListRequest", `{"groupName":"g","pageNo":1,"pageSize":-1}`, "", `ServiceListResponse {"resultCode":500,"errorCode":400,"message":"Param 'pageSize' is illegal, the value should not be below 0.","count":0,"serviceNames":[],"success":false}`,
		},
		"list of a bad group": {
			"ServiceListRequest", `{"groupName":"*","pageNo":1,"pageSize":1}`, "", `ServiceListResponse {"resultCode":500,"errorCode":400,"message":"Param check invalid:Param 'group' is illegal, illegal characters should not appear in the param.","count":0,"serviceNames":[],"success":false}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				x := n.join(t)
				id := x.id(t)
				require.Equal(t, c.answer, x.call(t, c.typ, c.body))
				var want []string
				if c.told != "" {
					want = []string{strings.Replace(c.told, "ID", id, 1)}
				}
				require.Equal(t, want, n.registry.told())
			})
		})
	}
}

// What the registry refuses: a value that broke a parameter rule in the handler's
// own type, anything else at connection level.
func TestRefusals(t *testing.T) {
	fail := func(typ string, code, errorCode int, message string) string {
		if typ == wire.TypeError {
			return string("ErrorResponse " + string(wire.ErrorAnswer(code, errorCode, message).JSON()))
		}
		return typ + " " + string(wire.Failed(typ, message, nil).JSON())
	}
	requests := map[string]struct{ typ, body string }{
		wire.TypeInstance:           {wire.TypeInstanceAnswer, registerA},
		wire.TypeBatchInstance:      {wire.TypeBatchAnswer, `,"type":"batchRegisterInstance","instances":[{"ip":"10.0.0.1"}]}`},
		wire.TypePersistentInstance: {wire.TypeInstanceAnswer, registerA},
	}
	for name, c := range map[string]struct {
		err    error
		answer func(typ, own string) string
	}{
		"parameter": {&naming.InvalidError{Fault: naming.FaultParam, Text: "why"}, func(_, own string) string {
			return fail(own, 500, 400, "Param check invalid:why")
		}},
		"weight": {&naming.InvalidError{Fault: naming.FaultWeight, Text: "why"}, func(_, own string) string { return fail(own, 500, 400, "why") }},
		"instance": {&naming.InvalidError{Fault: naming.FaultInstance, Text: "why"}, func(typ, own string) string {
			if typ == wire.TypeInstance {
				return fail(wire.TypeError, 400, 400, "why")
			}
			return fail(own, 500, 400, "why")
		}},
		"kind":    {&naming.InvalidError{Fault: naming.FaultKind, Text: "why"}, func(string, string) string { return fail(wire.TypeError, 400, 400, "errCode: 400, errMsg: why ") }},
		"another": {errors.New("oops"), func(string, string) string { return fail(wire.TypeError, 500, 500, "oops") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				x := n.join(t)
				n.registry.fail(c.err)
				for typ, q := range requests {
					require.Equal(t, c.answer(typ, q.typ), x.call(t, typ, named("a")+q.body), typ)
				}
				require.Equal(t, healthy, x.call(t, "HealthCheckRequest", "{}"))
			})
		})
	}
}
