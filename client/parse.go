package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"rollcall/server/wire"
)

// parser reads JSON of servers in place: what is already known from the list before
// need not be copied. It takes scalars as text whatever their JSON type, and null
// for not given, as servers' answers differ in that.
type parser struct {
	b []byte
	i int
}

// maxDepth bounds the nesting of what is skipped.
const maxDepth = 64

var errTruncated = errors.New("the JSON ends too early")

func (p *parser) bad(want string) error {
	if p.i >= len(p.b) {
		return errTruncated
	}
	return fmt.Errorf("want %s, got %q at byte %d", want, p.b[p.i], p.i)
}

// peek returns the next byte that is no white space, 0 at the end.
func (p *parser) peek() byte {
	for p.i < len(p.b) {
		switch c := p.b[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return c
		}
	}
	return 0
}

// null passes over a null.
func (p *parser) null() bool {
	if p.peek() == 'n' && p.i+4 <= len(p.b) && string(p.b[p.i:p.i+4]) == "null" {
		p.i += 4
		return true
	}
	return false
}

// object calls field for each key with the parser at the value, which field must
// read. The key is valid within field only. null is an object without keys.
func (p *parser) object(field func(key []byte) error) error {
	if p.null() {
		return nil
	}
	if p.peek() != '{' {
		return p.bad("an object")
	}
	p.i++
	if p.peek() == '}' {
		p.i++
		return nil
	}
	for {
		if p.peek() != '"' {
			return p.bad("a key")
		}
		key, err := p.text()
		if err != nil {
			return err
		}
		if p.peek() != ':' {
			return p.bad("a colon")
		}
		p.i++
		if err := field(key); err != nil {
			return err
		}
		if done, err := p.more('}'); done || err != nil {
			return err
		}
	}
}

// array calls element with the parser at each element, which it must read. null is an
// empty array.
func (p *parser) array(element func() error) error {
	if p.null() {
		return nil
	}
	if p.peek() != '[' {
		return p.bad("a list")
	}
	p.i++
	if p.peek() == ']' {
		p.i++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if done, err := p.more(']'); done || err != nil {
			return err
		}
	}
}

// more reads the comma or the end that follows a value.
func (p *parser) more(end byte) (done bool, err error) {
	switch p.peek() {
	case ',':
		p.i++
		return false, nil
	case end:
		p.i++
		return true, nil
	}
	return false, p.bad("a comma or " + string(end))
}

// text reads a scalar as text; null is empty. The result is a part of the input or a
// copy: do not alter it.
func (p *parser) text() ([]byte, error) {
	switch p.peek() {
	case '"':
		return p.quoted()
	case '{', '[':
		return nil, p.bad("a text")
	}
	start := p.i
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r', ':':
			return p.word(start)
		}
		p.i++
	}
	return p.word(start)
}

// word checks a scalar without quotes.
func (p *parser) word(start int) ([]byte, error) {
	word := p.b[start:p.i]
	if len(word) == 0 {
		return nil, p.bad("a value")
	}
	switch string(word) {
	case "null":
		return nil, nil
	case "true", "false":
		return word, nil
	}
	if c := word[0]; c != '-' && (c < '0' || c > '9') {
		p.i = start
		return nil, p.bad("a value")
	}
	if _, err := strconv.ParseFloat(string(word), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		p.i = start
		return nil, p.bad("a number")
	}
	return word, nil
}

func (p *parser) quoted() ([]byte, error) {
	start := p.i + 1
	for n := start; n < len(p.b); n++ {
		switch c := p.b[n]; {
		case c == '"':
			p.i = n + 1
			return p.b[start:n], nil
		case c == '\\':
			return p.escaped(start, n)
		case c < ' ':
			p.i = n
			return nil, p.bad("a text")
		}
	}
	p.i = len(p.b)
	return nil, errTruncated
}

// escaped reads a text that has its first backslash at n.
func (p *parser) escaped(start, n int) ([]byte, error) {
	for ; n < len(p.b); n++ {
		if p.b[n] == '\\' {
			n++
			continue
		}
		if p.b[n] == '"' {
			var s string
			if err := json.Unmarshal(p.b[start-1:n+1], &s); err != nil {
				return nil, err
			}
			p.i = n + 1
			return []byte(s), nil
		}
	}
	p.i = len(p.b)
	return nil, errTruncated
}

// integer reads a whole number, also in quotes or with a fraction of zero.
func (p *parser) integer() (int64, error) {
	text, err := p.text()
	if err != nil || len(text) == 0 {
		return 0, err
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	f, ok := wire.ParseNumber(string(text))
	if n := int64(f); ok && float64(n) == f {
		return n, nil
	}
	return 0, fmt.Errorf("want an integer, got %q", clip(text))
}

// float reads a number, also in quotes; null and empty are def.
func (p *parser) float(def float64) (float64, error) {
	text, err := p.text()
	if err != nil || len(text) == 0 {
		return def, err
	}
	f, ok := wire.ParseNumber(string(text))
	if !ok {
		return 0, fmt.Errorf("want a number, got %q", clip(text))
	}
	return f, nil
}

// boolean reads true or false, also in quotes; null and empty are def.
func (p *parser) boolean(def bool) (bool, error) {
	text, err := p.text()
	if err != nil {
		return false, err
	}
	switch string(text) {
	case "":
		return def, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("want true or false, got %q", clip(text))
}

// skip passes over a value of any kind.
func (p *parser) skip() error { return p.skipAt(0) }

func (p *parser) skipAt(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch p.peek() {
	case '{':
		return p.object(func([]byte) error { return p.skipAt(depth + 1) })
	case '[':
		return p.array(func() error { return p.skipAt(depth + 1) })
	}
	_, err := p.text()
	return err
}

// end requires that nothing but white space is left.
func (p *parser) end() error {
	if p.peek() != 0 || p.i < len(p.b) {
		return p.bad("the end")
	}
	return nil
}

// clip shortens a server's text for an error.
func clip(text []byte) []byte { return text[:min(len(text), 64)] }
