package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server/wire"
)

const fuzzForm = "application/x-www-form-urlencoded"

func fuzzRequest(method, query, contentType, body string) *http.Request {
	return &http.Request{
		Method: method, URL: &url.URL{Path: "/", RawQuery: query}, Header: http.Header{"Content-Type": {contentType}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// The query wins, nothing is lost or made up, and what the library reads without an
// error is read alike.
func FuzzParse(f *testing.F) {
	const parts = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n2\r\n--x--\r\n"
	for _, s := range [][3]string{
		{"", "", ""},
		{"a=1&b=2", fuzzForm, "a=3&c=4"},
		{"a", fuzzForm, "a=b"},
		{"a=1;b=2&&=x&y=&", fuzzForm + ";charset=utf-8", `beat={"ip":"10.0.0.1","x":"1+1"}&c=100%&d=%zz&e=%u0041`},
		{"a=%20+%2B&%61=2&a=3", "Application/X-WWW-Form-Urlencoded; x", "\xff=\xfe&%FF=%C3&\x00=\x00"},
		{"x=%zz", "multipart/form-data; boundary=x", parts},
		{"a=q", "multipart/form-data; boundary=x", parts + parts},
		{"", "multipart/form-data", parts},
		{"a=1", "application/json", `{"a":2}`},
		{"a=1", "/;;", "a=2"},
		{strings.Repeat("&", 20), fuzzForm, strings.Repeat("a=1&", 10)},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, query, contentType, body string) {
		p := parse(fuzzRequest("POST", query, contentType, body))
		fromQuery, fromBody := params{}, params{}
		fromQuery.add(query)
		fromBody.add(body)
		for k, v := range p {
			require.NotEmpty(t, k)
			require.True(t, utf8.ValidString(k) && utf8.ValidString(v), "%q: %q", k, v)
		}
		for k, v := range fromQuery {
			require.Equal(t, v, p[k], "the query wins: %q", k)
		}
		form := parse(fuzzRequest("PUT", query, fuzzForm, body))
		want := maps.Clone(fromBody)
		maps.Copy(want, fromQuery)
		require.Equal(t, want, form)

		// Written as a form and read again it is the same, from either place.
		values := url.Values{}
		for k, v := range p {
			values.Set(k, v)
		}
		require.Equal(t, p, parse(fuzzRequest("POST", values.Encode(), "", "")))
		require.Equal(t, p, parse(fuzzRequest("DELETE", "", fuzzForm, values.Encode())))

		if library, err := url.ParseQuery(query); err == nil && utf8.ValidString(query) {
			for k, v := range library {
				if k != "" && utf8.ValidString(k) {
					require.Equal(t, strings.ToValidUTF8(v[0], "\ufffd"), fromQuery[k])
				}
			}
			delete(library, "")
			require.LessOrEqual(t, len(fromQuery), len(library))
		}
	})
}

// Every reader of parameters answers or refuses with an error of its own.
func FuzzReaders(f *testing.F) {
	for _, s := range []string{
		"", "serviceName=s&ip=10.0.0.1&port=80", "serviceName=G1@@s&ip=h&port=0&weight=1e2&metadata=a=1&healthy=no&ephemeral=false&clusterName=c&enabled=t",
		"serviceName=@@s", "serviceName=G1@@", "serviceName=%20", "serviceName=a@@b@@c&groupName=@", "key=n%23%23G1@@s", "key=@@", "key=%23%23@@",
		`instances=[{"ip":"10.0.0.1","port":80},null]&metadata={"a":"b"}`, `selector={"type":"label","expression":"CONSUMER.label.a = PROVIDER.label.a"}&protectThreshold=0.5`,
		"selector=%257B%257D", "selector=%25zz", "pageNo=9223372036854775807&pageSize=-1", "weight=NaN&protectThreshold=Inf", "entry=x&value=", "namespaceId=%00&groupName=%FF", "weight=0x1p3&port=%2B80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		p := params{}
		p.add(query)
		q := &request{fuzzRequest("GET", query, "", ""), p}
		own := func(err error) bool {
			var invalid *naming.InvalidError
			var filter *filterError
			switch {
			case err == nil:
				return true
			case errors.As(err, &invalid):
				require.NotEmpty(t, invalid.Text)
			case errors.As(err, &filter):
				require.Equal(t, 400, filter.status)
				require.True(t, json.Valid(filter.answer("/\xff").body))
			default:
				require.NoError(t, err)
			}
			return false
		}
		shown := func(svc naming.ServiceKey, i *naming.Instance, err error) {
			if !own(err) || naming.CheckKey(svc) != nil || naming.CheckInstance(i, naming.DefaultMetadataLimit) != nil {
				return
			}
			info := &naming.ServiceInfo{Key: svc, Hosts: []*naming.Instance{i}}
			require.True(t, json.Valid(wire.ServiceInfoHTTP(info)), "%s", wire.ServiceInfoHTTP(info))
			require.True(t, json.Valid(append(append([]byte(`{"x":1`), appendDetail(nil, i)...), '}')))
		}
		svc, i, err := q.instance(true)
		shown(svc, i, err)
		svc, i, err = q.instanceV2(false)
		shown(svc, i, err)
		_, err = q.groupedV2()
		own(err)
		_, err = q.change()
		own(err)
		settings, err := q.settings(naming.KindNone)
		if own(err) {
			s := appendSettings([]byte(`{"x":1`), &settings)
			finite := settings.ProtectThreshold-settings.ProtectThreshold == 0 // the registry refuses what is not
			require.True(t, !finite || json.Valid(append(s, '}')), "%s", s)
		}
		_, _, err = q.clusterForm(lackingForm)
		own(err)
		_, _, err = q.redirect()
		own(err)
		_, err = q.search("hasIpCount")
		own(err)
		_, _, err = q.pageV3(1)
		own(err)
		_, err = statusKey(p["key"])
		own(err)
		_, err = instanceKeys(p["instances"])
		own(err)
		for _, name := range []string{"pageNo", "pageSize", "healthy"} {
			_, err = q.integer(name, 1)
			own(err)
			_, err = q.boolean(name, true)
			own(err)
		}
		pushable(query, naming.DefaultSwitches())
	})
}

// A heartbeat's instance that the validator lets pass is shown whole.
func FuzzBeat(f *testing.F) {
	for _, s := range []string{
		`{"port":9080,"ip":"10.42.7.19","weight":1.0,"serviceName":"G1@@s","cluster":"DEFAULT","metadata":{"zone":"east"},"scheduled":false,"period":5000,"stopped":false}`,
		`{"ip":"10.0.0.9","port":"80","weight":"2.5","cluster":7,"ephemeral":"true"}`, `{"ip":"\u0000"}`, `{"ip":"h","ephemeral":false}`, `{"ip":"h","weight":1e999}`,
		`{"ip":"h","metadata":{"a":{}}}`, `{"ip":"h","metadata":{"a":"\ud800","b":null,"c":1}}`, `{"ip":"a","ip":"b","IP":"c"}`, "null", "{}", "[]", "", "{\"ip\":\"\xff\"}", `{"ip":"h","clusterName":"x","instanceId":"y","healthy":false}`,
	} {
		f.Add(s, "DEFAULT")
	}
	f.Add(`{"ip":"h"}`, "a b")
	f.Fuzz(func(t *testing.T, raw, cluster string) {
		i, err := beatInstance(raw, cluster)
		if err != nil {
			var invalid *naming.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "beat", invalid.Field)
			require.Nil(t, i)
			return
		}
		require.True(t, i.Ephemeral && i.Healthy && i.Enabled)
		require.Empty(t, i.ID)
		require.NotEmpty(t, i.IP)
		if naming.CheckInstance(i, naming.DefaultMetadataLimit) != nil {
			return
		}
		svc := naming.ServiceKey{Namespace: "n", Group: "g", Name: "s"}
		var shown struct{ Hosts []wire.Instance }
		body := wire.ServiceInfoHTTP(&naming.ServiceInfo{Key: svc, Hosts: []*naming.Instance{i}})
		require.NoError(t, json.NewDecoder(bytes.NewReader(body)).Decode(&shown), "%s", body)
		back := shown.Hosts[0].Naming(true)
		back.ID = ""
		require.True(t, i.Equal(back), "%+v\n%s", i, body)
	})
}
