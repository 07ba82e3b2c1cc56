package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
	"rollcall/server/wire"
)

func TestRegister_IsVisibleWhenItReturns(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
	require.Equal(t, []naming.ServiceKey{service("a")}, f.noticed())
	i, err := f.Instance(service("a"), host("10.0.0.1").Key())
	require.NoError(t, err)
	require.True(t, i.Equal(host("10.0.0.1")))

	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	require.Empty(t, f.noticed(), "the same again is no change")
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.2")))
	require.Equal(t, []string{"10.0.0.2"}, f.hosts(service("a")), "it replaces what the publisher had")
	require.Len(t, f.noticed(), 1)
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.3"), host("10.0.0.4")))
	require.Equal(t, []string{"10.0.0.3", "10.0.0.4"}, f.hosts(service("a")))
	require.NoError(t, f.RegisterBatch(t.Context(), service("a"), "conn", nil))
	require.Empty(t, f.hosts(service("a")))
}

func TestRegister_EqualMetadataIsKeptOnce(t *testing.T) {
	f := newFixture(t)
	with := func(ip, zone string) *naming.Instance {
		return host(ip).With(func(i *naming.Instance) { i.Metadata = map[string]string{"zone": zone} })
	}
	given := []*naming.Instance{with("10.0.0.1", "a"), with("10.0.0.2", "a"), with("10.0.0.3", "b"), with("10.0.0.4", "a")}
	for n, i := range given {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn-"+strconv.Itoa(n), i))
	}
	kept := make([]uintptr, len(given))
	for n, i := range given {
		got, err := f.Instance(service("a"), i.Key())
		require.NoError(t, err)
		require.True(t, i.Equal(got))
		kept[n] = reflect.ValueOf(got.Metadata).Pointer()
	}
	require.Equal(t, kept[0], kept[1])
	require.NotEqual(t, kept[1], kept[2])
	require.NotEqual(t, kept[2], kept[3], "the last one's, no other")
}

func TestRegister_Refusals(t *testing.T) {
	f := newFixture(t)
	bad := naming.ServiceKey{Namespace: "public", Group: "g", Name: ""}
	fault(t, naming.FaultParam, f.Register(t.Context(), bad, "conn", host("10.0.0.1")))
	fault(t, naming.FaultParam, f.Register(t.Context(), service("a"), "conn", host("10.0.0.999")))
	fault(t, naming.FaultWeight, f.Register(t.Context(), service("a"), "conn", weighted(-1)))
	require.Error(t, f.Register(t.Context(), service("a"), "conn"))

	err := f.RegisterBatch(t.Context(), service("a"), "conn", []*naming.Instance{host("10.0.0.1"), host("10.0.0.2", cluster("a_b"))})
	require.Contains(t, fault(t, naming.FaultInstance, err), "(instances[1])")
	long := host("10.0.0.1", meta("k", strings.Repeat("v", naming.DefaultMetadataLimit)))
	fault(t, naming.FaultParam, f.Register(t.Context(), service("a"), "conn", long))
	require.Empty(t, f.hosts(service("a")), "nothing was changed")
	require.Zero(t, f.ephemeral.Writes())

	f.ephemeral.Fail(consistency.ErrClosed)
	require.ErrorIs(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")), consistency.ErrClosed)
	require.ErrorIs(t, f.Register(t.Context(), service("a"), "10.0.0.1:80", host("10.0.0.1")), consistency.ErrClosed)
	require.ErrorIs(t, f.Ready(), consistency.ErrClosed)
}

func TestRegister_GeneratedIDs(t *testing.T) {
	f := newFixture(t)
	seen := make(map[string]bool)
	for n := range 10 {
		require.NoError(t, f.Register(t.Context(), service("a"), fmt.Sprint("conn", n), host(fmt.Sprintf("10.0.0.%d", n), meta(naming.MetaIDGenerator, "snowflake"))))
	}
	for _, i := range f.ServiceInfo(service("a"), naming.Filter{}).Hosts {
		number, rest, ok := strings.Cut(i.ID, "#")
		require.True(t, ok)
		require.Equal(t, "DEFAULT#g@@a", rest)
		require.Regexp(t, `^[1-9][0-9]+$`, number)
		require.False(t, seen[i.ID])
		seen[i.ID] = true
	}
	require.Len(t, seen, 10)

	own := host("10.0.1.1", meta(naming.MetaIDGenerator, "snowflake"))
	own.ID = "mine"
	require.NoError(t, f.Register(t.Context(), service("b"), "conn", own))
	require.Equal(t, "mine", f.ServiceInfo(service("b"), naming.Filter{}).Hosts[0].ID)
	require.NoError(t, f.Register(t.Context(), service("c"), "conn", host("10.0.1.1", meta(naming.MetaIDGenerator, "simple"))))
	require.Empty(t, f.ServiceInfo(service("c"), naming.Filter{}).Hosts[0].ID)
}

func TestDeregister(t *testing.T) {
	batch := []*naming.Instance{host("10.0.0.1"), host("10.0.0.2"), host("10.0.0.2", cluster("c"))}
	for name, c := range map[string]struct {
		had       []*naming.Instance
		ip        string
		port      int
		left      []string
		unchanged bool
	}{
		"a single one":                        {batch[:1], "10.0.0.1", 80, []string{}, false},
		"a single one of another address":     {batch[:1], "10.9.9.9", 1, []string{}, false},
		"a single one without an address":     {batch[:1], "", 0, []string{}, false},
		"a member of a batch":                 {batch, "10.0.0.1", 80, []string{"10.0.0.2", "10.0.0.2"}, false},
		"a member of a batch in two clusters": {batch, "10.0.0.2", 80, []string{"10.0.0.1"}, false},
		"no member of the batch":              {batch, "10.0.0.3", 80, []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"}, true},
		"another port":                        {batch, "10.0.0.1", 81, []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"}, true},
		"nothing there":                       {nil, "10.0.0.1", 80, []string{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			require.NoError(t, f.RegisterBatch(t.Context(), service("a"), "conn", c.had))
			f.noticed()
			require.NoError(t, f.Deregister(t.Context(), service("a"), "conn", true, naming.InstanceKey{IP: c.ip, Port: c.port}))
			require.ElementsMatch(t, c.left, f.hosts(service("a")))
			require.Equal(t, c.unchanged, len(f.noticed()) == 0)
		})
	}
	f := newFixture(t)
	fault(t, naming.FaultParam, f.Deregister(t.Context(), naming.ServiceKey{}, "conn", true, naming.InstanceKey{}))
}

func TestDeregister_OnlyWhatThePublisherHas(t *testing.T) {
	f := newFixture(t)
	f.register(t, service("a"), host("10.0.0.1"))
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
	require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")), "the connection has it still")
	require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
	require.NoError(t, f.Deregister(t.Context(), service("a"), "conn", false, naming.InstanceKey{IP: "10.0.0.1", Port: 80}), "of the other kind")
	require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
	f.ephemeral.Fail(consistency.ErrClosed)
	require.ErrorIs(t, f.Deregister(t.Context(), service("a"), "conn", true, naming.InstanceKey{}), consistency.ErrClosed)
}

func TestDeregister_InAnotherCluster(t *testing.T) {
	f := newFixture(t)
	f.register(t, service("a"), host("10.0.0.1", func(i *naming.Instance) { i.Cluster = "c1" }))
	for _, cluster := range []string{"c2", "DEFAULT"} {
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{Cluster: cluster, IP: "10.0.0.1", Port: 80}))
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")), cluster)
	}
	require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{Cluster: "c1", IP: "10.0.0.1", Port: 80}))
	require.Empty(t, f.hosts(service("a")))
}

func TestKind_TheInstancesDecide(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	err := f.Register(t.Context(), service("a"), "10.0.0.2:80", host("10.0.0.2", persistent))
	require.Equal(t, "Current service g@@a is ephemeral service, can't register persistent instance.", fault(t, naming.FaultKind, err))

	// C079: an empty service that nobody created has no kind.
	require.NoError(t, f.Deregister(t.Context(), service("a"), "conn", true, naming.InstanceKey{}))
	_, listed := f.Service(service("a"))
	require.True(t, listed, "it is not cleaned yet")
	f.register(t, service("a"), host("10.0.0.2", persistent))

	err = f.Register(t.Context(), service("a"), "conn", host("10.0.0.1"))
	require.Equal(t, "Current service g@@a is persistent service, can't register ephemeral instance.", fault(t, naming.FaultKind, err))
	err = f.RegisterBatch(t.Context(), service("a"), "conn", []*naming.Instance{host("10.0.0.1")})
	require.Equal(t, "Current service g@@a is persistent service, can't batch register ephemeral instance.", fault(t, naming.FaultKind, err))
	fault(t, naming.FaultKind, f.RegisterBatch(t.Context(), service("a"), "conn", nil))
	require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.2:80", false, naming.InstanceKey{IP: "10.0.0.2", Port: 80}))
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
}

func TestKind_OfACreatedServiceHolds(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{Kind: naming.KindPersistent}))
	fault(t, naming.FaultKind, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	require.NoError(t, f.UpdateService(t.Context(), service("a"), naming.Settings{ProtectThreshold: 0.5}))
	fault(t, naming.FaultKind, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	f.register(t, service("a"), host("10.0.0.1", persistent))
	require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", false, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
	fault(t, naming.FaultKind, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
	require.NoError(t, f.DeleteService(t.Context(), service("a")))
	require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))

	// One that has ephemeral instances already takes their kind.
	require.NoError(t, f.UpdateService(t.Context(), service("a"), naming.Settings{Kind: naming.KindPersistent}))
	s, _ := f.Service(service("a"))
	require.Equal(t, naming.KindEphemeral, s.Settings.Kind)
}

func TestInstance_Errors(t *testing.T) {
	f := newFixture(t)
	k := host("10.0.0.1").Key()
	_, err := f.Instance(service("a"), k)
	require.Equal(t, "no ips found for cluster DEFAULT in service g@@a", fault(t, naming.FaultResourceUnknown, err))
	f.register(t, service("a"), host("10.0.0.2"))
	_, err = f.Instance(service("a"), k)
	require.Equal(t, "no matched ip found!", fault(t, naming.FaultResourceUnknown, err))
	_, err = f.Instance(naming.ServiceKey{}, k)
	fault(t, naming.FaultParam, err)
}

func TestCounts(t *testing.T) {
	f := newFixture(t)
	f.subscriptions, f.connections = func() int { return 7 }, func() int { return 3 }
	f.register(t, service("a"), host("10.0.0.1"))
	f.register(t, service("a"), host("10.0.0.2"))
	f.register(t, service("b"), host("10.0.0.1"))
	f.register(t, service("p"), host("10.0.0.1", persistent))
	f.register(t, service("q"), host("10.0.0.1", persistent))
	require.NoError(t, f.Register(t.Context(), service("c"), "conn", host("10.0.0.9")))
	require.NoError(t, f.Deregister(t.Context(), service("c"), "conn", true, naming.InstanceKey{}))
	require.Equal(t, naming.Counts{
		Services: 5, Instances: 5, Subscriptions: 7, Connections: 3, EphemeralPublishers: 2, PersistentPublishers: 1,
	}, f.Counts())

	families, err := f.metrics.Gather()
	require.NoError(t, err)
	got := make(map[string]float64)
	for _, m := range families {
		got[m.GetName()] = m.GetMetric()[0].GetGauge().GetValue()
	}
	require.Equal(t, map[string]float64{"rollcall_services": 5, "rollcall_instances": 5, "rollcall_subscriptions": 7}, got)
}

func TestRefusal(t *testing.T) {
	f := newFixture(t)
	invalid := func(x naming.Fault) error { return &naming.InvalidError{Fault: x, Text: "text"} }
	for name, c := range map[string]struct {
		err          error
		status, code int
		param        bool
		wrapped      string
	}{
		"parameter":        {invalid(naming.FaultParam), 400, wire.CodeParameterInvalid, true, ""},
		"missing":          {invalid(naming.FaultMissing), 400, wire.CodeParameterMissing, false, ""},
		"instance":         {invalid(naming.FaultInstance), 400, wire.CodeInstance, false, ""},
		"weight":           {invalid(naming.FaultWeight), 400, wire.CodeWeight, false, ""},
		"metadata":         {invalid(naming.FaultMetadata), 400, wire.CodeMetadata, false, ""},
		"value":            {invalid(naming.FaultValue), 400, wire.CodeParameterInvalid, false, ""},
		"selector":         {invalid(naming.FaultSelector), 400, wire.CodeSelector, false, ""},
		"kind":             {invalid(naming.FaultKind), 400, wire.CodeServerError, false, "errCode: 400, errMsg: text "},
		"service unknown":  {invalid(naming.FaultServiceUnknown), 400, wire.CodeServiceUnknown, false, ""},
		"service exists":   {invalid(naming.FaultServiceExists), 400, wire.CodeServiceExists, false, ""},
		"not empty":        {invalid(naming.FaultServiceNotEmpty), 400, wire.CodeServiceNotEmpty, false, ""},
		"instance unknown": {invalid(naming.FaultInstanceUnknown), 404, wire.CodeInstanceUnknown, false, ""},
		"resource unknown": {invalid(naming.FaultResourceUnknown), 404, wire.CodeNotFound, false, ""},
		"wrapped fault":    {fmt.Errorf("register: %w", invalid(naming.FaultWeight)), 400, wire.CodeWeight, false, ""},
		"no leader":        {fmt.Errorf("put: %w", consistency.ErrNoLeader), 503, wire.CodeServerError, false, ""},
		"read-only":        {fmt.Errorf("put: %w", consistency.ErrReadOnly), 503, wire.CodeServerError, false, ""},
		"not reached":      {fmt.Errorf("restore: %w", errUnsent), 503, wire.CodeServerError, false, ""},
		"not ready":        {consistency.ErrNotReady, 503, wire.CodeServerError, false, ""},
		"closed":           {consistency.ErrClosed, 503, wire.CodeServerError, false, ""},
		"unknown outcome":  {consistency.ErrUnknownOutcome, 503, wire.CodeServerError, false, ""},
		"too late":         {context.DeadlineExceeded, 503, wire.CodeServerError, false, ""},
		"cancelled":        {context.Canceled, 503, wire.CodeServerError, false, ""},
		"another":          {errors.New("oops"), 500, wire.CodeServerError, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, wire.Refusal{
				Status: c.status, Code: c.code, Text: c.err.Error(), Param: c.param, Wrapped: c.wrapped,
			}, f.Refusal(c.err))
			require.NotEmpty(t, wire.CodeMessage(c.code))
			require.NotEmpty(t, http.StatusText(c.status))
		})
	}
}

func TestSwitches(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, naming.DefaultSwitches(), f.Switches())
	for _, c := range []struct {
		entry, value string
		changed      func(naming.Switches) bool // nil: refused
	}{
		{"lightBeatEnabled", "false", func(s naming.Switches) bool { return !s.LightBeatEnabled }},
		{"lightBeatEnabled", "TRUE", func(s naming.Switches) bool { return s.LightBeatEnabled }},
		{"lightBeatEnabled", "no", nil},
		{"lightBeatEnabled", "", nil},
		{"defaultInstanceEphemeral", "false", func(s naming.Switches) bool { return !s.DefaultInstanceEphemeral }},
		{"autoChangeHealthCheckEnabled", "false", func(s naming.Switches) bool { return !s.AutoChangeHealthCheckEnabled }},
		{"clientBeatInterval", "7000", func(s naming.Switches) bool { return s.ClientBeatIntervalMs == 7000 }},
		{"clientBeatInterval", "0", nil},
		{"clientBeatInterval", "-1", nil},
		{"clientBeatInterval", "1.5", nil},
		{"clientBeatInterval", "99999999999999999999", nil},
		{"overriddenServerStatus", "UP", func(naming.Switches) bool { return true }},
		{"overriddenServerStatus", "null", func(naming.Switches) bool { return true }},
		{"overriddenServerStatus", "DOWN", func(s naming.Switches) bool { return s.OverriddenStatus == "DOWN" }},
		{"overriddenServerStatus", "null", func(s naming.Switches) bool { return s.OverriddenStatus == "" && s.StatusChanged }},
		{"overriddenServerStatus", "down", nil},
		{"overriddenServerStatus", "", nil},
		{"check", "false", func(s naming.Switches) bool { return !s.HealthCheckEnabled }},
		{"check", "", nil},
		{"check", "true", func(s naming.Switches) bool { return s.HealthCheckEnabled }},
		{"pushEnabled", "false", func(s naming.Switches) bool { return !s.PushEnabled }},
		{"pushCacheMillis", "20000", func(s naming.Switches) bool { return s.PushCacheMs == 20000 }},
		{"pushCacheMillis", "9999", nil},
		{"pushCacheMillis", "x", nil},
		{"healthCheckTimes", "2", func(s naming.Switches) bool { return s.CheckTimes == 2 }},
		{"healthCheckTimes", "0", nil},
		{"tcpHealthParams", `{"max":4000,"min":800,"factor":0.5}`, func(s naming.Switches) bool {
			return s.TCPCheck == naming.CheckTimes{MaxMs: 4000, MinMs: 800, Factor: 0.5}
		}},
		{"httpHealthParams", `{"max":4000,"min":499,"factor":0.5}`, nil},
		{"httpHealthParams", `{"max":2999,"min":800,"factor":0.5}`, nil},
		{"mysqlHealthParams", `{"max":4000,"min":4001,"factor":0.5}`, nil},
		{"mysqlHealthParams", `{"max":4000,"min":800,"factor":1.5}`, nil},
		{"mysqlHealthParams", "null", nil},
		{"mysqlHealthParams", "{", nil},
		{"limitedUrlMap", "/a:503, /b:404", func(s naming.Switches) bool { return maps.Equal(s.LimitedURLs, map[string]int{"/a": 503, "/b": 404}) }},
		{"limitedUrlMap", "", func(s naming.Switches) bool { return len(s.LimitedURLs) == 2 }},
		{"limitedUrlMap", "/a:99", nil},
		{"limitedUrlMap", "a:503", nil},
		{"limitedUrlMap", "/a", nil},
		{"limitedUrlMap", " ", nil},
		{"pushVersion", "java:1.2.3", func(s naming.Switches) bool { return s.PushJava == "1.2.3" && s.PushGo == "0.1.0" }},
		{"pushVersion", "go:2.0.0", func(s naming.Switches) bool { return s.PushJava == "1.2.3" && s.PushGo == "2.0.0" }},
		{"pushVersion", "rust:1.0.0", nil},
		{"pushVersion", "java", nil},
		{"pushVersion", "java:1.2", nil},
		{"distroThreshold", "0.8", nil}, // these have no effect
		{"distroThreshold", "0", nil},
		{"masters", "10.0.0.1", nil},
		{"defaultCacheMillis", "4000", nil},
		{"serverStatusSynchronizationPeriodMillis", "3000", nil},
		{"distro", "false", nil},
		{"nope", "true", nil},
	} {
		before := f.Switches()
		err := f.ChangeSwitch(t.Context(), c.entry, c.value, false)
		if c.changed == nil {
			fault(t, naming.FaultValue, err)
			require.Equal(t, before, f.Switches(), "%s=%s", c.entry, c.value)
			continue
		}
		require.NoError(t, err)
		require.True(t, c.changed(f.Switches()), "%s=%s", c.entry, c.value)
	}
	a, err := f.Beat(t.Context(), service("a"), "10.0.0.1", 80, nil)
	require.NoError(t, err)
	require.EqualValues(t, 7000, a.Interval.Milliseconds())

	// What another node wrote counts here too, and what this one cannot read does not.
	put := func(entry, value string) {
		require.NoError(t, f.router.Put(t.Context(), consistency.Datum{Key: consistency.Key{Kind: consistency.KindSwitch, Switch: entry}, Value: value}))
	}
	put("clientBeatInterval", "9000")
	put("lightBeatEnabled", "perhaps")
	put("of a later version", "true")
	require.EqualValues(t, 9000, f.Switches().ClientBeatIntervalMs)
	require.True(t, f.Switches().LightBeatEnabled)
	require.Empty(t, f.noticed(), "switches are no service")

	now := f.Switches()
	require.Equal(t, now, f.reopen(t).Switches(), "after a restart")
	f.persistent.Fail(consistency.ErrNoLeader)
	require.ErrorIs(t, f.ChangeSwitch(t.Context(), "lightBeatEnabled", "false", false), consistency.ErrNoLeader)
	require.Equal(t, now, f.Switches())
}
