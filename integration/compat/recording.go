package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Recording is one file: the scenarios of one group as one version of a real
// server answered them.
type Recording struct {
	Group     string     `json:"group"`
	Version   string     `json:"version"`
	About     string     `json:"about"`
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is a list of steps that a client takes one after the other.
// Deviates and MayDiffer are words; readings.json says what they mean.
type Scenario struct {
	Name      string `json:"name"`
	About     string `json:"about"`
	Deviates  string `json:"deviates"`
	MayDiffer string `json:"mayDiffer"`
	TookMs    int    `json:"tookMs"`
	Steps     []Step `json:"steps"`
}

// Step is one thing that the client does or waits for. Kind decides which of
// the other fields count.
type Step struct {
	Kind    string `json:"kind"`
	Note    string `json:"note"`
	Instead string `json:"instead"`
	Retry   bool   `json:"retry"`
	Times   int    `json:"times"`
	Partial bool   `json:"partial"`
	AfterMs int    `json:"afterMs"`
	Ms      int    `json:"ms"`

	// HTTP.
	Base     string            `json:"base"`
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	Query    map[string]string `json:"query"`
	RawQuery string            `json:"rawQuery"`
	Form     map[string]string `json:"form"`
	Headers  map[string]string `json:"headers"`

	// gRPC.
	Conn            string      `json:"conn"`
	Type            string      `json:"type"`
	ClientIP        string      `json:"clientIp"`
	Setup           any         `json:"setup"`
	Body            any         `json:"body"`
	BodyBytes       int         `json:"bodyBytes"`
	BodyLeftOut     bool        `json:"bodyLeftOut"`
	Ack             any         `json:"ack"`
	NoAck           bool        `json:"noAck"`
	Skipped         int         `json:"skipped"`
	StreamError     string      `json:"streamError"`
	TransportClosed bool        `json:"transportClosed"`
	Response        *Response   `json:"response"`
	Status          *StepStatus `json:"status"`

	// UDP, listeners and probes.
	Socket         string `json:"socket"`
	Gzip           bool   `json:"gzip"`
	TextBytes      int    `json:"textBytes"`
	DatagramBytes  int    `json:"datagramBytes"`
	JSON           any    `json:"json"`
	Data           any    `json:"data"`
	SameAsPrevious bool   `json:"sameAsPrevious"`
	Listener       string `json:"listener"`
	Host           string `json:"host"`
}

// Response is what a server answered: over HTTP a status with a body, over gRPC
// a type with a body, or the status of a call that failed.
type Response struct {
	Status      any               `json:"status"`
	ContentType string            `json:"contentType"`
	Headers     map[string]string `json:"headers"`
	JSON        any               `json:"json"`
	Body        any               `json:"body"`
	BodyLeftOut bool              `json:"bodyLeftOut"`
	Lines       []string          `json:"lines"`
	Type        string            `json:"type"`

	// HasJSON tells a JSON null from no JSON at all.
	HasJSON bool `json:"-"`
}

// UnmarshalJSON keeps apart a body that is JSON null and no body.
func (r *Response) UnmarshalJSON(text []byte) error {
	type plain Response
	if err := decode(text, (*plain)(r)); err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	_, r.HasJSON = keys["json"]
	return nil
}

// StepStatus is `status` of a step: the answer of a gRPC `call`, or the status
// number that a `listen-http` listener answers.
type StepStatus struct {
	HTTP    int
	Code    string
	Message string
}

// UnmarshalJSON reads both forms.
func (s *StepStatus) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] != '{' {
		return json.Unmarshal(text, &s.HTTP)
	}
	var call struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if err := decode(text, &call); err != nil {
		return err
	}
	s.Code, s.Message = call.Code, call.Message
	return nil
}

// LoadRecordings reads every recording below dir, sorted by file name. An
// unknown key is an error: nothing that was recorded is passed over unseen.
func LoadRecordings(dir string) ([]Recording, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*-[0-9].[0-9].[0-9].json"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no recordings in %s", dir)
	}
	slices.Sort(names)
	var all []Recording
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var r Recording
		if err := decode(text, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Base(name), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// decode reads one JSON value strictly and keeps numbers as they are written.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// parseJSON reads text as one JSON value with numbers as json.Number.
func parseJSON(text []byte) (any, error) {
	var v any
	err := decode(text, &v)
	return v, err
}

// request is what of a step goes to the server, for telling whether two
// versions were asked the same.
func (s Step) request() string {
	ask := s
	ask.Response, ask.Instead, ask.Note, ask.AfterMs, ask.Retry, ask.Partial = nil, "", "", 0, false, false
	switch s.Kind {
	case "push":
		ask.Body, ask.ClientIP, ask.Skipped, ask.BodyLeftOut = nil, "", 0, false
	case "udp":
		ask.JSON, ask.Data, ask.TextBytes, ask.DatagramBytes, ask.Gzip = nil, nil, 0, 0, false
	case "probe":
		ask.Headers = nil
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sameRequests reports whether both scenarios ask the server the same.
func sameRequests(a, b Scenario) bool {
	return len(a.Steps) == len(b.Steps) && slices.EqualFunc(a.Steps, b.Steps, func(x, y Step) bool {
		return x.request() == y.request()
	})
}

// find returns the scenario of that group, version and name.
func find(all []Recording, group, version, name string) (Scenario, bool) {
	for _, r := range all {
		if r.Group != group || r.Version != version {
			continue
		}
		for _, s := range r.Scenarios {
			if s.Name == name {
				return s, true
			}
		}
	}
	return Scenario{}, false
}

// describe is a step in one line, for failures.
func (s Step) describe() string {
	parts := []string{s.Kind}
	for _, part := range []string{s.Method, s.Path, s.Conn, s.Socket, s.Listener, s.Type} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if s.Ms > 0 {
		parts = append(parts, fmt.Sprintf("%d ms", s.Ms))
	}
	return strings.Join(parts, " ")
}
