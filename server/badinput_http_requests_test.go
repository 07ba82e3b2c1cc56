package server_test

import (
	"bufio"
	"bytes"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// badMultipart returns a form of that kind, and its content type.
func badMultipart(t *testing.T, pairs ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for k := 0; k < len(pairs); k += 2 {
		require.NoError(t, w.WriteField(pairs[k], pairs[k+1]))
	}
	require.NoError(t, w.Close())
	return b.String(), w.FormDataContentType()
}

// Bodies and queries that are not what they should be.
func TestBadInput_HTTP_Requests(t *testing.T) {
	const (
		register = "/nacos/v1/ns/instance"
		urlencoded, jsonType,
		text = "application/x-www-form-urlencoded", "application/json", "text/plain"
		good      = "namespaceId=bad&serviceName=new&ip=10.0.0.1&port=80"
		noService = "Param 'serviceName' is required."
		noIP      = "Param 'ip' is required."
		noPort    = "Param 'port' is required."
		noMeta    = "Param 'metadata' is required."
	)
	missing := func(text string) bad { return bad{fault: 10000, text: text} }
	form, formType := badMultipart(t, "namespaceId", "bad", "serviceName", "new", "ip", "10.0.0.1", "port", "80")
	nonText, nonTextType := badMultipart(t, "namespaceId", "bad", "serviceName", "\xff", "ip", "10.0.0.1", "port", "80")
	large, largeType := badMultipart(t, "namespaceId", "bad", "serviceName", "new", "ip", "10.0.0.1", "port", "80", "x", badRepeat("a", 3_000_000))
	n := startBadNode(t)
	before := n.stored(t)
	for _, c := range []struct {
		name, method, path, query, contentType, body string
		want                                         bad
	}{
		{"a JSON body", "POST", register, "", jsonType, `{"serviceName":"new","ip":"10.0.0.1","port":80}`, missing(noService)},
		{"a text body", "POST", register, "", text, good, missing(noService)},
		{"no content type", "POST", register, "", "", good, missing(noService)},
		{"an unreadable content type", "POST", register, "", "/;;", good, missing(noService)},
		{"a multipart form in a PUT", "PUT", register, "", formType, form, missing(noService)},
		{"a multipart form without a boundary", "POST", register, "", "multipart/form-data", form, missing(noService)},
		{"a multipart form with another boundary", "POST", register, "", "multipart/form-data; boundary=x", form, missing(noService)},
		{"half a multipart form", "POST", register, "", formType, form[:len(form)/2], missing(noService)},
		{"a multipart form that is none", "POST", register, "", formType, good, missing(noService)},
		{"a multipart form with a name that is no text", "POST", register, "", nonTextType, nonText, badChars("serviceName", "")[0]},
		{"a multipart form of 3 MB", "POST", register, "", largeType, large, missing(noService)},
		{"a form of 3 MB", "POST", register, "", urlencoded, good + "&x=" + badRepeat("a", 3_000_000), missing(noService)},
		{"a form of 3 MB, and a query", "POST", register, "namespaceId=bad&serviceName=new", urlencoded, "ip=10.0.0.1&port=80&x=" + badRepeat("a", 3_000_000), missing(noIP)},
		{"a form of 3 MB of parameters", "PUT", register, "", urlencoded, good + badRepeat("&x=1", 750_000), missing(noService)},
		{"a form of 2 MB of parameters", "POST", register, "", urlencoded, badRepeat("&x=1", 500_000) + "&serviceName=new", missing(noIP)},
		{"a name of 2 MB", "POST", register, "", urlencoded, "ip=10.0.0.1&port=80&serviceName=" + badRepeat("a", 2_000_000), badLength("serviceName", 512, "")[0]},
		{"metadata of 2 MB", "POST", register, "", urlencoded, good + "&metadata=a=" + badRepeat("v", 2_000_000), badLength("Metadata", 1024, "")[0]},
		{"a selector of 2 MB", "POST", "/nacos/v1/ns/service", "", urlencoded, "namespaceId=bad&serviceName=new&selector=" + badRepeat("x", 2_000_000), badLength("selector", 64<<10, "")[0]},
		{"an empty body", "POST", register, "", urlencoded, "", missing(noService)},
		{"a body of separators", "POST", register, "", urlencoded, "&&=&==&", missing(noService)},
		{"a body without names", "POST", register, "", urlencoded, "=new&=80", missing(noService)},
		{"names in another case", "POST", register, "servicename=new&IP=10.0.0.1&Port=80", "", "", missing(noService)},
		{"semicolons", "POST", register, "serviceName=new;ip=10.0.0.1;port=80", "", "", missing(noIP)},
		{"a cut escape", "POST", register, "", urlencoded, "namespaceId=bad&serviceName=new&ip=10.0.0.1&port=80%", missing(noPort)},
		{"an escape that is none", "POST", register, "", urlencoded, "namespaceId=bad&serviceName=%zz&ip=10.0.0.1&port=80", missing(noService)},
		{"an escape of another kind", "POST", register, "", urlencoded, "namespaceId=bad&serviceName=%u0041&ip=10.0.0.1&port=80", missing(noService)},
		{"an escape that is none, in a name", "POST", register, "", urlencoded, "namespaceId=bad&serviceName%=new&ip=10.0.0.1&port=80", missing(noService)},
		{"metadata that is dropped", "PUT", "/nacos/v1/ns/instance/metadata/batch", "", urlencoded, "namespaceId=fixtures&serviceName=ephemeral&metadata=a=100%", missing(noMeta)},
		{"a query that hides a good body", "POST", register, "port=x", urlencoded, good, badTexts(asParam, badPort, "")[0]},
		{"a blank in the query hides the body", "POST", register, "ip=%20", urlencoded, good, missing(noIP)},
		{"an empty value in the query hides the body", "POST", register, "serviceName", urlencoded, good, missing(noService)},
		{"the first of two values counts", "POST", register, "port=x&port=80&serviceName=new&ip=10.0.0.1", "", "", badTexts(asParam, badPort, "")[0]},
		{"the first of two values counts in a body", "POST", register, "", urlencoded, "port=x&" + good, badTexts(asParam, badPort, "")[0]},
		{"a group with a separator", "POST", register, good + "&groupName=a@@b", "", "", badChars("serviceName", "")[0]},
		{"a group with the character of the separator", "POST", register, good + "&groupName=@g@", "", "", badChars("serviceName", "")[0]},
		{"a group in the name, a bad one beside it", "POST", register, "namespaceId=bad&serviceName=G%201@@new&ip=10.0.0.1&port=80&groupName=G1", "", "", badChars("group", "")[0]},
		{"a beat that an ampersand cuts", "PUT", register + "/beat", "", urlencoded, `namespaceId=bad&serviceName=G1@@new&beat={"ip":"10.0.0.1","port":80,"metadata":{"a":"x&y=1"}}`, bad{fault: 20002, text: badBeat}},
		{"a beat whose parameter is no address", "PUT", register + "/beat", "namespaceId=bad&serviceName=new&ip=10.0.0.1%20", urlencoded, `beat={"ip":"10.0.0.1","port":80}`, badChars("ip", "")[0]},
		{"a switch without its value", "PUT", "/nacos/v1/ns/operator/switches", "entry=lightBeatEnabled", "", "", missing("Parameter 'value' is missing")},
		{"a switch without anything", "PUT", "/nacos/v1/ns/operator/switches", "", "", "", missing("Parameter 'entry' is missing")},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := n.do(t, c.method, c.path, c.query, c.contentType, strings.NewReader(c.body))
			requireRefused(t, a, badV1, c.path, c.want, c.name)
			require.Equal(t, before, n.stored(t), "something was stored")
			chunked := n.do(t, c.method, c.path, c.query, c.contentType, io.MultiReader(strings.NewReader(c.body))) // of unknown length
			requireRefused(t, chunked, badV1, c.path, c.want, c.name)
			require.Equal(t, before, n.stored(t), "something was stored")
		})
	}
}

// Requests that no HTTP library writes.
func TestBadInput_HTTP_Lines(t *testing.T) {
	n := startBadNode(t)
	before := n.stored(t)
	const list = "/nacos/v1/ns/instance/list?namespaceId=fixtures&serviceName=ephemeral"
	for _, c := range []struct {
		name, head, body string
		status           int
		text             string // within the answer
	}{
		{"a bad escape in the path", "GET /nacos/v1/ns/instance/list%zz HTTP/1.1\r\nHost: x\r\n", "", 400, ""},
		{"an unknown path", "GET /nacos/v1/ns/nope HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a path in another case", "GET /nacos/v1/NS/instance/list HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a slash at the end", "GET /nacos/v1/ns/instance/list/ HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a double slash", "GET /nacos//v1/ns/instance/list HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"dots in the path", "GET /nacos/v1/ns/service/../instance/list HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"escaped dots in the path", "GET /nacos/v1/ns/%2e%2e/ns/instance/list HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a semicolon in the path", "GET /nacos/v1/ns/instance/list;x HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a NUL in the path", "GET /nacos/%00 HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a path that is no text", "GET /nacos/%ff HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a path of 100 KB", "GET /nacos/" + badRepeat("a", 100_000) + " HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a path of 2 MB", "GET /nacos/" + badRepeat("a", 2_000_000) + " HTTP/1.1\r\nHost: x\r\n", "", 431, ""},
		{"a query of 3 MB", "GET " + list + "&x=" + badRepeat("a", 3_000_000) + " HTTP/1.1\r\nHost: x\r\n", "", 431, ""},
		{"a header of 3 MB", "GET " + list + " HTTP/1.1\r\nHost: x\r\nX: " + badRepeat("a", 3_000_000) + "\r\n", "", 431, ""},
		{"an empty key in the path", "GET /nacos/v2/ns/instance/statuses/ HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a key of two parts", "GET /nacos/v2/ns/instance/statuses/a/b HTTP/1.1\r\nHost: x\r\n", "", 404, "No message available"},
		{"a NUL in the query", "GET " + list + "\x00 HTTP/1.1\r\nHost: x\r\n", "", 400, ""},
		{"a blank in the query", "GET " + list + " x HTTP/1.1\r\nHost: x\r\n", "", 400, ""},
		{"a line break in the query", "GET " + list + "\r\nx HTTP/1.1\r\nHost: x\r\n", "", 400, ""},
		{"raw bytes in the query", "GET " + list + "\xff HTTP/1.1\r\nHost: x\r\n", "", 400, "Param 'serviceName' is illegal"},
		{"no host", "GET " + list + " HTTP/1.1\r\n", "", 400, ""},
		{"two hosts", "GET " + list + " HTTP/1.1\r\nHost: x\r\nHost: y\r\n", "", 400, ""},
		{"another version", "GET " + list + " HTTP/9.9\r\nHost: x\r\n", "", 505, ""},
		{"no version", "GET " + list + "\r\n", "", 400, ""},
		{"no method", " " + list + " HTTP/1.1\r\nHost: x\r\n", "", 400, ""},
		{"a method of odd characters", "G@T " + list + " HTTP/1.1\r\nHost: x\r\n", "", 400, ""},
		{"CONNECT", "CONNECT /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\n", "", 405, "Method 'CONNECT' is not supported."},
		{"a header without a colon", "GET " + list + " HTTP/1.1\r\nHost: x\r\nX\r\n", "", 400, ""},
		{"a control character in a header", "GET " + list + " HTTP/1.1\r\nHost: x\r\nX: \x01\r\n", "", 400, ""},
		{"two lengths", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "ab", 400, ""},
		{"a negative length", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n", "", 400, ""},
		{"a length and chunks", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400, "Param 'serviceName' is required."},
		{"another encoding", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n", "", 501, ""},
		{"broken chunks", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n", "zz\r\nserviceName=new&ip=10.0.0.1&port=80", 400, "Param 'serviceName' is required."},
		{"a body that ends early", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n", "namespaceId=bad&serviceName=new&ip=10.0.0.1&port=80", 400, "Param 'serviceName' is required."},
		{"a compressed body", "POST /nacos/v1/ns/instance HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n", "\x1f\x8b\x08\x00", 400, "Param 'serviceName' is required."},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.http)
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, conn.SetDeadline(time.Now().Add(badWait)))
			_, _ = io.WriteString(conn, c.head+"\r\n"+c.body) // the server may refuse before it has read everything
			_ = conn.(*net.TCPConn).CloseWrite()
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			body, err := httputil.DumpResponse(response, true)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, c.status, response.StatusCode, "%s", body)
			require.Contains(t, string(body), c.text)
			require.Equal(t, before, n.stored(t), "something was stored")
		})
	}
}
