package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/server"
)

// A bad request is refused in the protocol's words, is never answered with a 5xx,
// and leaves nothing behind. The tables of this file say what is bad: one line for
// each endpoint, and one for each bad value of each kind of parameter. Texts are
// those of http.md 1.5 to 1.7 where they fix them.

// badWait bounds what happens in the background.
const badWait = 20 * time.Second

// badNode is a node with some services that bad requests are aimed at.
type badNode struct {
	http, grpc string
	client     *http.Client
	dials      atomic.Int64 // connections that client made
	also       []string     // further lists that stored looks at
}

// startBadNode starts a node. When the test ends, the node must not have panicked.
func startBadNode(t *testing.T) *badNode {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.Node, cfg.DataDir, cfg.Bind, cfg.Port = "n1", t.TempDir(), "127.0.0.1", 0
	cfg.Idle, cfg.EmptyServiceExpiry = time.Hour, time.Hour // nothing changes by itself
	panics := new(badPanics)
	node, err := server.New(cfg, "test", slog.New(slog.NewTextHandler(panics, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, node.Close())
		require.Empty(t, panics.found())
	})
	require.NoError(t, node.Start())
	require.Eventually(t, func() bool { return node.Ready() == nil }, badWait, time.Millisecond)

	n := &badNode{http: node.HTTPAddr(), grpc: node.GRPCAddr()}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	n.client = &http.Client{Transport: transport, Timeout: badWait}
	n.fill(t)
	return n
}

// fill makes the services that requests are aimed at, where they are not there.
func (n *badNode) fill(t *testing.T) {
	t.Helper()
	_, port, err := net.SplitHostPort(n.http)
	require.NoError(t, err)
	for _, c := range [...]struct{ path, form string }{
		{"instance", "serviceName=ephemeral&ip=10.0.0.1&port=80&weight=2&metadata=enableClientBeat=true,a=1"},
		{"service", "serviceName=persistent&protectThreshold=0.5&metadata=owner=me"},
		{"instance", "serviceName=persistent&ip=127.0.0.1&ephemeral=false&port=" + port},
		{"service", "serviceName=empty&protectThreshold=0.25"},
	} {
		a := n.form(t, "POST", "/nacos/v1/ns/"+c.path, "", "namespaceId=fixtures&"+c.form)
		require.True(t, a.status == 200 || strings.Contains(a.body, "already exists"), "%s: %s", c.form, a.body)
	}
}

// badPanics keeps what was logged about panics.
type badPanics struct {
	mu    sync.Mutex
	lines []string
}

func (p *badPanics) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("panic")) {
		p.mu.Lock()
		p.lines = append(p.lines, string(b))
		p.mu.Unlock()
	}
	return len(b), nil
}

func (p *badPanics) found() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// answered is what matters of an answer.
type answered struct {
	status            int
	contentType, body string
}

// do sends a request whose query is taken as it stands.
func (n *badNode) do(t *testing.T, method, path, query, contentType string, body io.Reader) answered {
	t.Helper()
	target := "http://" + n.http + path
	if query != "" {
		target += "?" + query
	}
	request, err := http.NewRequestWithContext(t.Context(), method, target, body)
	require.NoError(t, err)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := n.client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answered{response.StatusCode, response.Header.Get("Content-Type"), string(text)}
}

// form sends a form; without one there is no body.
func (n *badNode) form(t *testing.T, method, path, query, form string) answered {
	t.Helper()
	if form == "" {
		return n.do(t, method, path, query, "", nil)
	}
	return n.do(t, method, path, query, "application/x-www-form-urlencoded", strings.NewReader(form))
}

// stored is everything that a bad request could change: all counts, the switches,
// and the services that requests are aimed at, with the times of their last change.
func (n *badNode) stored(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, target := range append([]string{
		"operator/metrics?onlyStatus=false",
		"operator/switches?",
		"instance/list?namespaceId=fixtures&serviceName=ephemeral",
		"instance/list?namespaceId=fixtures&serviceName=persistent",
		"service?namespaceId=fixtures&serviceName=persistent",
		"service?namespaceId=fixtures&serviceName=empty",
	}, n.also...) {
		path, query, _ := strings.Cut(target, "?")
		a := n.do(t, "GET", "/nacos/v1/ns/"+path, query, "", nil)
		require.Equal(t, 200, a.status, "%s: %s", target, a.body)
		text, _, _ := strings.Cut(a.body, `,"cpu":`)
		b.WriteString(text + "\n")
	}
	return b.String()
}

// Ways in which a value breaks a rule, which decide the form of the answer; any
// other one is a code of a v2 result.
const (
	asParam  = -1 // plain text on every path
	asFilter = -2 // the JSON of what a filter refuses
)

// bad is one bad value and how it is refused. Only the beginning of a text that
// ends in an ellipsis is fixed: the rest is a library's.
type bad struct {
	value string
	fault int
	text  string
}

func badChars(field string, values ...string) (out []bad) {
	for _, v := range values {
		out = append(out, bad{v, asParam, "Param '" + field + "' is illegal, illegal characters should not appear in the param."})
	}
	return out
}

func badLength(field string, limit int, values ...string) (out []bad) {
	for _, v := range values {
		out = append(out, bad{v, asParam, "Param '" + field + "' is illegal, the param length should not exceed " + strconv.Itoa(limit) + "."})
	}
	return out
}

func badTexts(fault int, text string, values ...string) (out []bad) {
	for _, v := range values {
		out = append(out, bad{v, fault, strings.ReplaceAll(text, "{}", v)})
	}
	return out
}

const (
	badName     = "Param 'serviceName' is illegal, it should be format as 'groupName@@serviceName'"
	badPort     = "Param 'port' is illegal, the value should be between 0 and 65535."
	badWeight   = "instance format invalid: The weights range from 0.0 to 10000.0"
	badMetadata = "Param 'metadata' is illegal, it should be a flat JSON object of strings or k=v pairs separated by commas: …"
	badBeat     = "Param 'beat' is illegal, it should be a JSON object with ip and port: …"
	badSelector = "Param 'selector' is illegal, it should be a JSON object with type and expression: …"
	badList     = "Param 'instances' is illegal, it should be a JSON list of objects with ip and port: …"
	badTimes    = "Instance 'heart beat interval' must less than 'heart beat timeout' and 'ip delete timeout'."
)

func badRepeat(s string, n int) string { return strings.Repeat(s, n) }

// badDeep is JSON that nests too deeply for any reader.
func badDeep() string { return `{"a":` + badRepeat("[", 20_000) + badRepeat("]", 20_000) + "}" }

// badValues returns the bad values of a kind of parameter. The kind is the
// parameter's name where one rule holds for it everywhere.
func badValues(kind string) []bad {
	switch kind {
	case "namespaceId":
		return slices.Concat(
			badChars("namespaceId/tenant", "a b", "a ", " a", "a.b", "a/b", "a@@b", "a#b", "é", "中", "a\x00", "a\n", "\xff", "\u202e", "[]", "{}"),
			badLength("namespaceId/tenant", 64, badRepeat("a", 65), badRepeat("é", 65), badRepeat("a", 100_000)),
		)
	case "groupName":
		return slices.Concat(
			badChars("group", "G 1", " G1", "G1 ", "G$1", "*", "G/1", "é", "中", "G\x00", "\xff", "{}"),
			badLength("group", 128, badRepeat("a", 129), badRepeat("a", 100_000)),
		)
	case "serviceName": // of v1
		return slices.Concat(badValues("plainName"),
			badTexts(20002, badName, " ", "\t", "\u3000"),
			badTexts(asFilter, "Service name filter error,caused: Param 'serviceName' is illegal, groupName can't be empty;", "@@s", "@@", "@@@s"),
			badTexts(asFilter, "Service name filter error,caused: "+badName+";", "G1@@"),
			badChars("group", "G 1@@s", "G\x00@@s", "中@@s"),
			badLength("group", 128, badRepeat("a", 129)+"@@s"),
		)
	case "plainName":
		return slices.Concat(
			badChars("serviceName", "@s", "a b", " s", "s ", "a\tb", "a\nb", "s\x00", "\x00", "s\x7f", "s\x1b[0m", "\xff", "s\xc3", "\xed\xa0\x80", "中", "s中", "s\u00a0", "s\u3000", "s\ufffd", "G1@@a@@b", "G1@@ s"),
			badLength("serviceName", 512, badRepeat("a", 513), badRepeat("é", 513), badRepeat("😀", 257), badRepeat("a", 100_000), badRepeat(" ", 600)+"s"),
		)
	case "nameV2":
		return slices.Concat(badValues("plainName"), badChars("serviceName", "@@s", "G1@@", "@@"))
	case "groupedName": // where v2 wants the grouped form
		return slices.Concat(
			badTexts(20002, badName, "s", "@@s", "G1@@", "@@", "G1@s", "\x00"),
			badChars("serviceName", "G1@@a b", "G1@@@s", "G1@@a@@b", "G1@@s\x00", "G1@@\xff"),
			badChars("group", "G 1@@s", "*@@s"),
			badLength("serviceName", 512, "G1@@"+badRepeat("a", 513)),
		)
	case "key": // of statuses
		return slices.Concat(badValues("groupedName"),
			badTexts(20002, badName, "fixtures##s", "fixtures##"),
			badChars("namespaceId/tenant", "##G1@@s", "a b##G1@@s"),
			badLength("namespaceId/tenant", 64, badRepeat("a", 65)+"##G1@@s"),
			badChars("serviceName", "fixtures##G1@@a b"),
		)
	case "clusterName", "cluster", "clusters":
		return slices.Concat(
			badChars("cluster", "a b", "a ", ",", "a,", ",a", "a,,b", "a,b c", "a@b", "a.b", "é", "中", "a\x00", "\xff", "{}"),
			badLength("cluster", 64, badRepeat("a", 65), "a,"+badRepeat("b", 65), badRepeat("a", 100_000)),
		)
	case "newCluster":
		return slices.Concat(badValues("clusterName"), badChars("cluster", "a,b"),
			badTexts(21004, "Instance 'clusterName' should be characters with only 0-9a-zA-Z-. (current: {})", "a_b", "_"))
	case "ip":
		return slices.Concat(
			badChars("ip", " 10.0.0.1", "10.0.0.1 ", "10.0 .0.1", "10.0.0.1\n", "10.0.0.1\x00", "\xff", "中", "a\u00a0b"),
			badLength("ip", 128, badRepeat("a", 129), badRepeat("1", 129), badRepeat("a", 100_000)),
			badTexts(asParam, "Param 'ip' is illegal, '{}' is neither an IP address nor a host name.", "999.1.1.1", "10.0.0.256", "1.2.3", "1.2.3.4.5", "1", "...", "010.0.0.1", "1.2.3.4."),
		)
	case "port":
		return badTexts(asParam, badPort, "abc", "-1", "65536", "80.5", "80.0", "1e3", "0x50", "80 ", " 80", "8_0", "٣", "NaN", "true", "null", "{}", "80\x00", "80\n", "\xff", "2147483648", "-9223372036854775809", badRepeat("9", 100_000))
	case "username", "password": // any will do
	case "weight": // of v1
		return slices.Concat(
			badTexts(20002, `For input string: "{}"`, "abc", "1,5", "--1", "1_0", "0x", "0x1p3", "true", "null", "{}", "1\x00", "1 2"),
			badValues("weightRange"),
		)
	case "weightV2":
		return slices.Concat(
			badTexts(20002, "Param 'weight' is illegal, '{}' should be a number.", "abc", "1,5", "--1", "1_0", "0x", "0x1p3", "true", "null", "{}", "1\x00", "1 2"),
			[]bad{{badRepeat("x", 65), 20002, "Param 'weight' is illegal, '" + badRepeat("x", 64) + "...' should be a number."}},
			badValues("weightRange"),
		)
	case "weightRange":
		return badTexts(21001, badWeight, "-1", "-0.0001", "10000.1", "1e5", "1e999", "-1e999", "Infinity", "-Infinity", "inf", "NaN", "nan", badRepeat("9", 400))
	case "metadata":
		return slices.Concat(
			badTexts(21002, badMetadata,
				"justtext", "a=b=c", "a=b,", ",", "=b", "a=b,c", "{bad", "{", "[]", `["a"]`, `["a=b"]`, `"x"`, `"a=b"`, "1", "true", "nul", "NaN",
				`{"a":{"b":"c"}}`, `{"a":{"b":"c=d"}}`, `{"a":["b"]}`, `{"a":"b"`, `{"a":"x=y"`, `{"a":"b"}x`, `{"a":"b"}{}`, `{"a":01}`, `{a:"b"}`, `{'a':'b'}`,
				`{"a":NaN}`, "{\"a\":\"\x01\"}", `{"a":"\x"}`, `{"a":"\u12"}`, "\ufeff{}", "/**/{}", badDeep(), badRepeat("[", 100_000)),
			badLength("Metadata", 1024, "k="+badRepeat("v", 1024), `{"k":"`+badRepeat("é", 1024)+`"}`, `{"k":"`+badRepeat("😀", 512)+`"}`, `{"`+badRepeat("k", 1025)+`":null,"a":"`+badRepeat("v", 1024)+`"}`, "k="+badRepeat("v", 100_000)),
		)
	case "behaviour": // metadata that says how the registry treats the instance
		return slices.Concat(badValues("metadata"),
			badTexts(21004, badTimes,
				`{"preserved.heart.beat.interval":"40000"}`, `{"preserved.heart.beat.interval":16000}`, "preserved.heart.beat.timeout=1", "preserved.ip.delete.timeout=4999",
				`{"preserved.heart.beat.interval":"9007199254740992"}`),
			badTexts(21004, "Metadata 'preserved.instance.id.generator' is illegal, 'other' is neither simple nor snowflake.", "preserved.instance.id.generator=other"),
		)
	case "removed": // metadata whose keys are removed: its size does not matter
		return slices.DeleteFunc(badValues("metadata"), func(b bad) bool { return b.fault == asParam })
	case "serviceMetadata":
		return append(badValues("removed"), badLength("Metadata", 64<<10, "k="+badRepeat("v", 64<<10), "k="+badRepeat("v", 1<<20))...)
	case "healthy", "enabled", "ephemeral", "healthyOnly", "onlyStatus": // of v2
		return badTexts(20002, "Param '"+kind+"' is illegal, '{}' should be true or false.", "maybe", "2", "tru", "y", "t", "null", "NaN", "{}", "true\x00", "true false")
	case "protectThreshold":
		return slices.Concat(
			badTexts(20002, "Param 'protectThreshold' is illegal, '{}' should be a number.", "abc", "0,5", "0x", "0x1p-1", "--1", "true", "null", "{}", "0.5\x00"),
			badTexts(20002, "Param 'protectThreshold' is illegal, the value should be a number from 0 to 1.", "NaN", "Infinity", "-Infinity", "1.1", "2", "1e999", "-1e999"),
		)
	case "selector":
		return slices.Concat(
			badTexts(21006, badSelector, "{bad", "[]", "1", `"x"`, "true", `{"type":{}}`, `{"type":[]}`, `{"type":"label","expression":{}}`, "%7Bbad", "%zz", badDeep()),
			badTexts(21006, "not match any type of selector!", "{}", "null", `{"type":"other"}`, `{"type":null}`, `{"type":1}`, `{"type":"LABEL"}`, "%7B%7D", `{"type":"`+badRepeat("x", 10_000)+`"}`),
			badTexts(21006, "Selector parses failed: the expression should be CONSUMER.label.x = PROVIDER.label.x, joined by &.",
				`{"type":"label","expression":"x"}`, `{"type":"label","expression":"CONSUMER.label.a=PROVIDER.label.b"}`, `{"type":"label","expression":"CONSUMER.label.=PROVIDER.label."}`, `{"type":"label","expression":"&"}`, `{"type":"label","expression":true}`),
			badLength("selector", 64<<10, `{"type":"none","x":"`+badRepeat("x", 64<<10)+`"}`, badRepeat("x", 1<<20)),
		)
	case "udpPort":
		return badTexts(20002, `For input string: "{}"`, "abc", "1.5", "0x1", "1e3", "true", "NaN", "{}", "9223372036854775808", "1\x00")
	case "portV2": // of a UDP subscriber
		return badTexts(20002, "Param 'port' is illegal, '{}' should be an integer.", "abc", "1.5", "0x1", "1e3", "true", "NaN", "{}", "9223372036854775808")
	case "pageNo", "pageSize": // of v2
		return badTexts(20002, "Param '"+kind+"' is illegal, '{}' should be an integer.", "x", "1.5", "0x1", "1e3", "true", "NaN", "{}", "9223372036854775808")
	case "negative":
		return []bad{{"-1", 20002, "fromIndex(0) > toIndex(-1)"}, {"-9223372036854775808", 20002, "fromIndex(0) > toIndex(-9223372036854775808)"}}
	case "pageSizeV2":
		return append(badValues("pageSize"), badValues("negative")...)
	case "instances":
		return badTexts(20002, badList, "[bad", "{}", `"x"`, "1", "true", "[1]", "[null]", "[{}]", "[[]]", `[{"port":1}]`, `[{"ip":""}]`, `[{"ip":{}}]`, `[{"ip":"10.0.0.1","port":"x"}]`, `[{"ip":"10.0.0.1","port":1.5}]`, `[{"ip":"10.0.0.1"},null]`, badDeep())
	case "beat":
		return slices.Concat(
			badTexts(20002, badBeat,
				"{bad", "[]", "1", `"x"`, "true", "null", "{}", `{"port":80}`, `{"ip":""}`, `{"ip":null,"port":80}`, `{"ip":{},"port":80}`, `{"ip":["10.0.0.9"],"port":80}`,
				`{"ip":"10.0.0.9","port":"x"}`, `{"ip":"10.0.0.9","port":{}}`, `{"ip":"10.0.0.9","port":80.5}`, `{"ip":"10.0.0.9","port":1e400}`, `{"ip":"10.0.0.9","port":true}`,
				`{"ip":"10.0.0.9","weight":"heavy"}`, `{"ip":"10.0.0.9","weight":{}}`, `{"ip":"10.0.0.9","weight":NaN}`, `{"ip":"10.0.0.9","metadata":"x"}`, `{"ip":"10.0.0.9","metadata":[]}`,
				`{"ip":"10.0.0.9","metadata":{"a":{}}}`, `{"ip":"10.0.0.9","cluster":{}}`, `{"ip":"10.0.0.9","ephemeral":false}`, `{"ip":"10.0.0.9","ephemeral":"maybe"}`,
				`{"ip":"10.0.0.9","port":80`, `{"ip":"10.0.0.9"}}`, "{\"ip\":\"10.0.0.9\",\"x\":\"\n\"}", badDeep()),
			badChars("ip", `{"ip":"10.0 .0.1","port":80}`, `{"ip":"a\u0000","port":80}`, `{"ip":"\ud800","port":80}`, "{\"ip\":\"\xff\",\"port\":80}", `{"ip":" ","port":80}`),
			badLength("ip", 128, `{"ip":"`+badRepeat("a", 129)+`","port":80}`),
			badTexts(asParam, "Param 'ip' is illegal, '999.1.1.1' is neither an IP address nor a host name.", `{"ip":"999.1.1.1","port":80}`, `{"ip":"10.0.0.9","port":80,"ip":"999.1.1.1"}`),
			badTexts(asParam, badPort, `{"ip":"10.0.0.9","port":70000}`, `{"ip":"10.0.0.9","port":-1}`, `{"ip":"10.0.0.9","port":1e9}`, `{"ip":"10.0.0.9","port":"65536"}`),
			badTexts(21001, badWeight, `{"ip":"10.0.0.9","weight":-1}`, `{"ip":"10.0.0.9","weight":20000}`, `{"ip":"10.0.0.9","weight":"NaN"}`, `{"ip":"10.0.0.9","weight":1e999}`, `{"ip":"10.0.0.9","weight":"Infinity"}`),
			badChars("cluster", `{"ip":"10.0.0.9","cluster":"a b"}`, `{"ip":"10.0.0.9","cluster":"a,b"}`),
			badTexts(21004, "Instance 'clusterName' should be characters with only 0-9a-zA-Z-. (current: a_b)", `{"ip":"10.0.0.9","cluster":"a_b"}`),
			badTexts(21004, badTimes, `{"ip":"10.0.0.9","metadata":{"preserved.heart.beat.interval":40000}}`),
			badLength("Metadata", 1024, `{"ip":"10.0.0.9","metadata":{"k":"`+badRepeat("v", 1024)+`"}}`),
		)
	case "entry":
		return badTexts(20002, "Param 'entry' is illegal, there is no switch '{}'.", "nonsense", "LIGHTBEATENABLED", "null", "a\x00", "中")
	case "switchFlag":
		return badTexts(20002, "Param 'value' is illegal, the switch lightBeatEnabled should be true or false.", "", " ", "maybe", "1", "yes", "null", "true\x00", badRepeat("x", 100_000))
	case "switchNumber":
		return badTexts(20002, "Param 'value' is illegal, the switch clientBeatInterval should be a number of milliseconds from 1 to 2147483647.", "", "abc", "0", "-1", "1.5", "1e3", "NaN", "2147483648", "9223372036854775807", "9223372036854775808")
	case "switchStatus":
		return badTexts(20002, "Param 'value' is illegal, the switch overriddenServerStatus should be UP or null: …", "DOWN", "up", "NONSENSE", "")
	}
	return nil
}

// The forms of answers.
const (
	badV1 = "v1" // text
	badV2 = "v2" // a result
)

// badEndpoint is one method of one path, with a request that would be served. Its
// parameters are written name!:kind, where ! marks a required one, and the kind is
// left out where it is the name.
type badEndpoint struct {
	method, path, form, lacks string // lacks: the text for a missing parameter
	request                   string
	params                    string
}

// Texts for a missing parameter.
const (
	lacksParam  = "Param '%s' is required."
	lacksSpring = "Parameter '%s' is missing"
	lacksForm   = "Required parameter '%s' type %s is not present"
	lacksSingle = "Required request parameter '%s' for method parameter type %s is not present"
)

func badEndpoints() []badEndpoint {
	const (
		created = "namespaceId=bad&serviceName=new&ip=10.0.0.1&port=80"
		aimed   = "namespaceId=fixtures&serviceName=ephemeral&ip=10.0.0.1&port=80"
		grouped = "namespaceId=fixtures&serviceName=DEFAULT_GROUP@@ephemeral&ip=10.0.0.1&port=80"
		of      = "namespaceId=fixtures&serviceName=ephemeral"
		to      = "namespaceId=fixtures&serviceName=persistent&protectThreshold=0.75"
		beat    = `namespaceId=bad&serviceName=new&beat={"ip":"10.0.0.1","port":80}`
		beatV2  = `namespaceId=bad&serviceName=G1@@new&beat={"ip":"10.0.0.1","port":80}`
		flag    = "entry=lightBeatEnabled&value=false"
		number  = "entry=clientBeatInterval&value=6000"
		status  = "entry=overriddenServerStatus&value=UP"
	)
	list := []badEndpoint{
		{"POST", "/nacos/v1/ns/instance", badV1, lacksParam, created, "serviceName! ip! port! namespaceId groupName clusterName:newCluster cluster:newCluster weight metadata:behaviour"},
		{"POST", "/nacos/v1/ns/instance", badV1, lacksParam, created + "&ephemeral=false", "serviceName! ip! port! namespaceId groupName clusterName:newCluster weight metadata:behaviour"},
		{"DELETE", "/nacos/v1/ns/instance", badV1, lacksParam, aimed, "serviceName! ip! port! namespaceId groupName clusterName cluster weight metadata:removed"},
		{"PUT", "/nacos/v1/ns/instance", badV1, lacksParam, aimed + "&weight=3", "serviceName! ip! port! namespaceId groupName clusterName cluster weight metadata:behaviour"},
		{"PATCH", "/nacos/v1/ns/instance", badV1, lacksParam, aimed + "&weight=3", "serviceName! ip! port! namespaceId groupName clusterName cluster weight metadata:behaviour"},
		{"GET", "/nacos/v1/ns/instance", badV1, lacksParam, aimed, "serviceName! ip! port! namespaceId groupName clusterName"},
		{"GET", "/nacos/v1/ns/instance/list", badV1, lacksParam, of, "serviceName! namespaceId groupName clusters udpPort"},
		{"PUT", "/nacos/v1/ns/instance/beat", badV1, lacksParam, beat, "serviceName! namespaceId groupName beat ip port"},
		{"PUT", "/nacos/v1/ns/instance/beat", badV1, lacksParam, aimed, "serviceName! namespaceId groupName ip port"},
		{"GET", "/nacos/v1/ns/instance/statuses", badV1, lacksSpring, "key=fixtures%23%23DEFAULT_GROUP@@ephemeral", "key!"},
		{"PUT", "/nacos/v1/ns/instance/metadata/batch", badV1, lacksParam, of + "&metadata=b=2", "serviceName! metadata!:behaviour namespaceId groupName instances"},
		{"DELETE", "/nacos/v1/ns/instance/metadata/batch", badV1, lacksParam, of + "&metadata=a=", "serviceName! metadata!:removed namespaceId groupName instances"},
		{"POST", "/nacos/v1/ns/service", badV1, lacksSpring, "namespaceId=bad&serviceName=new", "serviceName! namespaceId groupName protectThreshold metadata:serviceMetadata selector"},
		{"DELETE", "/nacos/v1/ns/service", badV1, lacksSpring, "namespaceId=fixtures&serviceName=empty", "serviceName! namespaceId groupName"},
		{"PUT", "/nacos/v1/ns/service", badV1, lacksParam, to, "serviceName! protectThreshold! namespaceId groupName metadata:serviceMetadata selector"},
		{"GET", "/nacos/v1/ns/service", badV1, lacksSpring, of, "serviceName! namespaceId groupName"},
		{"GET", "/nacos/v1/ns/service/list", badV1, lacksParam, "namespaceId=fixtures&pageNo=1&pageSize=10", "pageNo!:any pageSize!:negative namespaceId groupName"},
		{"GET", "/nacos/v1/ns/service/subscribers", badV1, lacksParam, of, "serviceName! namespaceId groupName"},

		{"POST", "/nacos/v2/ns/instance", badV2, lacksForm, created, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName:newCluster weight:weightV2 metadata:behaviour healthy enabled ephemeral"},
		{"POST", "/nacos/v2/ns/instance", badV2, lacksForm, created + "&ephemeral=false", "serviceName!:nameV2 ip! port! namespaceId groupName clusterName:newCluster weight:weightV2 metadata:behaviour healthy enabled"},
		{"DELETE", "/nacos/v2/ns/instance", badV2, lacksForm, aimed, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName weight:weightV2 metadata:removed healthy enabled ephemeral"},
		{"PUT", "/nacos/v2/ns/instance", badV2, lacksForm, aimed + "&weight=3", "serviceName!:nameV2 ip! port! namespaceId groupName clusterName weight:weightV2 metadata:behaviour healthy enabled ephemeral"},
		{"PATCH", "/nacos/v2/ns/instance", badV2, lacksSingle, grouped + "&weight=3&enabled=true&metadata=b=2", "serviceName!:groupedName ip! port! weight!:weightV2 enabled! metadata!:behaviour namespaceId cluster"},
		{"GET", "/nacos/v2/ns/instance", badV2, lacksSingle, aimed, "serviceName!:nameV2 ip! port! namespaceId groupName clusterName"},
		{"GET", "/nacos/v2/ns/instance/list", badV2, lacksSingle, of, "serviceName!:nameV2 namespaceId groupName clusterName:clusters port:portV2 healthyOnly"},
		{"PUT", "/nacos/v2/ns/instance/beat", badV2, lacksSingle, beatV2, "serviceName!:groupedName namespaceId beat ip port"},
		{"PUT", "/nacos/v2/ns/instance/beat", badV2, lacksSingle, grouped, "serviceName!:groupedName namespaceId ip port"},
		{"PUT", "/nacos/v2/ns/instance/metadata/batch", badV2, lacksForm, of + "&metadata=b=2", "serviceName!:nameV2 metadata!:behaviour namespaceId groupName instances"},
		{"DELETE", "/nacos/v2/ns/instance/metadata/batch", badV2, lacksForm, of + "&metadata=a=", "serviceName!:nameV2 metadata!:removed namespaceId groupName instances"},
		{"POST", "/nacos/v2/ns/service", badV2, lacksForm, "namespaceId=bad&serviceName=new", "serviceName!:nameV2 namespaceId groupName protectThreshold metadata:serviceMetadata selector ephemeral"},
		{"DELETE", "/nacos/v2/ns/service", badV2, lacksSingle, "namespaceId=fixtures&serviceName=empty", "serviceName!:nameV2 namespaceId groupName"},
		{"PUT", "/nacos/v2/ns/service", badV2, lacksForm, to, "serviceName!:nameV2 namespaceId groupName protectThreshold metadata:serviceMetadata selector"},
		{"GET", "/nacos/v2/ns/service", badV2, lacksSingle, of, "serviceName!:nameV2 namespaceId groupName"},
		{"GET", "/nacos/v2/ns/service/list", badV2, lacksSingle, "namespaceId=fixtures", "namespaceId groupName pageNo pageSize:pageSizeV2"},
	}
	for _, path := range [...]string{"/nacos/v1/auth/login", "/nacos/v1/auth/users/login"} {
		list = append(list, badEndpoint{"POST", path, badV1, lacksParam, "username=ops&password=x", "username! password!"})
	}
	for _, method := range [...]string{"GET", "POST", "PUT", "DELETE"} {
		list = append(list, badEndpoint{method, "/nacos/v2/ns/instance/statuses/{key}", badV2, "", "", "key"})
	}
	for _, operator := range [...]string{"operator", "ops"} {
		list = append(list,
			badEndpoint{"GET", "/nacos/v1/ns/" + operator + "/metrics", badV1, "", "", ""},
			badEndpoint{"GET", "/nacos/v1/ns/" + operator + "/switches", badV1, "", "", ""},
			badEndpoint{"PUT", "/nacos/v1/ns/" + operator + "/switches", badV1, lacksSpring, flag, "entry! value:switchFlag"},
			badEndpoint{"PUT", "/nacos/v1/ns/" + operator + "/switches", badV1, lacksSpring, number, "value:switchNumber"},
			badEndpoint{"PUT", "/nacos/v1/ns/" + operator + "/switches", badV1, lacksSpring, status, "value:switchStatus"},
			badEndpoint{"GET", "/nacos/v2/ns/" + operator + "/metrics", badV2, "", "", "onlyStatus"},
			badEndpoint{"GET", "/nacos/v2/ns/" + operator + "/switches", badV2, "", "", ""},
			badEndpoint{"PUT", "/nacos/v2/ns/" + operator + "/switches", badV2, lacksForm, flag, "entry! value:switchFlag"},
			badEndpoint{"PUT", "/nacos/v2/ns/" + operator + "/switches", badV2, lacksForm, number, "value:switchNumber"},
		)
	}
	return list
}

// badParam is one parameter of an endpoint.
type badParam struct {
	name, kind string
	required   bool
}

func (e badEndpoint) parameters() (out []badParam) {
	for word := range strings.FieldsSeq(e.params) {
		name, kind, ok := strings.Cut(word, ":")
		name, required := strings.CutSuffix(name, "!")
		if !ok {
			kind = name
		}
		out = append(out, badParam{name, kind, required})
	}
	return out
}

// with returns the served request with one parameter changed, encoded; a nil value
// leaves it out.
func (e badEndpoint) with(t *testing.T, name string, value *string) string {
	t.Helper()
	p := url.Values{}
	for pair := range strings.SplitSeq(e.request, "&") {
		k, v, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(v)
		require.NoError(t, err)
		p.Set(k, plain)
	}
	p.Del("")
	if p.Del(name); value != nil {
		p.Set(name, *value)
	}
	return p.Encode()
}

// requireRefused compares an answer with what a fault calls for.
func requireRefused(t *testing.T, a answered, form, path string, want bad, name string) {
	t.Helper()
	text, open := strings.CutSuffix(want.text, "…")
	if utf8Text := strings.ToValidUTF8(text, "\ufffd"); !open {
		text = utf8Text
	}
	equal := func(got string) {
		if open {
			require.True(t, strings.HasPrefix(got, text), "%s: %s", name, got)
		} else {
			require.Equal(t, text, got, name)
		}
	}
	require.Equal(t, 400, a.status, "%s: %s", name, a.body)
	switch {
	case want.fault == asParam:
		require.Empty(t, a.contentType, name)
		require.Equal(t, text+"\r\n", a.body, name)
	case want.fault == asFilter:
		var got struct {
			Timestamp            string
			Status               int
			Error, Message, Path string
		}
		require.Equal(t, "application/json", a.contentType, name)
		require.NoError(t, json.Unmarshal([]byte(a.body), &got), name)
		_, err := time.Parse("2006-01-02T15:04:05.000-07:00", got.Timestamp)
		require.NoError(t, err, name)
		require.Equal(t, 400, got.Status, name)
		require.Equal(t, "Bad Request", got.Error, name)
		require.Equal(t, path, got.Path, name)
		equal(got.Message)
	case form == badV1:
		require.Equal(t, "text/plain;charset=UTF-8", a.contentType, name)
		equal(a.body)
	default:
		var got struct {
			Code    int
			Message string
			Data    *string
		}
		require.Equal(t, "application/json", a.contentType, name)
		require.NoError(t, json.Unmarshal([]byte(a.body), &got), "%s: %s", name, a.body)
		require.Equal(t, want.fault, got.Code, "%s: %s", name, a.body)
		require.Equal(t, badCode(want.fault), got.Message, name)
		require.NotNil(t, got.Data, name)
		equal(*got.Data)
	}
}

// badCode is the text that the protocol gives a code.
func badCode(code int) string {
	switch code {
	case 10000:
		return "parameter missing"
	case 20002:
		return "parameter validate error"
	case 21001:
		return "weight error"
	case 21002:
		return "instance metadata error"
	case 21004:
		return "instance error"
	case 21006:
		return "selector error"
	}
	return ""
}

// badClip shortens a value for the name of a case.
func badClip(s string) string {
	if len(s) > 60 {
		s = s[:60] + "... (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.QuoteToASCII(s)
}

// Every parameter of every endpoint with every bad value of its kind, in the query
// and, for methods with a body, in a form.
func TestBadInput_HTTP_EveryParameter(t *testing.T) {
	n := startBadNode(t)
	before := n.stored(t)
	cases := 0
	for _, e := range badEndpoints() {
		t.Run(e.method+" "+e.path, func(t *testing.T) {
			for _, p := range e.parameters() {
				for k, b := range badValues(p.kind) {
					t.Run(p.name+"="+badClip(b.value), func(t *testing.T) {
						defer func() {
							if t.Failed() { // the cases after it are not to blame
								n.fill(t)
								before = n.stored(t)
							}
						}()
						path, all := e.path, e.with(t, p.name, &b.value)
						if strings.Contains(path, "{key}") {
							path, all = strings.Replace(path, "{key}", url.PathEscape(b.value), 1), ""
						}
						var answers []answered
						if len(all) < 500_000 { // a longer query breaks the limit of the header
							answers = append(answers, n.form(t, e.method, path, all, ""))
						}
						if all != "" && e.method != "GET" && (k%5 == 0 || answers == nil) {
							answers = append(answers, n.form(t, e.method, path, "", all))
						}
						plain, err := url.PathUnescape(path)
						require.NoError(t, err)
						for _, a := range answers {
							cases++
							requireRefused(t, a, e.form, plain, b, e.request)
						}
						require.Equal(t, before, n.stored(t), "something was stored")
					})
				}
			}
		})
	}
	require.Equal(t, int64(1), n.dials.Load(), "connections: a refused request must leave its connection usable")
	t.Logf("%d bad requests", cases)
}

// A required parameter that is missing, empty or blank.
func TestBadInput_HTTP_Missing(t *testing.T) {
	n := startBadNode(t)
	before := n.stored(t)
	types := map[string]string{"port": "Integer", "weight": "Double", "enabled": "Boolean"}
	for _, e := range badEndpoints() {
		for _, p := range e.parameters() {
			if !p.required {
				continue
			}
			typ := types[p.name]
			if typ == "" {
				typ = "String"
			}
			text := strings.Replace(strings.Replace(e.lacks, "%s", p.name, 1), "%s", typ, 1)
			empty, blank := "", " \t\n"
			for _, value := range []*string{nil, &empty, &blank} {
				all := e.with(t, p.name, value)
				name := fmt.Sprintf("%s %s %s", e.method, e.path, all)
				want := bad{fault: 10000, text: text}
				if p.name == "serviceName" && e.form == badV1 && value == &blank {
					want = bad{fault: 20002, text: badName}
				}
				requireRefused(t, n.form(t, e.method, e.path, all, ""), e.form, e.path, want, name)
				if e.method != "GET" {
					requireRefused(t, n.form(t, e.method, e.path, "", all), e.form, e.path, want, name)
				}
				require.Equal(t, before, n.stored(t), "%s: something was stored", name)
			}
		}
	}
	require.Equal(t, int64(1), n.dials.Load())
}

// An optional parameter that is blank counts as missing: the reading endpoints
// answer the same with it and without.
func TestBadInput_HTTP_BlankIsDefault(t *testing.T) {
	n := startBadNode(t)
	times := regexp.MustCompile(`"lastRefTime":\d+`)
	for _, e := range badEndpoints() {
		if e.method != "GET" || strings.Contains(e.path, "/{key}") {
			continue
		}
		for _, p := range e.parameters() {
			if p.required {
				continue
			}
			plain := n.form(t, "GET", e.path, e.with(t, p.name, nil), "")
			for _, value := range []string{"", " "} {
				if p.name == "clusters" || p.kind == "clusters" {
					value = "" // a list is echoed as it was sent
				}
				a := n.form(t, "GET", e.path, e.with(t, p.name, &value), "")
				plain.body, a.body = times.ReplaceAllString(plain.body, ""), times.ReplaceAllString(a.body, "")
				if !strings.HasSuffix(e.path, "/metrics") {
					require.Equal(t, plain, a, "%s %s=%q", e.path, p.name, value)
				}
			}
		}
	}
}

// The table above is complete: it has every path of the front end, and every
// method that a path allows.
func TestBadInput_HTTP_TableIsComplete(t *testing.T) {
	source, err := os.ReadFile("httpapi/server.go")
	require.NoError(t, err)
	routed := map[string]bool{}
	for _, match := range regexp.MustCompile(`handle\("([^,]+)",`).FindAllStringSubmatch(string(source), -1) {
		for _, operator := range [...]string{"operator", "ops"} {
			routed[strings.TrimSuffix(strings.Replace(match[1], `"+operator+"`, operator, 1), `"`)] = true
		}
	}
	require.NotEmpty(t, routed)
	methods := map[string][]string{}
	for _, e := range badEndpoints() {
		require.True(t, routed[e.path], "%s is not served", e.path)
		if !slices.Contains(methods[e.path], e.method) {
			methods[e.path] = append(methods[e.path], e.method)
		}
	}
	n := startBadNode(t)
	for path := range routed {
		require.NotEmpty(t, methods[path], "%s has no line in the table of endpoints", path)
		for _, method := range [...]string{"GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "LINK", "x"} {
			if slices.Contains(methods[path], method) {
				continue
			}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.http+path, http.NoBody)
			require.NoError(t, err)
			response, err := n.client.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, errors.Join(err, response.Body.Close()))
			require.Equal(t, 405, response.StatusCode, "%s %s", method, path)
			require.Contains(t, string(body), "Method '"+method+"' is not supported.")
			allowed := slices.DeleteFunc(strings.Split(response.Header.Get("Allow"), ","), func(m string) bool { return m == "HEAD" || m == "OPTIONS" })
			require.ElementsMatch(t, methods[path], allowed, "methods of %s", path)
		}
	}
}

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

// Datagrams that are no acknowledgement do not stop the one that is.
func TestBadInput_UDP(t *testing.T) {
	n := startBadNode(t)
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	require.NoError(t, socket.SetDeadline(time.Now().Add(badWait)))
	node, err := net.ResolveUDPAddr("udp", n.http)
	require.NoError(t, err)
	for _, datagram := range []string{
		"", "x", "{}", "[]", "null", "1", `"push-ack"`, "\x00", "\xff\xfe", "\x1f\x8b\x08", badRepeat("a", 65_000), badDeep(),
		`{"type":"push-ack"}`, `{"type":"push-ack","lastRefTime":""}`, `{"type":"push-ack","lastRefTime":-1}`, `{"type":"push-ack","lastRefTime":1.5}`,
		`{"type":"push-ack","lastRefTime":1e400}`, `{"type":"push-ack","lastRefTime":"18446744073709551616"}`, `{"type":"push-ack","lastRefTime":{}}`,
		`{"type":"push-ack","lastRefTime":null}`, `{"type":{},"lastRefTime":"1"}`, `{"type":"other","lastRefTime":"1"}`, `{"type":"push-ack","lastRefTime":"1"}`,
	} {
		_, err := socket.WriteTo([]byte(datagram), node)
		require.NoError(t, err)
	}
	address, ok := socket.LocalAddr().(*net.UDPAddr)
	require.True(t, ok)
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.http+"/nacos/v1/ns/instance/list?serviceName=pushed&clientIP=127.0.0.1&udpPort="+strconv.Itoa(address.Port), http.NoBody)
	require.NoError(t, err)
	request.Header.Set("User-Agent", "Nacos-Go-Client:v1.1.4")
	response, err := n.client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 200, n.form(t, "POST", "/nacos/v1/ns/instance", "serviceName=pushed&ip=10.0.0.1&port=80", "").status)
	buffer := make([]byte, 64<<10)
	for acknowledged := false; !acknowledged; {
		size, from, err := socket.ReadFrom(buffer)
		require.NoError(t, err)
		var push struct {
			LastRefTime json.Number
			Data        string
		}
		require.NoError(t, json.Unmarshal(buffer[:size], &push))
		for _, text := range []string{`{"type":"push-ack","lastRefTime":`, `{"type":"push-ack","lastRefTime":"` + push.LastRefTime.String() + `9"}`} {
			_, err = socket.WriteTo([]byte(text), from)
			require.NoError(t, err)
		}
		require.NotContains(t, n.do(t, "GET", "/metrics", "", "", nil).body, `rollcall_push_acked_total{transport="udp"}`)
		_, err = socket.WriteTo([]byte(`{"type":"push-ack","lastRefTime":"`+push.LastRefTime.String()+`","data":""}`), from)
		require.NoError(t, err)
		acknowledged = true
	}
	require.Eventually(t, func() bool {
		return strings.Contains(n.do(t, "GET", "/metrics", "", "", nil).body, `rollcall_push_acked_total{transport="udp"} 1`)
	}, badWait, 5*time.Millisecond)
}
