package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Readings says in data what the recordings say in words: which answers may
// stand in place of a recorded one, or beside it.
type Readings struct {
	// Words are the texts of `instead` that mean the same everywhere.
	Words map[string][]Variant `json:"words"`
	// Scenarios are by "group/name", or "group/name@version" where the versions
	// need different readings.
	Scenarios map[string]ScenarioReading `json:"scenarios"`
}

// ScenarioReading reads one scenario.
type ScenarioReading struct {
	// MayDiffer repeats the words of the recording, so that a changed recording
	// does not keep an old reading.
	MayDiffer string `json:"mayDiffer"`
	// Note says why where neither the recording nor the variants do.
	Note  string                 `json:"note"`
	Steps map[string]StepReading `json:"steps"`
}

// StepReading are the answers to one step, numbered from 1: Instead replaces
// the recorded answer, Also stands beside it.
type StepReading struct {
	Instead []Variant `json:"instead"`
	Also    []Variant `json:"also"`
}

// Variant is one answer, given by what it has other than the recorded one.
type Variant struct {
	// As takes the recorded answer of another step of the scenario as the start.
	As int `json:"as"`
	// Version takes the answer that this version gave.
	Version string `json:"version"`

	// Status lists the HTTP statuses that may be. Without a body below, a status
	// of 400 or more is a refusal with a text, another one leaves the body open.
	Status []int `json:"status"`
	// Code is the code of a Result, or the errorCode of a gRPC answer that
	// refuses; Type lists that answer's types, by default ErrorResponse and the
	// recorded one.
	Code int      `json:"code"`
	Type []string `json:"type"`
	// Names are texts that a refusal must hold, in any case.
	Names []string `json:"names"`
	// Lacks are texts that the body must not hold.
	Lacks []string `json:"lacks"`
	// GRPC is the code of a call that fails.
	GRPC string `json:"grpc"`

	// JSON or Text is the whole body, AnyBody leaves it open.
	JSON        any     `json:"json"`
	Text        *string `json:"text"`
	ContentType *string `json:"contentType"`
	AnyBody     bool    `json:"anyBody"`
	// Set and Delete change the JSON body at JSON pointers; NoHosts empties its
	// list of hosts.
	Set     map[string]any `json:"set"`
	Delete  []string       `json:"delete"`
	NoHosts bool           `json:"noHosts"`
	// Compressed: the body may be compressed if the request allowed it.
	Compressed bool `json:"compressed"`

	// Optional: the message need not come. PassOver: such messages may come
	// before the recorded one, or during a silence.
	Optional bool `json:"optional"`
	PassOver bool `json:"passOver"`

	// Then names what happened when this variant was met; When lets a variant
	// count only if that happened, and then alone.
	Then string `json:"then"`
	When string `json:"when"`
}

// LoadReadings reads the file strictly.
func LoadReadings(path string) (Readings, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Readings{}, err
	}
	var r Readings
	if err := decode(text, &r); err != nil {
		return Readings{}, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// Expected is one answer that a step may have.
type Expected struct {
	Source string // where it comes from, for failures

	Statuses    []int
	ContentType *string // nil: open
	Headers     map[string]string
	Compressed  bool

	// One of these says what the body is.
	Any     bool
	Refusal bool
	JSON    any
	HasJSON bool
	Text    string
	Lines   []string

	Names []string
	Lacks []string
	Code  int

	Types    []string
	GRPC     string // a call's status code
	Message  string // its message
	UDP      any    // the outer object of a datagram
	Twin     any    // the other version's body
	Optional bool
	PassOver bool
	Then     string
}

// Script is one scenario with all that is needed to judge its answers.
type Script struct {
	Group, Version string
	Scenario       Scenario
	steps          []scriptStep
}

type scriptStep struct {
	recorded []Expected
	variants []whenExpected
}

type whenExpected struct {
	when string
	Expected
}

// Name is the scenario's full name.
func (s Script) Name() string { return s.Group + "/" + s.Version + "/" + s.Scenario.Name }

// NewScript joins a scenario with the other version's recording of it and with
// the readings. Words without a reading are an error.
func NewScript(all []Recording, r Readings, group, version string, scenario Scenario) (Script, error) {
	script := Script{Group: group, Version: version, Scenario: scenario}
	reading, ok := r.Scenarios[group+"/"+scenario.Name+"@"+version]
	if !ok {
		reading, ok = r.Scenarios[group+"/"+scenario.Name]
	}
	if scenario.MayDiffer != "" && !ok {
		return Script{}, fmt.Errorf("%s: no reading of mayDiffer %q", script.Name(), scenario.MayDiffer)
	}
	if ok && reading.MayDiffer != scenario.MayDiffer {
		return Script{}, fmt.Errorf("%s: the reading is of mayDiffer %q, the recording says %q", script.Name(), reading.MayDiffer, scenario.MayDiffer)
	}
	for number := range reading.Steps {
		if i, err := strconv.Atoi(number); err != nil || i < 1 || i > len(scenario.Steps) {
			return Script{}, fmt.Errorf("%s: a reading of step %s, which there is not", script.Name(), number)
		}
	}
	twins := twinsOf(all, group, version, scenario)
	for i, step := range scenario.Steps {
		judged, err := judge(all, r, script, reading.Steps[strconv.Itoa(i+1)], i, step, twins)
		if err != nil {
			return Script{}, fmt.Errorf("%s: step %d: %w", script.Name(), i+1, err)
		}
		script.steps = append(script.steps, judged)
	}
	return script, nil
}

// twin is the same scenario as another version answered it.
type twin struct {
	version  string
	scenario Scenario
}

func twinsOf(all []Recording, group, version string, scenario Scenario) []twin {
	var twins []twin
	for _, r := range all {
		if r.Group != group || r.Version == version {
			continue
		}
		if other, ok := find(all, group, r.Version, scenario.Name); ok && sameRequests(scenario, other) {
			twins = append(twins, twin{r.Version, other})
		}
	}
	return twins
}

func judge(all []Recording, r Readings, script Script, reading StepReading, i int, step Step, twins []twin) (scriptStep, error) {
	var out scriptStep
	own := recorded(step, "recorded")
	instead := reading.Instead
	if step.Instead != "" && instead == nil {
		words, ok := r.Words[step.Instead]
		if !ok {
			return out, fmt.Errorf("no reading of instead %q", step.Instead)
		}
		instead = words
	}
	if step.Instead == "" && reading.Instead != nil {
		return out, fmt.Errorf("the reading replaces an answer that the recording lets stand")
	}
	if instead == nil {
		for _, t := range twins {
			other := t.scenario.Steps[i]
			if other.Instead != "" || failed(other) {
				continue
			}
			alike := recorded(other, "recorded by "+t.version)
			own.Twin, alike.Twin = alike.JSON, own.JSON
			out.recorded = append(out.recorded, alike)
		}
		out.recorded = append([]Expected{own}, out.recorded...)
	}
	for n, v := range slices.Concat(instead, reading.Also) {
		base := own
		if v.As != 0 {
			if v.As < 1 || v.As > len(script.Scenario.Steps) {
				return out, fmt.Errorf("a variant as step %d, which there is not", v.As)
			}
			base = recorded(script.Scenario.Steps[v.As-1], "")
		}
		if v.Version != "" {
			other, ok := find(all, script.Group, v.Version, script.Scenario.Name)
			if !ok || len(other.Steps) <= i {
				return out, fmt.Errorf("a variant as version %s, which has none", v.Version)
			}
			base = recorded(other.Steps[i], "")
		}
		e, err := v.apply(base, step)
		if err != nil {
			return out, err
		}
		e.Source = fmt.Sprintf("reading %d", n+1)
		if step.Instead != "" {
			e.Source += " of instead " + strconv.Quote(step.Instead)
		} else if script.Scenario.MayDiffer != "" {
			e.Source += " of mayDiffer " + strconv.Quote(script.Scenario.MayDiffer)
		}
		out.variants = append(out.variants, whenExpected{v.When, e})
	}
	return out, nil
}

// failed tells an answer that a version gave because it cannot do the thing.
func failed(step Step) bool {
	if step.Kind != "http" || step.Response == nil {
		return false
	}
	status := httpStatus(step.Response)
	return status >= 500 || status == 410
}

func httpStatus(r *Response) int {
	number, ok := r.Status.(json.Number)
	if !ok {
		return 0
	}
	status, err := strconv.Atoi(number.String())
	if err != nil {
		return 0
	}
	return status
}

// recorded is the answer of a step as it stands in the recording.
func recorded(step Step, source string) Expected {
	e := Expected{Source: source}
	switch step.Kind {
	case "push":
		e.Types = []string{step.Type}
		e.JSON, e.HasJSON, e.Any = step.Body, true, step.BodyLeftOut
		return e
	case "udp":
		e.UDP, e.JSON, e.HasJSON = step.JSON, step.Data, true
		return e
	case "call":
		if step.Status != nil {
			e.GRPC, e.Message = step.Status.Code, step.Status.Message
		}
		return e
	}
	r := step.Response
	if r == nil {
		return e
	}
	if step.Kind == "grpc" {
		if status, ok := r.Status.(map[string]any); ok {
			e.GRPC, _ = status["code"].(string)
			e.Message, _ = status["message"].(string)
			return e
		}
		e.Types, e.JSON, e.HasJSON, e.Any = []string{r.Type}, r.Body, true, r.BodyLeftOut
		if body, ok := r.Body.(map[string]any); ok && r.Type == "ErrorResponse" && body["errorCode"] == json.Number("500") {
			// Its message comes and goes on a real server.
			body = maps.Clone(body)
			body["message"] = "${javaText}"
			e.JSON = body
		}
		return e
	}
	e.Statuses, e.ContentType, e.Headers = []int{httpStatus(r)}, &r.ContentType, r.Headers
	text, _ := r.Body.(string)
	e.JSON, e.HasJSON, e.Text, e.Lines = r.JSON, r.HasJSON, text, r.Lines
	e.Any = r.BodyLeftOut
	return e
}

// apply makes the answer that a variant describes out of another one.
func (v Variant) apply(base Expected, step Step) (Expected, error) {
	e := base
	e.Twin = nil
	e.Optional, e.PassOver, e.Then, e.Compressed, e.Lacks = v.Optional, v.PassOver, v.Then, v.Compressed, v.Lacks
	if v.GRPC != "" {
		return Expected{GRPC: v.GRPC, Message: "${javaText}", Then: v.Then}, nil
	}
	if v.Type != nil {
		e.Types = v.Type
	}
	wholeBody := v.JSON != nil || v.Text != nil || v.Set != nil || v.Delete != nil || v.NoHosts || v.As != 0 || v.Version != ""
	switch step.Kind {
	case "grpc":
		if v.Code != 0 && !wholeBody {
			if v.Type == nil {
				e.Types = []string{"ErrorResponse", strings.TrimSuffix(step.Type, "Request") + "Response"}
				if step.Response != nil {
					e.Types = append(e.Types, step.Response.Type)
				}
			}
			e.Refusal, e.Code, e.Names, e.JSON, e.HasJSON = true, v.Code, v.Names, nil, false
			return e, nil
		}
	case "http":
		if v.Status != nil || v.Code != 0 || v.Text != nil || v.JSON != nil {
			e.ContentType, e.Headers = nil, nil
		}
		if v.Status != nil {
			e.Statuses = v.Status
		}
		if (v.Status != nil || v.Code != 0) && !wholeBody {
			e.JSON, e.HasJSON, e.Text, e.Lines = nil, false, "", nil
			e.Refusal = slices.Min(e.Statuses) >= 400 && step.Method != "HEAD"
			e.Any = !e.Refusal
			e.Code, e.Names = v.Code, v.Names
		}
	}
	if v.ContentType != nil {
		e.ContentType = v.ContentType
	}
	if v.AnyBody {
		e.Any, e.Refusal = true, false
	}
	if v.Text != nil {
		e.Text, e.JSON, e.HasJSON, e.Any = *v.Text, nil, false, false
	}
	if v.JSON != nil {
		e.JSON, e.HasJSON, e.Text, e.Any = v.JSON, true, "", false
	}
	if step.Kind == "udp-silence" {
		e.UDP = map[string]any{"type": "dom", "data": "${data}", "lastRefTime": "${nanos}"}
	}
	return e.change(v)
}

// change applies Set, Delete and NoHosts.
func (e Expected) change(v Variant) (Expected, error) {
	if v.Set == nil && v.Delete == nil && !v.NoHosts {
		return e, nil
	}
	body := clone(e.JSON)
	if v.NoHosts && !emptyHosts(body) {
		return e, fmt.Errorf("noHosts where there is no list of hosts")
	}
	var err error
	for _, pointer := range slices.Sorted(maps.Keys(v.Set)) {
		if body, err = editAt(body, pointer, clone(v.Set[pointer]), false); err != nil {
			return e, err
		}
	}
	for _, pointer := range v.Delete {
		if body, err = editAt(body, pointer, nil, true); err != nil {
			return e, err
		}
	}
	e.JSON = body
	return e, nil
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, element := range v {
			out[key] = clone(element)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = clone(element)
		}
		return out
	}
	return v
}

// emptyHosts empties the list of hosts at the top or one level below.
func emptyHosts(v any) bool {
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	if _, ok := object["hosts"]; ok {
		object["hosts"] = []any{}
		return true
	}
	for _, key := range []string{"data", "serviceInfo"} {
		if emptyHosts(object[key]) {
			return true
		}
	}
	return false
}

// edit is a copy-free change of a JSON value at a JSON pointer (RFC 6901), given
// as its parts: put a value ("-" appends to an array), or delete what stands there.
func edit(v any, parts []string, value any, remove bool) (any, error) {
	if len(parts) == 0 {
		return value, nil
	}
	part, rest := parts[0], parts[1:]
	switch v := v.(type) {
	case map[string]any:
		element, ok := v[part]
		if !ok && (remove || len(rest) > 0) {
			return nil, fmt.Errorf("no key %q", part)
		}
		if remove && len(rest) == 0 {
			delete(v, part)
			return v, nil
		}
		changed, err := edit(element, rest, value, remove)
		v[part] = changed
		return v, err
	case []any:
		if part == "-" && len(rest) == 0 && !remove {
			return append(v, value), nil
		}
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || i >= len(v) {
			return nil, fmt.Errorf("no element %q", part)
		}
		if remove && len(rest) == 0 {
			return slices.Delete(v, i, i+1), nil
		}
		v[i], err = edit(v[i], rest, value, remove)
		return v, err
	}
	return nil, fmt.Errorf("nothing at %q", part)
}

// pointerParts takes a JSON pointer apart.
func pointerParts(pointer string) ([]string, error) {
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil, fmt.Errorf("%q is no JSON pointer", pointer)
	}
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts, nil
}

func editAt(v any, pointer string, value any, remove bool) (any, error) {
	parts, err := pointerParts(pointer)
	if err != nil {
		return nil, err
	}
	changed, err := edit(v, parts, value, remove)
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", pointer, err)
	}
	return changed, nil
}
