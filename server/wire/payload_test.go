package wire_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"rollcall/naming"
	"rollcall/server/wire"
)

// schema returns the descriptor of the protocol's Payload (grpc.md 1.1), made here
// so that the real protobuf library can check what is written by hand.
func schema(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	field := func(name string, number int32, typ descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &typ, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	const text, message = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	headers := field("headers", 7, message, ".Metadata.HeadersEntry")
	headers.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("payload_under_test.proto"), Syntax: new("proto3"),
		Dependency: []string{anypb.File_google_protobuf_any_proto.Path()},
		MessageType: []*descriptorpb.DescriptorProto{
			{
				Name:  new("Metadata"),
				Field: []*descriptorpb.FieldDescriptorProto{field("type", 3, text, ""), field("clientIp", 8, text, ""), headers},
				NestedType: []*descriptorpb.DescriptorProto{{
					Name:    new("HeadersEntry"),
					Field:   []*descriptorpb.FieldDescriptorProto{field("key", 1, text, ""), field("value", 2, text, "")},
					Options: &descriptorpb.MessageOptions{MapEntry: new(true)},
				}},
			},
			{
				Name:  new("Payload"),
				Field: []*descriptorpb.FieldDescriptorProto{field("metadata", 2, message, ".Metadata"), field("body", 3, message, ".google.protobuf.Any")},
			},
		},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	return file.Messages().ByName("Payload")
}

// plain is a payload as the protobuf library reads and writes it.
type plain struct {
	typ, clientIP, body string
	headers             map[string]string
}

func toProtobuf(d protoreflect.MessageDescriptor, p plain) []byte {
	m := dynamicpb.NewMessage(d)
	metadata := m.Mutable(d.Fields().ByName("metadata")).Message()
	fields := metadata.Descriptor().Fields()
	metadata.Set(fields.ByName("type"), protoreflect.ValueOfString(p.typ))
	metadata.Set(fields.ByName("clientIp"), protoreflect.ValueOfString(p.clientIP))
	for k, v := range p.headers {
		metadata.Mutable(fields.ByName("headers")).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
	}
	body := m.Mutable(d.Fields().ByName("body")).Message()
	body.Set(body.Descriptor().Fields().ByName("value"), protoreflect.ValueOfBytes([]byte(p.body)))
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // texts are valid
	}
	return b
}

func fromProtobuf(t *testing.T, d protoreflect.MessageDescriptor, b []byte) plain {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	require.NoError(t, proto.Unmarshal(b, m))
	metadata := m.Get(d.Fields().ByName("metadata")).Message()
	fields := metadata.Descriptor().Fields()
	p := plain{
		typ: metadata.Get(fields.ByName("type")).String(), clientIP: metadata.Get(fields.ByName("clientIp")).String(),
		headers: make(map[string]string),
	}
	metadata.Get(fields.ByName("headers")).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		p.headers[k.String()] = v.String()
		return true
	})
	body := m.Get(d.Fields().ByName("body")).Message()
	require.Empty(t, body.Descriptor().Fields().ByName("type_url").Default().String())
	p.body = string(body.Get(body.Descriptor().Fields().ByName("value")).Bytes())
	require.Empty(t, m.GetUnknown())
	return p
}

func marshal(t *testing.T, p *wire.Payload) []byte {
	t.Helper()
	b, err := wire.Codec{}.Marshal(p)
	require.NoError(t, err)
	return b.Materialize()
}

func unmarshal(t *testing.T, b []byte) *wire.Payload {
	t.Helper()
	p := new(wire.Payload)
	require.NoError(t, wire.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, p))
	return p
}

func TestPayload_AgreesWithProtobuf(t *testing.T) {
	d := schema(t)
	require.NoError(t, quick.Check(func(typ, clientIP string, body []string, headers map[string]string, large uint16) bool {
		for k := range headers {
			if !utf8.ValidString(k) {
				delete(headers, k)
			}
		}
		p := &wire.Payload{Type: typ, ClientIP: clientIP, Headers: headers}
		for _, part := range body {
			p.Body = append(p.Body, []byte(part))
		}
		if large%2 == 0 {
			p.Body = append(p.Body, []byte(strings.Repeat("x", int(large))))
		}
		joined := string(p.JSON())
		want := plain{typ: typ, clientIP: clientIP, headers: headers, body: joined}
		written := marshal(t, p)
		got := fromProtobuf(t, d, written)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return false
		}
		for _, b := range [][]byte{written, toProtobuf(d, want)} {
			back := unmarshal(t, b)
			if back.Type != typ || back.ClientIP != clientIP || !maps.Equal(back.Headers, headers) ||
				string(back.JSON()) != joined || len(back.Body) > 1 {
				return false
			}
		}
		return true
	}, nil))
}

// The bytes of grpc.md section 6, without the frame of five bytes.
func TestPayload_BytesOfTheProtocol(t *testing.T) {
	const instance = `{"headers":{},"namespace":"public","serviceName":"demo","groupName":"DEFAULT_GROUP","type":"registerInstance","instance":{"ip":"10.0.0.7","port":8080,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"v":"1"}},"module":"naming"}`
	for name, c := range map[string]struct {
		payload *wire.Payload
		head    string // hex
		body    string
	}{
		"1 ServerCheckRequest": {
			&wire.Payload{Type: "ServerCheckRequest", ClientIP: "10.0.0.7"},
			"121e1a12" + hex.EncodeToString([]byte("ServerCheckRequest")) + "4208" + hex.EncodeToString([]byte("10.0.0.7")) + "1a241222",
			`{"headers":{},"module":"internal"}`,
		},
		"1' ServerCheckResponse": {
			wire.ServerCheckAnswer("1700000000000_10.0.0.7_51234"),
			"12151a13" + hex.EncodeToString([]byte("ServerCheckResponse")) + "1a8001127e",
			`{"resultCode":200,"errorCode":0,"connectionId":"1700000000000_10.0.0.7_51234","supportAbilityNegotiation":true,"success":true}`,
		},
		"3 SetupAckRequest": {
			wire.SetupAck("10.0.0.1", false),
			"121b1a0f" + hex.EncodeToString([]byte("SetupAckRequest")) + "4208" + hex.EncodeToString([]byte("10.0.0.1")) + "1a5c125a",
			`{"headers":{},"abilityTable":{"supportPersistentInstanceByGrpc":true},"module":"internal"}`,
		},
		"4 InstanceRequest": {
			&wire.Payload{Type: "InstanceRequest", ClientIP: "10.0.0.7", Headers: map[string]string{"app": "unknown"}},
			"122b1a0f" + hex.EncodeToString([]byte("InstanceRequest")) + "3a0e0a03" + hex.EncodeToString([]byte("app")) + "1207" +
				hex.EncodeToString([]byte("unknown")) + "4208" + hex.EncodeToString([]byte("10.0.0.7")) + "1a9502129202",
			instance,
		},
		"4 answer": {
			wire.InstanceAnswer(wire.TypeInstanceAnswer, "registerInstance"),
			"12121a10" + hex.EncodeToString([]byte("InstanceResponse")) + "1a4b1249",
			`{"resultCode":200,"errorCode":0,"type":"registerInstance","success":true}`,
		},
		"6' acknowledgement": {
			&wire.Payload{Type: "NotifySubscriberResponse"},
			"121a1a18" + hex.EncodeToString([]byte("NotifySubscriberResponse")) + "1a421240",
			`{"resultCode":200,"errorCode":0,"requestId":"42","success":true}`,
		},
		"301": {
			wire.Unregistered(),
			"120f1a0d" + hex.EncodeToString([]byte("ErrorResponse")) + "1a5c125a",
			`{"resultCode":500,"errorCode":301,"message":"Connection is unregistered.","success":false}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.payload.Body == nil {
				c.payload.Body = [][]byte{[]byte(c.body)}
			}
			require.Equal(t, c.head+hex.EncodeToString([]byte(c.body)), hex.EncodeToString(marshal(t, c.payload)))
			back := unmarshal(t, marshal(t, c.payload))
			require.Equal(t, c.payload.Type, back.Type)
			require.Equal(t, c.payload.ClientIP, back.ClientIP)
			require.Equal(t, c.payload.Headers, back.Headers)
			require.Equal(t, c.body, string(back.JSON()))
		})
	}
	// 6: the push, longer by the key that the third version spells otherwise.
	push := wire.NotifySubscriber("10.0.0.1", 42, &naming.ServiceInfo{
		Key: naming.ServiceKey{Namespace: "public", Group: "DEFAULT_GROUP", Name: "demo"}, CacheMs: 10000, LastRefTimeMs: 1700000001000,
	})
	require.Equal(t, "12231a17"+hex.EncodeToString([]byte("NotifySubscriberRequest"))+"4208"+hex.EncodeToString([]byte("10.0.0.1"))+"1a9102128e02",
		hex.EncodeToString(marshal(t, push))[:2*(37+6)])
	require.JSONEq(t, `{"headers":{},"requestId":"42","serviceInfo":{"name":"demo","groupName":"DEFAULT_GROUP","clusters":"","cacheMillis":10000,"hosts":[],"lastRefTime":1700000001000,"checksum":"","allIPs":false,"allIps":false,"reachProtectionThreshold":false,"valid":true},"module":"naming"}`,
		string(push.JSON()))
}

func TestPayload_EmptyAndUnknown(t *testing.T) {
	d := schema(t)
	require.Equal(t, &wire.Payload{}, unmarshal(t, nil))
	require.Equal(t, plain{headers: map[string]string{}}, fromProtobuf(t, d, marshal(t, &wire.Payload{})))

	// Fields that are unknown, of every wire type and on every level, are skipped.
	unknown := func(b []byte) []byte {
		b = protowire.AppendVarint(protowire.AppendTag(b, 20, protowire.VarintType), 1)
		b = protowire.AppendFixed32(protowire.AppendTag(b, 21, protowire.Fixed32Type), 1)
		b = protowire.AppendFixed64(protowire.AppendTag(b, 22, protowire.Fixed64Type), 1)
		b = protowire.AppendString(protowire.AppendTag(b, 23, protowire.BytesType), "x")
		b = protowire.AppendTag(b, 24, protowire.StartGroupType)
		b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 1)
		return protowire.AppendTag(b, 24, protowire.EndGroupType)
	}
	text := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	entry := unknown(text(text(unknown(nil), 1, "k"), 2, "v"))
	metadata := unknown(text(text(text(unknown(nil), 3, "T"), 8, "10.0.0.1"), 7, string(entry)))
	body := unknown(text(text(unknown(nil), 1, "a type_url"), 2, "{}"))
	got := unmarshal(t, unknown(text(text(unknown(nil), 2, string(metadata)), 3, string(body))))
	require.Equal(t, &wire.Payload{Type: "T", ClientIP: "10.0.0.1", Headers: map[string]string{"k": "v"}, Body: [][]byte{[]byte("{}")}}, got)

	// A message in two pieces is merged; of a value given twice the last counts.
	got = unmarshal(t, text(text(nil, 2, string(text(text(nil, 3, "first"), 8, "ip"))), 2, string(text(nil, 3, "second"))))
	require.Equal(t, &wire.Payload{Type: "second", ClientIP: "ip"}, got)
	// Known numbers of another wire type count as unknown.
	require.Equal(t, &wire.Payload{}, unmarshal(t, protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)))
}

func TestPayload_Malformed(t *testing.T) {
	whole := marshal(t, &wire.Payload{Type: "T", ClientIP: "ip", Headers: map[string]string{"k": "v"}, Body: [][]byte{[]byte("{}")}})
	ends := 0
	for n := range whole {
		if new(wire.Payload).Unmarshal(whole[:n]) == nil {
			ends++ // between two fields
		}
	}
	require.Equal(t, 2, ends)
	for _, b := range []string{
		"\x12",             // no length
		"\x12\x05\x1a",     // shorter than its length
		"\x12\x02\x1a\x05", // the same one level below
		"\x12\x04\x3a\x02\x0a\x05",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a tag that is too long
		"\x00\x00", // field 0
		"\x0c",     // the end of no group
		"\x0b",     // a group without an end
		"\x08",     // a number that is missing
	} {
		require.Error(t, new(wire.Payload).Unmarshal([]byte(b)), "%q", b)
	}
}

func TestCodec_OnlyPayloads(t *testing.T) {
	_, err := wire.Codec{}.Marshal("text")
	require.ErrorContains(t, err, "string")
	require.ErrorContains(t, wire.Codec{}.Unmarshal(nil, new(int)), "*int")
	require.Equal(t, "proto", wire.Codec{}.Name())
}

func TestCodec_KeepsNothingOfTheBuffer(t *testing.T) {
	b := marshal(t, &wire.Payload{Type: "T", Body: [][]byte{[]byte("body")}})
	p := unmarshal(t, b)
	clear(b)
	require.Equal(t, "T", p.Type)
	require.Equal(t, "body", string(p.JSON()))
}

func TestPayload_LargeBodiesAreNotCopied(t *testing.T) {
	parts := [][]byte{[]byte(strings.Repeat("a", 600)), []byte(strings.Repeat("b", 600))}
	out, err := wire.Codec{}.Marshal(&wire.Payload{Type: "T", Body: parts})
	require.NoError(t, err)
	require.Len(t, out, 3)
	for n, part := range parts {
		require.Same(t, &part[0], &out[n+1].ReadOnlyData()[0])
	}
}
