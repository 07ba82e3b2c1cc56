package httpapi

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) metricsV1(q *request) (answer, error) {
	if onlyStatus := q.text("onlyStatus", "true"); strings.EqualFold(onlyStatus, "true") {
		return jsonBody([]byte(`{"status":"UP"}`)), nil
	}
	return jsonBody(s.counts(true)), nil
}

func (s *Server) metricsV2(q *request) ([]byte, error) {
	onlyStatus, err := q.boolean("onlyStatus", true)
	if err != nil {
		return nil, err
	}
	if onlyStatus {
		return []byte(`{"status":"UP"}`), nil
	}
	return s.counts(false), nil
}

// counts writes what operators ask for (http.md 2.6).
func (s *Server) counts(v1 bool) []byte {
	c := s.registry.Counts()
	udp := s.udp.clients()
	b := []byte(`{"status":"UP"`)
	field := func(name string, n int) {
		b = strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), int64(n), 10)
	}
	field("serviceCount", c.Services)
	field("instanceCount", c.Instances)
	field("subscribeCount", c.Subscriptions)
	if v1 {
		field("responsibleInstanceCount", c.Instances)
	}
	field("clientCount", c.Connections+c.EphemeralPublishers+c.PersistentPublishers+udp)
	field("connectionBasedClientCount", c.Connections)
	field("ephemeralIpPortClientCount", c.EphemeralPublishers+udp)
	field("persistentIpPortClientCount", c.PersistentPublishers)
	field("responsibleClientCount", c.Connections+c.EphemeralPublishers+c.PersistentPublishers+udp)
	load, mem := machine()
	b = wire.AppendFloat(append(b, `,"cpu":`...), min(load/float64(runtime.NumCPU()), 1))
	b = wire.AppendFloat(append(b, `,"load":`...), load)
	b = wire.AppendFloat(append(b, `,"mem":`...), mem)
	return append(b, '}')
}

// login serves clients that are configured with a user (http.md 2.10): the node has no
// authentication, so that every user may do everything and the token says why.
func (s *Server) login(q *request) (answer, error) {
	username, err := q.required("username")
	if err != nil {
		return answer{}, err
	}
	if _, err := q.required("password"); err != nil {
		return answer{}, err
	}
	b := wire.AppendString([]byte(`{"accessToken":"AUTH_DISABLED","tokenTtl":18000,"globalAdmin":true,"username":`), username)
	return jsonBody(append(b, '}')), nil
}

// machine returns the load average of a minute and the used share of memory; 0
// where the system does not tell.
func machine() (load, mem float64) {
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(raw), " ")
		load, _ = strconv.ParseFloat(first, 64)
	}
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return load, 0
	}
	var total, available float64
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			total, _ = strconv.ParseFloat(f[1], 64)
		case "MemAvailable:":
			available, _ = strconv.ParseFloat(f[1], 64)
		}
	}
	if total > 0 {
		mem = 1 - available/total
	}
	return load, mem
}

// switchDomain is the body of the switches: those that Rollcall has, and constants
// for the others, so that tools find every key.
type switchDomain struct {
	Name                 string         `json:"name"`
	Masters              *string        `json:"masters"`
	AdWeightMap          map[string]int `json:"adWeightMap"`
	DefaultPushCache     int64          `json:"defaultPushCacheMillis"`
	DefaultCache         int64          `json:"defaultCacheMillis"`
	DistroThreshold      float64        `json:"distroThreshold"`
	HealthCheckEnabled   bool           `json:"healthCheckEnabled"`
	DistroEnabled        bool           `json:"distroEnabled"`
	EnableStandalone     bool           `json:"enableStandalone"`
	PushEnabled          bool           `json:"pushEnabled"`
	CheckTimes           int            `json:"checkTimes"`
	HTTPHealthParams     healthParams   `json:"httpHealthParams"`
	TCPHealthParams      healthParams   `json:"tcpHealthParams"`
	MySQLHealthParams    healthParams   `json:"mysqlHealthParams"`
	IncrementalList      []string       `json:"incrementalList"`
	ServerStatusPeriod   int64          `json:"serverStatusSynchronizationPeriodMillis"`
	ServiceStatusPeriod  int64          `json:"serviceStatusSynchronizationPeriodMillis"`
	DisableAddIP         bool           `json:"disableAddIP"`
	SendBeatOnly         bool           `json:"sendBeatOnly"`
	LimitedURLMap        map[string]int `json:"limitedUrlMap"`
	DistroServerExpired  int64          `json:"distroServerExpiredMillis"`
	PushGoVersion        string         `json:"pushGoVersion"`
	PushJavaVersion      string         `json:"pushJavaVersion"`
	PushPythonVersion    string         `json:"pushPythonVersion"`
	PushCVersion         string         `json:"pushCVersion"`
	PushCSharpVersion    string         `json:"pushCSharpVersion"`
	EnableAuthentication bool           `json:"enableAuthentication"`
	OverriddenStatus     *string        `json:"overriddenServerStatus"`
	HealthCheckWhiteList []string       `json:"healthCheckWhiteList"`
	Checksum             *string        `json:"checksum"`
	naming.Switches
}

type healthParams struct {
	Max    int     `json:"max"`
	Min    int     `json:"min"`
	Factor float64 `json:"factor"`
}

func (s *Server) switches() ([]byte, error) {
	return json.Marshal(switchDomain{
		Name: "00-00---000-NACOS_SWITCH_DOMAIN-000---00-00", AdWeightMap: map[string]int{},
		DefaultPushCache: 10000, DefaultCache: 3000, DistroThreshold: 0.7,
		HealthCheckEnabled: true, DistroEnabled: true, EnableStandalone: true, PushEnabled: true, CheckTimes: 3,
		HTTPHealthParams: healthParams{5000, 500, 0.85}, TCPHealthParams: healthParams{5000, 1000, 0.75}, MySQLHealthParams: healthParams{3000, 2000, 0.65},
		IncrementalList: []string{}, ServerStatusPeriod: 2000, ServiceStatusPeriod: 5000,
		LimitedURLMap: map[string]int{}, DistroServerExpired: 10000,
		PushGoVersion: pushGoVersion, PushJavaVersion: pushJavaVersion, PushPythonVersion: pushDNSVersion,
		PushCVersion: pushCVersion, PushCSharpVersion: pushCSharpVersion,
		HealthCheckWhiteList: []string{}, Switches: s.registry.Switches(),
	})
}

func (s *Server) switchesV1(*request) (answer, error) {
	b, err := s.switches()
	return jsonBody(b), err
}

func (s *Server) switchesV2(*request) ([]byte, error) { return s.switches() }

func (s *Server) changeSwitchV1(q *request) (answer, error) {
	entry, value, err := q.switchEntry(parameterMissing)
	if err != nil {
		return answer{}, err
	}
	return okText(), s.registry.ChangeSwitch(q.Context(), entry, value)
}

func (s *Server) changeSwitchV2(q *request) ([]byte, error) {
	entry, value, err := q.switchEntry(formString)
	if err != nil {
		return nil, err
	}
	return []byte(okJSON), s.registry.ChangeSwitch(q.Context(), entry, value)
}

func (q *request) switchEntry(lacking func(string) error) (entry, value string, err error) {
	if entry = q.text("entry", ""); entry == "" {
		return "", "", lacking("entry")
	}
	value, ok := q.params["value"]
	if !ok {
		return "", "", lacking("value")
	}
	return entry, strings.TrimSpace(value), nil
}
