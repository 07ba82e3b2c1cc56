package httpapi

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

func (s *Server) metricsV1(q *request) (answer, error) {
	if onlyStatus := q.text("onlyStatus", "true"); strings.EqualFold(onlyStatus, "true") {
		return jsonBody(append(s.status(), '}')), nil
	}
	return jsonBody(s.counts(true)), nil
}

func (s *Server) metricsV2(q *request) ([]byte, error) {
	onlyStatus, err := q.boolean("onlyStatus", true)
	if err != nil {
		return nil, err
	}
	if onlyStatus {
		return append(s.status(), '}'), nil
	}
	return s.counts(false), nil
}

func (s *Server) metricsV3(q *request) ([]byte, error) {
	b, err := s.metricsV2(q)
	if machine := bytes.Index(b, []byte(`,"cpu":`)); machine >= 0 { // v3 leaves out what follows
		b = append(b[:machine], '}')
	}
	return b, err
}

// status begins the answer of the metrics with the state that the node says it is in.
func (s *Server) status() []byte {
	state := s.registry.Switches().OverriddenStatus
	if state == "" {
		state = "UP"
	}
	return wire.AppendString([]byte(`{"status":`), state)
}

// counts writes what operators ask for (http.md 2.6).
func (s *Server) counts(v1 bool) []byte {
	c := s.registry.Counts()
	udp := s.udp.clients()
	b := s.status()
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
	load, mem := Machine()
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

// Machine returns the load average of a minute and the used share of memory; 0
// where the system does not tell.
func Machine() (load, mem float64) {
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

// pushStateV1 counts pushes since somebody last reset the counts.
func (s *Server) pushStateV1(q *request) (answer, error) {
	var flags [2]bool
	for n, name := range [...]string{"detail", "reset"} {
		var err error
		if flags[n], err = q.boolean(name, false); err != nil {
			return answer{}, err
		}
	}
	detail, reset := flags[0], flags[1]
	state := s.udp.engine.State(reset)
	total := state.Succeeded + state.Failed
	ratio := 0.0
	if total > 0 {
		ratio = float64(state.Succeeded) / float64(total)
	}
	b := strconv.AppendInt([]byte(`{"succeed":`), state.Succeeded, 10)
	b = strconv.AppendInt(append(b, `,"total":`...), total, 10)
	b = wire.AppendFloat(append(b, `,"ratio":`...), ratio)
	if detail {
		b = strconv.AppendInt(append(b, `,"detail":{"avgPushCost":`...), state.AvgMs, 10)
		b = append(strconv.AppendInt(append(b, `,"maxPushCost":`...), state.MaxMs, 10), '}')
	}
	b = strconv.AppendBool(append(b, `,"reset":`...), reset)
	return jsonBody(append(b, '}')), nil
}

// setLog sets the level of a log.
func (s *Server) setLog(q *request, lacking func(string) error) error {
	for _, name := range [...]string{"logName", "logLevel"} {
		if q.text(name, "") == "" {
			return lacking(name)
		}
	}
	return s.cfg.SetLogLevel(q.word("logName"), q.word("logLevel"))
}

func (s *Server) setLogV1(q *request) (answer, error) {
	return okText(), s.setLog(q, parameterMissing)
}

func (s *Server) setLogV3(q *request) ([]byte, error) {
	return []byte(okJSON), s.setLog(q, lackingParameter)
}

// setCoreLog reads the level from a JSON body, as the paths of core have it.
func (s *Server) setCoreLog(q *request) error {
	if err := jsonRequest(q.Request); err != nil {
		return err
	}
	var given struct {
		Name  wire.Str `json:"logName"`
		Level wire.Str `json:"logLevel"`
	}
	body, err := io.ReadAll(io.LimitReader(q.Body, smallForm))
	if err == nil {
		err = wire.Unmarshal(body, &given)
	}
	if err != nil {
		return &naming.InvalidError{Fault: naming.FaultMissing, Field: "body", Text: "the body is no JSON object with logName and logLevel: " + err.Error()}
	}
	for _, f := range [...]struct {
		name  string
		value wire.Str
	}{{"logName", given.Name}, {"logLevel", given.Level}} {
		if f.value == "" {
			return lackingField(f.name)
		}
	}
	return s.cfg.SetLogLevel(string(given.Name), string(given.Level))
}

func (s *Server) setCoreLogV1(q *request) (answer, error) {
	return jsonBody(restResult(200, "", []byte("null"))), s.setCoreLog(q)
}

func (s *Server) setCoreLogV3(q *request) ([]byte, error) { return []byte("null"), s.setCoreLog(q) }
