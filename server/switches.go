package server

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// localSwitches are the switches that were changed on this node alone, by entry. They
// count before those of all nodes and end with the process.
type localSwitches struct {
	mu     sync.Mutex
	values map[string]string

	loading sync.Mutex // one reading after the other, so that the newest stays
}

// Switches returns the switches as they are now.
func (r *Registry) Switches() naming.Switches { return *r.switches.Load() }

// loadSwitches lays what operators changed over the defaults. A value that this
// version cannot read, written by another one, leaves the default.
func (r *Registry) loadSwitches() {
	r.local.loading.Lock()
	defer r.local.loading.Unlock()
	s := naming.DefaultSwitches()
	s.ClientBeatIntervalMs, s.PushCacheMs = r.cfg.BeatInterval.Milliseconds(), r.cfg.CacheTime.Milliseconds()
	values := r.router.Switches()
	if values == nil {
		values = make(map[string]string)
	}
	r.local.mu.Lock()
	maps.Copy(values, r.local.values)
	r.local.mu.Unlock()
	for entry, value := range values {
		if err := setSwitch(&s, entry, value); err != nil {
			r.log.Warn("stored switch is not understood", "switch", entry, "err", err)
		}
	}
	r.switches.Store(&s)
	r.views.setCache(s.PushCacheMs)
	r.pushes(s.PushEnabled)
}

func (r *Registry) beatInterval() time.Duration {
	return time.Duration(r.Switches().ClientBeatIntervalMs) * time.Millisecond
}

// ChangeSwitch changes one switch on all nodes, or until its end on this one alone. An
// unknown one, or a value that it cannot have, is refused: there is no "ok" without
// effect.
func (r *Registry) ChangeSwitch(ctx context.Context, entry, value string, here bool) error {
	if entry == "limitedUrlMap" && value == "" { // changes nothing, in the original too
		return nil
	}
	s := r.Switches()
	if err := setSwitch(&s, entry, value); err != nil {
		return err
	}
	key := entry
	if kind, version, ok := strings.Cut(value, ":"); ok && entry == "pushVersion" { // one record for each kind of client
		key, value = entry+"."+kind, version
	}
	if here {
		r.local.mu.Lock()
		r.local.values[key] = value
		r.local.mu.Unlock()
		r.loadSwitches()
		return nil
	}
	err := r.router.Put(ctx, consistency.Datum{Key: consistency.Key{Kind: consistency.KindSwitch, Switch: key}, Value: value})
	if err != nil {
		return err
	}
	r.local.mu.Lock()
	_, had := r.local.values[key]
	delete(r.local.values, key)
	r.local.mu.Unlock()
	if had {
		r.loadSwitches()
	}
	return nil
}

// switchValue is the error for a value that a switch cannot have.
func switchValue(text string) error {
	return &naming.InvalidError{Fault: naming.FaultValue, Field: "value", Text: text}
}

// setSwitch sets one switch from its text (http.md 2.6).
func setSwitch(s *naming.Switches, entry, value string) error {
	if into := flagSwitch(s, entry); into != nil {
		switch strings.ToLower(value) {
		case "true":
			*into = true
		case "false":
			*into = false
		default:
			return switchValue("Param 'value' is illegal, the switch " + entry + " should be true or false.")
		}
		return nil
	}
	switch entry {
	case "clientBeatInterval":
		ms, err := switchNumber(value)
		if err == nil && (ms <= 0 || ms > math.MaxInt32) {
			err = switchValue("Param 'value' is illegal, the switch " + entry + " should be a number of milliseconds from 1 to " + strconv.Itoa(math.MaxInt32) + ".")
		}
		if err == nil {
			s.ClientBeatIntervalMs = ms
		}
		return err
	case "pushCacheMillis":
		ms, err := switchNumber(value)
		if err == nil && ms < 10_000 {
			err = switchValue("min cache time for http or tcp is too small(<10000)")
		}
		if err == nil {
			s.PushCacheMs = ms
		}
		return err
	case "healthCheckTimes":
		n, err := switchNumber(value)
		if err == nil && (n < 1 || n > 1000) {
			err = switchValue("Param 'value' is illegal, the switch " + entry + " should be a number from 1 to 1000.")
		}
		if err == nil {
			s.CheckTimes = int(n)
		}
		return err
	case "httpHealthParams":
		return setCheckTimes(&s.HTTPCheck, value)
	case "tcpHealthParams":
		return setCheckTimes(&s.TCPCheck, value)
	case "mysqlHealthParams":
		return setCheckTimes(&s.MySQLCheck, value)
	case "limitedUrlMap":
		return setLimited(s, value)
	case "overriddenServerStatus":
		return setStatus(s, value)
	case "pushVersion":
		kind, version, ok := strings.Cut(value, ":")
		if !ok {
			return switchValue("Param 'value' is illegal, the switch pushVersion should be a kind of client and its lowest version, such as java:1.0.0.")
		}
		return setPushVersion(s, kind, version)
	}
	if kind, ok := strings.CutPrefix(entry, "pushVersion."); ok {
		return setPushVersion(s, kind, value)
	}
	return withoutEffect(entry, value)
}

// flagSwitch returns the boolean switch of that name, nil if there is none.
func flagSwitch(s *naming.Switches, entry string) *bool {
	switch entry {
	case "lightBeatEnabled":
		return &s.LightBeatEnabled
	case "defaultInstanceEphemeral":
		return &s.DefaultInstanceEphemeral
	case "autoChangeHealthCheckEnabled":
		return &s.AutoChangeHealthCheckEnabled
	case "check":
		return &s.HealthCheckEnabled
	case "pushEnabled":
		return &s.PushEnabled
	}
	return nil
}

func switchNumber(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, switchValue(`For input string: "` + value + `"`)
	}
	return n, nil
}

func setCheckTimes(into *naming.CheckTimes, value string) error {
	var given *naming.CheckTimes
	if err := json.Unmarshal([]byte(value), &given); err != nil || given == nil {
		return switchValue("json param invalid.")
	}
	switch {
	case given.MinMs < 500:
		return switchValue("min check time for http or tcp is too small(<500)")
	case given.MaxMs < 3000 || given.MaxMs > math.MaxInt32:
		return switchValue("max check time for http or tcp is too small(<3000)")
	case !(given.Factor >= 0 && given.Factor <= 1):
		return switchValue("malformed factor")
	case given.MinMs > given.MaxMs:
		return switchValue("min check time " + strconv.Itoa(given.MinMs) + " is above max check time " + strconv.Itoa(given.MaxMs))
	}
	*into = *given
	return nil
}

// setLimited reads "/path:status,/other:status".
func setLimited(s *naming.Switches, value string) error {
	limited := make(map[string]int)
	for pair := range strings.SplitSeq(value, ",") {
		path, text, ok := strings.Cut(strings.TrimSpace(pair), ":")
		status, err := strconv.Atoi(text)
		if !ok || err != nil || !strings.HasPrefix(path, "/") || status < 200 || status > 599 {
			return switchValue("invalid input for limited urls")
		}
		limited[path] = status
	}
	s.LimitedURLs = limited
	return nil
}

func setStatus(s *naming.Switches, value string) error {
	switch value {
	case "null":
		s.OverriddenStatus = ""
	case "UP", "DOWN", "STARTING", "PAUSED", "WRITE_ONLY", "READ_ONLY":
		s.OverriddenStatus = value
	default:
		return switchValue("Param 'value' is illegal, the switch overriddenServerStatus should be UP, DOWN, STARTING, PAUSED, WRITE_ONLY, READ_ONLY or null.")
	}
	s.StatusChanged = true
	return nil
}

func setPushVersion(s *naming.Switches, kind, version string) error {
	into := map[string]*string{"java": &s.PushJava, "go": &s.PushGo, "python": &s.PushDNS, "c": &s.PushC, "csharp": &s.PushCSharp}[kind]
	if into == nil {
		return switchValue("unsupported client type: " + kind)
	}
	const pattern = `[0-9]+\.[0-9]+\.[0-9]+`
	if len(version) > 64 || !regexp.MustCompile("^"+pattern+"$").MatchString(version) {
		return switchValue("illegal version, must match: " + pattern)
	}
	*into = version
	return nil
}

// withoutEffect refuses a switch that changes nothing here: what is wrong with its
// value first, in the protocol's words, then why it has no effect.
func withoutEffect(entry, value string) error {
	atLeast := func(least int64, text string) error {
		n, err := switchNumber(value)
		if err == nil && n < least {
			err = switchValue(text)
		}
		return err
	}
	var err error
	why := ""
	switch entry {
	case "distroThreshold":
		why = "nodes agree by gossip, which knows no share of nodes that must live"
		if f, parsed := strconv.ParseFloat(value, 64); parsed != nil {
			err = switchValue(`For input string: "` + value + `"`)
		} else if !(f > 0) {
			err = switchValue("distroThreshold can not be zero or negative: " + strconv.FormatFloat(f, 'f', 1, 64))
		}
	case "defaultCacheMillis":
		why = "no list says it, see pushCacheMillis"
		err = atLeast(1000, "min default cache time  is too small(<1000)")
	case "serverStatusSynchronizationPeriodMillis":
		why = "gossip has its own times"
		err = atLeast(1000, "serverStatusSynchronizationPeriodMillis is too small(<15000)")
	case "serviceStatusSynchronizationPeriodMillis":
		why = "gossip has its own times"
		err = atLeast(5000, "serviceStatusSynchronizationPeriodMillis is too small(<5000)")
	case "distroServerExpiredMillis":
		why = "gossip has its own times"
		err = atLeast(math.MinInt64, "")
	case "distro":
		why = "nodes always share ephemeral data"
	case "masters":
		why = "nodes know each other by gossip"
	case "enableStandalone", "disableAddIP", "sendBeatOnly":
		why = "it has had none since version 2 of the protocol"
	default:
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "entry", Text: "Param 'entry' is illegal, there is no switch '" + clip(entry) + "'."}
	}
	if err != nil {
		return err
	}
	return &naming.InvalidError{Fault: naming.FaultValue, Field: "entry", Text: "the switch " + entry + " has no effect here: " + why}
}

// clip shortens a client's text for an error.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
