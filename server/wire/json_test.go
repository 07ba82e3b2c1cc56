package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"rollcall/server/wire"
)

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                      `""`,
		"plain":                 `"plain"`,
		`"\`:                    `"\"\\"`,
		"\n\r\t":                `"\n\r\t"`,
		"\x00\x01\x08\x0c\x1f":  `"\u0000\u0001\u0008\u000c\u001f"`,
		"<a href='x'>&</a>":     `"<a href='x'>&</a>"`,
		"\u2028\u2029\x7f":      "\"\u2028\u2029\x7f\"",
		"服务 é \U0001f600":       "\"服务 é \U0001f600\"",
		"\xff":                  "\"\ufffd\"",
		"a\xffb\xc3":            "\"a\ufffdb\ufffd\"",
		"\xed\xa0\x80":          "\"\ufffd\ufffd\ufffd\"", // half a surrogate pair
		"\ufffd":                "\"\ufffd\"",
		"group@@name/slash=a&b": `"group@@name/slash=a&b"`,
	} {
		require.Equal(t, want, string(wire.AppendString(nil, in)), "%q", in)
		require.Equal(t, "x"+want, string(wire.AppendString([]byte("x"), in)))
	}
}

// The standard library reads back what it would have read of its own writing.
func TestAppendString_AgreesWithTheLibrary(t *testing.T) {
	same := func(s string) bool {
		var mine, theirs string
		b, err := json.Marshal(s)
		return err == nil && json.Unmarshal(b, &theirs) == nil &&
			json.Unmarshal(wire.AppendString(nil, s), &mine) == nil && mine == theirs
	}
	require.NoError(t, quick.Check(same, nil))
	require.NoError(t, quick.Check(func(b []byte) bool { return same(string(b)) }, nil))
}

func TestAppendMetadata_AgreesWithTheLibrary(t *testing.T) {
	for want, m := range map[string]map[string]string{
		"x{}":                        nil,
		`x{"k":"v"}`:                 {"k": "v"},
		`x{"a":"1","b":"2","c":"3"}`: {"b": "2", "c": "3", "a": "1"},
	} {
		require.Equal(t, want, string(wire.AppendMetadata([]byte("x"), m)))
	}
	require.NoError(t, quick.Check(func(m map[string]string) bool {
		var mine, theirs map[string]string
		b, err := json.Marshal(m)
		return err == nil && json.Unmarshal(b, &theirs) == nil &&
			json.Unmarshal(wire.AppendMetadata(nil, m), &mine) == nil && maps.Equal(mine, theirs)
	}, nil))
}

func TestAppendStrings(t *testing.T) {
	require.Equal(t, `[]`, string(wire.AppendStrings(nil, nil)))
	require.Equal(t, `["a"]`, string(wire.AppendStrings(nil, []string{"a"})))
	require.Equal(t, `x["a","\"",""]`, string(wire.AppendStrings([]byte("x"), []string{"a", `"`, ""})))
}

func TestAppendFloat(t *testing.T) {
	for want, f := range map[string]float64{
		"0.0":                  0,
		"1.0":                  1,
		"8.0":                  8,
		"-1.0":                 -1,
		"0.5":                  0.5,
		"0.1":                  0.1,
		"-0.25":                -0.25,
		"10000.0":              10000,
		"9999.99":              9999.99,
		"0.3333333333333333":   1.0 / 3,
		"0.000001":             1e-6,
		"123456789012345.0":    123456789012345,
		"999999999999999.0":    999999999999999,
		"100000000000000.5":    100000000000000.5,
		"-100000000000000.0":   -1e14,
		"1.7976931348623157":   1.7976931348623157,
		"0.000000000000000001": 1e-18,
	} {
		require.Equal(t, want, string(wire.AppendFloat(nil, f)))
	}
	require.Equal(t, "0.0", string(wire.AppendFloat(nil, math.Copysign(0, -1))))
	require.NoError(t, quick.Check(func(f float64) bool {
		if math.Abs(f) >= 1e15 {
			f = math.Mod(f, 1e15)
		}
		b := wire.AppendFloat([]byte("x"), f)[1:]
		var back float64
		return json.Unmarshal(b, &back) == nil && back == f && strings.Contains(string(b), ".")
	}, nil))
}

// lenient has one field of each of the types that read leniently.
type lenient struct {
	S wire.Str
	I wire.Int
	F wire.Float
	B wire.Bool
	M wire.Metadata
}

func TestLenientTypes(t *testing.T) {
	number := func(f float64) wire.Float { return wire.Float{Value: f, Set: true} }
	boolean := func(b bool) wire.Bool { return wire.Bool{Value: b, Set: true} }
	for in, want := range map[string]lenient{
		`{}`: {},
		`{"S":null,"I":null,"F":null,"B":null,"M":null}`: {},
		`{"unknown":{"deep":[1]}}`:                       {},
		`{"S":"text"}`:                                   {S: "text"},
		`{"s":"any case"}`:                               {S: "any case"},
		`{"S":"a\"\\\u0041\n"}`:                          {S: "a\"\\A\n"},
		`{"S":""}`:                                       {},
		`{"S":12}`:                                       {S: "12"},
		`{"S":1.50}`:                                     {S: "1.50"},
		`{"S":true}`:                                     {S: "true"},
		`{"S":"服务"}`:                                     {S: "服务"},
		"{\"S\":\"\xff\"}":                               {S: "\ufffd"},
		`{"I":7}`:                                        {I: 7},
		`{"I":-7}`:                                       {I: -7},
		`{"I":"7"}`:                                      {I: 7},
		`{"I":""}`:                                       {},
		`{"I":7.0}`:                                      {I: 7},
		`{"I":7e2}`:                                      {I: 700},
		`{"I":9223372036854775807}`:                      {I: math.MaxInt64},
		`{"F":1}`:                                        {F: number(1)},
		`{"F":1.5}`:                                      {F: number(1.5)},
		`{"F":"1.5"}`:                                    {F: number(1.5)},
		`{"F":""}`:                                       {},
		`{"F":0}`:                                        {F: number(0)},
		`{"F":1e999}`:                                    {F: number(math.Inf(1))}, // refused by the rules for weights
		`{"F":"-Infinity"}`:                              {F: number(math.Inf(-1))},
		`{"B":true}`:                                     {B: boolean(true)},
		`{"B":false}`:                                    {B: boolean(false)},
		`{"B":"true"}`:                                   {B: boolean(true)},
		`{"B":"True"}`:                                   {B: boolean(true)},
		`{"B":"FALSE"}`:                                  {B: boolean(false)},
		`{"B":1}`:                                        {B: boolean(true)},
		`{"B":"0"}`:                                      {B: boolean(false)},
		`{"B":""}`:                                       {},
		`{"M":{}}`:                                       {M: wire.Metadata{}},
		`{"M":{"a":"b","n":1,"t":true,"f":1.50,"gone":null,"":""}}`: {M: wire.Metadata{"a": "b", "n": "1", "t": "true", "f": "1.50", "": ""}},
	} {
		var got lenient
		require.NoError(t, wire.Unmarshal([]byte(in), &got), in)
		require.Equal(t, want, got, in)
	}
}

func TestLenientTypes_Refusals(t *testing.T) {
	for in, says := range map[string]string{
		``:                     "unexpected end",
		`{`:                    "unexpected end",
		`[]`:                   "array",
		`{"S":{}}`:             "want a text, got an object",
		`{"S":[]}`:             "want a text, got a list",
		`{"I":"x"}`:            "want an integer, got x",
		`{"I":1.5}`:            "want an integer, got 1.5",
		`{"I":1e300}`:          "want an integer",
		`{"I":"1_0"}`:          "want an integer",
		`{"I":true}`:           "want an integer, got true",
		`{"I":{}}`:             "want an integer, got an object",
		`{"F":"x"}`:            "want a number, got x",
		`{"F":"0x10"}`:         "want a number",
		`{"F":[]}`:             "want a number, got a list",
		`{"B":"yes"}`:          "want a boolean, got yes",
		`{"B":2}`:              "want a boolean, got 2",
		`{"B":[]}`:             "want a boolean, got a list",
		`{"M":[]}`:             "want a flat object of strings",
		`{"M":"a=b"}`:          "want a flat object of strings",
		`{"M":{"k":{}}}`:       "want a text for the key 'k', got an object",
		`{"M":{"k":[]}}`:       "got a list",
		`{"S":"` + "\n" + `"}`: "invalid character",
		`{"S":"\ud800"}` + "x": "invalid character",
		`{"I":"` + strings.Repeat("x", 100) + `"}`:      strings.Repeat("x", 64) + "...",
		`{"M":{"` + strings.Repeat("é", 100) + `":[]}}`: strings.Repeat("é", 32) + "...",
	} {
		var got lenient
		require.ErrorContains(t, wire.Unmarshal([]byte(in), &got), says, in)
	}
}

func TestLenientTypes_Or(t *testing.T) {
	require.True(t, wire.Bool{}.Or(true))
	require.False(t, wire.Bool{Set: true}.Or(true))
	require.InDelta(t, 3, wire.Float{}.Or(3), 0)
	require.InDelta(t, 0, wire.Float{Set: true}.Or(3), 0)
}

func TestParseNumber(t *testing.T) {
	for in, want := range map[string]float64{
		"1": 1, "-1.5": -1.5, "1e3": 1000, ".5": 0.5, "5.": 5, "+1": 1, "1e999": math.Inf(1), "-1e999": math.Inf(-1), "Infinity": math.Inf(1),
	} {
		got, ok := wire.ParseNumber(in)
		require.True(t, ok, in)
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), in)
	}
	nan, ok := wire.ParseNumber("NaN")
	require.True(t, ok)
	require.True(t, math.IsNaN(nan))
	for _, in := range []string{"", "x", "1x", "0x10", "1_000", "1 ", "--1", "1,5"} {
		_, ok := wire.ParseNumber(in)
		require.False(t, ok, in)
	}
}

func TestParseMetadata(t *testing.T) {
	for in, want := range map[string]map[string]string{
		"":                      nil,
		"  \t":                  nil,
		"null":                  nil,
		"{}":                    {},
		`{"a":"b","n":1}`:       {"a": "b", "n": "1"},
		` {"a":"b"} `:           {"a": "b"},
		`{"a":"x=y"}`:           {"a": "x=y"},
		"a=b":                   {"a": "b"},
		"a=b,c=d":               {"a": "b", "c": "d"},
		"a=":                    {"a": ""},
		"a=b,a=c":               {"a": "c"},
		"version=1.0,zone=west": {"version": "1.0", "zone": "west"},
	} {
		got, err := wire.ParseMetadata(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"a", "a=b,c", "=b", "a=b=c", "a=b,", ",", "[]", `"text"`, "12", "true", `{"a":{}}`, `{"a":"b"`, `{"a=b`, `[a=b]`} {
		_, err := wire.ParseMetadata(in)
		require.Error(t, err, in)
	}
}
