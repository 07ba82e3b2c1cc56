package httpapi

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// maxForm is the largest form body; of a larger one every parameter is lost, as
// on real servers, so that a required one is then reported as missing.
const maxForm = 2 << 20

// params are the parameters of one request, by name. Values are as sent; bytes
// that are no UTF-8 are replaced.
type params map[string]string

// parse merges the query and a form body; the first value of a name wins.
func parse(r *http.Request) params {
	p := make(params, 8)
	p.add(r.URL.RawQuery)
	if r.Body == nil || r.ContentLength == 0 {
		return p
	}
	const form = "application/x-www-form-urlencoded"
	media, attributes := form, map[string]string(nil)
	if text := r.Header.Get("Content-Type"); text != form { // mostly it is just that
		var err error
		media, attributes, err = mime.ParseMediaType(text)
		if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
			return p
		}
	}
	switch {
	case media == form:
		body, err := readForm(r)
		if err == nil && len(body) <= maxForm {
			p.add(string(body))
		}
	case media == "multipart/form-data" && r.Method == http.MethodPost && attributes["boundary"] != "":
		parts := multipart.NewReader(http.MaxBytesReader(nil, r.Body, maxForm), attributes["boundary"])
		if form, err := parts.ReadForm(maxForm); err == nil { // within that size nothing goes to files
			for k, v := range form.Value {
				if _, ok := p[validText(k)]; !ok && len(v) > 0 {
					p[validText(k)] = validText(v[0])
				}
			}
		}
	}
	return p
}

// smallForm is the size, in bytes, up to which a form's buffer is made before it has
// come.
const smallForm = 4 << 10

// readForm reads a body, of which it needs no more than one byte beyond maxForm.
func readForm(r *http.Request) ([]byte, error) {
	if r.ContentLength <= 0 || r.ContentLength > smallForm {
		return io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// add reads pairs from a query or an urlencoded body. A pair with a malformed
// escape is dropped, the others stay.
func (p params) add(raw string) {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		k, v, _ := strings.Cut(pair, "=")
		k, okKey := unescape(k)
		v, okValue := unescape(v)
		if !okKey || !okValue || k == "" {
			continue
		}
		if _, ok := p[k]; !ok {
			p[k] = v
		}
	}
}

func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return validText(s), true
	}
	out, err := url.QueryUnescape(s)
	return validText(out), err == nil
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// text returns a value as it was sent, or def where it is missing or blank.
func (p params) text(name, def string) string {
	if v := p[name]; strings.TrimSpace(v) != "" {
		return v
	}
	return def
}

// word returns a trimmed value, empty where it is missing.
func (p params) word(name string) string { return strings.TrimSpace(p[name]) }

// required returns a value that must be there and not be blank.
func (p params) required(name string) (string, error) {
	if v := p.text(name, ""); v != "" {
		return v, nil
	}
	return "", missing(name)
}

func missing(name string) error {
	return &naming.InvalidError{Fault: naming.FaultMissing, Field: name, Text: "Param '" + name + "' is required."}
}

// flag reads a boolean of v1: a few words are true, everything else is false.
func (p params) flag(name string, def bool) bool {
	switch strings.ToLower(p.word(name)) {
	case "":
		return def
	case "true", "yes", "y", "on", "t":
		return true
	}
	return false
}

// boolean reads a boolean of v2, which must be one.
func (p params) boolean(name string, def bool) (bool, error) {
	switch v := p.word(name); strings.ToLower(v) {
	case "":
		return def, nil
	case "true", "on", "yes", "1":
		return true, nil
	case "false", "off", "no", "0":
		return false, nil
	default:
		return false, badValue(name, v, "true or false")
	}
}

func badValue(name, value, rule string) error {
	return &naming.InvalidError{Fault: naming.FaultValue, Field: name, Text: "Param '" + name + "' is illegal, '" + clipText(value) + "' should be " + rule + "."}
}

// clipText shortens a client's text for an error.
func clipText(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

// number reads a number; text gives the error for one that is none.
func (p params) number(name string, def float64) (float64, error) {
	v := p.word(name)
	if v == "" {
		return def, nil
	}
	f, ok := wire.ParseNumber(v)
	if !ok {
		return 0, badValue(name, v, "a number")
	}
	return f, nil
}

// integer reads an integer that must be one.
func (p params) integer(name string, def int64) (int64, error) {
	v := p.word(name)
	if v == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, badValue(name, v, "an integer")
	}
	return n, nil
}
