package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rollcall/naming"
)

// Admin makes single calls to one server over HTTP, for the command line.
type Admin struct {
	base  *url.URL
	http  *http.Client
	agent string
	// consistent is set by Consistent.
	consistent bool
}

// timeout bounds one call.
const timeout = 10 * time.Second

// NewAdmin returns an Admin for a server, named as host:port or as an http URL.
func NewAdmin(server, version string) (*Admin, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("server is %q: it must be host:port or an http URL", server)
	}
	return &Admin{base: base, http: &http.Client{Timeout: timeout}, agent: "Rollcall:v" + version}, nil
}

// ListedInstance is an instance as a server shows it.
type ListedInstance struct {
	InstanceID string            `json:"instanceId,omitempty"`
	IP         string            `json:"ip"`
	Port       int               `json:"port"`
	Cluster    string            `json:"clusterName"`
	Weight     float64           `json:"weight"`
	Healthy    bool              `json:"healthy"`
	Enabled    bool              `json:"enabled"`
	Ephemeral  bool              `json:"ephemeral"`
	Metadata   map[string]string `json:"metadata"`
}

// Listing is what a server shows of a service.
type Listing struct {
	Name              string           `json:"name"`
	Group             string           `json:"groupName"`
	Clusters          string           `json:"clusters"`
	Hosts             []ListedInstance `json:"hosts"`
	LastRefTimeMs     int64            `json:"lastRefTime"`
	ReachedProtection bool             `json:"reachProtectionThreshold"`
	CacheMs           int64            `json:"cacheMillis"`
}

// ListingOf shows a list of a [Client] as an [Admin] shows one.
func ListingOf(s Service, clusters string) Listing {
	out := Listing{
		Name: s.Key.Name, Group: s.Key.Group, Clusters: clusters, Hosts: []ListedInstance{},
		LastRefTimeMs: s.LastRefTimeMs, ReachedProtection: s.ReachedProtection, CacheMs: s.CacheMs,
	}
	for _, i := range s.Instances {
		out.Hosts = append(out.Hosts, ListedInstance{
			InstanceID: i.InstanceID(s.Key), IP: i.IP, Port: i.Port, Cluster: i.Cluster, Weight: i.Weight,
			Healthy: i.Healthy, Enabled: i.Enabled, Ephemeral: i.Ephemeral, Metadata: i.Metadata,
		})
	}
	return out
}

// Instances returns the instances of a service that are enabled; clusters is a
// comma separated list, empty for all.
func (c *Admin) Instances(ctx context.Context, svc naming.ServiceKey, clusters string, healthyOnly bool) (Listing, error) {
	q := serviceQuery(svc)
	q.Set("clusters", clusters)
	q.Set("healthyOnly", strconv.FormatBool(healthyOnly))
	var s Listing
	err := c.call(ctx, http.MethodGet, "/nacos/v1/ns/instance/list", q, &s)
	return s, err
}

// Services returns a page of the names of a group's services, and how many there
// are. Pages count from 1.
func (c *Admin) Services(ctx context.Context, namespace, group string, page, size int) (names []string, count int, err error) {
	q := url.Values{"namespaceId": {namespace}, "groupName": {group}, "pageNo": {strconv.Itoa(page)}, "pageSize": {strconv.Itoa(size)}}
	var list struct {
		Count int      `json:"count"`
		Doms  []string `json:"doms"`
	}
	err = c.call(ctx, http.MethodGet, "/nacos/v1/ns/service/list", q, &list)
	return list.Doms, list.Count, err
}

// Register registers an instance over HTTP. An ephemeral one must be kept alive by
// Beat.
func (c *Admin) Register(ctx context.Context, svc naming.ServiceKey, i naming.Instance) error {
	q := serviceQuery(svc)
	setInstance(q, i)
	return c.call(ctx, http.MethodPost, "/nacos/v1/ns/instance", q, nil)
}

// Deregister removes an instance that was registered over HTTP; an unknown one is
// not an error.
func (c *Admin) Deregister(ctx context.Context, svc naming.ServiceKey, i naming.Instance) error {
	q := serviceQuery(svc)
	setInstance(q, i)
	return c.call(ctx, http.MethodDelete, "/nacos/v1/ns/instance", q, nil)
}

// Beat keeps an ephemeral instance alive and registers it if the server does not
// know it. It returns when the next one is due.
func (c *Admin) Beat(ctx context.Context, svc naming.ServiceKey, i naming.Instance) (time.Duration, error) {
	beat, err := json.Marshal(map[string]any{
		"ip": i.IP, "port": i.Port, "cluster": i.Cluster, "weight": i.Weight,
		"metadata": i.Metadata, "serviceName": svc.Grouped(),
	})
	if err != nil {
		return 0, err
	}
	q := serviceQuery(svc)
	q.Set("beat", string(beat))
	var answer struct {
		IntervalMs int64 `json:"clientBeatInterval"`
	}
	err = c.call(ctx, http.MethodPut, "/nacos/v1/ns/instance/beat", q, &answer)
	return time.Duration(answer.IntervalMs) * time.Millisecond, err
}

// Nodes returns what the server knows of all nodes; only Rollcall tells that.
func (c *Admin) Nodes(ctx context.Context) ([]naming.NodeState, error) {
	var list struct {
		Nodes []naming.NodeState `json:"nodes"`
	}
	err := c.call(ctx, http.MethodGet, "/rollcall/v1/nodes", nil, &list)
	return list.Nodes, err
}

// RemoveNode takes a node that will not come back out of Raft, by its name or its id.
// One that is alive is refused.
func (c *Admin) RemoveNode(ctx context.Context, node string) error {
	return c.call(ctx, http.MethodDelete, "/rollcall/v1/nodes/"+url.PathEscape(node), nil, nil)
}

// Drain has the clients of the server go to other nodes, or with false come back to it.
// It does not wait for them.
func (c *Admin) Drain(ctx context.Context, on bool) error {
	method := http.MethodPost
	if !on {
		method = http.MethodDelete
	}
	return c.call(ctx, method, "/rollcall/v1/drain", nil, nil)
}

// Leave takes the server's node out for good: its clients go to other nodes, Raft does
// not count it any more, and its process ends. It does not wait for that.
func (c *Admin) Leave(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/rollcall/v1/leave", nil, nil)
}

// Consistent returns an Admin whose reads of services and instances show every
// persistent write that was acknowledged before, by any node. They need a leader; only
// Rollcall promises that.
func (c *Admin) Consistent() *Admin {
	other := *c
	other.consistent = true
	return &other
}

// Ready returns nil if the server says that it is ready to serve.
func (c *Admin) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/readyz", nil, nil)
}

func setInstance(q url.Values, i naming.Instance) {
	q.Set("ip", i.IP)
	q.Set("port", strconv.Itoa(i.Port))
	q.Set("clusterName", i.Cluster)
	q.Set("weight", strconv.FormatFloat(i.Weight, 'g', -1, 64))
	q.Set("enabled", strconv.FormatBool(i.Enabled))
	q.Set("healthy", strconv.FormatBool(i.Healthy))
	q.Set("ephemeral", strconv.FormatBool(i.Ephemeral))
	if len(i.Metadata) > 0 {
		b, _ := json.Marshal(i.Metadata) // a map of strings always encodes
		q.Set("metadata", string(b))
	}
}

// call sends one request: the parameters as a form where the method has a body.
// into nil ignores the answer's body.
func (c *Admin) call(ctx context.Context, method, path string, q url.Values, into any) error {
	u := c.base.JoinPath(path)
	var body io.Reader
	if method == http.MethodPost || method == http.MethodPut {
		body = strings.NewReader(q.Encode())
	} else {
		if c.consistent && method == http.MethodGet && q != nil {
			q.Set("consistent", "true")
		}
		u.RawQuery = q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", c.agent)
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.base.Host, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base.Host, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %s", c.base.Host, answer.Status, strings.TrimSpace(string(text)))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", c.base.Host, err)
	}
	return nil
}
