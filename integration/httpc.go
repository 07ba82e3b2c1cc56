package integration

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Params are the parameters of an HTTP request, by name.
type Params map[string]string

// With returns a copy with more parameters; names given twice take the later
// value.
func (p Params) With(more Params) Params {
	all := Params{}
	maps.Copy(all, p)
	maps.Copy(all, more)
	return all
}

func (p Params) encode() string {
	values := url.Values{}
	for k, v := range p {
		values.Set(k, v)
	}
	return values.Encode()
}

// Response is an HTTP answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// JSON decodes the body into v.
func (r Response) JSON(tb testing.TB, v any) {
	tb.Helper()
	require.NoError(tb, json.Unmarshal([]byte(r.Body), v), "status %d, body %q", r.Status, r.Body)
}

// Result is the envelope of v2 and v3 answers.
type Result struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Result decodes the body as the envelope of v2 and v3.
func (r Response) Result(tb testing.TB) Result {
	tb.Helper()
	var result Result
	r.JSON(tb, &result)
	return result
}

// HTTPOption changes a request before it is sent.
type HTTPOption func(*http.Request)

// WithHeader sets a header.
func WithHeader(key, value string) HTTPOption {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

// Do sends parameters the way clients do: in the query for GET and DELETE, in a
// form for the rest.
func (n *Node) Do(tb testing.TB, method, path string, p Params, options ...HTTPOption) Response {
	tb.Helper()
	if method == http.MethodGet || method == http.MethodDelete {
		return n.Raw(tb, method, path, p.encode(), "", options...)
	}
	return n.Raw(tb, method, path, "", p.encode(), options...)
}

// Query sends all parameters in the query, whatever the method.
func (n *Node) Query(tb testing.TB, method, path string, p Params, options ...HTTPOption) Response {
	tb.Helper()
	return n.Raw(tb, method, path, p.encode(), "", options...)
}

// Raw sends query and body as they stand. A body that is not empty is declared as
// a form unless an option says otherwise.
func (n *Node) Raw(tb testing.TB, method, path, query, body string, options ...HTTPOption) Response {
	tb.Helper()
	resp, err := n.TryRaw(method, path, query, body, options...)
	require.NoError(tb, err)
	return resp
}

// TryRaw is Raw for callers that expect failures of the transport.
func (n *Node) TryRaw(method, path, query, body string, options ...HTTPOption) (Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addr(), strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	req.URL.Opaque = path // as it stands, not cleaned
	req.URL.RawQuery = query
	req.Header.Set("User-Agent", "integration")
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, o := range options {
		o(req)
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Response{}, err
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}, nil
}

// Host is one instance as lists and pushes show it.
type Host struct {
	InstanceID    string            `json:"instanceId"`
	IP            string            `json:"ip"`
	Port          int               `json:"port"`
	Weight        float64           `json:"weight"`
	Healthy       bool              `json:"healthy"`
	Enabled       bool              `json:"enabled"`
	Ephemeral     bool              `json:"ephemeral"`
	ClusterName   string            `json:"clusterName"`
	ServiceName   string            `json:"serviceName"`
	Metadata      map[string]string `json:"metadata"`
	BeatInterval  int64             `json:"instanceHeartBeatInterval"`
	BeatTimeout   int64             `json:"instanceHeartBeatTimeOut"`
	DeleteTimeout int64             `json:"ipDeleteTimeout"`

	// Raw holds every field as it came.
	Raw map[string]json.RawMessage `json:"-"`
}

// UnmarshalJSON decodes the fields and keeps the raw ones.
func (h *Host) UnmarshalJSON(data []byte) error {
	type plain Host
	if err := json.Unmarshal(data, (*plain)(h)); err != nil {
		return err
	}
	return json.Unmarshal(data, &h.Raw)
}

// Addr is ip:port, without brackets around an IPv6 address.
func (h Host) Addr() string { return h.IP + ":" + strconv.Itoa(h.Port) }

// ServiceInfo is a list of instances as answers and pushes carry it.
type ServiceInfo struct {
	Name        string `json:"name"`
	GroupName   string `json:"groupName"`
	Clusters    string `json:"clusters"`
	CacheMillis int64  `json:"cacheMillis"`
	Hosts       []Host `json:"hosts"`
	LastRefTime int64  `json:"lastRefTime"`
	Protected   bool   `json:"reachProtectionThreshold"`

	// Raw holds every field as it came.
	Raw map[string]json.RawMessage `json:"-"`
}

// UnmarshalJSON decodes the fields and keeps the raw ones.
func (s *ServiceInfo) UnmarshalJSON(data []byte) error {
	type plain ServiceInfo
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	return json.Unmarshal(data, &s.Raw)
}

// Addrs returns the ip:port of all hosts, sorted, doubles included.
func (s ServiceInfo) Addrs() []string {
	addrs := make([]string, 0, len(s.Hosts))
	for _, h := range s.Hosts {
		addrs = append(addrs, h.Addr())
	}
	sort.Strings(addrs)
	return addrs
}

// Host returns the first host with the address ip:port; ok tells whether there is
// one.
func (s ServiceInfo) Host(addr string) (h Host, ok bool) {
	for _, h := range s.Hosts {
		if h.Addr() == addr {
			return h, true
		}
	}
	return Host{}, false
}
