package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"rollcall/naming"
	"rollcall/server/wire"
)

// Content types as the protocol writes them.
const (
	plainText = "text/plain;charset=UTF-8"
	jsonType  = "application/json"
)

// answer is one whole answer.
type answer struct {
	status      int
	contentType string // empty: none
	body        []byte
}

func text(s string) answer { return answer{http.StatusOK, plainText, []byte(s)} }

func okText() answer { return text("ok") }

func jsonBody(b []byte) answer { return answer{http.StatusOK, jsonType, b} }

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	if a.contentType == "" {
		h["Content-Type"] = nil // also keeps the library from guessing one
	} else {
		h["Content-Type"] = []string{a.contentType}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// filterError is an error in the form that the protocol gives to what is refused
// before any handler (http.md 1.5).
type filterError struct {
	status  int
	message string
}

func (e *filterError) Error() string { return e.message }

func (e *filterError) answer(path string) answer {
	b := append([]byte(`{"timestamp":"`), time.Now().UTC().Format(isoTime)...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(e.status), 10)
	b = wire.AppendString(append(b, `,"error":`...), http.StatusText(e.status))
	b = wire.AppendString(append(b, `,"message":`...), e.message)
	b = wire.AppendString(append(b, `,"path":`...), path)
	return answer{e.status, jsonType, append(b, '}')}
}

// refusedParam is the answer to a value that broke a parameter rule, on every
// path.
func refusedParam(r wire.Refusal) answer {
	return answer{r.Status, "", []byte(r.Text + "\r\n")}
}

// refusedV1 answers an error in text.
func (s *Server) refusedV1(err error, path string) answer {
	if f, ok := err.(*filterError); ok { //nolint:errorlint // made by this package, never wrapped
		return f.answer(path)
	}
	r := s.registry.Refusal(err)
	switch {
	case r.Param:
		return refusedParam(r)
	case r.Wrapped != "":
		r.Text = r.Wrapped
	case r.Status == http.StatusInternalServerError:
		r.Text = "caused: " + r.Text + ";"
	}
	return answer{r.Status, plainText, []byte(r.Text)}
}

// refusedV2 answers an error as a result.
func (s *Server) refusedV2(err error) answer {
	r := s.registry.Refusal(err)
	if r.Param {
		return refusedParam(r)
	}
	if r.Wrapped != "" {
		r.Text = r.Wrapped
	}
	return answer{r.Status, jsonType, result(r.Code, wire.AppendString(nil, r.Text))}
}

// result is the body of a v2 answer; data is JSON.
func result(code int, data []byte) []byte {
	b := strconv.AppendInt([]byte(`{"code":`), int64(code), 10)
	b = wire.AppendString(append(b, `,"message":`...), wire.CodeMessage(code))
	b = append(append(b, `,"data":`...), data...)
	return append(b, '}')
}

// restResult is the body of the answers of v1 core and console; data is JSON. A
// message that is empty is null.
func restResult(code int, message string, data []byte) []byte {
	b := strconv.AppendInt([]byte(`{"code":`), int64(code), 10)
	b = appendNullable(append(b, `,"message":`...), message)
	b = append(append(b, `,"data":`...), data...)
	return append(b, '}')
}

// ips is the body of the statuses of instances.
func ips(s naming.Service) []byte {
	list := make([]string, 0, len(s.Instances))
	for _, i := range s.Effective() {
		list = append(list, i.Key().Address()+"_"+strconv.FormatBool(i.Healthy))
	}
	return append(wire.AppendStrings([]byte(`{"ips":`), list), '}')
}
