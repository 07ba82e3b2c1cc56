package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"rollcall/naming"
)

// switchDomain is the body of the switches: those that Rollcall has, and constants
// for the others, so that tools find every key.
type switchDomain struct {
	Name                 string         `json:"name"`
	Masters              *string        `json:"masters"`
	AdWeightMap          map[string]int `json:"adWeightMap"`
	DefaultCache         int64          `json:"defaultCacheMillis"`
	DistroThreshold      float64        `json:"distroThreshold"`
	DistroEnabled        bool           `json:"distroEnabled"`
	EnableStandalone     bool           `json:"enableStandalone"`
	IncrementalList      []string       `json:"incrementalList"`
	ServerStatusPeriod   int64          `json:"serverStatusSynchronizationPeriodMillis"`
	ServiceStatusPeriod  int64          `json:"serviceStatusSynchronizationPeriodMillis"`
	DisableAddIP         bool           `json:"disableAddIP"`
	SendBeatOnly         bool           `json:"sendBeatOnly"`
	DistroServerExpired  int64          `json:"distroServerExpiredMillis"`
	EnableAuthentication bool           `json:"enableAuthentication"`
	OverriddenStatus     *string        `json:"overriddenServerStatus"`
	HealthCheckWhiteList []string       `json:"healthCheckWhiteList"`
	Checksum             *string        `json:"checksum"`
	naming.Switches
}

// The lowest versions of clients have other names in the third version.
type pushVersions struct {
	Go     string `json:"pushGoVersion"`
	Java   string `json:"pushJavaVersion"`
	Python string `json:"pushPythonVersion"`
	C      string `json:"pushCVersion"`
	CSharp string `json:"pushCSharpVersion"`
}

type pushVersions3 struct {
	Go     string `json:"pushVersionOfGo"`
	Java   string `json:"pushVersionOfJava"`
	Python string `json:"pushVersionOfPython"`
	C      string `json:"pushVersionOfC"`
	CSharp string `json:"pushVersionOfCsharp"`
}

func (s *Server) switches(path string) ([]byte, error) {
	now := s.registry.Switches()
	d := switchDomain{
		Name: "00-00---000-NACOS_SWITCH_DOMAIN-000---00-00", AdWeightMap: map[string]int{},
		DefaultCache: 3000, DistroThreshold: 0.7, DistroEnabled: true, EnableStandalone: true,
		IncrementalList: []string{}, ServerStatusPeriod: 2000, ServiceStatusPeriod: 5000,
		DistroServerExpired: 10000, HealthCheckWhiteList: []string{}, Switches: now,
	}
	if now.StatusChanged {
		d.OverriddenStatus = &now.OverriddenStatus
	}
	versions := pushVersions{now.PushGo, now.PushJava, now.PushDNS, now.PushC, now.PushCSharp}
	if third(path) {
		return json.Marshal(struct {
			switchDomain
			pushVersions3
		}{d, pushVersions3(versions)})
	}
	return json.Marshal(struct {
		switchDomain
		pushVersions
	}{d, versions})
}

func (s *Server) switchesV1(q *request) (answer, error) {
	b, err := s.switches(q.URL.Path)
	return jsonBody(b), err
}

func (s *Server) switchesV2(q *request) ([]byte, error) { return s.switches(q.URL.Path) }

func (s *Server) changeSwitchV1(q *request) (answer, error) {
	return okText(), s.changeSwitch(q, parameterMissing)
}

func (s *Server) changeSwitchV2(q *request) ([]byte, error) {
	return []byte(okJSON), s.changeSwitch(q, formString)
}

// changeSwitch changes a switch; with debug it does so on this node alone.
func (s *Server) changeSwitch(q *request, lacking func(string) error) error {
	entry := q.text("entry", "")
	if entry == "" {
		return lacking("entry")
	}
	value, ok := q.params["value"]
	if !ok {
		return lacking("value")
	}
	if entry != "limitedUrlMap" || value == "" { // there a blank value is one that cannot be read
		value = strings.TrimSpace(value)
	}
	here, err := q.boolean("debug", false)
	if err != nil {
		return err
	}
	return s.registry.ChangeSwitch(q.Context(), entry, value, here)
}

// shut returns the answer to a request that is not served now, whatever it asks: the
// node starts, or switches say so. A switch can always be changed back.
func (s *Server) shut(r *http.Request) (answer, bool) {
	if s.registry.Ready() != nil {
		return answer{status: http.StatusServiceUnavailable, body: []byte("server is STARTINGnow, please try again later!")}, true
	}
	now := s.registry.Switches()
	if len(now.LimitedURLs) == 0 && now.OverriddenStatus == "" || r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/switches") {
		return answer{}, false
	}
	longest := ""
	for prefix := range now.LimitedURLs {
		if strings.HasPrefix(r.URL.Path, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	if longest != "" {
		return answer{status: now.LimitedURLs[longest]}, true
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch status := now.OverriddenStatus; {
	case status == "", status == "UP", !strings.HasPrefix(r.URL.Path, "/nacos/v1/ns/"),
		status == "READ_ONLY" && read, status == "WRITE_ONLY" && !read, strings.HasPrefix(agent(r), "Nacos-Server"):
		return answer{}, false
	default:
		return answer{status: http.StatusServiceUnavailable, body: []byte("server is " + status + "now, please try again later!")}, true
	}
}
