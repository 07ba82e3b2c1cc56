package naming_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestSplitGrouped(t *testing.T) {
	for _, c := range []struct {
		text, group, name string
		ok                bool
	}{
		{"g@@s", "g", "s", true},
		{"s", "s", "", false},
		{"", "", "", false},
		{"@@s", "", "s", true},
		{"g@@", "g", "", true},
		{"@@", "", "", true},
		{"g@@a@@b", "g", "a@@b", true},
		{"g@s", "g@s", "", false},
		{"g@@@s", "g", "@s", true},
	} {
		group, name, ok := naming.SplitGrouped(c.text)
		require.Equal(t, []any{c.group, c.name, c.ok}, []any{group, name, ok}, c.text)
	}
}

func TestServiceKey_Text(t *testing.T) {
	k := naming.ServiceKey{Namespace: "n", Group: "g", Name: "s"}
	require.Equal(t, "g@@s", k.Grouped())
	require.Equal(t, "n##g@@s", k.String())
	group, name, ok := naming.SplitGrouped(k.Grouped())
	require.True(t, ok)
	require.Equal(t, []string{"g", "s"}, []string{group, name})
}

func TestKeys_Order(t *testing.T) {
	services := []naming.ServiceKey{
		{"a", "a", "a"}, {"a", "a", "b"}, {"a", "b", "a"}, {"b", "a", "a"},
	}
	instances := []naming.InstanceKey{
		{"a", "10.0.0.1", 80}, {"a", "10.0.0.1", 443}, {"a", "10.0.0.10", 80}, {"a", "10.0.0.2", 80}, {"b", "10.0.0.1", 80},
	}
	shuffledServices, shuffledInstances := slices.Clone(services), slices.Clone(instances)
	rand.Shuffle(len(services), func(i, j int) {
		shuffledServices[i], shuffledServices[j] = shuffledServices[j], shuffledServices[i]
	})
	rand.Shuffle(len(instances), func(i, j int) {
		shuffledInstances[i], shuffledInstances[j] = shuffledInstances[j], shuffledInstances[i]
	})
	slices.SortFunc(shuffledServices, naming.ServiceKey.Compare)
	slices.SortFunc(shuffledInstances, naming.InstanceKey.Compare)
	require.Equal(t, services, shuffledServices)
	require.Equal(t, instances, shuffledInstances)
	require.Zero(t, services[0].Compare(services[0]))
}

func TestAddress(t *testing.T) {
	require.Equal(t, "10.0.0.1:80", naming.Address("10.0.0.1", 80))
	require.Equal(t, "::1:80", naming.InstanceKey{IP: "::1", Port: 80}.Address())
}

func TestNewInstance_Defaults(t *testing.T) {
	i := naming.NewInstance("10.0.0.1", 80)
	require.Equal(t, naming.Instance{
		IP: "10.0.0.1", Port: 80, Cluster: "DEFAULT", Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
	}, i)
	require.NoError(t, naming.CheckInstance(&i, naming.DefaultMetadataLimit))
}

func TestInstance_InstanceID(t *testing.T) {
	i := naming.NewInstance("10.0.0.1", 80)
	k := naming.ServiceKey{Namespace: "n", Group: "g", Name: "s"}
	require.Equal(t, "10.0.0.1#80#DEFAULT#g@@s", i.InstanceID(k))
	i.ID = "mine"
	require.Equal(t, "mine", i.InstanceID(k))
}

func TestInstance_With_LeavesTheOriginal(t *testing.T) {
	i := naming.NewInstance("10.0.0.1", 80)
	i.Metadata = map[string]string{"k": "v"}
	c := i.With(func(c *naming.Instance) {
		c.Weight = 2
		c.Metadata = map[string]string{"k": "w"}
	})
	require.InDelta(t, 1, i.Weight, 0)
	require.Equal(t, "v", i.Metadata["k"])
	require.InDelta(t, 2, c.Weight, 0)
}

func TestInstance_Equal(t *testing.T) {
	i := naming.NewInstance("10.0.0.1", 80)
	i.Metadata = map[string]string{"k": "v"}
	same := i
	same.Metadata = map[string]string{"k": "v"}
	require.True(t, i.Equal(&i))
	require.True(t, i.Equal(&same))
	for name, change := range map[string]func(*naming.Instance){
		"id":            func(c *naming.Instance) { c.ID = "x" },
		"ip":            func(c *naming.Instance) { c.IP = "10.0.0.2" },
		"port":          func(c *naming.Instance) { c.Port = 81 },
		"cluster":       func(c *naming.Instance) { c.Cluster = "c" },
		"weight":        func(c *naming.Instance) { c.Weight = 2 },
		"healthy":       func(c *naming.Instance) { c.Healthy = false },
		"enabled":       func(c *naming.Instance) { c.Enabled = false },
		"ephemeral":     func(c *naming.Instance) { c.Ephemeral = false },
		"metadata":      func(c *naming.Instance) { c.Metadata = map[string]string{"k": "w"} },
		"more metadata": func(c *naming.Instance) { c.Metadata = map[string]string{"k": "v", "l": ""} },
		"no metadata":   func(c *naming.Instance) { c.Metadata = nil },
	} {
		require.False(t, i.Equal(i.With(change)), name)
	}
	none, empty := naming.NewInstance("10.0.0.1", 80), naming.NewInstance("10.0.0.1", 80)
	empty.Metadata = map[string]string{}
	require.True(t, none.Equal(&empty))
}

func TestInstance_BeatTimes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1000":                 time.Second,
		"0":                    0,
		"007":                  7 * time.Millisecond,
		"":                     naming.DefaultBeatInterval, // no number: the default
		"abc":                  naming.DefaultBeatInterval,
		"-1":                   naming.DefaultBeatInterval,
		"+1":                   naming.DefaultBeatInterval,
		"1.5":                  naming.DefaultBeatInterval,
		" 1":                   naming.DefaultBeatInterval,
		"1s":                   naming.DefaultBeatInterval,
		"99999999999999999999": naming.DefaultBeatInterval,
	} {
		i := naming.NewInstance("10.0.0.1", 80)
		i.Metadata = map[string]string{naming.MetaBeatInterval: text}
		require.Equal(t, want, i.BeatInterval(naming.DefaultBeatInterval), "%q", text)
	}
	i := naming.NewInstance("10.0.0.1", 80)
	require.Equal(t, 7*time.Second, i.BeatInterval(7*time.Second))
	require.Equal(t, 15*time.Second, i.BeatTimeout())
	require.Equal(t, 30*time.Second, i.DeleteTimeout())
	i.Metadata = map[string]string{naming.MetaBeatTimeout: "10000", naming.MetaDeleteTimeout: "9007199254740992"}
	require.Equal(t, 10*time.Second, i.BeatTimeout())
	require.Positive(t, i.DeleteTimeout(), "a time beyond what a Duration holds is cut, not turned over")
}

func TestInstance_BeatsChecked(t *testing.T) {
	i := naming.NewInstance("10.0.0.1", 80)
	require.True(t, i.BeatsChecked())
	for text, checked := range map[string]bool{"true": false, "false": true, "": true, "TRUE": true} {
		i.Metadata = map[string]string{naming.MetaClientBeat: text}
		require.Equal(t, checked, i.BeatsChecked(), text)
	}
}

func TestKindOf(t *testing.T) {
	require.Equal(t, naming.KindEphemeral, naming.KindOf(true))
	require.Equal(t, naming.KindPersistent, naming.KindOf(false))
	require.Zero(t, naming.KindNone)
}

func TestOverride_Apply(t *testing.T) {
	i := naming.NewInstance("10.0.0.1", 80)
	i.Metadata = map[string]string{"a": "published", "b": "published"}
	o := &naming.Override{Weight: 3, Enabled: false, Metadata: map[string]string{"b": "operator", "c": "operator"}}
	got := o.Apply(&i)
	require.InDelta(t, 3, got.Weight, 0)
	require.False(t, got.Enabled)
	require.Equal(t, map[string]string{"a": "published", "b": "operator", "c": "operator"}, got.Metadata)
	require.Equal(t, map[string]string{"a": "published", "b": "published"}, i.Metadata)
	require.True(t, i.Enabled)
	require.Len(t, o.Metadata, 2)

	plain := (&naming.Override{Weight: 1, Enabled: true}).Apply(&i)
	require.True(t, plain.Equal(&i))
	bare := naming.NewInstance("10.0.0.1", 80)
	require.Equal(t, o.Metadata, o.Apply(&bare).Metadata)
}

func TestService_EffectiveAndFind(t *testing.T) {
	s := &naming.Service{Key: svc(), Instances: hosts("a1", "a2", "b1")}
	require.Equal(t, s.Instances, s.Effective())
	require.Same(t, s.Instances[1], s.Find(s.Instances[1].Key()))
	require.Nil(t, s.Find(naming.InstanceKey{Cluster: "a", IP: "10.0.0.9", Port: 80}))
	require.Nil(t, (&naming.Service{}).Find(naming.InstanceKey{}))

	absent := naming.InstanceKey{Cluster: "z", IP: "10.0.0.9", Port: 80}
	s.Overrides = map[naming.InstanceKey]*naming.Override{
		s.Instances[1].Key(): {Weight: 4, Enabled: true},
		absent:               {Weight: 5, Enabled: true},
	}
	got := s.Effective()
	require.Len(t, got, 3, "an override makes no instance")
	require.Same(t, s.Instances[0], got[0])
	require.InDelta(t, 4, got[1].Weight, 0)
	require.InDelta(t, 1, s.Instances[1].Weight, 0)
	require.InDelta(t, 4, s.Find(s.Instances[1].Key()).Weight, 0)
	require.Nil(t, s.Find(absent))
}

func TestServiceInfo_EncodesOncePerSlot(t *testing.T) {
	info := &naming.ServiceInfo{Key: svc()}
	var calls atomic.Int32
	encode := func(text string) func(*naming.ServiceInfo) []byte {
		return func(i *naming.ServiceInfo) []byte {
			calls.Add(1)
			return []byte(text + i.Key.Name)
		}
	}
	for slot := range naming.Encodings {
		text := strconv.Itoa(slot)
		require.Equal(t, text+"s", string(info.Encoding(slot, encode(text))))
		require.Equal(t, text+"s", string(info.Encoding(slot, encode("other"))))
	}
	require.EqualValues(t, naming.Encodings, calls.Load())

	shared := &naming.ServiceInfo{Key: svc()}
	var wg sync.WaitGroup
	results := make([]*byte, 16)
	for n := range results {
		wg.Go(func() { results[n] = &shared.Encoding(0, encode("x"))[0] })
	}
	wg.Wait()
	for _, r := range results {
		require.Same(t, results[0], r, "concurrent first calls get the same bytes")
	}
}

func TestServiceInfo_SameContent(t *testing.T) {
	view := func() *naming.ServiceInfo {
		return naming.Filter{Clusters: "a"}.View(&naming.Service{Key: svc(), Instances: hosts("a1", "a2")})
	}
	require.True(t, view().SameContent(view()))
	later := view()
	later.LastRefTimeMs = 7
	require.True(t, view().SameContent(later), "the time is no content")
	for name, change := range map[string]func(*naming.ServiceInfo){
		"key":        func(i *naming.ServiceInfo) { i.Key.Name = "t" },
		"clusters":   func(i *naming.ServiceInfo) { i.Clusters = "" },
		"protection": func(i *naming.ServiceInfo) { i.ReachedProtection = true },
		"cache time": func(i *naming.ServiceInfo) { i.CacheMs = 1 },
		"hosts":      func(i *naming.ServiceInfo) { i.Hosts = i.Hosts[:1] },
		"order":      func(i *naming.ServiceInfo) { slices.Reverse(i.Hosts) },
	} {
		other := view()
		change(other)
		require.False(t, view().SameContent(other), name)
	}
}
