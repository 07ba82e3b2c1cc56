package server_test

import (
	"fmt"
	"math/rand"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// described is one operation of the description that the node serves.
type described struct {
	method, path string
	Summary      string
	Tags         []string
	Parameters   []struct {
		Name, In string
		Required bool
		Schema   struct{ Type string }
	}
	Responses map[string]struct{ Description string }
}

// description returns every operation that the node describes, sorted.
func (n *badNode) description(t *testing.T) (out []described) {
	t.Helper()
	a := n.do(t, "GET", "/openapi.yaml", "", "", nil)
	require.Equal(t, 200, a.status)
	var doc struct {
		OpenAPI string `yaml:"openapi"`
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]described
	}
	require.NoError(t, yaml.Unmarshal([]byte(a.body), &doc))
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.NotEmpty(t, doc.Info.Title)
	require.Equal(t, "test", doc.Info.Version)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			o.method, o.path = strings.ToUpper(method), path
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b described) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return out
}

// sample is a value that the parameter may have.
func sample(name string) string {
	switch name {
	case "serviceName":
		return "DEFAULT_GROUP@@s"
	case "ip", "clientIP":
		return "10.0.0.1"
	case "port", "checkPort":
		return "80"
	case "weight", "pageNo", "pageSize", "count":
		return "1"
	case "enabled", "healthy", "useInstancePort4Check":
		return "true"
	case "healthChecker":
		return `{"type":"TCP"}`
	case "metadata":
		return "a=1"
	case "protectThreshold":
		return "0.5"
	case "entry":
		return "clientBeatInterval"
	case "value":
		return "5000"
	case "key":
		return "DEFAULT_GROUP@@s"
	case "logName":
		return "http"
	case "logLevel":
		return "INFO"
	}
	return "s"
}

// What the description says of each operation is so: it is served, what it calls
// required is, and what it names beside that is not.
func TestOpenAPI_IsWhatIsServed(t *testing.T) {
	n := startBadNode(t)
	operations := n.description(t)
	require.Greater(t, len(operations), 180)
	for _, o := range operations {
		name := o.method + " " + o.path
		require.NotEmpty(t, o.Summary, name)
		require.Len(t, o.Tags, 1, name)
		require.Contains(t, o.Responses, "200", name)
		send := func(without string) answered {
			path, query := o.path, url.Values{}
			for _, p := range o.Parameters {
				require.Contains(t, []string{"query", "path"}, p.In, name)
				require.Contains(t, []string{"string", "integer", "number", "boolean"}, p.Schema.Type, name)
				switch {
				case p.In == "path":
					path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(sample(p.Name)), 1)
				case p.Required && p.Name != without:
					query.Set(p.Name, sample(p.Name))
				}
			}
			require.NotContains(t, path, "{", name)
			return n.do(t, o.method, path, query.Encode(), "", nil)
		}
		a := send("")
		require.Less(t, a.status, 500, "%s: %s", name, a.body)
		require.NotEqual(t, 405, a.status, name)
		require.NotContains(t, a.body, "No message available", name)
		require.NotContains(t, a.body, "No endpoint", name)
		require.NotContains(t, a.body, "is required", name)
		require.NotContains(t, a.body, "is not present", name)
		for _, p := range o.Parameters {
			if !p.Required || p.In == "path" {
				continue
			}
			a := send(p.Name)
			require.Equal(t, 400, a.status, "%s without %s: %s", name, p.Name, a.body)
			require.Contains(t, a.body, p.Name, name)
		}
	}
}

// oddValues are values that some parameter may stumble over.
func oddValues() []string {
	return []string{
		"", " ", "0", "-1", "1.5", "1e9", "9223372036854775808", "NaN", "true", "maybe", "null", "{}", "[]", `{"type":"label"}`, `{"a":{}}`, "a=b,c", "@@", "G1@@s", "##",
		"a b", "\x00", "\xff", "中", "😀", "../..", "%", "%00", "'", `"`, "\\", "*", ".*", "[", "<script>", "10.0.0.1", "999.1.1.1", "::1", "65535", "65536", "public", "DEFAULT",
		"10.0.0.1:80#true", strings.Repeat("a", 600), strings.Repeat("9", 400), strings.Repeat("[", 2000),
	}
}

// Random requests over the description are answered, and never with a 5xx.
// ROLLCALL_FUZZ_TIME makes it go on for longer than a moment.
func TestOpenAPI_RandomRequests(t *testing.T) {
	during := 2 * time.Second
	if text := os.Getenv("ROLLCALL_FUZZ_TIME"); text != "" {
		var err error
		during, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	n := startBadNode(t)
	operations, values := n.description(t), oddValues()
	statuses := map[int]int{}
	for end := time.Now().Add(during); time.Now().Before(end); {
		o := operations[random.Intn(len(operations))]
		path, query := o.path, url.Values{}
		for _, p := range o.Parameters {
			value := sample(p.Name)
			if random.Intn(3) == 0 {
				value = values[random.Intn(len(values))]
			}
			if p.In == "path" {
				path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(value), 1)
			} else if p.Required || random.Intn(2) == 0 {
				query.Set(p.Name, value)
			}
		}
		if strings.Contains(o.path, "switches") && o.method == "PUT" {
			query.Set("debug", "maybe") // what is switched off answers 503, as it should
		}
		all, form := query.Encode(), ""
		if o.method != "GET" && random.Intn(2) == 0 {
			all, form = "", all
		}
		a := n.form(t, o.method, path, all, form)
		require.Less(t, a.status, 500, "%s %s?%s %s: %s", o.method, path, all, form, a.body)
		statuses[a.status]++
	}
	t.Log(fmt.Sprint(statuses))
}

// The table of docs/compatibility.md has the paths that are served, with their methods.
func TestOpenAPI_IsInCompatibilityTable(t *testing.T) {
	n := startBadNode(t)
	served := make(map[string][]string)
	for _, o := range n.description(t) {
		path := strings.Replace(o.path, "/ns/ops/", "/ns/operator/", 1)
		if strings.Contains(path, "/console/") {
			path = strings.TrimPrefix(path, "/nacos")
		}
		if !slices.Contains(served[path], o.method) {
			served[path] = append(served[path], o.method)
		}
	}
	doc, err := os.ReadFile("../docs/compatibility.md")
	require.NoError(t, err)
	told := make(map[string][]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(/[^`…]+)` \\| ([A-Z, ]+) \\|").FindAllStringSubmatch(string(doc), -1) {
		methods := strings.Split(row[2], ", ")
		slices.Sort(methods)
		told[strings.Replace(row[1], "/admin/ns/ops/", "/admin/ns/operator/", 1)] = methods
	}
	for _, methods := range served {
		slices.Sort(methods)
	}
	require.Equal(t, served, told)
}
