package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// AppendString appends s as a JSON string. Bytes that are no UTF-8 become the
// replacement character; nothing but what JSON demands is escaped.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				const hex = "0123456789abcdef"
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(b, s[start:i]...)
			b = append(b, "\ufffd"...)
			i++
			start = i
			continue
		}
		i += size
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// AppendFloat appends a finite number with a decimal point, as clients compare
// the text.
func AppendFloat(b []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		b = strconv.AppendInt(b, int64(f), 10)
		return append(b, '.', '0')
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

// AppendMetadata appends a JSON object with sorted keys.
func AppendMetadata(b []byte, m map[string]string) []byte {
	switch len(m) {
	case 0:
		return append(b, '{', '}')
	case 1:
		for k, v := range m {
			b = AppendString(append(b, '{'), k)
			b = AppendString(append(b, ':'), v)
		}
		return append(b, '}')
	}
	b = append(b, '{')
	for n, k := range sortedKeys(m) {
		if n > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, k)
		b = AppendString(append(b, ':'), m[k])
	}
	return append(b, '}')
}

// Unmarshal reads JSON of a client into v. An empty text, or one that is no JSON
// or of another shape, is an error.
func Unmarshal(data []byte, v any) error {
	if q, ok := v.(quick); ok {
		if readQuick(data, q) {
			return nil
		}
		reset(v)
	}
	return json.Unmarshal(data, v)
}

// The types below read a client's JSON leniently.
type (
	// Str takes strings, numbers and booleans; null is "".
	Str string
	// Int takes integers, also as strings; null and "" are 0.
	Int int64
	// Float takes numbers, also as strings.
	Float struct {
		Value float64
		Set   bool // false: null or not given
	}
	// Bool takes true and false, also as strings.
	Bool struct {
		Value bool
		Set   bool // false: null or not given
	}
	// Metadata takes an object whose values are strings, numbers or booleans. A
	// key whose value is null is left out; null is nil.
	Metadata map[string]string
)

type typeError struct{ want, got string }

func (e *typeError) Error() string { return "want " + e.want + ", got " + e.got }

// UnmarshalJSON reads a scalar as text.
func (s *Str) UnmarshalJSON(b []byte) error {
	text, err := scalar(b, "a text")
	*s = Str(text)
	return err
}

// UnmarshalJSON reads an integer, a whole number or the text of one.
func (i *Int) UnmarshalJSON(b []byte) error {
	text, err := scalar(b, "an integer")
	if err != nil {
		return err
	}
	if text == "" {
		*i = 0
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, ok := ParseNumber(text)
		if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return &typeError{"an integer", clip(text)}
		}
		n = int64(f)
	}
	*i = Int(n)
	return nil
}

// UnmarshalJSON reads a number or the text of one.
func (f *Float) UnmarshalJSON(b []byte) error {
	text, err := scalar(b, "a number")
	if err != nil || text == "" {
		return err
	}
	n, ok := ParseNumber(text)
	if !ok {
		return &typeError{"a number", clip(text)}
	}
	*f = Float{n, true}
	return nil
}

// ParseNumber reads a decimal number, or one of the words for NaN and infinity.
// One that is too large is infinite.
func ParseNumber(s string) (f float64, ok bool) {
	if strings.ContainsAny(s, "_xX") { // numbers in Go's own writing
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// UnmarshalJSON reads a boolean or the text of one.
func (v *Bool) UnmarshalJSON(b []byte) error {
	text, err := scalar(b, "a boolean")
	if err != nil || text == "" {
		return err
	}
	switch strings.ToLower(text) {
	case "true", "1":
		*v = Bool{true, true}
	case "false", "0":
		*v = Bool{false, true}
	default:
		return &typeError{"a boolean", clip(text)}
	}
	return nil
}

// Or returns the value, or def if none was given.
func (v Bool) Or(def bool) bool {
	if v.Set {
		return v.Value
	}
	return def
}

// Or returns the value, or def if none was given.
func (f Float) Or(def float64) float64 {
	if f.Set {
		return f.Value
	}
	return def
}

// UnmarshalJSON reads a flat object.
func (m *Metadata) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return &typeError{"a flat object of strings", clip(string(b))}
	}
	if raw == nil {
		return nil
	}
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		if isNull(v) {
			continue
		}
		text, err := scalar(v, "a text for the key '"+clip(k)+"'")
		if err != nil {
			return err
		}
		out[k] = text
	}
	*m = out
	return nil
}

// ParseMetadata reads a metadata parameter: a flat JSON object, the text null, or
// pairs k=v separated by commas. Blank is nil.
func ParseMetadata(s string) (map[string]string, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var m Metadata
	if plain([]byte(s)) && m.quick(gjson.Parse(s)) {
		return m, nil
	}
	m = nil
	err := json.Unmarshal([]byte(s), &m)
	if err == nil {
		return m, nil
	}
	if strings.ContainsRune(`{["`, rune(strings.TrimSpace(s)[0])) { // meant as JSON, with = within
		return nil, err
	}
	out := make(map[string]string)
	for pair := range strings.SplitSeq(s, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" || strings.Contains(v, "=") {
			return nil, err
		}
		out[k] = v
	}
	return out, nil
}

// scalar returns the text of a JSON scalar; null is "".
func scalar(b []byte, want string) (string, error) {
	if len(b) == 0 || isNull(b) {
		return "", nil
	}
	switch b[0] {
	case '"':
		if n := len(b) - 1; n > 0 && bytes.IndexByte(b[1:n], '\\') < 0 && utf8.Valid(b) {
			return string(b[1:n]), nil
		}
		var s string
		err := json.Unmarshal(b, &s)
		return s, err
	case '{':
		return "", &typeError{want, "an object"}
	case '[':
		return "", &typeError{want, "a list"}
	}
	return string(b), nil
}

func isNull(b []byte) bool { return string(b) == "null" }

// clip shortens a client's text for an error.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
