package wire_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// example is a service in which every field differs from its default somewhere.
func example() *naming.ServiceInfo {
	plain := naming.NewInstance("10.0.0.1", 8080)
	full := naming.Instance{
		ID: `own "id"`, IP: "host-2.example", Port: 65535, Cluster: "C-2", Weight: 0.25, Enabled: true,
		Metadata: map[string]string{
			"zone": "west", "a": "", naming.MetaBeatInterval: "1000", naming.MetaBeatTimeout: "3000", naming.MetaDeleteTimeout: "9000",
			naming.MetaIDGenerator: "snowflake", "text": "<a&b> 服务 \"quoted\"\n",
		},
	}
	six := naming.NewInstance("fe80::1", 0)
	six.Weight, six.Metadata = 10000, map[string]string{naming.MetaBeatInterval: "no number"}
	return &naming.ServiceInfo{
		Key:      naming.ServiceKey{Namespace: "public", Group: "DEFAULT_GROUP", Name: "providers:com.example.Api:1.0:"},
		Clusters: "DEFAULT,C-2", Hosts: []*naming.Instance{&plain, &full, &six},
		ReachedProtection: true, CacheMs: 10000, LastRefTimeMs: 1748766600123,
	}
}

func TestServiceInfo_Golden(t *testing.T) {
	empty := &naming.ServiceInfo{Key: naming.ServiceKey{Namespace: "dev", Group: "g", Name: "s"}, CacheMs: 3000, LastRefTimeMs: 1}
	for name, got := range map[string][]byte{
		"grpc.json":       wire.ServiceInfoGRPC(example()),
		"http.json":       wire.ServiceInfoHTTP(example()),
		"udp.json":        wire.ServiceInfoUDP(example()),
		"datagram.json":   wire.Datagram(482735119021, example()),
		"grpc-empty.json": wire.ServiceInfoGRPC(empty),
		"http-empty.json": wire.ServiceInfoHTTP(empty),
		"udp-empty.json":  wire.ServiceInfoUDP(empty),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "serviceinfo", name)
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
				require.NoError(t, os.WriteFile(path, append(bytes.Clone(got), '\n'), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "run the tests with -update once")
			require.Equal(t, strings.TrimSuffix(string(want), "\n"), string(got))
			require.True(t, json.Valid(got))
		})
	}
}

func TestServiceInfo_Differences(t *testing.T) {
	keys := func(b []byte) map[string]any {
		m := make(map[string]any)
		require.NoError(t, json.Unmarshal(b, &m))
		return m
	}
	g, h, u := keys(wire.ServiceInfoGRPC(example())), keys(wire.ServiceInfoHTTP(example())), keys(wire.ServiceInfoUDP(example()))
	require.Equal(t, "providers:com.example.Api:1.0:", g["name"])
	require.Equal(t, "DEFAULT_GROUP@@providers:com.example.Api:1.0:", h["name"])
	require.Equal(t, h["name"], u["name"])
	require.Equal(t, "DEFAULT_GROUP", g["groupName"])
	require.NotContains(t, u, "groupName")
	require.Equal(t, true, g["reachProtectionThreshold"])
	require.Equal(t, false, u["reachProtectionThreshold"])
	require.Equal(t, g["hosts"], h["hosts"])
	require.Equal(t, g["hosts"], u["hosts"])
	hosts := g["hosts"].([]any)
	require.Equal(t, "10.0.0.1#8080#DEFAULT#DEFAULT_GROUP@@providers:com.example.Api:1.0:", hosts[0].(map[string]any)["instanceId"])
	require.Equal(t, "simple", hosts[0].(map[string]any)["instanceIdGenerator"])
	require.NotContains(t, hosts[2], "instanceIdGenerator")
}

func TestServiceInfo_EncodedOnce(t *testing.T) {
	info := example()
	var wg sync.WaitGroup
	got := make([][]byte, 8)
	for n := range got {
		wg.Go(func() { got[n] = wire.ServiceInfoGRPC(info) })
	}
	wg.Wait()
	for _, b := range got {
		require.Same(t, &got[0][0], &b[0])
	}
	require.NotEqual(t, string(wire.ServiceInfoHTTP(info)), string(wire.ServiceInfoGRPC(info)))
	first, second := wire.ServiceInfoUDP(info), wire.ServiceInfoUDP(info)
	require.Same(t, &first[0], &second[0])
}

func TestDatagram(t *testing.T) {
	var d struct {
		Type        string `json:"type"`
		Data        string `json:"data"`
		LastRefTime uint64 `json:"lastRefTime"`
	}
	require.NoError(t, json.Unmarshal(wire.Datagram(1<<53-1, example()), &d))
	require.Equal(t, "dom", d.Type)
	require.Equal(t, uint64(1<<53-1), d.LastRefTime)
	require.Equal(t, string(wire.ServiceInfoUDP(example())), d.Data)
}

func TestDatagramAck(t *testing.T) {
	for in, want := range map[string]uint64{
		`{"type": "push-ack", "lastRefTime":"482735119021", "data":""}`: 482735119021, // Java and Go
		`{"type":"push-ack","lastRefTime":482735119021,"data":""}`:      482735119021, // Node
		`{"type":"push-ack","lastRefTime":0}`:                           0,
	} {
		seq, ok := wire.DatagramAck([]byte(in))
		require.True(t, ok, in)
		require.Equal(t, want, seq)
	}
	for _, in := range []string{
		``, `x`, `null`, `[]`, `{}`, `{"type":"push-ack"}`, `{"type":"dump-ack","lastRefTime":"1"}`,
		`{"type":"push-ack","lastRefTime":"x"}`, `{"type":"push-ack","lastRefTime":-1}`, `{"type":"push-ack","lastRefTime":1.5}`,
		`{"type":"push-ack","lastRefTime":{}}`, `{"lastRefTime":"1"}`, "\x1f\x8b\x08",
	} {
		_, ok := wire.DatagramAck([]byte(in))
		require.False(t, ok, in)
	}
}
