package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server/wire"
)

func TestAnswers(t *testing.T) {
	info := &naming.ServiceInfo{Key: naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}, CacheMs: 10000, LastRefTimeMs: 5}
	const shown = `{"name":"s","groupName":"g","clusters":"","cacheMillis":10000,"hosts":[],"lastRefTime":5,"checksum":"","allIPs":false,"allIps":false,"reachProtectionThreshold":false,"valid":true}`
	for name, c := range map[string]struct {
		payload   *wire.Payload
		typ, body string
		clientIP  string
	}{
		"error":               {wire.ErrorAnswer(500, 302, `a "text"`), "ErrorResponse", `{"resultCode":500,"errorCode":302,"message":"a \"text\"","success":false}`, ""},
		"error without text":  {wire.ErrorAnswer(-401, -401, ""), "ErrorResponse", `{"resultCode":-401,"errorCode":-401,"success":false}`, ""},
		"failed":              {wire.Failed(wire.TypeInstanceAnswer, "why", nil), "InstanceResponse", `{"resultCode":500,"errorCode":400,"message":"why","success":false}`, ""},
		"failed list":         {wire.Failed(wire.TypeListAnswer, "why", wire.NoServices()), "ServiceListResponse", `{"resultCode":500,"errorCode":400,"message":"why","count":0,"serviceNames":[],"success":false}`, ""},
		"failed subscription": {wire.Failed(wire.TypeSubscribeAnswer, "why", wire.WithServiceInfo(info)), "SubscribeServiceResponse", `{"resultCode":500,"errorCode":400,"message":"why","serviceInfo":` + shown + `,"success":false}`, ""},
		"health":              {wire.HealthCheckAnswer(), "HealthCheckResponse", `{"resultCode":200,"errorCode":0,"success":true}`, ""},
		"batch":               {wire.InstanceAnswer(wire.TypeBatchAnswer, "batchRegisterInstance"), "BatchInstanceResponse", `{"resultCode":200,"errorCode":0,"type":"batchRegisterInstance","success":true}`, ""},
		"query":               {wire.QueryAnswer(info), "QueryServiceResponse", `{"resultCode":200,"errorCode":0,"serviceInfo":` + shown + `,"success":true}`, ""},
		"subscription":        {wire.SubscribeAnswer(info), "SubscribeServiceResponse", `{"resultCode":200,"errorCode":0,"message":"success","serviceInfo":` + shown + `,"success":true}`, ""},
		"list":                {wire.ListAnswer(3, []string{"a", "b"}), "ServiceListResponse", `{"resultCode":200,"errorCode":0,"count":3,"serviceNames":["a","b"],"success":true}`, ""},
		"empty list":          {wire.ListAnswer(0, nil), "ServiceListResponse", `{"resultCode":200,"errorCode":0,"count":0,"serviceNames":[],"success":true}`, ""},
		"push":                {wire.NotifySubscriber("10.0.0.1", 7, info), "NotifySubscriberRequest", `{"headers":{},"requestId":"7","serviceInfo":` + shown + `,"module":"naming"}`, "10.0.0.1"},
		"detection":           {wire.ClientDetection("10.0.0.1", 17), "ClientDetectionRequest", `{"headers":{},"requestId":"17","module":"internal"}`, "10.0.0.1"},
		"reset":               {wire.ConnectReset("10.0.0.1", 9, "c1", "", ""), "ConnectResetRequest", `{"headers":{},"requestId":"9","module":"internal"}`, "10.0.0.1"},
		"reset to a server":   {wire.ConnectReset("10.0.0.1", 9, "c1", "10.0.0.2", "8848"), "ConnectResetRequest", `{"headers":{},"requestId":"9","serverIp":"10.0.0.2","serverPort":"8848","connectionId":"c1","module":"internal"}`, "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.typ, c.payload.Type)
			require.Equal(t, c.body, string(c.payload.JSON()))
			require.Equal(t, c.clientIP, c.payload.ClientIP)
			require.Nil(t, c.payload.Headers)
		})
	}
}

func TestServiceName_Key(t *testing.T) {
	for in, want := range map[string]naming.ServiceKey{
		`{"namespace":"dev","serviceName":"s","groupName":"g"}`:  {Namespace: "dev", Group: "g", Name: "s"},
		`{"namespace":"","serviceName":"s","groupName":"g"}`:     {Namespace: "public", Group: "g", Name: "s"},
		`{"namespace":null,"serviceName":null,"groupName":null}`: {Namespace: "public"},
		`{"serviceName":"s"}`:                                     {Namespace: "public", Name: "s"},
		`{"serviceName":7,"groupName":" "}`:                       {Namespace: "public", Group: " ", Name: "7"},
		`{"namespace":"a","serviceName":"g@@s","groupName":"g2"}`: {Namespace: "a", Group: "g2", Name: "g@@s"},
	} {
		var n wire.ServiceName
		require.NoError(t, wire.Unmarshal([]byte(in), &n))
		require.Equal(t, want, n.Key(), in)
	}
}

func TestInstance_Naming(t *testing.T) {
	for in, want := range map[string]naming.Instance{
		`{"ip":"10.0.0.1","port":80}`: naming.NewInstance("10.0.0.1", 80),
		// As the Go SDK sends it, with nulls and zeros.
		`{"instanceId":"","ip":"10.0.0.1","port":80,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"","serviceName":"","metadata":null,"instanceHeartBeatInterval":0,"ipDeleteTimeout":0,"instanceHeartBeatTimeOut":0}`: naming.NewInstance("10.0.0.1", 80),
		`{"ip":"10.0.0.1","port":"80","weight":"0","healthy":"false","enabled":false,"ephemeral":false,"clusterName":"c","metadata":{"k":1},"instanceId":"id"}`: {
			ID: "id", IP: "10.0.0.1", Port: 80, Cluster: "c", Weight: 0, Metadata: map[string]string{"k": "1"}, Ephemeral: true,
		},
		`{"metadata":{}}`: {Cluster: "DEFAULT", Weight: 1, Healthy: true, Enabled: true, Ephemeral: true},
	} {
		var i wire.Instance
		require.NoError(t, wire.Unmarshal([]byte(in), &i))
		require.Equal(t, want, *i.Naming(true), in)
		want.Ephemeral = false
		require.Equal(t, want, *i.Naming(false), "the request decides")
	}
}

func TestAck(t *testing.T) {
	for in, want := range map[string]struct {
		seq uint64
		ok  bool
	}{
		`{"resultCode":200,"requestId":"42","success":false}`:        {42, true}, // as Go sends it
		`{"resultCode":"200","requestId":42}`:                        {42, true},
		`{"resultCode":500,"errorCode":0,"requestId":"42"}`:          {42, false},
		`{"requestId":"42","success":true}`:                          {42, false},
		`{"resultCode":200,"requestId":""}`:                          {0, true},
		`{"resultCode":200}`:                                         {0, true},
		`{"resultCode":200,"requestId":"x"}`:                         {0, true},
		`{"resultCode":200,"requestId":"-1"}`:                        {0, true},
		`{"resultCode":200,"requestId":"18446744073709551615"}`:      {1<<64 - 1, true},
		`{"resultCode":200,"requestId":"18446744073709551616"}`:      {0, true},
		`{"resultCode":200,"requestId":null,"message":{"deep":[1]}}`: {0, true},
	} {
		var a wire.Ack
		require.NoError(t, wire.Unmarshal([]byte(in), &a))
		require.Equal(t, want.seq, a.Seq(), in)
		require.Equal(t, want.ok, a.OK(), in)
	}
}

func TestConnectionSetup(t *testing.T) {
	var s wire.ConnectionSetupRequest
	require.NoError(t, wire.Unmarshal([]byte(`{"clientVersion":"v","labels":{"module":"naming","n":1},"abilityTable":{}}`), &s))
	require.Equal(t, wire.Str("naming"), s.Labels["module"])
	require.NotNil(t, s.AbilityTable, "an empty table counts")
	s = wire.ConnectionSetupRequest{}
	require.NoError(t, wire.Unmarshal([]byte(`{"labels":null,"abilityTable":null,"clientAbilities":{}}`), &s))
	require.Nil(t, s.AbilityTable)
	require.Nil(t, s.Labels)
}

func TestCodeMessage(t *testing.T) {
	require.Equal(t, "success", wire.CodeMessage(wire.CodeSuccess))
	require.Equal(t, "service already exist", wire.CodeMessage(wire.CodeServiceExists))
	require.Empty(t, wire.CodeMessage(1))
}
