package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server/wire"
)

func instances(ports ...int) []*naming.Instance {
	var out []*naming.Instance
	for _, p := range ports {
		i := naming.NewInstance("10.0.0.1", p)
		out = append(out, &i)
	}
	return out
}

func list(at int64, ports ...int) *Service {
	return &Service{Key: naming.ServiceKey{Group: "g", Name: "s"}, LastRefTimeMs: at, Instances: instances(ports...)}
}

func ports(list []*naming.Instance) []int {
	out := []int{}
	for _, i := range list {
		out = append(out, i.Port)
	}
	return out
}

func newEntry(change func(*Config)) *entry {
	cfg := DefaultConfig()
	cfg.Hold = 0
	change(&cfg)
	return newCache(cfg, newDelivery()).get(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
}

func TestEntry_OrderOfLists(t *testing.T) {
	e := newEntry(func(*Config) {})
	shown := func() []int { return ports(e.shown.Load().service.Instances) }
	require.Equal(t, taken, e.push(list(10, 1), 1))
	require.Equal(t, ignored, e.push(list(10, 2), 1), "the same time")
	require.Equal(t, outdated, e.push(list(9, 2), 1))
	require.Equal(t, taken, e.push(list(11, 1, 2), 1))
	require.Equal(t, []int{1, 2}, shown())

	mark := e.mark()
	require.Equal(t, taken, e.push(list(12, 3), 1))
	require.Equal(t, ignored, e.answer(list(11, 9), 1, mark), "a push has overtaken the answer")
	require.Equal(t, []int{3}, shown())
	require.Equal(t, taken, e.answer(list(5, 4), 1, e.mark()), "the server's clock went back")
	require.Equal(t, []int{4}, shown())
	require.Equal(t, taken, e.push(list(6, 5), 1))

	require.Equal(t, taken, e.push(list(1, 6), 2), "another server, another clock")
	require.Equal(t, ignored, e.push(list(99, 7), 1), "of the connection before")
	require.Equal(t, ignored, e.answer(list(99, 7), 1, e.mark()))
	require.Equal(t, []int{6}, shown())
}

func TestEntry_EmptyProtection(t *testing.T) {
	for _, protects := range []bool{false, true} {
		e := newEntry(func(c *Config) { c.EmptyProtection = protects })
		e.push(list(1, 1, 2), 1)
		sick := list(2, 3)
		sick.Instances[0].Healthy = false
		for at, s := range []*Service{sick, list(3)} {
			s.LastRefTimeMs = int64(at + 2)
			e.push(s, 1)
			if protects {
				require.Equal(t, []int{1, 2}, ports(e.shown.Load().service.Instances))
			} else {
				require.Equal(t, ports(s.Instances), ports(e.shown.Load().service.Instances))
			}
		}
		e.push(list(9, 4), 1)
		require.Equal(t, []int{4}, ports(e.shown.Load().service.Instances))
	}
}

func TestDiffAndUnion_AgreeWithSets(t *testing.T) {
	make := func(ports []uint8, weights []uint8) []*naming.Instance {
		var out []*naming.Instance
		for n, p := range ports {
			i := naming.NewInstance("10.0.0.1", int(p%20))
			if n < len(weights) {
				i.Weight = float64(weights[n] % 2)
			}
			out = append(out, &i)
		}
		return normal(out)
	}
	require.NoError(t, quick.Check(func(p1, w1, p2, w2 []uint8) bool {
		before, after := make(p1, w1), make(p2, w2)
		was, is := map[int]*naming.Instance{}, map[int]*naming.Instance{}
		for _, i := range before {
			was[i.Port] = i
		}
		for _, i := range after {
			is[i.Port] = i
		}
		added, removed, changed := diff(before, after)
		for _, i := range added {
			if was[i.Port] != nil || is[i.Port] == nil {
				return false
			}
			was[i.Port] = i
		}
		for _, i := range removed {
			if was[i.Port] == nil || is[i.Port] != nil {
				return false
			}
			delete(was, i.Port)
		}
		for _, i := range changed {
			if was[i.Port] == nil || was[i.Port].Equal(i) {
				return false
			}
			was[i.Port] = i
		}
		for port, i := range is {
			if was[port] == nil || !was[port].Equal(i) {
				return false
			}
		}
		both := union(after, before)
		sorted := slices.IsSortedFunc(both, func(a, b *naming.Instance) int { return a.Key().Compare(b.Key()) })
		count := len(is)
		for _, i := range before {
			if is[i.Port] == nil {
				count++
			}
		}
		return len(was) == len(is) && sorted && len(both) == count
	}, nil))
}

func TestTable_PicksByWeight(t *testing.T) {
	list := instances(1, 2, 3, 4, 5, 6)
	for n, w := range []float64{1, 3, 0, math.NaN(), math.Inf(1), -1} {
		list[n].Weight = w
	}
	counts := map[int]int{}
	tab := newTable(list)
	for range 100000 {
		counts[tab.pick().Port]++
	}
	require.Zero(t, counts[3]+counts[6])
	require.Greater(t, counts[5], 99000, "infinite is %d", maxWeight)
	list[4].Enabled = false
	counts = map[int]int{}
	tab = newTable(list)
	for range 100000 {
		counts[tab.pick().Port]++
	}
	require.InDelta(t, 20000, counts[1], 1000)
	require.InDelta(t, 60000, counts[2], 1000)
	require.InDelta(t, 20000, counts[4], 1000, "no number is 1")
	require.Nil(t, newTable(nil).pick())
}

func TestParseServer(t *testing.T) {
	for text, want := range map[string]server{
		"10.0.0.1":                {"http", "10.0.0.1", "10.0.0.1", 8848, "/nacos"},
		" registry:9000 ":         {"http", "registry", "", 9000, "/nacos"},
		"registry":                {"http", "registry", "", 8848, "/nacos"},
		"http://registry:80/api/": {"http", "registry", "", 80, "/api"},
		"https://registry":        {"https", "registry", "", 8848, "/nacos"},
		"[::1]:8848":              {"http", "::1", "::1", 8848, "/nacos"},
		"::1":                     {"http", "::1", "::1", 8848, "/nacos"},
	} {
		got, err := parseServer(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", ":8848", "a:0", "a:65536", "a:b", "a b", "a,b", "ftp://a", "http://", "a:1:2", "http://[::1"} {
		_, err := parseServer(text)
		require.Error(t, err, text)
		require.ErrorContains(t, err, "host:port", text)
	}
}

func TestTour(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Servers = []string{"a:1", "b:2", "10.0.0.9:3", "10.0.0.9:3"}
	addresses := map[string][]string{"a": {"10.0.0.2", "10.0.0.1"}, "b": {"10.0.0.3"}}
	cfg.Lookup = func(_ context.Context, host string) ([]string, error) {
		if len(addresses[host]) == 0 {
			return nil, errors.New("no such host")
		}
		return addresses[host], nil
	}
	begins := map[string]int{}
	for range 400 {
		tr, err := newTour(cfg)
		require.NoError(t, err)
		seen := map[string]bool{}
		for n := range 4 {
			s, round, err := tr.next(t.Context())
			require.NoError(t, err)
			require.False(t, round)
			seen[s.address(0)] = true
			if n == 0 {
				begins[s.address(0)]++
			}
		}
		require.Len(t, seen, 4)
		_, round, err := tr.next(t.Context())
		require.NoError(t, err)
		require.True(t, round)
	}
	require.Len(t, begins, 4, "the start is random")

	tr, err := newTour(cfg)
	require.NoError(t, err)
	s, ok := tr.find(t.Context(), "10.0.0.3", 2)
	require.True(t, ok)
	tr.after(t.Context(), s)
	next, _, _ := tr.next(t.Context())
	require.Equal(t, "10.0.0.9:3", next.address(0))
	_, ok = tr.find(t.Context(), "10.0.0.3", 1)
	require.False(t, ok)
	addresses["a"], addresses["b"] = []string{"10.0.0.7"}, nil
	all, err := tr.resolve(t.Context())
	require.NoError(t, err, "a name that has no address is passed over")
	require.Len(t, all, 2)
	cfg.Servers = []string{"b:2"}
	tr, err = newTour(cfg)
	require.NoError(t, err)
	_, _, err = tr.next(t.Context())
	require.ErrorContains(t, err, "resolve b")
}

func TestBackoff(t *testing.T) {
	b := backoff{min: 100 * time.Millisecond, max: time.Second}
	for _, full := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		full *= time.Millisecond
		d := b.next()
		require.GreaterOrEqual(t, d, full/2)
		require.LessOrEqual(t, d, full)
	}
	b.reset()
	require.LessOrEqual(t, b.next(), 100*time.Millisecond)
}

func TestConfig_Validate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	for want, change := range map[string]func(*Config){
		"Servers is empty":             func(c *Config) { c.Servers = nil },
		"field Servers has":            func(c *Config) { c.Servers = []string{"a b"} },
		"Mode is 7":                    func(c *Config) { c.Mode = 7 },
		"Namespace is":                 func(c *Config) { c.Namespace = "a b" },
		"Username and Password":        func(c *Config) { c.Username = "x" },
		"choose one":                   func(c *Config) { c.Username, c.Password, c.Token = "x", "y", "z" },
		"GRPCOffset is":                func(c *Config) { c.GRPCOffset = 70000 },
		"CallTimeout is 0s":            func(c *Config) { c.CallTimeout = 0 },
		"BackoffMax is":                func(c *Config) { c.BackoffMax = c.BackoffMin - 1 },
		"Hold is -1ns":                 func(c *Config) { c.Hold = -1 },
		"Calls is 0":                   func(c *Config) { c.Calls = 0 },
		"LoadCacheAtStart needs":       func(c *Config) { c.LoadCacheAtStart = true },
		"FailoverInterval is -1s: it ": func(c *Config) { c.FailoverInterval = -time.Second },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
	}
}

const sample = `{"headers":{},"requestId":"42","serviceInfo":{"name":"demo","groupName":"g","clusters":"","cacheMillis":10000,"hosts":[
 {"instanceId":"10.0.0.7#8080#DEFAULT#g@@demo","ip":"10.0.0.7","port":8080,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","serviceName":"g@@demo","metadata":{"v":"1","é\n":"\u00fc"},"instanceHeartBeatInterval":5000}],
 "lastRefTime":1700000001000,"checksum":"","allIps":false,"reachProtectionThreshold":true,"valid":true},"module":"naming"}`

func TestDecode_Sample(t *testing.T) {
	m, err := decodeMessage([]byte(sample), nil)
	require.NoError(t, err)
	want := naming.NewInstance("10.0.0.7", 8080)
	want.Metadata = map[string]string{"v": "1", "é\n": "ü"}
	require.Equal(t, &Service{
		Key: naming.ServiceKey{Group: "g", Name: "demo"}, Instances: []*naming.Instance{&want},
		LastRefTimeMs: 1700000001000, CacheMs: 10000, ReachedProtection: true,
	}, m.service)
	again, err := decodeMessage([]byte(sample), func(string, string) *Service { return m.service })
	require.NoError(t, err)
	require.Equal(t, m.service, again.service)
}

func TestDecode_WhatServersMaySend(t *testing.T) {
	in := func(service string) []byte { return []byte(`{"serviceInfo":` + service + `}`) }
	host := func(fields string) []byte {
		return in(`{"name":"s","groupName":"g","hosts":[{"ip":"1.2.3.4",` + fields + `}]}`)
	}
	one := func(m *message) *naming.Instance { return m.service.Instances[0] }
	for text, check := range map[string]func(*message) bool{
		string(in(`null`)): func(m *message) bool { return m.service == nil },
		`null`:             func(m *message) bool { return m.service == nil },
		string(in(`{"name":"g@@s","hosts":null}`)):             func(m *message) bool { return m.service.Key.Group == "g" && m.service.Instances == nil },
		string(in(`{"name":"g@@s","groupName":"g"}`)):          func(m *message) bool { return m.service.Key.Name == "s" },
		string(in(`{"name":null,"lastRefTime":"7"}`)):          func(m *message) bool { return m.service.LastRefTimeMs == 7 },
		string(in(`{"lastRefTime":7.0}`)):                      func(m *message) bool { return m.service.LastRefTimeMs == 7 },
		string(in(`{"hosts":[null],"name":"s"}`)):              func(m *message) bool { return len(m.service.Instances) == 0 },
		string(host(`"port":"80","weight":"2.5"`)):             func(m *message) bool { return one(m).Port == 80 && one(m).Weight == 2.5 },
		string(host(`"port":80,"metadata":null`)):              func(m *message) bool { return one(m).Metadata == nil },
		string(host(`"port":80,"metadata":{"a":1}`)):           func(m *message) bool { return one(m).Metadata["a"] == "1" },
		string(host(`"port":80,"metadata":{"a":null}`)):        func(m *message) bool { return len(one(m).Metadata) == 0 },
		string(host(`"healthy":"false","enabled":null`)):       func(m *message) bool { return !one(m).Healthy && one(m).Enabled },
		string(host(`"weight":"NaN"`)):                         func(m *message) bool { return math.IsNaN(one(m).Weight) },
		string(host(`"x":{"y":[1,{"z":null}]}`)):               func(m *message) bool { return one(m).Cluster == naming.DefaultCluster },
		`{"resultCode":"500","errorCode":null,"message":"no"}`: func(m *message) bool { return m.code() == 500 && m.text == "no" },
		// One row for each address, the last one given.
		string(in(`{"name":"s","hosts":[{"ip":"b","port":1},{"ip":"a","port":1,"weight":1},{"ip":"a","port":1,"weight":2}]}`)): func(m *message) bool {
			return len(m.service.Instances) == 2 && one(m).IP == "a" && one(m).Weight == 2
		},
	} {
		m, err := decodeMessage([]byte(text), nil)
		require.NoError(t, err, text)
		require.True(t, check(m), text)
	}
	for _, text := range []string{
		``, `{`, `[]`, `7`, `{"serviceInfo":[]}`, `{"serviceInfo":{"hosts":{}}}`, `{"serviceInfo":{"hosts":[7]}}`, `{"serviceInfo":{"lastRefTime":"x"}}`,
		`{"serviceInfo":{"lastRefTime":1.5}}`, string(host(`"port":{}`)), string(host(`"healthy":7`)), string(host(`"metadata":[]`)),
		string(host(`"metadata":{"a":{}}`)), `{"a":tru}`, `{"a":01x}`, `{"a":"` + "\n" + `"}`, `{"a":"\x"}`, `{"a" 1}`, `{"a":1,}`, `{} {}`,
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100),
	} {
		_, err := decodeMessage([]byte(text), nil)
		require.Error(t, err, text)
	}
	for cut := range len(sample) {
		_, err := decodeMessage([]byte(sample[:cut]), nil)
		require.Error(t, err, "cut at %d", cut)
	}
}

// What encoding/json reads as the plain shape of a list is read the same, and nothing
// makes the parser panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(`{"resultCode":500,"message":"\ud83d\ude00"}`))
	f.Add([]byte(`{"serviceInfo":{"name":"s","hosts":[{"ip":"a","port":1e2}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b, nil)
		if err != nil {
			return
		}
		var plain struct {
			ResultCode  *wire.Int
			Message     wire.Str
			ServiceInfo *struct {
				LastRefTime wire.Int
				Hosts       []*wire.Instance
			}
		}
		if json.Unmarshal(b, &plain) != nil || !json.Valid(b) {
			return
		}
		if plain.ServiceInfo == nil || m.service == nil {
			return
		}
		seen := map[naming.InstanceKey]bool{}
		for _, i := range plain.ServiceInfo.Hosts {
			if i != nil {
				seen[i.Naming(true).Key()] = true
			}
		}
		if strings.Contains(strings.ToLower(string(b)), `"hosts"`) && strings.Count(string(b), `osts`) == 1 && len(seen) < len(m.service.Instances) {
			t.Fatalf("%d instances, encoding/json has %d", len(m.service.Instances), len(seen))
		}
		again, err := decodeMessage(b, func(string, string) *Service { return m.service })
		if err != nil {
			t.Fatal(err)
		}
		if added, removed, changed := diff(m.service.Instances, again.service.Instances); len(added)+len(removed)+len(changed) > 0 && !strings.Contains(strings.ToLower(string(b)), "nan") {
			t.Fatalf("read twice it differs: %v %v %v", added, removed, changed)
		}
	})
}

func TestDecode_SharesWhatDidNotChange(t *testing.T) {
	body := bigPush(1000, -1)
	first, err := decodeMessage(body, nil)
	require.NoError(t, err)
	require.Len(t, first.service.Instances, 1000)
	allocations := testing.AllocsPerRun(10, func() {
		_, err = decodeMessage(body, func(string, string) *Service { return first.service })
	})
	require.NoError(t, err)
	require.Less(t, allocations, 100.0, "for 1,000 instances")
	changed, err := decodeMessage(bigPush(1000, rand.IntN(1000)), func(string, string) *Service { return first.service })
	require.NoError(t, err)
	_, _, changes := diff(first.service.Instances, changed.service.Instances)
	require.Len(t, changes, 1)
}

// bigPush is a push of n instances; one of them, if not below zero, is unhealthy.
func bigPush(n, sick int) []byte {
	info := &naming.ServiceInfo{Key: naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}, CacheMs: 10000, LastRefTimeMs: 1}
	for k := range n {
		i := naming.NewInstance(fmt.Sprintf("10.%d.%d.%d", k/62500, k/250%250, k%250), 8080)
		i.Metadata = map[string]string{"zone": fmt.Sprintf("z%d", k%3), "version": "1.2.3"}
		i.Healthy = k != sick
		info.Hosts = append(info.Hosts, &i)
	}
	slices.SortFunc(info.Hosts, func(a, b *naming.Instance) int { return a.Key().Compare(b.Key()) })
	return wire.NotifySubscriber("", 1, info).JSON()
}

func TestPattern_Matches(t *testing.T) {
	for pattern, texts := range map[string][2]string{
		"*": {"a  ab", ""}, "a": {"a", "ab ba b"}, "a*": {"a ab", "ba b"}, "*a": {"a ba", "ab b"}, "*a*": {"a ab ba bab", "b"},
	} {
		for text := range strings.FieldsSeq(texts[0]) {
			require.True(t, matches(pattern, text), "%s %s", pattern, text)
		}
		for text := range strings.FieldsSeq(texts[1]) {
			require.False(t, matches(pattern, text), "%s %s", pattern, text)
		}
	}
	p := patternKey{"public", "g", "s*"}
	require.Equal(t, "public>>g>>s*", p.String())
	require.True(t, p.matches(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s1"}))
	require.False(t, p.matches(naming.ServiceKey{Namespace: "other", Group: "g", Name: "s1"}))
}

func TestWatchedKey(t *testing.T) {
	key, err := watchedKey("public@@g@@a@@b")
	require.NoError(t, err)
	require.Equal(t, naming.ServiceKey{Namespace: "public", Group: "g", Name: "a@@b"}, key)
	_, err = watchedKey("g@@s")
	require.ErrorContains(t, err, "serviceKey")
}
