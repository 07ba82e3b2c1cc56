package compat

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// answer is what came back for one step, over whichever transport.
type answer struct {
	// HTTP.
	status     int
	header     http.Header
	body       []byte
	compressed bool
	head       bool

	// gRPC.
	typ     string
	code    string // of a call that failed
	message string

	// UDP.
	outer any

	// json is the parsed body, if hasJSON.
	json    any
	hasJSON bool
}

// attempt is an answer held against one expectation.
type attempt struct {
	expected Expected
	found    []Difference
}

// verdict tells which expectation the answer meets, or what differs from each.
type verdict struct {
	met      *Expected
	attempts []attempt
}

// judge holds an answer against each expectation of a step.
func (p *Player) judge(step Step, expected []Expected, got answer) verdict {
	var v verdict
	for _, e := range expected {
		found := p.differences(step, e, got)
		if len(found) == 0 {
			return verdict{met: &e}
		}
		v.attempts = append(v.attempts, attempt{e, found})
	}
	return v
}

func (p *Player) differences(step Step, e Expected, got answer) []Difference {
	switch step.Kind {
	case "http":
		return p.httpDifferences(step, e, got)
	case "udp", "udp-silence":
		matcher := Matcher{Names: p.names}
		found := matcher.JSON(e.UDP, got.outer)
		return append(found, below("/data", Matcher{Names: p.names, Twin: e.Twin}.JSON(e.JSON, got.json))...)
	default:
		return p.grpcDifferences(step, e, got)
	}
}

func below(prefix string, found []Difference) []Difference {
	for i := range found {
		found[i].Path = prefix + found[i].Path
	}
	return found
}

func (p *Player) httpDifferences(step Step, e Expected, got answer) []Difference {
	var found []Difference
	if !slices.Contains(e.Statuses, got.status) {
		wanted := make([]string, len(e.Statuses))
		for i, status := range e.Statuses {
			wanted[i] = strconv.Itoa(status)
		}
		found = append(found, Difference{"status", strings.Join(wanted, " or "), strconv.Itoa(got.status)})
	}
	if e.ContentType != nil {
		if got := got.header.Get("Content-Type"); mediaType(got) != mediaType(*e.ContentType) {
			found = append(found, Difference{"contentType", orAbsent(*e.ContentType), orAbsent(got)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if d := p.headerDifference(name, e.Headers[name], got.header.Get(name)); d != nil {
			found = append(found, *d)
		}
	}
	if got.compressed && !e.Compressed {
		found = append(found, Difference{"Content-Encoding", absent, got.header.Get("Content-Encoding")})
	}
	for _, text := range e.Lacks {
		if strings.Contains(string(got.body), text) {
			found = append(found, Difference{"body", "nothing with " + text, shorten(strconv.Quote(string(got.body)), 400)})
		}
	}
	return append(found, p.bodyDifferences(step, e, got)...)
}

func (p *Player) bodyDifferences(step Step, e Expected, got answer) []Difference {
	switch {
	case e.Any || got.head:
		return nil
	case e.Refusal:
		return refusalDifferences(e, got)
	case e.Lines != nil:
		return p.lineDifferences(e.Lines, string(got.body))
	case e.HasJSON:
		if !got.hasJSON {
			return []Difference{{"", show(e.JSON), "no JSON: " + shorten(strconv.Quote(string(got.body)), 400)}}
		}
		return Matcher{Names: p.names, Partial: step.Partial, Twin: e.Twin}.JSON(e.JSON, got.json)
	}
	if wanted, ok := p.names.MatchText(e.Text, string(got.body)); !ok {
		return []Difference{{"body", shorten(strconv.Quote(wanted), 400), shorten(strconv.Quote(string(got.body)), 400)}}
	}
	return nil
}

// mediaType is a content type in one spelling; "" stays "".
func mediaType(text string) string {
	kind, parameters, err := mime.ParseMediaType(text)
	if err != nil {
		return text
	}
	for name, value := range parameters {
		parameters[name] = strings.ToLower(value)
	}
	return mime.FormatMediaType(kind, parameters)
}

func orAbsent(text string) string {
	if text == "" {
		return absent
	}
	return text
}

func (p *Player) headerDifference(name, want, got string) *Difference {
	if name == "Allow" || name == "Accept" {
		// Lists without an order.
		if !slices.Equal(sortedList(want), sortedList(got)) {
			return &Difference{name, want, orAbsent(got)}
		}
		return nil
	}
	if wanted, ok := p.names.MatchText(want, got); !ok {
		return &Difference{name, wanted, orAbsent(got)}
	}
	return nil
}

func sortedList(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		parts = append(parts, strings.TrimSpace(part))
	}
	slices.Sort(parts)
	return parts
}

func (p *Player) lineDifferences(lines []string, body string) []Difference {
	got := strings.Split(body, "\n")
	var found []Difference
	for _, line := range lines {
		if !slices.ContainsFunc(got, func(g string) bool {
			_, ok := p.names.MatchText(line, strings.TrimSuffix(g, "\r"))
			return ok
		}) {
			found = append(found, Difference{"lines", line, absent})
		}
	}
	return found
}

// refusalDifferences: a refusal has a text that says what is wrong; where it is
// a JSON object, the text is its message or its data.
func refusalDifferences(e Expected, got answer) []Difference {
	var found []Difference
	text := string(got.body)
	object, isObject := got.json.(map[string]any)
	if isObject {
		message, _ := object["message"].(string)
		detail, _ := object["data"].(string)
		text = strings.TrimSpace(message + " " + detail)
		if code, ok := object["code"]; ok && (fmt.Sprint(code) == "0" || fmt.Sprint(code) == "200") {
			found = append(found, Difference{"/code", "the code of a refusal", fmt.Sprint(code)})
		}
	}
	if strings.TrimSpace(text) == "" {
		found = append(found, Difference{"body", "a text that says why", strconv.Quote(string(got.body))})
	}
	for _, name := range e.Names {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(name)) {
			found = append(found, Difference{"body", "a text with " + strconv.Quote(name), shorten(strconv.Quote(text), 400)})
		}
	}
	if e.Code != 0 {
		if code := fmt.Sprint(object["code"]); !isObject || code != strconv.Itoa(e.Code) {
			found = append(found, Difference{"/code", strconv.Itoa(e.Code), shorten(string(got.body), 400)})
		}
	}
	if slices.Equal(e.Statuses, []int{405}) && got.header.Get("Allow") == "" {
		found = append(found, Difference{"Allow", "the methods that the path has", absent})
	}
	return found
}

func (p *Player) grpcDifferences(step Step, e Expected, got answer) []Difference {
	if e.GRPC != "" || got.code != "" {
		if e.GRPC != got.code {
			return []Difference{{"status", orNone(e.GRPC), orNone(strings.TrimSpace(got.code + " " + got.message))}}
		}
		if step.Kind == "call" && step.BodyBytes > 0 {
			// The text of a message that is too large is the library's own.
			return nil
		}
		if wanted, ok := p.names.MatchText(e.Message, got.message); !ok {
			return []Difference{{"message", wanted, got.message}}
		}
		return nil
	}
	if step.Kind == "call" {
		return nil
	}
	if !slices.Contains(e.Types, got.typ) {
		return []Difference{{"type", strings.Join(e.Types, " or "), got.typ + " " + show(got.json)}}
	}
	if e.Any {
		return nil
	}
	if e.Refusal {
		return grpcRefusalDifferences(e, got)
	}
	if !got.hasJSON {
		return []Difference{{"", show(e.JSON), "no JSON"}}
	}
	return Matcher{Names: p.names, Partial: step.Partial, Twin: e.Twin}.JSON(e.JSON, got.json)
}

func orNone(code string) string {
	if code == "" {
		return "an answer"
	}
	return code
}

// grpcRefusalDifferences: a refusal has the wanted errorCode, no success and a
// message that says why.
func grpcRefusalDifferences(e Expected, got answer) []Difference {
	object, ok := got.json.(map[string]any)
	if !ok {
		return []Difference{{"", "an object", show(got.json)}}
	}
	var found []Difference
	if code := fmt.Sprint(object["errorCode"]); code != strconv.Itoa(e.Code) {
		found = append(found, Difference{"/errorCode", strconv.Itoa(e.Code), code})
	}
	if code := fmt.Sprint(object["resultCode"]); code != "500" && code != strconv.Itoa(e.Code) {
		found = append(found, Difference{"/resultCode", "500 or " + strconv.Itoa(e.Code), code})
	}
	if object["success"] != false {
		found = append(found, Difference{"/success", "false", show(object["success"])})
	}
	message, _ := object["message"].(string)
	if strings.TrimSpace(message) == "" {
		found = append(found, Difference{"/message", "a text that says why", show(object["message"])})
	}
	for _, name := range e.Names {
		if !strings.Contains(strings.ToLower(message), strings.ToLower(name)) {
			found = append(found, Difference{"/message", "a text with " + strconv.Quote(name), show(message)})
		}
	}
	return found
}
