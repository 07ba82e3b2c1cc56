package server_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"rollcall/server/wire"
)

// The same for gRPC: a bad request is answered in the protocol's words (grpc.md 2.7
// and 3.10), leaves nothing behind, and its connection goes on.

// badCodec sends payloads, and raw bytes in place of one.
type badCodec struct{ wire.Codec }

func (c badCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(string); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.Codec.Marshal(v)
}

// badConn is a client's connection.
type badConn struct {
	cc     *grpc.ClientConn
	stream grpc.ClientStream // nil until it is opened
}

// open opens a connection without a stream.
func (n *badNode) open(t *testing.T) *badConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+n.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(badCodec{}), grpc.MaxCallSendMsgSize(64<<20), grpc.MaxCallRecvMsgSize(64<<20)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return &badConn{cc: cc}
}

// openStream opens the stream of a connection.
func (c *badConn) openStream(t *testing.T) {
	t.Helper()
	var err error
	c.stream, err = c.cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/BiRequestStream/requestBiStream")
	require.NoError(t, err)
}

const badSetup = `{"clientVersion":"Nacos-Go-Client:v2.3.5","tenant":"","labels":{"module":"naming","source":"sdk"}}`

// connect opens a connection and registers it.
func (n *badNode) connect(t *testing.T) *badConn {
	t.Helper()
	c := n.open(t)
	c.openStream(t)
	c.send(t, "ConnectionSetupRequest", badSetup)
	require.Eventually(t, func() bool { return c.healthy(t) }, badWait, time.Millisecond)
	return c
}

// send sends a message on the stream.
func (c *badConn) send(t *testing.T, typ, body string) {
	t.Helper()
	require.NoError(t, c.stream.SendMsg(&wire.Payload{Type: typ, ClientIP: "10.0.9.9", Body: [][]byte{[]byte(body)}}))
}

// badAnswer is the answer to a call.
type badAnswer struct {
	Type                  string `json:"-"`
	Body                  string `json:"-"`
	ResultCode, ErrorCode int
	Message               string
	Success               bool
	ServiceInfo           *struct {
		Name, GroupName string
		Hosts           []json.RawMessage
	}
	Count        *int
	ServiceNames []string
}

// call makes a call and reads its answer.
func (c *badConn) call(t *testing.T, typ, body string) badAnswer {
	t.Helper()
	reply := new(wire.Payload)
	require.NoError(t, c.cc.Invoke(t.Context(), "/Request/request", &wire.Payload{Type: typ, ClientIP: "10.0.9.9", Body: [][]byte{[]byte(body)}}, reply))
	a := badAnswer{Type: reply.Type, Body: string(reply.JSON())}
	require.NoError(t, json.Unmarshal(reply.JSON(), &a), a.Body)
	return a
}

// healthy tells whether the connection is registered.
func (c *badConn) healthy(t *testing.T) bool {
	t.Helper()
	a := c.call(t, "HealthCheckRequest", `{"headers":{},"module":"internal"}`)
	if a.Type == "HealthCheckResponse" {
		require.JSONEq(t, `{"resultCode":200,"errorCode":0,"success":true}`, a.Body)
		return true
	}
	require.Equal(t, 301, a.ErrorCode, a.Body)
	return false
}

// Further ways in which a value breaks a rule over gRPC.
const (
	asUnreadable = -3 // no JSON, or a value of another type
	asBlank      = -4 // a name that must not be blank
	asOwn        = -5 // in the handler's own type, as it stands
	asError      = -6 // at connection level
	asMissing    = -7 // at connection level, with the result code of a missing value
)

const badUnreadable = "errCode: 101, errMsg: Nacos deserialize failed.  "

// requireRefusedRPC compares an answer with what a fault calls for; own is the type
// of the handler's answers.
func requireRefusedRPC(t *testing.T, a badAnswer, own string, want bad) {
	t.Helper()
	typ, result, code, text := own, 500, 400, want.text
	switch want.fault {
	case asParam:
		text = "Param check invalid:" + text
	case asUnreadable:
		typ, code, text = "ErrorResponse", 502, badUnreadable
	case asBlank, asMissing:
		typ = "ErrorResponse"
	case asError:
		typ, result = "ErrorResponse", 400
	}
	require.Equal(t, typ, a.Type, a.Body)
	require.Equal(t, result, a.ResultCode, a.Body)
	require.Equal(t, code, a.ErrorCode, a.Body)
	require.Equal(t, strings.ToValidUTF8(text, "\ufffd"), a.Message)
	require.False(t, a.Success)
	if strings.HasPrefix(own, "QueryService") || strings.HasPrefix(own, "SubscribeService") {
		if want.fault != asUnreadable {
			require.NotNil(t, a.ServiceInfo, a.Body)
			require.NotNil(t, a.ServiceInfo.Hosts, a.Body)
			require.Empty(t, a.ServiceInfo.Hosts, "a refused request shows no hosts")
		}
	}
	if own == "ServiceListResponse" && want.fault != asUnreadable {
		require.Equal(t, 0, *a.Count)
		require.NotNil(t, a.ServiceNames)
		require.Empty(t, a.ServiceNames)
	}
}

// badQuote writes a JSON text; bytes that are no UTF-8 go as they are.
func badQuote(s string) string {
	var b bytes.Buffer
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			b.WriteString(`\u00` + string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// badQuoted turns bad texts into JSON.
func badQuoted(list []bad, family int) (out []bad) {
	for _, b := range list {
		if b.fault != asParam {
			b.fault = family
		}
		out = append(out, bad{badQuote(b.value), b.fault, b.text})
	}
	return out
}

// badFields returns the bad JSON values of a kind of field, "" where the field is
// left out. weights and behaviour are the families that such rules belong to.
func badFields(kind string, weights, behaviour int) []bad {
	noText := badTexts(asUnreadable, "", "{}", "[]", `{"a":1}`, `["x"]`, "nul", "NaN", "'x'", "\"\x01\"", `"\x"`, `"\u12"`)
	blank := func(text string) []bad {
		return badTexts(asBlank, text, "", "null", `""`, `" "`, `"\t\r\n "`)
	}
	required := badTexts(asParam, "Param 'ip' is required.", "", "null", `""`)
	surrogate := func(field string) []bad { return badChars(field, `"\ud800"`, `"a\udc00"`, `"\ud800\ud800"`) }
	switch kind {
	case "namespace":
		return slices.Concat(noText, badQuoted(badValues("namespaceId"), 0), badChars("namespaceId/tenant", `" "`, "1.5", `"\u0000"`), surrogate("namespaceId/tenant"))
	case "serviceName":
		return slices.Concat(badFields("name", 0, 0), blank("Param 'serviceName' is illegal, serviceName is blank"))
	case "name": // where a blank one is no fault
		return slices.Concat(noText, badQuoted(badValues("nameV2"), 0), surrogate("serviceName"))
	case "groupName":
		return slices.Concat(badFields("group", 0, 0), blank("Param 'groupName' is illegal, groupName is blank"))
	case "group":
		return slices.Concat(noText, badQuoted(badValues("groupName"), 0), surrogate("group"))
	case "clusters":
		return slices.Concat(noText, badQuoted(badValues("clusters"), 0), surrogate("cluster"))
	case "clusterName":
		return slices.Concat(noText, badQuoted(badValues("newCluster"), behaviour), surrogate("cluster"))
	case "ip":
		return slices.Concat(badFields("address", 0, 0), required)
	case "address": // where a missing one is no fault
		return slices.Concat(noText, badQuoted(badValues("ip"), 0), surrogate("ip"), badTexts(asParam, "Param 'ip' is illegal, '{}' is neither an IP address nor a host name.", "10", "1.5"))
	case "port":
		return slices.Concat(
			badTexts(asUnreadable, "", "{}", "[]", "true", `"x"`, "1.5", `"80.5"`, `" 80"`, `"80 "`, `"0x50"`, `"8_0"`, "1e400", "9223372036854775808", `"NaN"`, `"Infinity"`, "080", "+80", "1e", "NaN"),
			badTexts(asParam, badPort, "-1", "65536", "70000.0", "1e9", `"65536"`, `"-1"`, "-9223372036854775808", "9007199254740992.0"),
		)
	case "number":
		return badTexts(asUnreadable, "", "{}", "[]", "true", `"x"`, "1.5", `" 1"`, "1e400", "9223372036854775808", `"NaN"`)
	case "pageSize":
		return append(badFields("number", 0, 0), badTexts(asOwn, "Param 'pageSize' is illegal, the value should not be below 0.", "-1", `"-1"`, "-1e3", "-9223372036854775808")...)
	case "weight":
		return slices.Concat(
			badTexts(asUnreadable, "", "{}", "[]", "true", `"heavy"`, `"1,5"`, `" 1"`, `"1_0"`, `"0x1p3"`, "NaN", "Infinity", "-Infinity", ".5", "1.", "+1", "01"),
			badTexts(weights, badWeight, "-1", "-1e-9", "10000.1", "1e5", "1e999", "-1e999", `"NaN"`, `"Infinity"`, `"-Infinity"`, `"-1"`, `"1e999"`, badRepeat("9", 400)),
		)
	case "flag":
		return badTexts(asUnreadable, "", "{}", "[]", "2", "-1", "1.0", `"maybe"`, `"yes"`, `" true"`, "True", "nan")
	case "metadata":
		return slices.Concat(
			badTexts(asUnreadable, "", "[]", `"x"`, `""`, "1", "true", `{"a":{}}`, `{"a":["b"]}`, `{"a":NaN}`, `{"a":"\x"}`, `{"a"}`, `{1:"a"}`, badDeep(), badRepeat("[", 20_000)),
			badLength("Metadata", 1024, `{"k":"`+badRepeat("v", 1024)+`"}`, `{"k":"`+badRepeat("é", 1024)+`"}`, `{"k":"`+badRepeat(`\ud800`, 1024)+`"}`, `{"k":"`+badRepeat("v", 1_000_000)+`"}`, `{"k":`+badRepeat("9", 1024)+`}`),
			badTexts(behaviour, badTimes, `{"preserved.heart.beat.interval":"40000"}`, `{"preserved.heart.beat.interval":16000}`, `{"preserved.heart.beat.timeout":1}`),
			badTexts(behaviour, "Metadata 'preserved.instance.id.generator' is illegal, 'other' is neither simple nor snowflake.", `{"preserved.instance.id.generator":"other"}`),
		)
	case "instanceId":
		return slices.Concat(noText, badLength("instanceId", 512, badQuote(badRepeat("a", 513)), badQuote(badRepeat("é", 513)), badQuote(badRepeat("a", 1_000_000))))
	case "type":
		return slices.Concat(noText,
			badTexts(asError, "Unsupported request type: Param 'type' is required.", "", "null", `""`),
			badTexts(asError, "Unsupported request type {}", "1", "true"),
			[]bad{
				{`"other"`, asError, "Unsupported request type other"},
				{`"RegisterInstance"`, asError, "Unsupported request type RegisterInstance"},
				{`"registerInstance "`, asError, "Unsupported request type registerInstance "},
				{`"\u0000"`, asError, "Unsupported request type \x00"},
			})
	case "instance":
		return append(badFields("object", 0, 0), badTexts(asError, "Instance can not be null.", "", "null")...)
	case "persistentInstance":
		return append(badFields("object", 0, 0), badTexts(asMissing, "Param 'instance' is required.", "", "null")...)
	case "object":
		return badTexts(asUnreadable, "", "[]", `"x"`, "1", "true", "{", `{"ip"}`)
	case "instances":
		return slices.Concat(
			badTexts(asUnreadable, "", "{}", `"x"`, "1", "true", "[1]", `["x"]`, "[[]]", `[{"ip":{}}]`, "[", badDeep()),
			badTexts(asMissing, "Param 'instances' is required: a list, which may be empty.", "", "null"),
			[]bad{
				{"[null]", asParam, "instances[0] is null."},
				{`[{"ip":"10.0.0.1"},null]`, asParam, "instances[1] is null."},
				{"[{}]", asParam, "Param 'ip' is required. (instances[0])"},
				{`[{"ip":"10.0.0.1","port":1},{"ip":"10.0.0.2","port":-1}]`, asParam, badPort + " (instances[1])"},
				{"[" + badRepeat(`{"ip":"10.0.0.1","port":1},`, 20_000) + `{"ip":"10.0.0.1","port":2,"weight":-1}]`, asOwn, badWeight + " (instances[20000])"},
			})
	}
	return nil
}

// badCall is one type of request, with a body that would be served and its fields,
// written path:kind; the kind is left out where it is the last part of the path.
type badCall struct {
	typ, answer        string
	weights, behaviour int    // families of the rules about instances
	suffix             string // of the texts about an instance
	body, fields       string
}

func badCalls() []badCall {
	const (
		named    = `"namespace":"bad","serviceName":"new","groupName":"G1",`
		instance = `{"ip":"10.0.0.1","port":80,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{},"instanceId":""}`
		mine     = `"namespace":"fixtures","serviceName":"grpc","groupName":"G1",`
		fixture  = `"namespace":"fixtures","serviceName":"ephemeral","groupName":"DEFAULT_GROUP",`
		inner    = "instance.ip instance.port instance.weight instance.metadata instance.clusterName instance.instanceId instance.healthy:flag instance.enabled:flag"
	)
	return []badCall{
		{"InstanceRequest", "InstanceResponse", asOwn, asError, "", "{" + named + `"type":"registerInstance","instance":` + instance + "}", "namespace serviceName groupName type instance " + inner},
		{"InstanceRequest", "InstanceResponse", asOwn, asError, "", "{" + mine + `"type":"deregisterInstance","instance":` + instance + "}", "namespace serviceName groupName type instance:object instance.ip:address instance.port instance.clusterName:clusters"},
		{"PersistentInstanceRequest", "InstanceResponse", asOwn, asOwn, "", "{" + named + `"type":"registerInstance","instance":` + instance + "}", "namespace serviceName groupName type instance:persistentInstance " + inner},
		{"PersistentInstanceRequest", "InstanceResponse", asOwn, asOwn, "", "{" + fixture + `"type":"deregisterInstance","instance":` + instance + "}", "namespace serviceName groupName type instance:persistentInstance instance.ip:address instance.port instance.clusterName:clusters"},
		{"BatchInstanceRequest", "BatchInstanceResponse", asOwn, asOwn, " (instances[0])", "{" + named + `"type":"batchRegisterInstance","instances":[` + instance + "]}", "namespace serviceName groupName type instances " + strings.ReplaceAll(inner, "instance.", "instances.0.")},
		{"ServiceQueryRequest", "QueryServiceResponse", 0, 0, "", "{" + fixture + `"cluster":"","healthyOnly":false,"udpPort":0}`, "namespace serviceName:name groupName:group cluster:clusters healthyOnly:flag"},
		{"ServiceListRequest", "ServiceListResponse", 0, 0, "", `{"namespace":"fixtures","serviceName":"","groupName":"DEFAULT_GROUP","pageNo":1,"pageSize":10}`, "namespace serviceName:name groupName:group pageNo:number pageSize"},
		{"SubscribeServiceRequest", "SubscribeServiceResponse", 0, 0, "", "{" + fixture + `"subscribe":true,"clusters":""}`, "namespace serviceName groupName clusters subscribe:flag"},
		{"SubscribeServiceRequest", "SubscribeServiceResponse", 0, 0, "", "{" + fixture + `"subscribe":false,"clusters":""}`, "namespace serviceName groupName clusters subscribe:flag"},
	}
}

// badWith returns JSON with the value at a path replaced by raw text, or left out
// when that is empty.
func badWith(t *testing.T, body string, path []string, raw string) string {
	t.Helper()
	if len(path) == 0 {
		return raw
	}
	if k, err := strconv.Atoi(path[0]); err == nil {
		var list []json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		out := make([]string, len(list))
		for n, element := range list {
			if out[n] = string(element); n == k {
				out[n] = badWith(t, out[n], path[1:], raw)
			}
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	var object map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(body), &object))
	var out []string
	for _, k := range slices.Sorted(maps.Keys(object)) {
		value := string(object[k])
		if k == path[0] {
			if value = badWith(t, value, path[1:], raw); value == "" {
				continue
			}
		}
		out = append(out, badQuote(k)+":"+value)
	}
	return "{" + strings.Join(out, ",") + "}"
}

// Every field of every request with every bad value of its kind.
func TestBadInput_GRPC_EveryField(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	fill := func() {
		a := c.call(t, "InstanceRequest", `{"namespace":"fixtures","serviceName":"grpc","groupName":"G1","type":"registerInstance","instance":{"ip":"10.0.0.1","port":80}}`)
		require.True(t, a.Success, a.Body)
	}
	fill()
	n.also = append(n.also, "instance/list?namespaceId=fixtures&serviceName=G1@@grpc")
	before := n.stored(t)
	cases := 0
	for _, call := range badCalls() {
		t.Run(call.typ, func(t *testing.T) {
			for word := range strings.FieldsSeq(call.fields) {
				path, kind, ok := strings.Cut(word, ":")
				steps := strings.Split(path, ".")
				if !ok {
					kind = steps[len(steps)-1]
				}
				values := badFields(kind, call.weights, call.behaviour)
				require.NotEmpty(t, values, kind)
				for _, b := range values {
					if b.fault == asUnreadable && b.value == "" {
						continue // the field may be missing
					}
					t.Run(path+"="+badClip(b.value), func(t *testing.T) {
						defer func() {
							if t.Failed() { // the cases after it are not to blame
								n.fill(t)
								fill()
								before = n.stored(t)
							}
						}()
						cases++
						if len(steps) > 1 && b.fault != asUnreadable {
							b.text += call.suffix
						}
						body := badWith(t, call.body, steps, b.value)
						requireRefusedRPC(t, c.call(t, call.typ, body), call.answer, b)
						require.Equal(t, before, n.stored(t), "something was stored")
						require.True(t, c.healthy(t))
					})
				}
			}
		})
	}
	t.Logf("%d bad requests", cases)
}

// Bodies that are no request, for every type.
func TestBadInput_GRPC_Bodies(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	before := n.stored(t)
	types := []string{"HealthCheckRequest"}
	for _, call := range badCalls() {
		if !slices.Contains(types, call.typ) {
			types = append(types, call.typ)
		}
	}
	for _, b := range []struct{ name, body, text string }{
		{"empty", "", badUnreadable},
		{"blank", " \t\r\n", badUnreadable},
		{"null", "null", "Invalid request"},
		{"half a null", "nul", badUnreadable},
		{"a list", "[]", badUnreadable},
		{"a list of a request", "[{}]", badUnreadable},
		{"a text", `"x"`, badUnreadable},
		{"a number", "1", badUnreadable},
		{"a boolean", "true", badUnreadable},
		{"no JSON", "{bad", badUnreadable},
		{"a form", "serviceName=new&ip=10.0.0.1", badUnreadable},
		{"half an object", `{"serviceName":"new"`, badUnreadable},
		{"an object and more", `{"serviceName":"new"}}`, badUnreadable},
		{"two objects", `{} {}`, badUnreadable},
		{"names without quotes", `{serviceName:"new"}`, badUnreadable},
		{"single quotes", `{'serviceName':'new'}`, badUnreadable},
		{"a comma at the end", `{"serviceName":"new",}`, badUnreadable},
		{"a comment", `{}/**/`, badUnreadable},
		{"a byte order mark", "\ufeff{}", badUnreadable},
		{"UTF-16", "\xff\xfe{\x00}\x00", badUnreadable},
		{"NUL", "\x00", badUnreadable},
		{"NUL behind an object", "{}\x00", badUnreadable},
		{"a raw control character", "{\"serviceName\":\"a\x01\"}", badUnreadable},
		{"a raw line break", "{\"serviceName\":\"a\n\"}", badUnreadable},
		{"a number that is none", `{"x":01}`, badUnreadable},
		{"lists in lists", `{"x":` + badRepeat("[", 100_000) + badRepeat("]", 100_000) + "}", badUnreadable},
		{"objects in objects", badRepeat(`{"instance":`, 50_000) + "1" + badRepeat("}", 50_000), badUnreadable},
		{"compressed", "\x1f\x8b\x08\x00\x00\x00\x00\x00", badUnreadable},
		{"3 MB of blanks", badRepeat(" ", 3_000_000), badUnreadable},
		{"3 MB of zeros", badRepeat("\x00", 3_000_000), badUnreadable},
	} {
		t.Run(b.name, func(t *testing.T) {
			for _, typ := range types {
				a := c.call(t, typ, b.body)
				require.Equal(t, "ErrorResponse", a.Type, "%s: %s", typ, a.Body)
				require.JSONEq(t, `{"resultCode":500,"errorCode":502,"message":"`+b.text+`","success":false}`, a.Body, typ)
				require.Equal(t, before, n.stored(t), "something was stored")
				require.True(t, c.healthy(t))
			}
		})
	}
	for _, typ := range []string{ // nobody serves these
		"", " ", "x", "InstanceRequest ", "instanceRequest", "InstanceResponse", "NotifySubscriberRequest", "ConnectionSetupRequest", "SetupAckRequest",
		"com.example.InstanceRequest", "\x00", "\xff", "中", badRepeat("a", 1_000_000),
	} {
		a := c.call(t, typ, badSetup)
		require.Equal(t, "ErrorResponse", a.Type, typ)
		require.JSONEq(t, `{"resultCode":500,"errorCode":302,"message":"RequestHandler Not Found","success":false}`, a.Body, typ)
	}
	for _, body := range []string{"", "null", "{bad", "[]", badDeep()} { // its body is not read
		require.Equal(t, "ServerCheckResponse", c.call(t, "ServerCheckRequest", body).Type)
	}
	require.Equal(t, before, n.stored(t), "something was stored")
	require.True(t, c.healthy(t))
}

// Messages that are no payload, and ones that are too large.
func TestBadInput_GRPC_Messages(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	before := n.stored(t)
	for _, m := range []struct {
		name, message string
		code          codes.Code
		typ           string // of the answer, where there is one
	}{
		{"empty", "", codes.OK, "ErrorResponse"},
		{"half a tag", "\x80", codes.Internal, ""},
		{"field 0", "\x02\x00", codes.Internal, ""},
		{"a field without its value", "\x12", codes.Internal, ""},
		{"a field that is cut", "\x12\x05\x1a", codes.Internal, ""},
		{"a length beyond everything", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", codes.Internal, ""},
		{"a length that overflows", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", codes.Internal, ""},
		{"a kind of field that is unknown", "\x16", codes.Internal, ""},
		{"the end of a group", "\x14", codes.Internal, ""},
		{"a group without an end", "\x13", codes.Internal, ""},
		{"groups in groups", badRepeat("\x13", 100_000), codes.Internal, ""},
		{"a field that is cut within the metadata", "\x12\x02\x1a\x05", codes.Internal, ""},
		{"a field that is cut within a header", "\x12\x04\x3a\x02\x0a\x05", codes.Internal, ""},
		{"a field that is cut within the body", "\x1a\x02\x12\x05", codes.Internal, ""},
		{"metadata of another kind", "\x10\x01", codes.OK, "ErrorResponse"},
		{"a type of another kind", "\x12\x02\x18\x01", codes.OK, "ErrorResponse"},
		{"a type that is no text", "\x12\x03\x1a\x01\xff", codes.OK, "ErrorResponse"},
		{"unknown fields", "\x08\x01\xa2\x06\x01x", codes.OK, "ErrorResponse"},
		{"a type twice", "\x12\x0f\x1a\x01x\x1a\x0aHealthChec\x12\x14\x1a\x12HealthCheckRequest\x1a\x04\x12\x02{}", codes.OK, "HealthCheckResponse"},
		{"a body twice", "\x12\x14\x1a\x12HealthCheckRequest\x1a\x03\x12\x01x\x1a\x04\x12\x02{}", codes.OK, "HealthCheckResponse"},
		{"a header twice", "\x12\x1e\x1a\x12HealthCheckRequest\x3a\x00\x3a\x02\x0a\x00\x3a\x02\x12\x00\x1a\x04\x12\x02{}", codes.OK, "HealthCheckResponse"},
		{"10 MB and more", badRepeat("\x00", 10<<20+1), codes.ResourceExhausted, ""},
	} {
		t.Run(m.name, func(t *testing.T) {
			reply := new(wire.Payload)
			err := c.cc.Invoke(t.Context(), "/Request/request", m.message, reply)
			require.Equal(t, m.code, status.Code(err), "%v", err)
			require.Equal(t, m.typ, reply.Type)
			require.Equal(t, before, n.stored(t), "something was stored")
			require.True(t, c.healthy(t), "the connection stays")
		})
	}
	for _, method := range []string{"/Request/x", "/x/request", "/RequestStream/requestStream", "/Request/", "/"} {
		err := c.cc.Invoke(t.Context(), method, "", new(wire.Payload))
		require.Equal(t, codes.Unimplemented, status.Code(err), "%s: %v", method, err)
	}
	require.True(t, c.healthy(t))
	require.Equal(t, before, n.stored(t), "something was stored")
}

// A setup that cannot be read leaves the connection unregistered, and the next one
// counts.
func TestBadInput_GRPC_Setup(t *testing.T) {
	n := startBadNode(t)
	for _, s := range []struct{ name, typ, body string }{
		{"empty", "ConnectionSetupRequest", ""},
		{"no JSON", "ConnectionSetupRequest", "{bad"},
		{"a list", "ConnectionSetupRequest", "[]"},
		{"a text", "ConnectionSetupRequest", `"x"`},
		{"a version that is none", "ConnectionSetupRequest", `{"clientVersion":{}}`},
		{"labels that are none", "ConnectionSetupRequest", `{"labels":[]}`},
		{"labels that are a text", "ConnectionSetupRequest", `{"labels":"module=naming"}`},
		{"a label that is none", "ConnectionSetupRequest", `{"labels":{"module":{}}}`},
		{"abilities that are none", "ConnectionSetupRequest", `{"abilityTable":[]}`},
		{"an ability that is none", "ConnectionSetupRequest", `{"abilityTable":{"a":"maybe"}}`},
		{"deep", "ConnectionSetupRequest", badDeep()},
		{"two objects", "ConnectionSetupRequest", badSetup + badSetup},
		{"another type", "ConnectionSetupRequest ", badSetup},
		{"no type", "", badSetup},
		{"an acknowledgement", "NotifySubscriberResponse", `{"resultCode":200,"requestId":"1"}`},
		{"an acknowledgement that is none", "NotifySubscriberResponse", "x"},
		{"a unary request", "HealthCheckRequest", "{}"},
	} {
		t.Run(s.name, func(t *testing.T) {
			c := n.open(t)
			c.openStream(t)
			c.send(t, s.typ, s.body)
			require.False(t, c.healthy(t)) // having waited for a setup
			for _, call := range badCalls() {
				a := c.call(t, call.typ, call.body)
				require.JSONEq(t, `{"resultCode":500,"errorCode":301,"message":"Connection is unregistered.","success":false}`, a.Body)
				if call.typ == "InstanceRequest" {
					break // one wait is enough
				}
			}
			c.send(t, "ConnectionSetupRequest", badSetup)
			require.Eventually(t, func() bool { return c.healthy(t) }, badWait, time.Millisecond)
		})
	}
	for _, body := range []string{ // odd, and a setup all the same
		"{}", "null", `{"labels":null,"abilityTable":null,"clientVersion":null}`, `{"clientVersion":1,"labels":{"module":"naming","x":1,"y":null,"z":true}}`,
		`{"x":{},"y":[[]],"labels":{"module":"x","module":"naming"}}`, "{\"clientVersion\":\"\xff\\ud800\\u0000\"}", `{"abilityTable":{"a":"true","b":null,"c":1}}`,
	} {
		c := n.open(t)
		c.openStream(t)
		c.send(t, "ConnectionSetupRequest", body)
		require.Eventually(t, func() bool { return c.healthy(t) }, badWait, time.Millisecond, body)
		a := c.call(t, "SubscribeServiceRequest", `{"serviceName":"odd","groupName":"G1","subscribe":true}`)
		require.True(t, a.Success, a.Body)
		list := n.form(t, "GET", "/nacos/v1/ns/service/subscribers", "serviceName=G1@@odd", "")
		require.True(t, json.Valid([]byte(list.body)), list.body)
	}
}

// Messages on the stream that are no acknowledgement do not stop the one that is;
// one that is no payload ends the stream, and the next stream serves.
func TestBadInput_GRPC_Stream(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	require.True(t, c.call(t, "SubscribeServiceRequest", `{"namespace":"fixtures","serviceName":"ephemeral","groupName":"DEFAULT_GROUP","subscribe":true,"clusters":""}`).Success)
	next := func() (seq string) {
		for {
			p := new(wire.Payload)
			require.NoError(t, c.stream.RecvMsg(p))
			if p.Type == "NotifySubscriberRequest" {
				var push struct{ RequestID string }
				require.NoError(t, json.Unmarshal(p.JSON(), &push))
				return push.RequestID
			}
		}
	}
	acked := func() bool {
		return strings.Contains(n.do(t, "GET", "/metrics", "", "", nil).body, `rollcall_push_acked_total{transport="grpc"} 1`)
	}
	change := func(value string) {
		require.Equal(t, 200, n.form(t, "PUT", "/nacos/v1/ns/instance", "", "namespaceId=fixtures&serviceName=ephemeral&ip=10.0.0.1&port=80&metadata=c="+value).status)
	}
	seq := next() // the state at the time of the subscription
	for _, m := range []struct{ typ, body string }{
		{"NotifySubscriberResponse", ""},
		{"NotifySubscriberResponse", "null"},
		{"NotifySubscriberResponse", "[]"},
		{"NotifySubscriberResponse", "{bad"},
		{"NotifySubscriberResponse", badDeep()},
		{"NotifySubscriberResponse", `{"resultCode":200}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":null}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":{}}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":"x"}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":"-1"}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":"` + seq + `.0"}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":"18446744073709551616"}`},
		{"NotifySubscriberResponse", `{"resultCode":200,"requestId":"` + badRepeat("9", 100_000) + `"}`},
		{"NotifySubscriberResponse", `{"resultCode":"x","requestId":"` + seq + `"}`},
		{"NotifySubscriberResponse", `{"resultCode":[],"requestId":"` + seq + `"}`},
		{"NotifySubscriberResponse", "{\"resultCode\":200,\"requestId\":\"\xff\"}"},
		{"ConnectionSetupRequest", badSetup},
		{"ConnectionSetupRequest", "{bad"},
		{"", ""},
		{badRepeat("x", 100_000), badRepeat("x", 1_000_000)},
	} {
		c.send(t, m.typ, m.body)
	}
	require.True(t, c.healthy(t))
	require.False(t, acked())
	c.send(t, "NotifySubscriberResponse", `{"resultCode":"200","requestId":`+seq+`}`) // numbers and texts may be mixed up
	require.Eventually(t, acked, badWait, time.Millisecond)
	change("1")
	next()

	require.NoError(t, c.stream.SendMsg("\x80"))
	for {
		if err := c.stream.RecvMsg(new(wire.Payload)); err != nil {
			break
		}
	}
	require.True(t, c.healthy(t), "the connection stays registered")
	require.Eventually(t, func() bool { // the first stream may not be quite over
		c.openStream(t)
		c.send(t, "ConnectionSetupRequest", badSetup)
		change(strconv.FormatInt(time.Now().UnixNano(), 10))
		p := new(wire.Payload)
		return c.stream.RecvMsg(p) == nil && p.Type == "NotifySubscriberRequest"
	}, badWait, 10*time.Millisecond)
}

// What looks odd and is accepted is stored byte for byte, and read back so.
func TestBadInput_GRPC_Accepted(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	for k, o := range []struct{ name, instance, stored string }{
		{"numbers as texts", `{"ip":"10.0.0.9","port":"80","weight":"2.5"}`, `"ip":"10.0.0.9","port":80,"weight":2.5,`},
		{"whole numbers with a point", `{"ip":"10.0.0.9","port":80.0,"weight":1e1}`, `"port":80,"weight":10.0,`},
		{"a number as a name", `{"ip":"10.0.0.9","clusterName":7}`, `"clusterName":"7"`},
		{"flags as texts and numbers", `{"ip":"10.0.0.9","healthy":"FALSE","enabled":1}`, `"healthy":false,"enabled":true,`},
		{"nulls", `{"ip":"10.0.0.9","port":null,"weight":null,"clusterName":null,"metadata":null,"healthy":null,"enabled":null,"instanceId":null}`, `"port":0,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT"`},
		{"empty texts", `{"ip":"10.0.0.9","port":"","weight":"","clusterName":"","healthy":"","enabled":"","instanceId":""}`, `"port":0,"weight":1.0,"healthy":true,"enabled":true,`},
		{"a key twice", `{"ip":"10.0.0.8","ip":"10.0.0.9","port":1,"port":2}`, `"ip":"10.0.0.9","port":2,`},
		{"unknown fields of every type", `{"ip":"10.0.0.9","a":{},"b":[[1]],"c":null,"d":"\ud800","ephemeral":"maybe","serviceName":{},"instanceIdGenerator":[]}`, `"ephemeral":true,`},
		{"an id of one's own", `{"ip":"10.0.0.9","instanceId":"a \u0000\"\\\u4e2d"}`, `"instanceId":"a \u0000\"\\中"`},
		{"the longest id", `{"ip":"10.0.0.9","instanceId":"` + badRepeat("é", 512) + `"}`, `"instanceId":"` + badRepeat("é", 512) + `"`},
		{"metadata of every type", `{"ip":"10.0.0.9","metadata":{"a":1,"b":false,"c":null,"d":"\ud83d\ude00\u0000","e":1.50,"f":-0,"g":1e400}}`, `"metadata":{"a":"1","b":"false","d":"😀\u0000","e":"1.50","f":"-0","g":"1e400"}`},
		{"metadata with lone surrogates", `{"ip":"10.0.0.9","metadata":{"\ud800":"\udc00x"}}`, `"metadata":{"` + "\ufffd" + `":"` + "\ufffd" + `x"}`},
		{"metadata with bytes that are no text", "{\"ip\":\"10.0.0.9\",\"metadata\":{\"k\":\"\xff\xfe\"}}", `"metadata":{"k":"` + "\ufffd\ufffd" + `"}`},
		{"metadata with a key twice", `{"ip":"10.0.0.9","metadata":{"a":"1","a":"2"}}`, `"metadata":{"a":"2"}`},
		{"metadata with other writing", `{"ip":"10.0.0.9","metadata":{"k":"gr\u00fcn 中文 \u2028\u007f<&>"}}`, `"metadata":{"k":"grün 中文 ` + "\u2028\x7f" + `<&>"}`},
		{"metadata that clients keep for themselves", `{"ip":"10.0.0.9","metadata":{"publishInstanceEnable":"x","publishInstanceWeight":"x","customInstanceId":"x"}}`, `"metadata":{"customInstanceId":"x","publishInstanceEnable":"x","publishInstanceWeight":"x"}`},
		{"an address that is a number", `{"ip":"host","port":65535.0}`, `"ip":"host","port":65535,`},
	} {
		t.Run(o.name, func(t *testing.T) {
			service := "service-" + strconv.Itoa(k)
			for way, call := range []struct{ typ, rest string }{
				{"InstanceRequest", `"type":"registerInstance","instance":` + o.instance},
				{"BatchInstanceRequest", `"type":"batchRegisterInstance","instances":[` + o.instance + "]"},
				{"PersistentInstanceRequest", `"type":"registerInstance","instance":` + o.instance},
			} {
				named := `{"namespace":"odd","serviceName":"` + service + "-" + strconv.Itoa(way) + `","groupName":"G1",`
				a := c.call(t, call.typ, named+call.rest+"}")
				require.True(t, a.Success, a.Body)
				stored := o.stored
				if way == 2 {
					stored = strings.ReplaceAll(stored, `"ephemeral":true`, `"ephemeral":false`)
				}
				a = c.call(t, "ServiceQueryRequest", named+`"cluster":"","healthyOnly":false}`)
				if !strings.Contains(o.stored, `"enabled":false`) {
					require.Contains(t, a.Body, stored, call.typ)
				}
				list := n.form(t, "GET", "/nacos/v1/ns/instance/list", "namespaceId=odd&serviceName=G1@@"+service+"-"+strconv.Itoa(way), "")
				require.Contains(t, list.body, stored, "%s, read over HTTP", call.typ)
			}
		})
	}
	for _, q := range []struct{ name, typ, body, shown string }{
		{"a namespace that is missing", "ServiceListRequest", `{"groupName":"G1","pageNo":1,"pageSize":10}`, `"count":0,"serviceNames":[]`},
		{"an empty namespace", "ServiceListRequest", `{"namespace":"","groupName":"G1","pageNo":1,"pageSize":10}`, `"count":0,"serviceNames":[]`},
		{"a blank group", "ServiceListRequest", `{"namespace":"odd","groupName":" ","pageNo":1,"pageSize":10}`, `"count":0,"serviceNames":[]`},
		{"no page numbers", "ServiceListRequest", `{"namespace":"odd","groupName":"G1"}`, `"count":51,"serviceNames":[]`},
		{"a page far away", "ServiceListRequest", `{"namespace":"odd","groupName":"G1","pageNo":9223372036854775807,"pageSize":9223372036854775806}`, `"count":51,"serviceNames":["`},
		{"a page far away of one", "ServiceListRequest", `{"namespace":"odd","groupName":"G1","pageNo":9223372036854775807,"pageSize":1}`, `"count":51,"serviceNames":[]`},
		{"a page before the first", "ServiceListRequest", `{"namespace":"odd","groupName":"G1","pageNo":-9223372036854775808,"pageSize":1}`, `"count":51,"serviceNames":["service-0-0"]`},
		{"a selector that is none", "ServiceListRequest", `{"namespace":"odd","groupName":"G1","pageNo":1,"pageSize":0,"selector":{"x":[]}}`, `"count":51,`},
		{"a query for nothing", "ServiceQueryRequest", `{}`, `"serviceInfo":{"name":"","groupName":"","clusters":"","cacheMillis":10000,"hosts":[]`},
		{"a query with nulls", "ServiceQueryRequest", `{"namespace":null,"serviceName":null,"groupName":null,"cluster":null,"healthyOnly":null}`, `"hosts":[]`},
		{"a query for a blank name", "ServiceQueryRequest", `{"namespace":"a b","serviceName":" ","groupName":"G 1","cluster":"a b"}`, `"hosts":[]`},
		{"a subscription to nothing known", "SubscribeServiceRequest", `{"serviceName":"unknown","groupName":"G1","clusters":" "}`, `"message":"success","serviceInfo":{"name":"unknown","groupName":"G1","clusters":" "`},
	} {
		a := c.call(t, q.typ, q.body)
		require.True(t, a.Success, "%s: %s", q.name, a.Body)
		require.Contains(t, a.Body, q.shown, q.name)
	}
	require.True(t, c.healthy(t))
}

// Large requests within the limit are read whole.
func TestBadInput_GRPC_Large(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	before := n.stored(t)
	named := `"namespace":"fixtures","serviceName":"ephemeral","groupName":"DEFAULT_GROUP"`
	for _, l := range []struct{ name, typ, body string }{
		{"an unknown field of 3 MB", "ServiceQueryRequest", `{"x":"` + badRepeat("x", 3_000_000) + `",` + named + "}"},
		{"a million unknown fields", "ServiceQueryRequest", `{` + badRepeat(`"x":1,`, 1_000_000) + named + "}"},
		{"3 MB of clusters", "ServiceQueryRequest", `{"cluster":"DEFAULT` + badRepeat(",a", 1_500_000) + `",` + named + "}"},
		{"3 MB of blanks", "ServiceQueryRequest", badRepeat(" ", 3_000_000) + "{" + named + "}"},
	} {
		a := c.call(t, l.typ, l.body)
		require.True(t, a.Success, l.name)
		require.Len(t, a.ServiceInfo.Hosts, 1, l.name)
		require.Equal(t, before, n.stored(t), "%s: something was stored", l.name)
	}
	require.True(t, c.healthy(t))
}

// A connection may ask and be refused as often as it likes: the node does not
// remember it.
func TestBadInput_GRPC_Forgotten(t *testing.T) {
	n := startBadNode(t)
	c := n.connect(t)
	const mb = 1 << 20
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc / mb)
	}
	before := heap()
	for k := range 50 {
		text := badRepeat("a", mb) + strconv.Itoa(k)
		require.False(t, c.call(t, "InstanceRequest", `{"serviceName":"`+text+`","groupName":"G1","type":"registerInstance","instance":{"ip":"10.0.0.1"}}`).Success)
		require.False(t, c.call(t, "BatchInstanceRequest", `{"serviceName":"s","groupName":"`+text+`","type":"batchRegisterInstance","instances":[]}`).Success)
		require.False(t, c.call(t, "SubscribeServiceRequest", `{"serviceName":"s","groupName":"G1","subscribe":true,"clusters":"`+text+`"}`).Success)
		list := badRepeat("a,", mb/2) + strconv.Itoa(k) // a legal one
		require.True(t, c.call(t, "ServiceQueryRequest", `{"namespace":"fixtures","serviceName":"ephemeral","groupName":"DEFAULT_GROUP","cluster":"`+list+`"}`).Success)
		require.Equal(t, 200, n.form(t, "GET", "/nacos/v1/ns/instance/list", "namespaceId=fixtures&serviceName=ephemeral&clusters="+list[mb/2:], "").status)
	}
	require.Less(t, heap()-before, 30, "megabytes more than before")
}
