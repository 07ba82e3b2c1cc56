package naming_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

const (
	illegal = "illegal characters should not appear in the param."
	emoji   = "\U0001F600" // two UTF-16 units, four bytes
)

// rule is one value and what the validator says to it; empty says accepts.
type rule struct {
	value string
	says  string
}

func checkRules(t *testing.T, field string, check func(string) error, rules []rule) {
	t.Helper()
	for _, r := range rules {
		name := r.value
		if len(name) > 40 {
			name = name[:40] + "... of " + strconv.Itoa(len(r.value))
		}
		t.Run(strconv.QuoteToASCII(name), func(t *testing.T) {
			err := check(r.value)
			if r.says == "" {
				require.NoError(t, err)
				return
			}
			var invalid *naming.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, naming.FaultParam, invalid.Fault)
			require.Equal(t, field, invalid.Field)
			require.Equal(t, "Param '"+field+"' is illegal, "+r.says, err.Error())
		})
	}
}

func tooLong(limit int) string {
	return "the param length should not exceed " + strconv.Itoa(limit) + "."
}

func TestCheckNamespace(t *testing.T) {
	checkRules(t, "namespaceId/tenant", naming.CheckNamespace, []rule{
		{"public", ""},
		{"aZ09_-", ""},
		{"7d8b7a3e-0c61-4c5e-9b3f-3f1f2b5c7a10", ""},
		{strings.Repeat("a", 64), ""},
		{strings.Repeat("a", 65), tooLong(64)},
		{strings.Repeat("é", 65), tooLong(64)}, // the length is looked at first
		{"", illegal},
		{"a b", illegal},
		{"a ", illegal},
		{"a.b", illegal},
		{"a:b", illegal},
		{"a/b", illegal},
		{"é", illegal},
		{"a\x00", illegal},
		{"\xff", illegal},
	})
}

func TestCheckService(t *testing.T) {
	checkRules(t, "serviceName", naming.CheckService, []rule{
		{"orders", ""},
		{"providers:com.example.Api:1.0:group", ""},
		{"com.example.Api$Inner#%&*()[]{}|;'\",<>/?~", ""},
		{"a@b", ""},
		{"a@", ""},
		{"@a", illegal},
		{"a@@b", illegal},
		{"@@", illegal},
		{"", illegal},
		{"a b", illegal},
		{"a\tb", illegal},
		{"a\nb", illegal},
		{"a\x00b", illegal},
		{"a\x7fb", illegal},
		{"a\u00a0b", illegal},
		{"a\u3000b", illegal},
		{"服务", illegal},
		{"a\u4dffb", ""},      // one before the Chinese characters
		{"a\u4e00b", illegal}, // the first
		{"a\u9fa5b", illegal}, // the last
		{"a\u9fa6b", ""},      // one after
		{"café", ""},
		{"あ", ""},
		{emoji, ""},
		{"a\xffb", illegal},
		{strings.Repeat("a", 512), ""},
		{strings.Repeat("a", 513), tooLong(512)},
		{strings.Repeat("é", 512), ""}, // characters, not bytes
		{strings.Repeat("é", 513), tooLong(512)},
		{strings.Repeat(emoji, 256), ""}, // UTF-16 units
		{strings.Repeat(emoji, 256) + "a", tooLong(512)},
		{strings.Repeat(emoji, 257), tooLong(512)},
	})
}

func TestCheckGroup(t *testing.T) {
	checkRules(t, "group", naming.CheckGroup, []rule{
		{"DEFAULT_GROUP", ""},
		{"aZ09-_:.", ""},
		{strings.Repeat("g", 128), ""},
		{strings.Repeat("g", 129), tooLong(128)},
		{"", illegal},
		{"*", illegal},
		{"a@b", illegal},
		{"a b", illegal},
		{"a/b", illegal},
		{"é", illegal},
	})
}

func TestCheckKey_ChecksEachPart(t *testing.T) {
	good := naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}
	require.NoError(t, naming.CheckKey(good))
	for field, k := range map[string]naming.ServiceKey{
		"namespaceId/tenant": {Namespace: "", Group: "g", Name: "s"},
		"serviceName":        {Namespace: "public", Group: "g", Name: "@"},
		"group":              {Namespace: "public", Group: "*", Name: "s"},
	} {
		var invalid *naming.InvalidError
		require.ErrorAs(t, naming.CheckKey(k), &invalid)
		require.Equal(t, field, invalid.Field)
	}
}

func TestCheckClusters(t *testing.T) {
	checkRules(t, "cluster", naming.CheckClusters, []rule{
		{"", ""},
		{"  ", ""},
		{"DEFAULT", ""},
		{"a,b_c,d-e,F9", ""},
		{strings.Repeat("c", 64) + "," + strings.Repeat("d", 64), ""},
		{strings.Repeat("c", 65), tooLong(64)},
		{"a," + strings.Repeat("c", 65), tooLong(64)},
		{"a,,b", illegal},
		{",a", illegal},
		{"a,", illegal},
		{"a, b", illegal},
		{"a.b", illegal},
		{"é", illegal},
	})
}

func TestCheckIP(t *testing.T) {
	const neither = "' is neither an IP address nor a host name."
	checkRules(t, "ip", naming.CheckIP, []rule{
		{"10.0.0.1", ""},
		{"0.0.0.0", ""},
		{"255.255.255.255", ""},
		{"10.0.0.999", "'10.0.0.999" + neither},
		{"10.0.0.256", "'10.0.0.256" + neither},
		{"10.0.0", "'10.0.0" + neither},
		{"10.0.0.1.2", "'10.0.0.1.2" + neither},
		{"10.0.0.01", "'10.0.0.01" + neither},
		{"1", "'1" + neither},
		{"...", "'..." + neither},
		{"10.0.0.1a", ""}, // a host name
		{"host.example", ""},
		{"host_1-a", ""},
		{"::1", ""},
		{"fe80::1%eth0", ""},
		{"[::1]", ""},
		{"10.0.0.1 ", illegal},
		{" 10.0.0.1", illegal},
		{"a\tb", illegal},
		{"主机", illegal},
		{"a\xffb", illegal},
		{strings.Repeat("h", 128), ""},
		{strings.Repeat("h", 129), tooLong(128)},
	})
	err := naming.CheckIP("")
	require.EqualError(t, err, "Param 'ip' is required.")
}

func TestCheckPort(t *testing.T) {
	const says = "Param 'port' is illegal, the value should be between 0 and 65535."
	for _, p := range []int{0, 1, 8080, 65535} {
		require.NoError(t, naming.CheckPort(p))
		parsed, err := naming.ParsePort(strconv.Itoa(p))
		require.NoError(t, err)
		require.Equal(t, p, parsed)
	}
	for _, p := range []int{-1, 65536, math.MaxInt, math.MinInt} {
		require.EqualError(t, naming.CheckPort(p), says)
		_, err := naming.ParsePort(strconv.Itoa(p))
		require.EqualError(t, err, says)
	}
	for _, text := range []string{"", " 80", "80 ", "0x50", "8e1", "80.0", "99999999999999999999"} {
		_, err := naming.ParsePort(text)
		require.EqualError(t, err, says, text)
	}
}

func TestCheckWeight_S5(t *testing.T) {
	for _, w := range []float64{0, math.Copysign(0, -1), 0.001, 1, 9999.99, 10000} {
		require.NoError(t, naming.CheckWeight(w))
	}
	for _, w := range []float64{-0.001, -1, 10000.001, math.Inf(1), math.Inf(-1), math.NaN()} {
		var invalid *naming.InvalidError
		require.ErrorAs(t, naming.CheckWeight(w), &invalid)
		require.Equal(t, naming.FaultWeight, invalid.Fault)
		require.EqualError(t, invalid, "instance format invalid: The weights range from 0.0 to 10000.0")
	}
}

func TestCheckMetadata(t *testing.T) {
	fill := func(text string, n int) map[string]string { return map[string]string{"k": strings.Repeat(text, n)} }
	const limit = naming.DefaultMetadataLimit
	for _, c := range []struct {
		name  string
		m     map[string]string
		limit int
		says  string
	}{
		{"none", nil, limit, ""},
		{"at the limit", fill("v", 1023), limit, ""},
		{"beyond the limit", fill("v", 1024), limit, "Param 'Metadata' is illegal, the param length should not exceed 1024."},
		{"keys and values add up", map[string]string{strings.Repeat("a", 512): "", strings.Repeat("b", 256): strings.Repeat("c", 256)}, limit, ""},
		{"keys and values add up to too much", map[string]string{strings.Repeat("a", 513): "", strings.Repeat("b", 256): strings.Repeat("c", 256)}, limit, "Param 'Metadata' is illegal, the param length should not exceed 1024."},
		{"characters, not bytes", fill("é", 1023), limit, ""},
		{"UTF-16 units", fill(emoji, 511), limit, ""},
		{"UTF-16 units beyond the limit", fill(emoji, 512), limit, "Param 'Metadata' is illegal, the param length should not exceed 1024."},
		{"another limit", fill("v", 9), 10, ""},
		{"another limit, beyond", fill("v", 10), 10, "Param 'Metadata' is illegal, the param length should not exceed 10."},
		{"any text", map[string]string{"": "", "服务": "a\nb\x00\u2028"}, limit, ""},
		{"value that is no text", map[string]string{"k": "\xff"}, limit, "Param 'Metadata' is illegal, " + illegal},
		{"key that is no text", map[string]string{"\xff": "v"}, limit, "Param 'Metadata' is illegal, " + illegal},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := naming.CheckMetadata(c.m, c.limit)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.says)
			}
		})
	}
}

func TestCheckInstance(t *testing.T) {
	beats := func(interval, timeout, deletion string) func(*naming.Instance) {
		return func(i *naming.Instance) {
			i.Metadata = make(map[string]string)
			for k, v := range map[string]string{
				naming.MetaBeatInterval: interval, naming.MetaBeatTimeout: timeout, naming.MetaDeleteTimeout: deletion,
			} {
				if v != "" {
					i.Metadata[k] = v
				}
			}
		}
	}
	const beatText = "Instance 'heart beat interval' must less than 'heart beat timeout' and 'ip delete timeout'."
	for _, c := range []struct {
		name   string
		change func(*naming.Instance)
		fault  naming.Fault
		says   string
	}{
		{"as made", func(*naming.Instance) {}, 0, ""},
		{"ip", func(i *naming.Instance) { i.IP = "10.0.0.999" }, naming.FaultParam, "'10.0.0.999' is neither"},
		{"no ip", func(i *naming.Instance) { i.IP = "" }, naming.FaultParam, "'ip' is required"},
		{"port", func(i *naming.Instance) { i.Port = 65536 }, naming.FaultParam, "'port' is illegal"},
		{"metadata", func(i *naming.Instance) { i.Metadata = map[string]string{"k": strings.Repeat("v", 1024)} }, naming.FaultParam, "should not exceed 1024"},
		{"weight", func(i *naming.Instance) { i.Weight = 10001 }, naming.FaultWeight, "weights range"},
		{"id", func(i *naming.Instance) { i.ID = strings.Repeat("x", 512) }, 0, ""},
		{"long id", func(i *naming.Instance) { i.ID = strings.Repeat("x", 513) }, naming.FaultParam, "should not exceed 512"},
		{"id that is no text", func(i *naming.Instance) { i.ID = "\xff" }, naming.FaultParam, "'instanceId' is illegal"},

		{"no cluster", func(i *naming.Instance) { i.Cluster = "" }, naming.FaultParam, "'cluster' is illegal"},
		{"cluster", func(i *naming.Instance) { i.Cluster = "a-B9" }, 0, ""},
		{"long cluster", func(i *naming.Instance) { i.Cluster = strings.Repeat("c", 65) }, naming.FaultParam, "should not exceed 64"},
		{"cluster with a dot", func(i *naming.Instance) { i.Cluster = "a.b" }, naming.FaultParam, "'cluster' is illegal"},
		{"underscore", func(i *naming.Instance) { i.Cluster = "bad_name" }, naming.FaultInstance, "Instance 'clusterName' should be characters with only 0-9a-zA-Z-. (current: bad_name)"},
		{"two clusters", func(i *naming.Instance) { i.Cluster = "a,b" }, naming.FaultParam, "'cluster' is illegal"},

		{"beat times", beats("5000", "5000", "5000"), 0, ""},
		{"defaults", beats("", "", ""), 0, ""},
		{"timeout shorter than the interval", beats("5000", "4999", ""), naming.FaultInstance, beatText},
		{"deletion sooner than the interval", beats("5000", "", "4999"), naming.FaultInstance, beatText},
		{"interval longer than the default timeout", beats("15001", "", ""), naming.FaultInstance, beatText},
		{"timeout shorter than the default interval", beats("", "4999", ""), naming.FaultInstance, beatText},
		{"no numbers count as not given", beats("abc", "1s", "-1"), 0, ""},
		{"removal before unhealthy is allowed", beats("1000", "30000", "2000"), 0, ""},
		{"seconds for milliseconds are legal", beats("5", "15", "30"), 0, ""},

		{"simple ids", func(i *naming.Instance) { i.Metadata = map[string]string{naming.MetaIDGenerator: "simple"} }, 0, ""},
		{"snowflake ids", func(i *naming.Instance) { i.Metadata = map[string]string{naming.MetaIDGenerator: "snowflake"} }, 0, ""},
		{"no generator", func(i *naming.Instance) { i.Metadata = map[string]string{naming.MetaIDGenerator: ""} }, 0, ""},
		{"other ids", func(i *naming.Instance) { i.Metadata = map[string]string{naming.MetaIDGenerator: "uuid"} }, naming.FaultInstance, "'uuid' is neither simple nor snowflake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := naming.NewInstance("10.0.0.1", 80)
			c.change(&i)
			err := naming.CheckInstance(&i, naming.DefaultMetadataLimit)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			var invalid *naming.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.fault, invalid.Fault)
			require.ErrorContains(t, err, c.says)
			require.NotEmpty(t, invalid.Field)
		})
	}
}
