package compat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames_MadeUp(t *testing.T) {
	n := NewNames(nil)
	a, ok := n.Value("service")
	require.True(t, ok)
	again, _ := n.Value("service")
	require.Equal(t, a, again)
	b, _ := n.Value("service2")
	require.NotContains(t, b, a, "a search for one name must not find another")
	require.Regexp(t, `^[a-z0-9]+-service$`, a)
	require.Regexp(t, `^[a-z0-9]+-service2$`, b)
	other, _ := NewNames(nil).Value("service")
	require.NotEqual(t, a, other)
	_, ok = n.Value("connectionId:c1")
	require.False(t, ok)
}

func TestNames_Fill(t *testing.T) {
	n := NewNames(map[string]string{"server": "10.0.0.1:8848", "port:p1": "77"})
	for _, c := range []struct{ text, want string }{
		{"plain", "plain"},
		{"http://${server}/x", "http://10.0.0.1:8848/x"},
		{"${a*5}b", "aaaaab"},
		{"${port:p1}${port:p1}", "7777"},
	} {
		got, err := n.Fill(c.text)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := n.Fill("${udpPort:u1}")
	require.ErrorContains(t, err, "${udpPort:u1}")
}

func TestNames_FillJSON(t *testing.T) {
	n := NewNames(map[string]string{"port:p1": "77", "connectionId:c1": "id"})
	got, err := n.FillJSON(map[string]any{"${connectionId:c1}": []any{"${port:p1}", "p${port:p1}", true, nil, json.Number("1")}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": []any{json.Number("77"), "p77", true, nil, json.Number("1")}}, got)
}

func TestNames_MatchText(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"ok", "ok", true},
		{"ok", "OK", false},
		{"${ms}", "1700000000000", true},
		{"${ms}", "170000000000", false},
		{"a ${int} b", "a -3 b", true},
		{"a ${int} b", "a 3.5 b", false},
		{"${float}", "1.5E-7", true},
		{"${float}", "NaN", false},
		{"${isoTime}", "2025-06-01T08:30:00.000+00:00", true},
		{"${isoTime}", "2025-06-01 08:30:00", false},
		{"${uuid}", "01234567-89ab-cdef-0123-456789abcdef", true},
		{"${uuid}", "0123456789abcdef0123456789abcdef", false},
		{"${snowflake}#1", "7300000000000000000#1", true},
		{"${javaText}", "", true},
		{"${text}", " ", false},
		{"Param (x) ${a*3}.", "Param (x) aaa.", true},
		{"Param (x) ${a*3}.", "Param (x) aaaa.", false},
		{"http://${server}/", "http://h:1/", true},
		{"http://${server}/", "http://h:2/", false},
	} {
		_, ok := NewNames(map[string]string{"server": "h:1"}).MatchText(c.want, c.got)
		require.Equal(t, c.ok, ok, "%q against %q", c.got, c.want)
	}
}

func TestNames_MatchText_Binds(t *testing.T) {
	n := NewNames(nil)
	_, ok := n.MatchText("Bearer ${token:admin}", "Bearer abc")
	require.True(t, ok)
	_, ok = n.MatchText("${token:admin}", "abc")
	require.True(t, ok)
	_, ok = n.MatchText("${token:admin}", "abd")
	require.False(t, ok)
	_, ok = n.MatchText("${connectionId:c1}", "1_2_3")
	require.True(t, ok)
	value, _ := n.Value("connectionId:c1")
	require.Equal(t, "1_2_3", value)
}

func TestNames_LongText(t *testing.T) {
	n := NewNames(nil)
	_, ok := n.MatchText("${a*3000000}", strings.Repeat("a", 3000000))
	require.True(t, ok)
}

// Every placeholder in the recordings is known.
func TestNames_KnowAllRecordedPlaceholders(t *testing.T) {
	g := loadGolden(t)
	n := Target{Host: "127.0.0.1", HTTPPort: 8848}.Names()
	var walk func(v any)
	check := func(text string) {
		for _, m := range placeholderPattern.FindAllStringSubmatch(text, -1) {
			if _, ok := n.Value(m[1]); ok {
				continue
			}
			s, ok := shapeOf(m[1])
			require.True(t, ok, "placeholder %s", m[0])
			_, ok = NewNames(nil).MatchText(m[0], s.sample)
			require.True(t, ok, "the sample of %s", m[0])
		}
	}
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			check(v)
		case []any:
			for _, element := range v {
				walk(element)
			}
		case map[string]any:
			for key, element := range v {
				check(key)
				walk(element)
			}
		}
	}
	for _, r := range g.recordings {
		text, err := json.Marshal(r)
		require.NoError(t, err)
		v, err := parseJSON(text)
		require.NoError(t, err)
		walk(v)
	}
}
