package httpapi

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

const form = "application/x-www-form-urlencoded"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		method, query, contentType, body string
		want                             params
	}{
		"query":                                {"GET", "a=1&b=2", "", "", params{"a": "1", "b": "2"}},
		"empty query":                          {"GET", "", "", "", params{}},
		"form of each method":                  {"DELETE", "", form, "a=1", params{"a": "1"}},
		"PATCH form":                           {"PATCH", "", form, "a=1", params{"a": "1"}},
		"the query wins":                       {"POST", "a=query&b=2", form, "a=body&c=3", params{"a": "query", "b": "2", "c": "3"}},
		"an empty value in the query wins too": {"POST", "a=", form, "a=body", params{"a": ""}},
		"the first of two":                     {"GET", "a=1&a=2", "", "", params{"a": "1"}},
		"escapes":                              {"GET", "serviceName=G%40%40s&m=%7B%22k%22%3A1%7D&p=a+b%2Bc", "", "", params{"serviceName": "G@@s", "m": `{"k":1}`, "p": "a b+c"}},
		"nothing is escaped": {
			"PUT", "", form + ";charset=utf-8",
			`namespaceId=public&serviceName=G@@s&beat={"ip":"10.0.0.1","port":80,"metadata":{"a":"x,y"}}`,
			params{"namespaceId": "public", "serviceName": "G@@s", "beat": `{"ip":"10.0.0.1","port":80,"metadata":{"a":"x,y"}}`},
		},
		"only the first = separates":    {"GET", "metadata=a=b,c=d", "", "", params{"metadata": "a=b,c=d"}},
		"; is part of a value":          {"GET", "a=1;b=2&c=3", "", "", params{"a": "1;b=2", "c": "3"}},
		"no value":                      {"GET", "a&b=&c", "", "", params{"a": "", "b": "", "c": ""}},
		"no name":                       {"GET", "=1&&a=2&=", "", "", params{"a": "2"}},
		"a malformed escape is dropped": {"GET", "a=100%&b=2&c%zz=3&d=%4", "", "", params{"b": "2"}},
		"so is one in a raw body":       {"POST", "", form, "metadata=a=100%&b=2", params{"b": "2"}},
		"a malformed one leaves room":   {"GET", "a=%zz&a=2", "", "", params{"a": "2"}},
		"no UTF-8":                      {"GET", "a=%ff&b=x%c3y", "", "", params{"a": "\ufffd", "b": "x\ufffdy"}},
		"no UTF-8, raw":                 {"POST", "", form, "a=\xff&\xff=1", params{"a": "\ufffd", "\ufffd": "1"}},
		"UTF-8":                         {"GET", "a=%E6%9C%8D%E5%8A%A1", "", "", params{"a": "服务"}},
		"blanks stay":                   {"GET", "a=%20x%20", "", "", params{"a": " x "}},
		"JSON is no form":               {"POST", "a=1", "application/json", `{"b":2}`, params{"a": "1"}},
		"text is no form":               {"POST", "a=1", "text/plain", "b=2", params{"a": "1"}},
		"no content type":               {"POST", "a=1", "", "b=2", params{"a": "1"}},
		"content type that is none":     {"POST", "a=1", ";;", "b=2", params{"a": "1"}},
		"content type in capitals":      {"POST", "", "Application/X-WWW-Form-Urlencoded; charset=UTF-8", "b=2", params{"b": "2"}},
		"malformed attribute":           {"POST", "", form + "; charset=", "b=2", params{"b": "2"}},
		"multipart without a boundary":  {"POST", "a=1", "multipart/form-data", "b=2", params{"a": "1"}},
		"at the limit":                  {"POST", "a=1", form, "b=" + strings.Repeat("x", maxForm-2), params{"a": "1", "b": strings.Repeat("x", maxForm-2)}},
		"beyond the limit all is lost":  {"POST", "a=1", form, "b=2&c=" + strings.Repeat("x", maxForm), params{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/", strings.NewReader(c.body))
			r.URL.RawQuery = c.query
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
			require.Equal(t, c.want, parse(r))
		})
	}
}

func TestParse_Multipart(t *testing.T) {
	body := func(large int) (string, *bytes.Buffer) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		require.NoError(t, w.WriteField("a", "body"))
		require.NoError(t, w.WriteField("b", "first"))
		require.NoError(t, w.WriteField("b", "second"))
		require.NoError(t, w.WriteField("bad", "\xff"))
		file, err := w.CreateFormFile("file", "name")
		require.NoError(t, err)
		_, err = file.Write(make([]byte, large))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return w.FormDataContentType(), &b
	}
	for name, c := range map[string]struct {
		method string
		large  int
		cut    bool
		want   params
	}{
		"post":         {"POST", 10, false, params{"a": "query", "b": "first", "bad": "\ufffd"}},
		"put is none":  {"PUT", 10, false, params{"a": "query"}},
		"too large":    {"POST", maxForm, false, params{"a": "query"}},
		"cut in parts": {"POST", 10, true, params{"a": "query"}},
	} {
		t.Run(name, func(t *testing.T) {
			contentType, b := body(c.large)
			if c.cut {
				b.Truncate(b.Len() - 30)
			}
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/?a=query", b)
			r.Header.Set("Content-Type", contentType)
			require.Equal(t, c.want, parse(r))
		})
	}
}

func TestParse_ABodyThatBreaksOff(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/?a=1", io.MultiReader(strings.NewReader("b=2"), iotest.ErrReader(errors.New("gone"))))
	r.Header.Set("Content-Type", form)
	require.Equal(t, params{"a": "1"}, parse(r))
}

func TestParams_Text(t *testing.T) {
	p := params{"a": " x ", "blank": " \t", "empty": ""}
	require.Equal(t, " x ", p.text("a", "def"))
	require.Equal(t, "x", p.word("a"))
	for _, name := range []string{"blank", "empty", "missing"} {
		require.Equal(t, "def", p.text(name, "def"))
		require.Empty(t, p.word(name))
		_, err := p.required(name)
		var invalid *naming.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, naming.FaultMissing, invalid.Fault)
		require.Equal(t, "Param '"+name+"' is required.", invalid.Text)
	}
	v, err := p.required("a")
	require.NoError(t, err)
	require.Equal(t, " x ", v)
}

func TestParams_Booleans(t *testing.T) {
	for _, c := range []struct {
		value   string
		v1      bool // with default false
		v2, bad bool
	}{
		{"true", true, true, false},
		{"TRUE", true, true, false},
		{" true ", true, true, false},
		{"yes", true, true, false},
		{"on", true, true, false},
		{"y", true, false, true},
		{"t", true, false, true},
		{"1", false, true, false},
		{"false", false, false, false},
		{"no", false, false, false},
		{"off", false, false, false},
		{"0", false, false, false},
		{"nonsense", false, false, true},
	} {
		p := params{"b": c.value}
		require.Equal(t, c.v1, p.flag("b", false), c.value)
		require.Equal(t, c.v1, p.flag("b", true), "a value that is there counts: %q", c.value)
		got, err := p.boolean("b", !c.v2)
		require.Equal(t, c.bad, err != nil, c.value)
		if !c.bad {
			require.Equal(t, c.v2, got, c.value)
		}
	}
	for _, value := range []string{"", "  "} {
		p := params{"b": value}
		require.True(t, p.flag("b", true))
		got, err := p.boolean("b", true)
		require.NoError(t, err)
		require.True(t, got)
	}
}

func TestParams_Numbers(t *testing.T) {
	p := params{"n": " 12 ", "f": "1.5", "x": "abc", "big": "9223372036854775808", "blank": " "}
	n, err := p.integer("n", 1)
	require.NoError(t, err)
	require.Equal(t, int64(12), n)
	f, err := p.number("f", 1)
	require.NoError(t, err)
	require.InDelta(t, 1.5, f, 0)
	for _, name := range []string{"blank", "missing"} {
		n, err = p.integer(name, 7)
		require.NoError(t, err)
		require.Equal(t, int64(7), n)
		f, err = p.number(name, 7)
		require.NoError(t, err)
		require.InDelta(t, 7, f, 0)
	}
	_, err = p.integer("x", 1)
	require.EqualError(t, err, "Param 'x' is illegal, 'abc' should be an integer.")
	_, err = p.integer("f", 1)
	require.Error(t, err)
	_, err = p.integer("big", 1)
	require.Error(t, err)
	_, err = p.number("x", 1)
	require.EqualError(t, err, "Param 'x' is illegal, 'abc' should be a number.")
	require.ErrorContains(t, badValue("x", strings.Repeat("é", 100), "short"), "'"+strings.Repeat("é", 32)+"...' should be short.")
}
