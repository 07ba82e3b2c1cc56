package wire_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"rollcall/naming"
	"rollcall/server/wire"
)

// fuzzTexts are texts of every sort.
func fuzzTexts() []string {
	return []string{
		"", " ", "x", "null", "{}", "[]", `""`, "0", "-1", "1e400", "true", "NaN", "\x00", "\xff", "\xed\xa0\x80", "\ufffd", "\u2028\u2029", "<&>", "中😀", "\"\\/\b\f\n\r\t\x7f",
		`{"a":"b"}`, `{"a":1,"b":true,"c":null,"d":1.50}`, `{"a":{}}`, `{"a":[]}`, `{"a":"\ud800"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\u0000"}`, `{"a":"1","a":"2"}`, `{"":""}`,
		"a=b", "a=b,c=d", "a=b=c", "a=", "=b", "a=b,", ",", "a", `{"a":"x=y"`, `["a=b"]`, strings.Repeat(`{"a":`, 20), strings.Repeat("[", 50),
	}
}

func FuzzParseMetadata(f *testing.F) {
	for _, s := range fuzzTexts() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := wire.ParseMetadata(s)
		if err != nil {
			require.Nil(t, m)
			return
		}
		if strings.TrimSpace(s) == "" {
			require.Nil(t, m)
			return
		}
		// What was read is written as JSON that is read to the same.
		raw := wire.AppendMetadata(nil, m)
		require.True(t, json.Valid(raw), "%s", raw)
		again, err := wire.ParseMetadata(string(raw))
		require.NoError(t, err)
		if !utf8.ValidString(s) { // pairs keep bytes that are no text; the validator refuses them
			return
		}
		require.Len(t, again, len(m))
		for k, v := range m {
			require.Equal(t, v, again[k])
		}
	})
}

// A text is written as the library writes it, but for what browsers need; and is
// read back whole.
func FuzzAppendString(f *testing.F) {
	for _, s := range fuzzTexts() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := wire.AppendString([]byte("x"), s)
		require.Equal(t, byte('x'), got[0])
		got = got[1:]
		require.True(t, utf8.Valid(got))
		var b strings.Builder
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		require.NoError(t, encoder.Encode(s))
		// The library has short forms for two more characters, and escapes the line
		// separators for JavaScript.
		want := strings.NewReplacer(`\\`, `\\`, `\b`, `\u0008`, `\f`, `\u000c`, `\u2028`, "\u2028", `\u2029`, "\u2029", `\ufffd`, "\ufffd").Replace(strings.TrimSuffix(b.String(), "\n"))
		require.Equal(t, want, string(got))
		var back string
		require.NoError(t, json.Unmarshal(got, &back))
		if utf8.ValidString(s) {
			require.Equal(t, s, back)
		}
		var lenient wire.Str
		require.NoError(t, wire.Unmarshal(got, &lenient))
		require.Equal(t, back, string(lenient))
	})
}

func FuzzAppendFloat(f *testing.F) {
	for _, n := range []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e15, 1e15 - 1, -1e15, 1e300, 5e-324, math.MaxFloat64, 10000, 1.0 / 3} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n float64) {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return
		}
		got := wire.AppendFloat(nil, n)
		require.True(t, json.Valid(got), "%s", got)
		back, err := strconv.ParseFloat(string(got), 64)
		require.NoError(t, err)
		require.True(t, n == back, "%v: %s", n, got) //nolint:testifylint // equal, not close; -0 is 0
		read, ok := wire.ParseNumber(string(got))
		require.True(t, ok)
		require.True(t, n == read) //nolint:testifylint // as above
	})
}

// fuzzPayloads are messages of every sort.
func fuzzPayloads(t testing.TB) [][]byte {
	t.Helper()
	out := [][]byte{
		nil,
		{0x80},
		[]byte("\x12"), []byte("\x12\x02\x1a\x05"), []byte("\x12\x04\x3a\x02\x0a\x05"), []byte("\x1a\x02\x12\x05"), []byte("\x13\x14"), []byte("\x10\x01\x08\x01"),
		[]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), []byte("\x12\x03\x1a\x01\xff\x1a\x04\x12\x02{}\x1a\x04\x12\x02[]"), []byte(strings.Repeat("\x13", 50)),
	}
	for _, p := range []*wire.Payload{
		{},
		{Type: "InstanceRequest", ClientIP: "10.0.0.1", Body: [][]byte{[]byte("{}")}},
		{Type: "x", Headers: map[string]string{"": "", "a": "b", "\xff": "\x00"}, Body: [][]byte{[]byte("{"), nil, []byte("}")}},
		{Type: strings.Repeat("x", 100), Body: [][]byte{make([]byte, 600)}},
	} {
		buffers, err := wire.Codec{}.Marshal(p)
		require.NoError(t, err)
		out = append(out, buffers.Materialize())
	}
	return out
}

// What was read is written to bytes that are read to the same, in one piece or
// several.
func FuzzPayload(f *testing.F) {
	for _, b := range fuzzPayloads(f) {
		f.Add(b, uint(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint) {
		var p wire.Payload
		err := p.Unmarshal(b)
		n := int(cut % uint(len(b)+1))
		var pieces wire.Payload
		errPieces := wire.Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b[:n]), mem.SliceBuffer(b[n:])}, &pieces)
		require.Equal(t, err == nil, errPieces == nil)
		if err != nil {
			return
		}
		require.Equal(t, p, pieces)
		body := p.JSON()
		if n = int(cut % uint(len(body)+1)); len(body) > 0 {
			p.Body = [][]byte{body[:n], body[n:]} // as answers are made
		}
		buffers, err := wire.Codec{}.Marshal(&p)
		require.NoError(t, err)
		var back wire.Payload
		require.NoError(t, wire.Codec{}.Unmarshal(buffers, &back))
		require.Equal(t, p.Type, back.Type)
		require.Equal(t, p.ClientIP, back.ClientIP)
		require.Equal(t, p.Headers, back.Headers)
		require.Equal(t, string(body), string(back.JSON()))
	})
}

// fuzzRequests are bodies of every type of request.
func fuzzRequests() []string {
	const instance = `{"instanceId":"","ip":"10.0.0.9","port":1,"weight":1,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"","serviceName":"","metadata":{"a":"b"},"instanceHeartBeatInterval":0}`
	out := []string{
		`{"headers":{},"namespace":"public","serviceName":"demo","groupName":"DEFAULT_GROUP","type":"registerInstance","instance":` + instance + `,"module":"naming"}`,
		`{"namespace":"","serviceName":"demo","groupName":"g","type":"batchRegisterInstance","instances":[` + instance + `,null,{}]}`,
		`{"namespace":null,"serviceName":1,"groupName":true,"cluster":"a,b","clusters":"a,b","healthyOnly":"true","subscribe":1,"pageNo":"1","pageSize":1e3}`,
		`{"clientVersion":"Nacos-Go-Client:v2.3.5","tenant":"","labels":{"module":"naming","x":1,"y":null},"abilityTable":{"a":true,"b":"false","c":null}}`,
		`{"resultCode":200,"errorCode":0,"requestId":"42","success":true}`, `{"resultCode":"200","requestId":42}`,
		`{"instance":{"ip":"10.0.0.1","port":"80","weight":"NaN","metadata":{"preserved.heart.beat.interval":1e400,"k":"\ud800"}}}`,
		`{"instance":{"ip":"\u0000","port":-1,"weight":1e999,"metadata":null,"clusterName":7,"instanceId":"\ufffd"}}`,
		`{"instances":[{"ip":"a","weight":5e-324,"port":65535.0,"metadata":{"":""}}],"instance":{"weight":-0,"IP":"x"}}`,
	}
	return append(out, fuzzTexts()...)
}

// Every request is read or refused; an instance that the validator lets pass is
// written as JSON that shows it whole.
func FuzzRequests(f *testing.F) {
	for _, s := range fuzzRequests() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var (
			single    wire.InstanceRequest
			batch     wire.BatchInstanceRequest
			query     wire.ServiceQueryRequest
			list      wire.ServiceListRequest
			subscribe wire.SubscribeServiceRequest
			setup     wire.ConnectionSetupRequest
			ack       wire.Ack
			bare      wire.Instance
		)
		var instances []*wire.Instance
		if wire.Unmarshal(body, &single) == nil {
			requireText(t, single.Key().Namespace, single.Key().Group, single.Key().Name, string(single.Type))
			require.NotEmpty(t, single.Key().Namespace)
			if single.Instance != nil {
				instances = append(instances, single.Instance)
			}
		}
		if wire.Unmarshal(body, &batch) == nil && batch.Instances != nil {
			instances = append(instances, *batch.Instances...)
		}
		if wire.Unmarshal(body, &bare) == nil {
			instances = append(instances, &bare)
		}
		if wire.Unmarshal(body, &query) == nil {
			requireText(t, string(query.Cluster))
		}
		if wire.Unmarshal(body, &list) == nil {
			requireText(t, list.Key().Name)
		}
		if wire.Unmarshal(body, &subscribe) == nil {
			requireText(t, string(subscribe.Clusters))
		}
		if wire.Unmarshal(body, &setup) == nil {
			for k, v := range setup.Labels {
				requireText(t, k, string(v))
			}
		}
		if wire.Unmarshal(body, &ack) == nil && ack.Seq() != 0 {
			require.Equal(t, strings.TrimLeft(string(ack.RequestID), "0"), strconv.FormatUint(ack.Seq(), 10))
		}
		for _, i := range instances {
			if i != nil {
				requireShown(t, i.Naming(true))
				requireShown(t, i.Naming(false))
			}
		}
	})
}

func requireText(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		require.True(t, utf8.ValidString(s), "%q", s)
	}
}

// requireShown reads an instance back from every form in which clients get it.
func requireShown(t *testing.T, i *naming.Instance) {
	t.Helper()
	svc := naming.ServiceKey{Namespace: "n", Group: "g", Name: "s"}
	if naming.CheckInstance(i, naming.DefaultMetadataLimit) != nil {
		return
	}
	info := &naming.ServiceInfo{Key: svc, Hosts: []*naming.Instance{i}, CacheMs: 1, LastRefTimeMs: 2}
	for _, raw := range [][]byte{wire.ServiceInfoGRPC(info), wire.ServiceInfoHTTP(info), wire.ServiceInfoUDP(info)} {
		require.True(t, json.Valid(raw), "%s", raw)
		require.True(t, utf8.Valid(raw))
		var shown struct {
			Hosts []struct {
				wire.Instance
				Ephemeral bool
				// Clients read whole numbers here.
				InstanceHeartBeatInterval, InstanceHeartBeatTimeOut, IPDeleteTimeout int64
			}
		}
		require.NoError(t, wire.Unmarshal(raw, &shown), "%s", raw)
		require.Len(t, shown.Hosts, 1)
		back := shown.Hosts[0].Naming(shown.Hosts[0].Ephemeral)
		if i.ID == "" {
			require.Equal(t, i.InstanceID(svc), back.ID)
			back.ID = ""
		}
		require.True(t, i.Equal(back), "%+v\n%+v\n%s", i, back, raw)
	}
	var datagram struct {
		Type, Data  string
		LastRefTime uint64
	}
	require.NoError(t, json.Unmarshal(wire.Datagram(7, info), &datagram))
	require.Equal(t, string(wire.ServiceInfoUDP(info)), datagram.Data)
}

func FuzzDatagramAck(f *testing.F) {
	for _, s := range append(fuzzTexts(), `{"type":"push-ack","lastRefTime":"1"}`, `{"type": "push-ack", "lastRefTime":482735119021, "data":""}`,
		`{"type":"push-ack","lastRefTime":"18446744073709551616"}`, `{"type":"push-ack","lastRefTime":-1}`, `{"type":"push-ack","lastRefTime":1e3}`, `{"type":"push-ack"}`,
		`{"type":"dom","lastRefTime":1}`, `{"type":"push-ack","lastRefTime":{}}`, `{"type":"push-ack","lastRefTime":"007"}`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		seq, ok := wire.DatagramAck(b)
		if !ok {
			return
		}
		require.True(t, json.Valid(b))
		require.Contains(t, string(b), strconv.FormatUint(seq, 10))
		again, ok := wire.DatagramAck([]byte(`{"type":"push-ack","lastRefTime":` + strconv.FormatUint(seq, 10) + "}"))
		require.True(t, ok)
		require.Equal(t, seq, again)
	})
}
