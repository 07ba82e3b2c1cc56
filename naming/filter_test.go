package naming_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func svc() naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}
}

// hosts makes instances from words like "a1", "b2-" and "a3!": the cluster, the
// end of the address, "-" for unhealthy and "!" for disabled.
func hosts(words ...string) []*naming.Instance {
	var out []*naming.Instance
	for _, w := range words {
		i := naming.NewInstance("10.0.0."+w[1:2], 80)
		i.Cluster = w[:1]
		i.Healthy = !strings.Contains(w, "-")
		i.Enabled = !strings.Contains(w, "!")
		out = append(out, &i)
	}
	return out
}

// words is the inverse of hosts.
func words(instances []*naming.Instance) []string {
	out := []string{}
	for _, i := range instances {
		w := i.Cluster + i.IP[len(i.IP)-1:]
		if !i.Healthy {
			w += "-"
		}
		if !i.Enabled {
			w += "!"
		}
		out = append(out, w)
	}
	return out
}

func threshold(t float64) *naming.Settings { return &naming.Settings{ProtectThreshold: t} }

func TestView_S1_ClusterFilter(t *testing.T) {
	s := &naming.Service{Key: svc(), Instances: hosts("a1", "a2", "b1", "c1")}
	for filter, want := range map[string][]string{
		"":        {"a1", "a2", "b1", "c1"},
		"   ":     {"a1", "a2", "b1", "c1"},
		"a":       {"a1", "a2"},
		"a,c":     {"a1", "a2", "c1"},
		"c,a":     {"a1", "a2", "c1"}, // in the order of the service
		" a , c ": {"a1", "a2", "c1"},
		"a,a":     {"a1", "a2"},
		"a,x":     {"a1", "a2"},
		"A":       {}, // exact
		"x":       {},
		"aa":      {},
		"a,":      {"a1", "a2"},
	} {
		info := naming.Filter{Clusters: filter}.View(s)
		require.Equal(t, want, words(info.Hosts), "%q", filter)
		require.Equal(t, filter, info.Clusters, "the filter is echoed byte for byte")
		require.Equal(t, svc(), info.Key)
		require.False(t, info.ReachedProtection)
	}
}

func TestView_S2_DisabledAreNeverShown(t *testing.T) {
	s := &naming.Service{Key: svc(), Instances: hosts("a1!", "a2", "a3-!", "a4-")}
	require.Equal(t, []string{"a2", "a4-"}, words(naming.Filter{}.View(s).Hosts))
	require.Equal(t, []string{"a2"}, words(naming.Filter{HealthyOnly: true}.View(s).Hosts))

	s.Settings = threshold(0.5) // one of two, the disabled ones do not count
	info := naming.Filter{}.View(s)
	require.True(t, info.ReachedProtection)
	require.Equal(t, []string{"a2", "a4"}, words(info.Hosts))
}

func TestView_S3_Protection(t *testing.T) {
	off := threshold(1)
	off.Metadata = map[string]string{naming.MetaProtection: "off"}
	on := threshold(1)
	on.Metadata = map[string]string{naming.MetaProtection: "on"}
	for _, c := range []struct {
		name     string
		settings *naming.Settings
		hosts    []string
		protects bool
	}{
		{"no settings, none healthy", nil, []string{"a1-", "a2-"}, false},
		{"threshold 0, none healthy", threshold(0), []string{"a1-", "a2-"}, true},
		{"threshold 0, one healthy", threshold(0), []string{"a1-", "a2"}, false},
		{"negative counts as 0, none healthy", threshold(-1), []string{"a1-"}, true},
		{"negative counts as 0, one healthy", threshold(-1), []string{"a1-", "a2"}, false},
		{"exactly at the threshold", threshold(0.5), []string{"a1-", "a2"}, true},
		{"above the threshold", threshold(0.5), []string{"a1-", "a2", "a3"}, false},
		{"below the threshold", threshold(0.5), []string{"a1-", "a2-", "a3"}, true},
		{"a third", threshold(1.0 / 3), []string{"a1-", "a2-", "a3"}, true},
		{"threshold 1, all healthy", threshold(1), []string{"a1", "a2"}, true},
		{"threshold above 1", threshold(2), []string{"a1"}, true},
		{"nothing there", threshold(1), nil, false},
		{"nothing there that is enabled", threshold(1), []string{"a1!"}, false},
		{"switched off", off, []string{"a1-"}, false},
		{"not switched off", on, []string{"a1-"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &naming.Service{Key: svc(), Settings: c.settings, Instances: hosts(c.hosts...)}
			stored := words(s.Instances)
			info := naming.Filter{}.View(s)
			require.Equal(t, c.protects, info.ReachedProtection)
			for n, i := range info.Hosts {
				require.Equal(t, c.protects || !strings.Contains(c.hosts[n], "-"), i.Healthy)
			}
			require.Equal(t, stored, words(s.Instances), "what is stored stays")
		})
	}
}

func TestView_S3_ProtectionLooksAtTheAskedClusters(t *testing.T) {
	s := &naming.Service{Key: svc(), Settings: threshold(0.5), Instances: hosts("a1-", "a2-", "b1", "b2", "b3")}
	require.False(t, naming.Filter{}.View(s).ReachedProtection)
	require.True(t, naming.Filter{Clusters: "a"}.View(s).ReachedProtection)
	require.False(t, naming.Filter{Clusters: "b"}.View(s).ReachedProtection)
	require.False(t, naming.Filter{Clusters: "x"}.View(s).ReachedProtection)
}

func TestView_S4_HealthyOnlyCutsBeforeProtection(t *testing.T) {
	s := &naming.Service{Key: svc(), Settings: threshold(0.5), Instances: hosts("a1-", "a2-", "a3")}
	info := naming.Filter{HealthyOnly: true}.View(s)
	require.False(t, info.ReachedProtection, "all that is left is healthy")
	require.Equal(t, []string{"a3"}, words(info.Hosts))

	s.Settings = threshold(1)
	info = naming.Filter{HealthyOnly: true}.View(s)
	require.True(t, info.ReachedProtection)
	require.Equal(t, []string{"a3"}, words(info.Hosts))
}

// Here Rollcall differs from S4 on purpose; see the package's documentation.
func TestView_S4_HealthyOnlyWithNoneHealthyAnswersTheProtectedList(t *testing.T) {
	s := &naming.Service{Key: svc(), Settings: threshold(0), Instances: hosts("a1-", "a2-", "b1")}
	info := naming.Filter{HealthyOnly: true, Clusters: "a"}.View(s)
	require.True(t, info.ReachedProtection)
	require.Equal(t, []string{"a1", "a2"}, words(info.Hosts))

	s.Settings.Metadata = map[string]string{naming.MetaProtection: "off"}
	info = naming.Filter{HealthyOnly: true, Clusters: "a"}.View(s)
	require.False(t, info.ReachedProtection)
	require.Empty(t, info.Hosts)
}

func TestView_S5_WeightZeroIsShown(t *testing.T) {
	instances := hosts("a1")
	instances[0].Weight = 0
	info := naming.Filter{HealthyOnly: true}.View(&naming.Service{Key: svc(), Instances: instances})
	require.Equal(t, instances, info.Hosts)
}

func TestView_S7_HealthyOnly(t *testing.T) {
	s := &naming.Service{Key: svc(), Instances: hosts("a1-", "a2", "b1-", "b2")}
	require.Equal(t, []string{"a2", "b2"}, words(naming.Filter{HealthyOnly: true}.View(s).Hosts))
	require.Equal(t, []string{"b2"}, words(naming.Filter{HealthyOnly: true, Clusters: "b"}.View(s).Hosts))
	s.Instances = hosts("a1-", "a2-")
	info := naming.Filter{HealthyOnly: true}.View(s)
	require.Empty(t, info.Hosts, "none is no error")
}

func TestView_AppliesOverridesFirst(t *testing.T) {
	s := &naming.Service{Key: svc(), Instances: hosts("a1", "a2!", "a3")}
	s.Overrides = map[naming.InstanceKey]*naming.Override{
		s.Instances[0].Key(): {Enabled: false, Weight: 1},
		s.Instances[1].Key(): {Enabled: true, Weight: 5},
	}
	info := naming.Filter{}.View(s)
	require.Equal(t, []string{"a2", "a3"}, words(info.Hosts))
	require.InDelta(t, 5, info.Hosts[0].Weight, 0)
}

// View against a version that follows the rules one after the other.
func TestView_AgreesWithTheRules(t *testing.T) {
	require.NoError(t, quick.Check(func(flags []uint8, healthyOnly, hasSettings bool, percent uint8) bool {
		s := &naming.Service{Key: svc()}
		for n, f := range flags[:min(len(flags), 9)] {
			w := string("ab"[f&1]) + fmt.Sprint(n)
			if f&2 != 0 {
				w += "-"
			}
			if f&4 != 0 {
				w += "!"
			}
			s.Instances = append(s.Instances, hosts(w)...)
		}
		if hasSettings {
			s.Settings = threshold(float64(percent%101) / 100)
		}
		want := slices.DeleteFunc(words(s.Instances), func(w string) bool { return w[0] != 'a' || strings.HasSuffix(w, "!") })
		healthy := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.HasSuffix(w, "-") })
		if healthyOnly && len(healthy) > 0 {
			want = healthy
		}
		protects := hasSettings && len(want) > 0 && float64(len(healthy))/float64(len(want)) <= s.Settings.ProtectThreshold
		switch {
		case protects:
			for n, w := range want {
				want[n] = strings.TrimSuffix(w, "-")
			}
		case healthyOnly:
			want = healthy
		}
		info := naming.Filter{Clusters: "a", HealthyOnly: healthyOnly}.View(s)
		return info.ReachedProtection == protects && slices.Equal(want, words(info.Hosts))
	}, nil))
}
