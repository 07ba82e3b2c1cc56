package naming_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// What the validators let pass can be joined and taken apart again, and is text.
func FuzzNames(f *testing.F) {
	for _, s := range []string{
		"", " ", "public", "a b", "a@@b", "@@", "@a", "a@", "G1@@s", "a_b", "a,b", ",", "DEFAULT_GROUP", "providers:com.example.Api:1.0:",
		"10.0.0.1", "010.0.0.1", "999.1.1.1", "1.2.3.", "::1", "fe80::1%eth0", "host.example", "\x00", "\xff", "\xed\xa0\x80", "\ufffd", "\u00a0", "\u2028",
		"中", "é", "😀", "a\u200bb", "##", "a##b", "65535", "65536", "-1", "+1", "0x50", "1e3", " 80", "٣", strings.Repeat("a", 65), strings.Repeat("😀", 65),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, rule := range []struct {
			field string
			err   error
			limit int
		}{
			{"namespaceId/tenant", naming.CheckNamespace(s), 64},
			{"serviceName", naming.CheckService(s), 512},
			{"group", naming.CheckGroup(s), 128},
			{"ip", naming.CheckIP(s), 128},
		} {
			if rule.err != nil {
				var invalid *naming.InvalidError
				require.ErrorAs(t, rule.err, &invalid)
				require.Equal(t, naming.FaultParam, invalid.Fault)
				require.Equal(t, rule.field, invalid.Field)
				require.Contains(t, invalid.Text, "Param '"+rule.field+"' is ")
				continue
			}
			require.NotEmpty(t, s)
			require.True(t, utf8.ValidString(s))
			require.LessOrEqual(t, utf8.RuneCountInString(s), rule.limit)
			require.False(t, strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r < ' ' || r == 0x7f }), "%q", s)
			if rule.field != "ip" {
				require.NotContains(t, s, naming.Separator)
			}
		}
		if naming.CheckService(s) == nil {
			k := naming.ServiceKey{Namespace: "n", Group: "g", Name: s}
			require.NoError(t, naming.CheckKey(k))
			group, name, ok := naming.SplitGrouped(k.Grouped())
			require.True(t, ok)
			require.Equal(t, "g", group)
			require.Equal(t, s, name)
		}
		if naming.CheckGroup(s) == nil {
			group, name, ok := naming.SplitGrouped(naming.ServiceKey{Group: s, Name: "s"}.Grouped())
			require.Equal(t, []any{s, "s", true}, []any{group, name, ok})
		}
		if naming.CheckClusters(s) == nil && strings.TrimSpace(s) != "" {
			for name := range strings.SplitSeq(s, ",") {
				require.NotEmpty(t, name)
				require.False(t, strings.ContainsFunc(name, func(r rune) bool { return r > 'z' || unicode.IsSpace(r) }), "%q", name)
			}
		}
		if port, err := naming.ParsePort(s); err == nil {
			require.GreaterOrEqual(t, port, 0)
			require.LessOrEqual(t, port, math.MaxUint16)
		}
	})
}

// An instance that passes can be stored, shown and compared whatever it holds.
func FuzzInstance(f *testing.F) {
	f.Add("", "10.0.0.1", "DEFAULT", "k", "v", "", "", 80, 1.0)
	f.Add("x", "host", "a-b", naming.MetaBeatInterval, "5000", naming.MetaBeatTimeout, "15000", 0, 0.0)
	f.Add("\xff", "\x00", "a_b", naming.MetaBeatTimeout, "99999999999999999999", naming.MetaDeleteTimeout, "-1", 65535, 10000.0)
	f.Add("", "1", "", naming.MetaIDGenerator, "snowflake", naming.MetaClientBeat, "true", -1, math.NaN())
	f.Add("", "::1", "c", "\xff", "\xed\xa0\x80", "", "9007199254740992", 65536, math.Inf(1))
	f.Add("", "a", "c", naming.MetaBeatInterval, "9007199254740992", naming.MetaDeleteTimeout, "9007199254740993", 1, math.Copysign(0, -1))
	f.Fuzz(func(t *testing.T, id, ip, cluster, k1, v1, k2, v2 string, port int, weight float64) {
		i := naming.NewInstance(ip, port)
		i.ID, i.Cluster, i.Weight, i.Metadata = id, cluster, weight, map[string]string{k1: v1, k2: v2}
		for _, d := range []time.Duration{i.BeatInterval(naming.DefaultBeatInterval), i.BeatTimeout(), i.DeleteTimeout()} {
			require.GreaterOrEqual(t, d, time.Duration(0))
			require.LessOrEqual(t, d, 10*366*24*time.Hour)
		}
		err := naming.CheckInstance(&i, naming.DefaultMetadataLimit)
		override := naming.Override{Weight: weight, Enabled: true, Metadata: i.Metadata}
		plain := naming.NewInstance("10.0.0.1", 80)
		require.Equal(t, naming.CheckWeight(weight) == nil, naming.CheckOverride(&naming.Override{Weight: weight}, &plain, 0) == nil)
		if err != nil {
			var invalid *naming.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Field)
			require.NotEmpty(t, invalid.Text)
			return
		}
		require.NoError(t, naming.CheckOverride(&override, &plain, naming.DefaultMetadataLimit), "what may be registered may be laid over another")
		raw, err := json.Marshal(i) // fails for what is no number
		require.NoError(t, err)
		var back naming.Instance
		require.NoError(t, json.Unmarshal(raw, &back))
		require.True(t, i.Equal(&back), "%+v", i)
		svc := naming.Service{Key: naming.ServiceKey{Namespace: "n", Group: "g", Name: "s"}, Instances: []*naming.Instance{&i}}
		require.Same(t, &i, svc.Find(i.Key()))
		require.Len(t, naming.Filter{Clusters: cluster}.View(&svc).Hosts, 1)
	})
}
