package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	v1Instance = "/nacos/v1/ns/instance"
	v1List     = "/nacos/v1/ns/instance/list"
	v1Beat     = "/nacos/v1/ns/instance/beat"
	v1Service  = "/nacos/v1/ns/service"
	v1Services = "/nacos/v1/ns/service/list"
	v1Cluster  = "/nacos/v1/ns/cluster"
	v1Health   = "/nacos/v1/ns/health/instance"
	v1Switches = "/nacos/v1/ns/operator/switches"
	v2Instance = "/nacos/v2/ns/instance"
	v2List     = "/nacos/v2/ns/instance/list"
	v2Service  = "/nacos/v2/ns/service"
	v2Health   = "/nacos/v2/ns/health/instance"
	v3Instance = "/nacos/v3/client/ns/instance"

	// soon bounds what should take milliseconds; it is generous because the
	// machine may be busy.
	soon = 5 * time.Second
)

//nolint:gochecknoglobals // makes names unique within the process
var serial atomic.Int64

// uniqueName returns a legal service, group or namespace name that no other test
// uses.
func uniqueName(t *testing.T) string {
	t.Helper()
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.TrimPrefix(t.Name(), "Test"))
	return fmt.Sprintf("%s-%d-%d", clean[:min(len(clean), 30)], os.Getpid(), serial.Add(1))
}

func newService(t *testing.T) Service {
	t.Helper()
	return Service{Name: uniqueName(t)}
}

// newNamespace returns a service in a namespace of its own, for tests that count
// services.
func newNamespace(t *testing.T) Service {
	t.Helper()
	return Service{Namespace: uniqueName(t), Name: "svc-a"}
}

// at are the parameters of an instance of the service.
func (s Service) at(ip string, port any) Params {
	return s.Params().With(Params{"ip": ip, "port": fmt.Sprint(port)})
}

// metadataJSON turns pairs into the text of the metadata parameter.
func metadataJSON(t *testing.T, pairs ...string) string {
	t.Helper()
	m := map[string]string{}
	for n := 0; n < len(pairs); n += 2 {
		m[pairs[n]] = pairs[n+1]
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	return string(text)
}

// beatTimes is metadata with the three times of heartbeats, in milliseconds.
func beatTimes(t *testing.T, interval, timeout, remove time.Duration) string {
	t.Helper()
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return metadataJSON(t, "preserved.heart.beat.interval", ms(interval),
		"preserved.heart.beat.timeout", ms(timeout), "preserved.ip.delete.timeout", ms(remove))
}

// requireOK requires the answer of a successful v1 write.
func requireOK(t *testing.T, r Response) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	require.Equal(t, "ok", r.Body)
}

// requireResultOK requires the answer of a successful v2 or v3 write.
func requireResultOK(t *testing.T, r Response) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	result := r.Result(t)
	require.Zero(t, result.Code, r.Body)
	require.JSONEq(t, `"ok"`, string(result.Data), r.Body)
}

// register registers over HTTP v1.
func register(t *testing.T, n *Node, p Params) {
	t.Helper()
	requireOK(t, n.Do(t, http.MethodPost, v1Instance, p))
}

// deregister deregisters over HTTP v1.
func deregister(t *testing.T, n *Node, p Params) {
	t.Helper()
	requireOK(t, n.Do(t, http.MethodDelete, v1Instance, p))
}

// update updates over HTTP v1.
func update(t *testing.T, n *Node, p Params) {
	t.Helper()
	requireOK(t, n.Do(t, http.MethodPut, v1Instance, p))
}

// list lists over HTTP v1.
func list(t *testing.T, n *Node, p Params) ServiceInfo {
	t.Helper()
	resp := n.Do(t, http.MethodGet, v1List, p)
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	var info ServiceInfo
	resp.JSON(t, &info)
	require.NotNil(t, info.Hosts, "hosts must be an array: %s", resp.Body)
	return info
}

// listV2 lists over HTTP v2.
func listV2(t *testing.T, n *Node, p Params) ServiceInfo {
	t.Helper()
	resp := n.Do(t, http.MethodGet, v2List, p)
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	result := resp.Result(t)
	require.Zero(t, result.Code, resp.Body)
	var info ServiceInfo
	require.NoError(t, json.Unmarshal(result.Data, &info))
	require.NotNil(t, info.Hosts, "hosts must be an array: %s", resp.Body)
	return info
}

// requireHosts requires exactly these ip:port in the service's list over HTTP.
func requireHosts(t *testing.T, n *Node, s Service, addrs ...string) {
	t.Helper()
	require.ElementsMatch(t, addrs, list(t, n, s.Params()).Addrs())
}

// onlyHost requires that the list has one host, and returns it.
func onlyHost(t *testing.T, info ServiceInfo) Host {
	t.Helper()
	require.Len(t, info.Hosts, 1, "hosts %v", info.Addrs())
	return info.Hosts[0]
}

// instanceDetail is the answer of the detail calls of v1.
type instanceDetail struct {
	Service     string            `json:"service"`
	IP          string            `json:"ip"`
	Port        int               `json:"port"`
	ClusterName string            `json:"clusterName"`
	Weight      float64           `json:"weight"`
	Healthy     bool              `json:"healthy"`
	InstanceID  string            `json:"instanceId"`
	Metadata    map[string]string `json:"metadata"`
}

// detail asks for one instance over HTTP v1.
func detail(t *testing.T, n *Node, p Params) instanceDetail {
	t.Helper()
	resp := n.Do(t, http.MethodGet, v1Instance, p)
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	var d instanceDetail
	resp.JSON(t, &d)
	return d
}

// beatAnswer is the answer to a heartbeat.
type beatAnswer struct {
	Code     int   `json:"code"`
	Interval int64 `json:"clientBeatInterval"`
	Light    bool  `json:"lightBeatEnabled"`
}

// beat sends a beat over HTTP v1; without a parameter beat it is a light one.
func beat(t *testing.T, n *Node, p Params) beatAnswer {
	t.Helper()
	resp := n.Do(t, http.MethodPut, v1Beat, p)
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	require.Contains(t, resp.Body, "clientBeatInterval")
	var a beatAnswer
	resp.JSON(t, &a)
	return a
}

// fullBeat is the text of the parameter beat.
func fullBeat(t *testing.T, f Fields) string {
	t.Helper()
	text, err := json.Marshal(f)
	require.NoError(t, err)
	return string(text)
}

// createService creates a service of ephemeral instances with a settings record.
func createService(t *testing.T, n *Node, s Service, more Params) {
	t.Helper()
	requireResultOK(t, n.Do(t, http.MethodPost, v2Service, s.Params().With(Params{"ephemeral": "true"}).With(more)))
}

// serviceNames lists the names of a namespace and group over HTTP v1.
func serviceNames(t *testing.T, n *Node, s Service) []string {
	t.Helper()
	p := s.Params().With(Params{"pageNo": "1", "pageSize": "100000"})
	delete(p, "serviceName")
	resp := n.Do(t, http.MethodGet, v1Services, p)
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	var body struct {
		Count int      `json:"count"`
		Doms  []string `json:"doms"`
	}
	resp.JSON(t, &body)
	require.Len(t, body.Doms, body.Count)
	return body.Doms
}

// eventually polls until check returns nil.
func eventually(t *testing.T, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			require.NoError(t, err, "after %s", timeout)
		case <-tick.C:
		}
	}
}

// always polls for the time given and requires that check returns nil each time.
func always(t *testing.T, d time.Duration, check func() error) {
	t.Helper()
	require.NoError(t, throughout(t, d, check))
}

// throughout polls for the time given, or until check returns an error.
func throughout(t *testing.T, d time.Duration, check func() error) error {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := check(); err != nil {
			return err
		}
		select {
		case <-deadline.C:
			return nil
		case <-tick.C:
		}
	}
}

// within requires that attempt takes less than limit at least once in three: the machine
// is shared, and stands still at times. It returns what the last attempt took.
func within(t *testing.T, limit time.Duration, attempt func() time.Duration) time.Duration {
	t.Helper()
	took := attempt()
	for again := 0; again < 2 && took >= limit; again++ {
		t.Logf("took %v, the limit is %v", took, limit)
		took = attempt()
	}
	require.Less(t, took, limit)
	return took
}

// hostsAre is a condition for eventually and always.
func hostsAre(t *testing.T, n *Node, s Service, addrs ...string) func() error {
	t.Helper()
	return func() error {
		got := list(t, n, s.Params()).Addrs()
		if fmt.Sprint(got) != fmt.Sprint(ServiceInfo{Hosts: hostsOf(addrs)}.Addrs()) {
			return fmt.Errorf("hosts %v, want %v", got, addrs)
		}
		return nil
	}
}

func hostsOf(addrs []string) []Host {
	hosts := make([]Host, 0, len(addrs))
	for _, a := range addrs {
		at := strings.LastIndexByte(a, ':')
		port, _ := strconv.Atoi(a[at+1:])
		hosts = append(hosts, Host{IP: a[:at], Port: port})
	}
	return hosts
}

// has tells whether a list has exactly these ip:port.
func has(addrs ...string) func(ServiceInfo) bool {
	want := fmt.Sprint(ServiceInfo{Hosts: hostsOf(addrs)}.Addrs())
	return func(s ServiceInfo) bool { return fmt.Sprint(s.Addrs()) == want }
}

// subscriber is a connection with one subscription whose first push, the one that
// every new subscription gets, has been read.
func subscriber(t *testing.T, n *Node, s Service, clusters string) *Conn {
	t.Helper()
	c := Connect(t, n.GRPCAddr())
	c.Subscribe(t, s, clusters)
	c.NextPush(t, soon)
	return c
}

// secs is a number of seconds as a duration.
func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// pause lets time pass: for rules about silence and age.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
