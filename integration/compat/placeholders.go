package compat

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Names holds what the placeholders of one run stand for. Made-up names come
// into being at their first use. It is safe for concurrent use.
type Names struct {
	mu    sync.Mutex
	bound map[string]string
}

// NewNames returns names with the given ones bound.
func NewNames(bound map[string]string) *Names {
	n := &Names{bound: map[string]string{}}
	maps.Copy(n.bound, bound)
	return n
}

// Bind gives the placeholder `${name}` its value.
func (n *Names) Bind(name, value string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bound[name] = value
}

// Unbind forgets a value.
func (n *Names) Unbind(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.bound, name)
}

// Value returns what `${name}` stands for; made-up names and repeated letters
// always have a value, the others once they are bound.
func (n *Names) Value(name string) (string, bool) {
	if m := repeatPattern.FindStringSubmatch(name); m != nil {
		times, err := strconv.Atoi(m[2])
		return strings.Repeat(m[1], times), err == nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if value, ok := n.bound[name]; ok {
		return value, true
	}
	if madeUpPattern.MatchString(name) {
		// Each name is random in full, so that no search for one finds another.
		value := "g" + randomHex(5) + "-" + strings.ToLower(name)
		n.bound[name] = value
		return value, true
	}
	return "", false
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

var (
	placeholderPattern = regexp.MustCompile(`\$\{([^}]+)\}`)
	madeUpPattern      = regexp.MustCompile(`^(service|namespace)[0-9]*$`)
	repeatPattern      = regexp.MustCompile(`^(.)\*([0-9]+)$`)
)

// shape is what an unbound placeholder may stand for: a regular expression, a
// sample, and whether the value is a number on the wire when the placeholder is
// the whole of a JSON string. Patterns have no capturing groups.
type shape struct {
	pattern string
	sample  string
	number  bool
	bind    bool // the first value seen is kept
}

// shapeOf returns the shape of a placeholder by the part of its name before a
// colon. ${text} and ${any} appear in readings alone: a text that is not blank,
// and any JSON value.
func shapeOf(name string) (shape, bool) {
	kind, _, named := strings.Cut(name, ":")
	switch kind {
	case "ms":
		return shape{`[0-9]{13}`, "1700000000000", true, false}, true
	case "nanos":
		return shape{`[0-9]{10,19}`, "1234567890123456", true, false}, true
	case "int":
		return shape{`-?[0-9]+`, "7", true, false}, true
	case "float":
		return shape{`-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?`, "0.5", true, false}, true
	case "requestId":
		return shape{`[0-9]+`, "17", false, false}, true
	case "connectionId":
		return shape{`[^\s"]+`, "1700000000000_127.0.0.1_50000", false, named}, true
	case "isoTime":
		return shape{`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:?[0-9]{2})`, "2025-06-01T08:30:00.000+00:00", false, false}, true
	case "uuid":
		return shape{`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`, "01234567-89ab-cdef-0123-456789abcdef", false, false}, true
	case "snowflake":
		return shape{`[0-9]{10,20}`, "7300000000000000000", false, false}, true
	case "token":
		return shape{`[^\s"]+`, "aaa.bbb.ccc", false, named}, true
	case "bcrypt":
		return shape{`\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}`, "$2a$10$" + strings.Repeat("a", 53), false, false}, true
	case "httpDate":
		return shape{`[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT`, "Sun, 01 Jun 2025 08:30:00 GMT", false, false}, true
	case "serverIp":
		return shape{`[0-9a-fA-F.:]+`, "127.0.0.1", false, false}, true
	case "javaText":
		return shape{`[\s\S]*`, "some text", false, false}, true
	case "text":
		return shape{`[\s\S]*\S[\s\S]*`, "some text", false, false}, true
	case "contextPath":
		return shape{`[\s\S]*`, "/nacos", false, false}, true
	case "port", "udpPort", "tcpPort", "httpPort", "grpcPort", "consolePort", "raftPort", "i":
		return shape{`[0-9]+`, "1", true, false}, true
	case "any":
		return shape{`[\s\S]*`, "anything", false, false}, true
	case "data", "server", "raftServer":
		return shape{`[\s\S]+`, "text", false, false}, true
	}
	return shape{}, false
}

// only returns the placeholder's name if text is one placeholder and no more.
func only(text string) (string, bool) {
	m := placeholderPattern.FindStringSubmatchIndex(text)
	if m == nil || m[0] != 0 || m[1] != len(text) {
		return "", false
	}
	return text[m[2]:m[3]], true
}

// Fill puts the values into a text of a request.
func (n *Names) Fill(text string) (string, error) {
	var missing []string
	filled := placeholderPattern.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		value, ok := n.Value(name)
		if !ok {
			missing = append(missing, found)
		}
		return value
	})
	if missing != nil {
		return "", fmt.Errorf("%s without a value", strings.Join(missing, ", "))
	}
	return filled, nil
}

// FillJSON puts the values into a JSON value of a request. A string that is a
// number's placeholder becomes a number.
func (n *Names) FillJSON(v any) (any, error) {
	switch v := v.(type) {
	case string:
		filled, err := n.Fill(v)
		if err != nil {
			return nil, err
		}
		if name, ok := only(v); ok {
			if s, ok := shapeOf(name); ok && s.number {
				return json.Number(filled), nil
			}
		}
		return filled, nil
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			filled, err := n.FillJSON(element)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, element := range v {
			filledKey, err := n.Fill(key)
			if err != nil {
				return nil, err
			}
			if out[filledKey], err = n.FillJSON(element); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return v, nil
	}
}

// FillMap puts the values into the values of a map.
func (n *Names) FillMap(m map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(m))
	for key, value := range m {
		filled, err := n.Fill(value)
		if err != nil {
			return nil, err
		}
		out[key] = filled
	}
	return out, nil
}

// MatchText compares a text of an answer with the recorded one and binds what
// can be bound. It reports what was wanted when they differ.
func (n *Names) MatchText(want, got string) (wanted string, ok bool) {
	if !strings.Contains(want, "${") {
		return want, want == got
	}
	var pattern, shown strings.Builder
	var toBind []string
	pattern.WriteString("^")
	last := 0
	for _, m := range placeholderPattern.FindAllStringSubmatchIndex(want, -1) {
		literal, name := want[last:m[0]], want[m[2]:m[3]]
		pattern.WriteString(regexp.QuoteMeta(literal))
		shown.WriteString(literal)
		last = m[1]
		if value, ok := n.Value(name); ok {
			pattern.WriteString(regexp.QuoteMeta(value))
			shown.WriteString(value)
			continue
		}
		s, ok := shapeOf(name)
		if !ok {
			return want + " (unknown placeholder " + name + ")", false
		}
		shown.WriteString("${" + name + "}")
		if s.bind {
			pattern.WriteString("(" + s.pattern + ")")
			toBind = append(toBind, name)
		} else {
			pattern.WriteString("(?:" + s.pattern + ")")
		}
	}
	pattern.WriteString(regexp.QuoteMeta(want[last:]) + "$")
	shown.WriteString(want[last:])
	// Long repeated letters make patterns that are too large to compile; such
	// texts have no free part, so plain comparison is enough.
	if filled, err := n.Fill(want); err == nil {
		return shown.String(), filled == got
	}
	re, err := regexp.Compile(pattern.String())
	if err != nil {
		return want + " (" + err.Error() + ")", false
	}
	found := re.FindStringSubmatch(got)
	if found == nil {
		return shown.String(), false
	}
	for i, name := range toBind {
		n.Bind(name, found[i+1])
	}
	return shown.String(), true
}

// sample is a text that MatchText accepts, for a fake server.
func (n *Names) sample(want string) string {
	return placeholderPattern.ReplaceAllStringFunc(want, func(found string) string {
		name := found[2 : len(found)-1]
		if value, ok := n.Value(name); ok {
			return value
		}
		s, _ := shapeOf(name)
		if s.bind {
			n.Bind(name, s.sample)
		}
		return s.sample
	})
}

// sampleJSON is a JSON value that the matcher accepts.
func (n *Names) sampleJSON(want any) any {
	switch want := want.(type) {
	case string:
		text := n.sample(want)
		if name, ok := only(want); ok {
			if s, ok := shapeOf(name); ok && s.number {
				return json.Number(text)
			}
		}
		return text
	case []any:
		out := make([]any, len(want))
		for i, element := range want {
			out[i] = n.sampleJSON(element)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(want))
		for _, key := range slices.Sorted(maps.Keys(want)) {
			out[n.sample(key)] = n.sampleJSON(want[key])
		}
		return out
	default:
		return want
	}
}
