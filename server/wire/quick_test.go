package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quickly are the types that are read without encoding/json.
func quickly() []quick {
	return []quick{
		new(InstanceRequest), new(BatchInstanceRequest), new(ServiceQueryRequest), new(SubscribeServiceRequest), new(Ack), new(Beat),
	}
}

func plainRequests() []string {
	return []string{
		`{"headers":{},"namespace":"public","serviceName":"s","groupName":"g","type":"registerInstance","instance":{"instanceId":null,"ip":"10.1.2.3","port":8080,"weight":1.0,"healthy":true,"enabled":false,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"v":"17","":""}},"module":"naming"}`,
		`{"namespace":null,"serviceName":"с","type":"batchRegisterInstance","instances":[{"ip":"1.1.1.1","port":1,"metadata":{}},null,{"ip":"b","weight":1e400}]}`,
		`{"namespace":"","serviceName":"s","groupName":"g","cluster":"a,b","healthyOnly":true,"udpPort":0}`,
		` {"serviceName" : "s", "subscribe": false, "clusters": "c" } `,
		`{"resultCode":200,"errorCode":0,"success":true,"requestId":"17"}`,
		`{"ip":"10.0.0.1","port":80,"cluster":"c","scheduled":true,"weight":0.5,"metadata":null}`,
	}
}

// same fails unless a text is read as encoding/json reads it, by every type. It returns
// by how many types it was read quickly.
func same(t *testing.T, text string) (plain int) {
	t.Helper()
	for _, v := range quickly() {
		want := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		wantErr := json.Unmarshal([]byte(text), want)
		err := Unmarshal([]byte(text), v)
		require.Equal(t, wantErr == nil, err == nil, "%T of %q: %v, %v", v, text, wantErr, err)
		if err == nil {
			require.Equal(t, want, v, "of %q", text)
		}
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface().(quick)
		if readQuick([]byte(text), again) {
			plain++
			require.NoError(t, wantErr)
		}
	}
	return plain
}

func TestUnmarshal_PlainRequestsAreReadQuickly(t *testing.T) {
	t.Parallel()
	for _, text := range plainRequests() {
		require.GreaterOrEqual(t, same(t, text), 2, text)
	}
}

func TestUnmarshal_IsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `[]`, `{`, `{}x`, `{"ip":"a","ip":"b"}`, `{"IP":"a"}`, `{"ip":"a","Ip":"b"}`, `{"port":"80"}`, `{"port":80.0}`, `{"port":1e3}`,
		`{"port":99999999999999999999}`, `{"port":true}`, `{"weight":"2.5"}`, `{"weight":"Infinity"}`, `{"healthy":"true"}`, `{"healthy":1}`, `{"ip":12}`, `{"ip":{}}`, `{"ip":[]}`,
		`{"metadata":{"a":1}}`, `{"metadata":{"a":null}}`, `{"metadata":{"a":{}}}`, `{"metadata":[]}`, `{"metadata":"x"}`, `{"metadata":{"a":"1","a":"2"}}`,
		`{"metadata":{"a":"1"},"metadata":{"b":"2"}}`, `{"metadata":{"a":"1"},"metadata":null}`, `{"weight":1,"weight":null}`, `{"healthy":true,"healthy":null}`,
		`{"instance":null}`, `{"instance":{"ip":"a"},"instance":{"port":1}}`, `{"instance":{"ip":"a"},"instance":null}`, `{"instance":[]}`, `{"instance":"x"}`,
		`{"instances":null}`, `{"instances":[[]]}`, `{"instances":[],"instances":[{}]}`, `{"instances":[{"ip":"a"}],"instances":[]}`,
		`{"serviceName":"a\u0062"}`, "{\"serviceName\":\"\xff\"}", `{"serviceName":"😀"}`, `{"serviceName":7}`, `{"clusters":null}`, `{"ſerviceName":"a"}`, `{"Kind":1}`, `{"resultCode":"200"}`,
		strings.Repeat("[", 1<<20), strings.Repeat(`{"instance":`, 1<<18), `{"ip":"a","x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`,
		`{"ip":"[","x":` + strings.Repeat(`["}",`, 9000) + "1" + strings.Repeat("]", 9000) + `}`,
	} {
		same(t, text)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, text := range plainRequests() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.Contains(strings.ToLower(text), "nan") { // which is not equal to itself
			same(t, text)
		}
	})
}

func BenchmarkUnmarshal(b *testing.B) {
	text := []byte(plainRequests()[0])
	b.Run("quick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, Unmarshal(text, new(InstanceRequest)))
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, json.Unmarshal(text, new(InstanceRequest)))
		}
	})
}
