package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcome is how the server took a registration.
type outcome struct {
	code int    // the HTTP status, or the error code of gRPC with 0 turned into 200
	text string // what was answered
	sent string // what was sent
}

// accepted requires success.
func (o outcome) accepted(t *testing.T) {
	t.Helper()
	require.Equal(t, http.StatusOK, o.code, "%s\nsent: %s", o.text, o.sent)
}

// refused requires the refusal of a bad value: 400 over HTTP, error code 400 over
// gRPC. A JSON value of the wrong type may also be refused as malformed, 502.
func (o outcome) refused(t *testing.T) {
	t.Helper()
	require.Contains(t, []int{http.StatusBadRequest, 502}, o.code, "%s\nsent: %s", o.text, o.sent)
}

// way is one road by which a registration reaches the server. A rule about values
// has to hold on all of them.
type way struct {
	name       string
	persistent bool
	grpc       bool
	road       func(t *testing.T, n *Node, s Service, instance Fields) outcome
}

// send registers an instance.
func (w way) send(t *testing.T, n *Node, s Service, instance Fields) outcome {
	t.Helper()
	o := w.road(t, n, s, instance)
	o.sent = fmt.Sprintf("%+v %v", s, instance)
	return o
}

// ways lists every road by which an instance can be registered. Fields are those
// of [Instance]; a field that is missing or nil is not sent over HTTP. Addresses
// should be of the loopback network, since the server probes persistent ones.
func ways() []way {
	return []way{
		{name: "v1 form", road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return httpOutcome(n.Do(t, http.MethodPost, v1Instance, formOf(t, s, f)))
		}},
		{name: "v1 query", road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return httpOutcome(n.Query(t, http.MethodPost, v1Instance, formOf(t, s, f)))
		}},
		{name: "v2 form", road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return httpOutcome(n.Do(t, http.MethodPost, v2Instance, formOf(t, s, f)))
		}},
		{name: "v2 query", road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return httpOutcome(n.Query(t, http.MethodPost, v2Instance, formOf(t, s, f)))
		}},
		{name: "v3 form", road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return httpOutcome(n.Do(t, http.MethodPost, v3Instance, formOf(t, s, f)))
		}},
		{name: "v1 persistent", persistent: true, road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return httpOutcome(n.Do(t, http.MethodPost, v1Instance, formOf(t, s, f).With(Params{"ephemeral": "false"})))
		}},
		{name: "beat", road: sendBeat},
		{name: "gRPC", grpc: true, road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return grpcOutcome(Connect(t, n.GRPCAddr()).Register(t, s, f))
		}},
		{name: "gRPC batch", grpc: true, road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return grpcOutcome(Connect(t, n.GRPCAddr()).Batch(t, s, f))
		}},
		{name: "gRPC persistent", grpc: true, persistent: true, road: func(t *testing.T, n *Node, s Service, f Fields) outcome {
			t.Helper()
			return grpcOutcome(Connect(t, n.GRPCAddr()).RegisterPersistent(t, s, f))
		}},
	}
}

// waysOf lists the ways that the node has: the v3 client API may be missing.
func waysOf(t *testing.T, n *Node) []way {
	t.Helper()
	all := ways()
	if n.Do(t, http.MethodPost, v3Instance, nil).Status != http.StatusNotFound {
		return all
	}
	return slices.DeleteFunc(all, func(w way) bool { return w.name == "v3 form" })
}

// eachWay runs a parallel subtest for every way.
func eachWay(t *testing.T, run func(t *testing.T, n *Node, w way)) {
	t.Helper()
	n := sharedNode(t)
	for _, w := range waysOf(t, n) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			run(t, n, w)
		})
	}
}

func httpOutcome(r Response) outcome {
	code := r.Status
	var result Result
	if code == http.StatusOK && json.Unmarshal([]byte(r.Body), &result) == nil &&
		result.Code != 0 && result.Code != 200 && result.Code != 10200 {
		code = result.Code // a refusal in the dress of a success
	}
	return outcome{code: code, text: r.Body}
}

func grpcOutcome(r Reply) outcome {
	if r.ResultCode == 200 && r.ErrorCode == 0 && r.Success {
		return outcome{code: http.StatusOK, text: r.Body}
	}
	return outcome{code: r.ErrorCode, text: r.Type + " " + r.Body}
}

// formOf turns the fields of an instance into HTTP parameters.
func formOf(t *testing.T, s Service, f Fields) Params {
	t.Helper()
	p := s.Params()
	for k, v := range f {
		switch value := v.(type) {
		case nil:
		case string:
			p[k] = value
		case Fields, map[string]string:
			text, err := json.Marshal(value)
			require.NoError(t, err)
			p[k] = string(text)
		default:
			p[k] = fmt.Sprint(value)
		}
	}
	return p
}

func sendBeat(t *testing.T, n *Node, s Service, f Fields) outcome {
	t.Helper()
	group := s.Group
	if group == "" {
		group = "DEFAULT_GROUP"
	}
	b := Fields{"scheduled": false, "serviceName": group + "@@" + s.Name}.With(f)
	b["cluster"] = b["clusterName"]
	delete(b, "clusterName")
	for k, v := range b {
		if v == nil {
			delete(b, k)
		}
	}
	return httpOutcome(n.Do(t, http.MethodPut, v1Beat, s.Params().With(Params{"beat": fullBeat(t, b)})))
}

// requireNothing requires that the service has no instance and, if it is in a
// namespace of its own, that no service came into being there.
func requireNothing(t *testing.T, n *Node, s Service) {
	t.Helper()
	requireHosts(t, n, s)
	if s.Namespace != "" {
		require.Empty(t, serviceNames(t, n, s))
	}
}

// readEverywhere reads the service's list over every protocol, requires that all
// show the same, and returns it.
func readEverywhere(t *testing.T, n *Node, s Service) ServiceInfo {
	t.Helper()
	info := list(t, n, s.Params())
	second := listV2(t, n, s.Params())
	third := Connect(t, n.GRPCAddr()).List(t, s, "", false)
	for _, other := range []ServiceInfo{second, third} {
		require.ElementsMatch(t, info.Addrs(), other.Addrs())
		for _, h := range info.Hosts {
			at := slices.IndexFunc(other.Hosts, func(o Host) bool { return o.Addr() == h.Addr() && o.ClusterName == h.ClusterName })
			require.GreaterOrEqual(t, at, 0, "%s of %s is missing", h.Addr(), h.ClusterName)
			twin := other.Hosts[at]
			require.Equal(t, h.Metadata, twin.Metadata)
			require.InDelta(t, h.Weight, twin.Weight, 0)
			require.Equal(t, h.ServiceName, twin.ServiceName)
			require.Equal(t, []bool{h.Enabled, h.Ephemeral}, []bool{twin.Enabled, twin.Ephemeral})
			if h.Ephemeral { // the health of a persistent one may change between two reads
				require.Equal(t, h.Healthy, twin.Healthy)
			}
		}
	}
	return info
}

// repeated returns a text of n bytes.
func repeated(n int) string { return strings.Repeat("a", n) }
