package naming

// Switches change how all nodes behave while they run. Immutable once stored: do not
// alter the map.
type Switches struct {
	LightBeatEnabled             bool  `json:"lightBeatEnabled"`             // clients may leave the JSON out of heartbeats
	DefaultInstanceEphemeral     bool  `json:"defaultInstanceEphemeral"`     // kind of a registration over HTTP that states none
	AutoChangeHealthCheckEnabled bool  `json:"autoChangeHealthCheckEnabled"` // kept for tools that read it
	ClientBeatIntervalMs         int64 `json:"clientBeatInterval"`           // what clients are told, milliseconds
	PushCacheMs                  int64 `json:"defaultPushCacheMillis"`       // cacheMillis of lists, milliseconds
	HealthCheckEnabled           bool  `json:"healthCheckEnabled"`           // silence and failed probes count
	PushEnabled                  bool  `json:"pushEnabled"`                  // subscribers are told of changes
	CheckTimes                   int   `json:"checkTimes"`                   // equal results of a probe that change the health

	HTTPCheck  CheckTimes `json:"httpHealthParams"`
	TCPCheck   CheckTimes `json:"tcpHealthParams"`
	MySQLCheck CheckTimes `json:"mysqlHealthParams"`

	// LimitedURLs are HTTP statuses by the beginning of the path that they answer.
	LimitedURLs map[string]int `json:"limitedUrlMap"`
	// OverriddenStatus is the state that the nodes say they are in; empty: the real
	// one. Of the states, those other than UP refuse naming calls of version 1.
	OverriddenStatus string `json:"-"`
	StatusChanged    bool   `json:"-"` // an operator has set OverriddenStatus, or cleared it again

	// The lowest versions of clients that are pushed to over UDP (http.md 7.1).
	PushJava   string `json:"-"`
	PushGo     string `json:"-"`
	PushDNS    string `json:"-"`
	PushC      string `json:"-"`
	PushCSharp string `json:"-"`
}

// CheckTimes are how often something is probed: the time between two probes is a mean
// of how long they take, each new one weighing 1 - Factor, within these bounds.
type CheckTimes struct {
	MaxMs  int     `json:"max"` // milliseconds
	MinMs  int     `json:"min"` // milliseconds
	Factor float64 `json:"factor"`
}

// DefaultSwitches returns what holds until an operator changes it (http.md 2.6).
func DefaultSwitches() Switches {
	return Switches{
		LightBeatEnabled: true, DefaultInstanceEphemeral: true, AutoChangeHealthCheckEnabled: true,
		ClientBeatIntervalMs: DefaultBeatInterval.Milliseconds(), PushCacheMs: 10_000,
		HealthCheckEnabled: true, PushEnabled: true, CheckTimes: 3,
		HTTPCheck: CheckTimes{5000, 500, 0.85}, TCPCheck: CheckTimes{5000, 1000, 0.75}, MySQLCheck: CheckTimes{3000, 2000, 0.65},
		LimitedURLs: map[string]int{},
		PushJava:    "0.1.0", PushGo: "0.1.0", PushDNS: "0.4.3", PushC: "1.0.12", PushCSharp: "0.9.0",
	}
}
