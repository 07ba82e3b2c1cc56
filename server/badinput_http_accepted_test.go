package server_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What looks odd and is accepted: it is stored byte for byte, whichever way it came.
func TestBadInput_HTTP_Accepted(t *testing.T) {
	n := startBadNode(t)
	for k, c := range []struct {
		name, form string
		stored     string // within the list
	}{
		{"metadata with a plus, a comma and a percent sign", `metadata=` + url.QueryEscape(`{"k":"1+,2","p":"100%","q":"a=b&c;d"}`), `"metadata":{"k":"1+,2","p":"100%","q":"a=b&c;d"}`},
		{"raw metadata", `metadata={"a":"x;y,z"}`, `"metadata":{"a":"x;y,z"}`},
		{"metadata with control characters", `metadata={"k":"a\u0000\u0001\u001f\u007f\n\r\t\b\f"}`, `"metadata":{"k":"a\u0000\u0001\u001f` + "\x7f" + `\n\r\t\u0008\u000c"}`},
		{"metadata with other writing", `metadata={"k":"gr\u00fcn \u4e2d\u6587 \ud83d\ude00 \u2028"}`, `"metadata":{"k":"grün 中文 😀 ` + "\u2028" + `"}`},
		{"metadata with a lone surrogate", `metadata={"k":"\ud800x","l":"\udc00"}`, `"metadata":{"k":"` + "\ufffd" + `x","l":"` + "\ufffd" + `"}`},
		{"metadata that is no text", `metadata={"k":"%FFx%C3"}`, `"metadata":{"k":"` + "\ufffdx\ufffd" + `"}`},
		{"metadata in pairs that are no text", `metadata=k=%FF`, `"metadata":{"k":"` + "\ufffd" + `"}`},
		{"metadata of numbers and booleans", `metadata={"a":1,"b":1.50,"c":true,"d":1e400,"e":-0,"f":12345678901234567890}`, `"metadata":{"a":"1","b":"1.50","c":"true","d":"1e400","e":"-0","f":"12345678901234567890"}`},
		{"metadata with null", `metadata={"a":null,"b":"x"}`, `"metadata":{"b":"x"}`},
		{"metadata null", `metadata=null`, `"metadata":{}`},
		{"metadata with a key twice", `metadata={"a":"1","a":"2"}`, `"metadata":{"a":"2"}`},
		{"pairs with a key twice", `metadata=a=1,a=2`, `"metadata":{"a":"2"}`},
		{"a pair without a value", `metadata=a=`, `"metadata":{"a":""}`},
		{"an empty key", `metadata={"":""}`, `"metadata":{"":""}`},
		{"keys that differ in case", `metadata={"a":"1","A":"2"}`, `"metadata":{"A":"2","a":"1"}`},
		{"white space around JSON", `metadata=%20{%20"a"%20:%20"1"%20}%0A`, `"metadata":{"a":"1"}`},
		{"metadata of 1024 characters", `metadata=k=` + badRepeat("%C3%A9", 1023), `"metadata":{"k":"` + badRepeat("é", 1023) + `"}`},
		{"metadata of 512 pairs of surrogates", `metadata=` + url.QueryEscape(`{"":"`+badRepeat("😀", 512)+`"}`), `"metadata":{"":"` + badRepeat("😀", 512) + `"}`},
		{"metadata that is markup", `metadata={"k":"<script>'\"\/\\"}`, `"metadata":{"k":"<script>'\"/\\"}`},
		{"metadata with an unknown beat time", `metadata={"preserved.heart.beat.interval":"abc"}`, `"instanceHeartBeatInterval":5000`},
		{"metadata with a huge beat time", `metadata={"preserved.heart.beat.timeout":"99999999999999999999"}`, `"instanceHeartBeatTimeOut":15000`},
		{"a weight in another spelling", `weight=1e2`, `"weight":100.0`},
		{"a weight with a sign", `weight=%2B1.5`, `"weight":1.5`},
		{"a weight of minus zero", `weight=-0`, `"weight":0.0`},
		{"a weight below every other", `weight=5e-324`, `"weight":0.` + badRepeat("0", 323) + `5`},
		{"a weight with blanks", `weight=%20%202%09`, `"weight":2.0`},
		{"a blank weight", `weight=%20`, `"weight":1.0`},
		{"a blank cluster", `clusterName=%20&cluster=%09`, `"clusterName":"DEFAULT"`},
		{"blank metadata", `metadata=%20`, `"metadata":{}`},
		{"unknown parameters", `x=1&%00=2&` + badRepeat("y", 1000) + `=3&serviceNam=z`, `"metadata":{}`},
		{"a pair with a bad escape", `x=%zz&%=y&metadata=a=1&y=%`, `"metadata":{"a":"1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := "service-" + strconv.Itoa(k)
			base := "namespaceId=odd&ip=10.0.0.1&port=80&serviceName=" + service
			for way, send := range []func(string) answered{
				func(s string) answered {
					return n.form(t, "POST", "/nacos/v1/ns/instance", base+s+"&"+strings.ReplaceAll(c.form, " ", "%20"), "")
				},
				func(s string) answered { return n.form(t, "POST", "/nacos/v1/ns/instance", "", base+s+"&"+c.form) },
				func(s string) answered { return n.form(t, "POST", "/nacos/v2/ns/instance", "", base+s+"&"+c.form) },
				func(s string) answered {
					return n.form(t, "POST", "/nacos/v1/ns/instance", "", base+s+"&ephemeral=false&"+c.form)
				},
			} {
				suffix := "-" + strconv.Itoa(way)
				a := send(suffix)
				require.Equal(t, 200, a.status, a.body)
				list := n.form(t, "GET", "/nacos/v1/ns/instance/list", "namespaceId=odd&serviceName="+service+suffix, "")
				require.Equal(t, 200, list.status)
				require.True(t, json.Valid([]byte(list.body)), list.body)
				require.Contains(t, list.body, c.stored, "way %d", way)
				require.Contains(t, list.body, `"ip":"10.0.0.1"`)
			}
		})
	}
}

// Bodies that look odd and are read all the same.
func TestBadInput_HTTP_AcceptedBodies(t *testing.T) {
	const urlencoded = "application/x-www-form-urlencoded"
	form, formType := badMultipart(t, "namespaceId", "odd", "serviceName", "parts", "ip", "10.0.0.1", "port", "80", "metadata", "a=1")
	nonText, nonTextType := badMultipart(t, "namespaceId", "odd", "serviceName", "parts", "ip", "10.0.0.1", "port", "80", "metadata", "a=\xff")
	n := startBadNode(t)
	for k, c := range []struct {
		name, query, contentType, body string
		stored                         string // within the list
	}{
		{"a multipart form", "", formType, form, `"metadata":{"a":"1"}`},
		{"a multipart form, and a query that wins", "metadata=a=2", formType, form, `"metadata":{"a":"2"}`},
		{"a multipart form, and a bad escape in the query", "x=%zz", formType, form, `"metadata":{"a":"1"}`},
		{"a multipart form, and a semicolon in the query", "x=1;y=2", formType, form, `"metadata":{"a":"1"}`},
		{"a multipart form with bytes that are no text", "", nonTextType, nonText, `"metadata":{"a":"` + "\ufffd" + `"}`},
		{"a multipart form that goes on", "", formType, form + "x", `"metadata":{"a":"1"}`},
		{"a charset without a name", "", urlencoded + "; charset=", "metadata=a=1", `"metadata":{"a":"1"}`},
		{"a content type that goes on", "", urlencoded + "; x", "metadata=a=1", `"metadata":{"a":"1"}`},
		{"a semicolon behind the content type", "", urlencoded + ";", "metadata=a=1", `"metadata":{"a":"1"}`},
		{"another charset", "", urlencoded + ";charset=GBK", "metadata=a=%D6%D0", `"metadata":{"a":"` + "\ufffd" + `"}`},
		{"a content type in capitals", "", "Application/X-WWW-Form-URLEncoded", "metadata=a=1", `"metadata":{"a":"1"}`},
		{"a query that wins", "metadata=a=1", urlencoded, "metadata=a=2", `"metadata":{"a":"1"}`},
		{"an empty value in the query that wins", "metadata=", urlencoded, "metadata=a=2", `"metadata":{}`},
		{"a bad escape in the query, a good value in the body", "metadata=%zz", urlencoded, "metadata=a=2", `"metadata":{"a":"2"}`},
		{"an unescaped plus", "", urlencoded, `metadata={"a":"1+1"}`, `"metadata":{"a":"1 1"}`},
		{"unescaped bytes that are no text", "", urlencoded, "metadata=a=\xff\xfe", `"metadata":{"a":"` + "\ufffd" + `"}`},
		{"a line break at the end", "", urlencoded, "metadata=a=1\r\n", `"metadata":{"a":"1\r\n"}`},
		{"unescaped control characters", "", urlencoded, "metadata=a=\x00\x01", `"metadata":{"a":"\u0000\u0001"}`},
		{"200,000 unknown parameters", "", urlencoded, badRepeat("x=1&", 200_000) + "metadata=a=1", `"metadata":{"a":"1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := "service-" + strconv.Itoa(k)
			query := "namespaceId=odd&ip=10.0.0.1&port=80&serviceName=" + service + "&" + c.query
			a := n.do(t, "POST", "/nacos/v1/ns/instance", query, c.contentType, strings.NewReader(c.body))
			require.Equal(t, 200, a.status, a.body)
			list := n.form(t, "GET", "/nacos/v1/ns/instance/list", "namespaceId=odd&serviceName="+service, "")
			require.True(t, json.Valid([]byte(list.body)), list.body)
			require.Contains(t, list.body, c.stored)
		})
	}
}

// Heartbeats that look odd and are taken.
func TestBadInput_HTTP_AcceptedBeats(t *testing.T) {
	n := startBadNode(t)
	for k, c := range []struct{ name, beat, stored string }{
		{"numbers as texts", `{"ip":"10.0.0.9","port":"80","weight":"2.5"}`, `"ip":"10.0.0.9","port":80,"weight":2.5,`},
		{"whole numbers with a point", `{"ip":"10.0.0.9","port":80.0,"weight":1e1}`, `"port":80,"weight":10.0,`},
		{"a number as a name", `{"ip":"10.0.0.9","cluster":7}`, `"clusterName":"7"`},
		{"no port", `{"ip":"10.0.0.9"}`, `"port":0,`},
		{"nulls", `{"ip":"10.0.0.9","port":null,"weight":null,"cluster":null,"metadata":null,"ephemeral":null}`, `"port":0,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT"`},
		{"empty texts", `{"ip":"10.0.0.9","port":"","weight":"","cluster":"","ephemeral":""}`, `"port":0,"weight":1.0,`},
		{"a key twice", `{"ip":"10.0.0.8","ip":"10.0.0.9","port":1,"port":2}`, `"ip":"10.0.0.9","port":2,`},
		{"an inner name that is none", `{"ip":"10.0.0.9","serviceName":"a b"}`, `"ip":"10.0.0.9"`},
		{"unknown fields of every type", `{"ip":"10.0.0.9","a":{},"b":[[1]],"c":null,"d":"\ud800","healthy":false,"enabled":false,"instanceId":"x"}`, `#0#DEFAULT#DEFAULT_GROUP@@service-8","ip":"10.0.0.9","port":0,"weight":1.0,"healthy":true,"enabled":true,`},
		{"metadata of every type", `{"ip":"10.0.0.9","metadata":{"a":1,"b":false,"c":null,"d":"\ud83d\ude00\u0000"}}`, `"metadata":{"a":"1","b":"false","d":"😀\u0000"}`},
		{"white space", " \n{ \"ip\" : \"10.0.0.9\" } \t", `"ip":"10.0.0.9"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := "service-" + strconv.Itoa(k)
			form := url.Values{"namespaceId": {"odd"}, "serviceName": {service}, "beat": {c.beat}}.Encode()
			a := n.form(t, "PUT", "/nacos/v1/ns/instance/beat", "", form)
			require.Equal(t, answered{200, "application/json", `{"clientBeatInterval":5000,"code":10200,"lightBeatEnabled":true}`}, a)
			list := n.form(t, "GET", "/nacos/v1/ns/instance/list", "namespaceId=odd&serviceName="+service, "")
			require.Contains(t, list.body, c.stored)
		})
	}
	unknown := answered{200, "application/json", `{"clientBeatInterval":5000,"code":20404,"lightBeatEnabled":true}`}
	before := n.stored(t)
	for _, query := range []string{ // light ones, of nobody
		"serviceName=new", "serviceName=new&ip=&port=", "serviceName=new&ip=10.0.0.1", "serviceName=new&port=80", "serviceName=new&beat=", "serviceName=new&beat=%20&ip=10.0.0.1&port=80",
		"serviceName=new&ip=10.0.0.1&port=80&clusterName=a%20b", "serviceName=new&ip=10.0.0.1&port=80&weight=x&metadata=x",
	} {
		require.Equal(t, unknown, n.form(t, "PUT", "/nacos/v1/ns/instance/beat", "namespaceId=bad&"+query, ""), query)
		require.Equal(t, before, n.stored(t), "%s: something was stored", query)
	}
}

// Changes add up: no number of small ones makes what a large one may not.
func TestBadInput_HTTP_ChangesAddUp(t *testing.T) {
	n := startBadNode(t)
	of := "namespaceId=fixtures&serviceName=ephemeral&metadata="
	for _, path := range []string{"/nacos/v1/ns/instance/metadata/batch", "/nacos/v2/ns/instance/metadata/batch"} {
		require.Equal(t, 200, n.form(t, "PUT", path, "", of+"b="+badRepeat("v", 600)).status)
		before := n.stored(t)
		for _, c := range []bad{
			badLength("Metadata", 1024, "c="+badRepeat("v", 600))[0],
			{"preserved.ip.delete.timeout=1", 21004, badTimes},
		} {
			form := badV1
			if strings.Contains(path, "v2") {
				form = badV2
			}
			requireRefused(t, n.form(t, "PUT", path, "", of+c.value), form, path, c, c.value)
			require.Equal(t, before, n.stored(t), "something was stored")
		}
	}
	// All or nothing: the first instance could take this, the second one cannot.
	require.Equal(t, 200, n.form(t, "POST", "/nacos/v1/ns/instance", "", "namespaceId=fixtures&serviceName=ephemeral&ip=10.0.0.2&port=80&metadata=enableClientBeat=true,preserved.heart.beat.interval=9000").status)
	before := n.stored(t)
	requireRefused(t, n.form(t, "PUT", "/nacos/v1/ns/instance/metadata/batch", "", of+"preserved.heart.beat.timeout=6000"), badV1, "", bad{fault: 21004, text: badTimes}, "")
	require.Equal(t, before, n.stored(t), "something was stored")
	// What an operator laid over before does not count any more when it is replaced.
	target := "namespaceId=fixtures&serviceName=ephemeral&ip=10.0.0.1&port=80&metadata="
	for _, metadata := range []string{"preserved.heart.beat.interval=14000", "preserved.heart.beat.timeout=5000", ""} {
		require.Equal(t, answered{200, "text/plain;charset=UTF-8", "ok"}, n.form(t, "PUT", "/nacos/v1/ns/instance", "", target+metadata))
	}
}

// Names and addresses at the edge of what is legal.
func TestBadInput_HTTP_AcceptedNames(t *testing.T) {
	n := startBadNode(t)
	for _, c := range []struct{ name, namespace, group, service, cluster, ip, port string }{
		{"the longest", badRepeat("n", 64), badRepeat("g", 128), badRepeat("s", 512), badRepeat("c", 64), badRepeat("h", 128), "65535"},
		{"the longest in surrogates", "n", "g", badRepeat("😀", 256), "c", badRepeat("😀", 64), "1"},
		{"the shortest", "-", ".", "!", "-", "h", "0"},
		{"signs", "_-_", "-_:.", `a"\'<>&?/#%+;,=`, "A-0", `a"\'<>&?/#%+;,=`, "080"},
		{"a sign within the name", "n", "g", "a@b@", "c", "::1", "+80"},
		{"other writing", "n", "g", "é-あ-\u2010-\u200b", "c", "é.example", "1"},
		{"Dubbo's", "n", "DEFAULT_GROUP", "providers:com.example.Api:1.0.0:", "c", "host-1.example", "20880"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := url.Values{"namespaceId": {c.namespace}, "groupName": {c.group}, "serviceName": {c.service}, "clusterName": {c.cluster}, "ip": {c.ip}, "port": {c.port}}
			a := n.form(t, "POST", "/nacos/v1/ns/instance", "", p.Encode())
			require.Equal(t, 200, a.status, a.body)
			p.Del("clusterName")
			list := n.form(t, "GET", "/nacos/v1/ns/instance/list", p.Encode(), "")
			var got struct {
				Name, GroupName string
				Hosts           []struct {
					IP                       string
					Port                     int
					ClusterName, ServiceName string
				}
			}
			require.NoError(t, json.Unmarshal([]byte(list.body), &got), list.body)
			port, err := strconv.Atoi(c.port)
			require.NoError(t, err)
			require.Equal(t, c.group+"@@"+c.service, got.Name)
			require.Len(t, got.Hosts, 1)
			require.Equal(t, c.ip, got.Hosts[0].IP)
			require.Equal(t, port, got.Hosts[0].Port)
			require.Equal(t, c.cluster, got.Hosts[0].ClusterName)
			require.Equal(t, c.group+"@@"+c.service, got.Hosts[0].ServiceName)
		})
	}
}

// Numbers that are read leniently never take a reader out of its list.
func TestBadInput_HTTP_Pages(t *testing.T) {
	n := startBadNode(t)
	const all, none = `"doms":["empty","ephemeral","persistent"]`, `"doms":[]`
	for _, c := range []struct{ no, size, want string }{
		{"1", "10", all},
		{"0", "10", all},
		{"-3", "10", all},
		{"abc", "10", all},
		{"1.5", "10", all},
		{"1", "x", none},
		{"1", "0", none},
		{"2", "10", none},
		{"1", "1.5", none},
		{"1", "2147483647", all},
		{"2147483647", "2147483647", all},
		{"9223372036854775807", "1", none},
		{"1", "9223372036854775807", all},
		{"9223372036854775807", "9223372036854775806", all},
		{"4611686018427387904", "4", none},
		{"9223372036854775808", "10", all},
		{"-9223372036854775808", "10", all},
		{"1", "9223372036854775808", none},
	} {
		a := n.form(t, "GET", "/nacos/v1/ns/service/list", "namespaceId=fixtures&pageNo="+c.no+"&pageSize="+c.size, "")
		require.Equal(t, answered{200, "application/json", `{"count":3,` + c.want + "}"}, a, "page %s of %s", c.no, c.size)
		a = n.form(t, "GET", "/nacos/v1/ns/service/subscribers", "namespaceId=fixtures&serviceName=ephemeral&pageNo="+c.no+"&pageSize="+c.size, "")
		require.Equal(t, answered{200, "application/json", `{"count":0,"subscribers":[]}`}, a)
	}
	subscribe := "namespaceId=fixtures&serviceName=ephemeral&clientIP=127.0.0.1&udpPort="
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.http+"/nacos/v1/ns/instance/list?"+subscribe+"9", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("User-Agent", "Nacos-Java-Client:v1.4.2")
	response, err := n.client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	for _, c := range []struct {
		no, size string
		shown    bool
	}{
		{"1", "1", true},
		{"x", "1", true},
		{"1", "x", false},
		{"2", "1", false},
		{"1", "-1", false},
		{"1", "9223372036854775807", true},
		{"2", "9223372036854775807", false},
		{"8589934593", "2147483648", false}, // a product of 2^64
		{"9223372036854775807", "9223372036854775807", false},
	} {
		a := n.form(t, "GET", "/nacos/v1/ns/service/subscribers", "namespaceId=fixtures&serviceName=ephemeral&pageNo="+c.no+"&pageSize="+c.size, "")
		require.Equal(t, c.shown, strings.Contains(a.body, `"port":9`), "page %s of %s: %s", c.no, c.size, a.body)
		require.Contains(t, a.body, `{"count":1,`)
	}
}

// A subscriber that cannot be pushed to gets its list all the same, and no push.
func TestBadInput_HTTP_SubscriberAddress(t *testing.T) {
	n := startBadNode(t)
	before := n.stored(t)
	for _, c := range []struct{ name, ip, port, agent string }{
		{"no address", "", "9", "Nacos-Java-Client:v1.4.2"},
		{"no IP address", "host.example", "9", "Nacos-Java-Client:v1.4.2"},
		{"digits and dots", "999.1.1.1", "9", "Nacos-Java-Client:v1.4.2"},
		{"a list", "10.0.0.1,10.0.0.2", "9", "Nacos-Java-Client:v1.4.2"},
		{"control characters", "10.0.0.1\x00", "9", "Nacos-Java-Client:v1.4.2"},
		{"every address", "0.0.0.0", "9", "Nacos-Java-Client:v1.4.2"},
		{"a group of addresses", "224.0.0.1", "9", "Nacos-Java-Client:v1.4.2"},
		{"a group of IPv6 addresses", "ff02::1", "9", "Nacos-Java-Client:v1.4.2"},
		{"a long address", badRepeat("1", 100_000), "9", "Nacos-Java-Client:v1.4.2"},
		{"port 0", "127.0.0.1", "0", "Nacos-Java-Client:v1.4.2"},
		{"a negative port", "127.0.0.1", "-1", "Nacos-Java-Client:v1.4.2"},
		{"a port that is too large", "127.0.0.1", "65536", "Nacos-Java-Client:v1.4.2"},
		{"a port that is far too large", "127.0.0.1", "9223372036854775807", "Nacos-Java-Client:v1.4.2"},
		{"another agent", "127.0.0.1", "9", "curl/8.0"},
		{"an agent without a version", "127.0.0.1", "9", "Nacos-Java-Client"},
		{"a version that is none", "127.0.0.1", "9", "Nacos-Java-Client:vx"},
		{"a version of too many digits", "127.0.0.1", "9", "Nacos-Java-Client:v0.0." + badRepeat("9", 100_000)},
	} {
		for _, query := range []string{
			"/nacos/v1/ns/instance/list?clientIP=" + url.QueryEscape(c.ip) + "&udpPort=" + c.port,
			"/nacos/v2/ns/instance/list?ip=" + url.QueryEscape(c.ip) + "&port=" + c.port,
		} {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.http+query+"&namespaceId=fixtures&serviceName=ephemeral", http.NoBody)
			require.NoError(t, err)
			request.Header.Set("User-Agent", c.agent)
			response, err := n.client.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, errors.Join(err, response.Body.Close()))
			require.Equal(t, 200, response.StatusCode, c.name)
			require.Contains(t, string(body), `"ip":"10.0.0.1"`, c.name)
			require.Equal(t, before, n.stored(t), "%s: something was stored", c.name)
		}
	}
}
